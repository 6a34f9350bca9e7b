#!/usr/bin/env python3
"""Writes tests/golden/MODEL.json: the losses of 50 steps (fewer for large models) of PyTorch, for
each model of Weir and each model in tests/golden/models. PyTorch begins with Weir's own first
values, and has the same batches and the same dropout. It computes in float64, so that only Weir
rounds. tests/python/test_golden.py then compares Weir with these losses, without PyTorch. Run this
program again after a change of a layer, a loss, an optimizer, a model, or the order of samples:

    pip install torch numpy && tests/golden/make_golden.py [MODEL...]      # build/bin must be built
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy
import torch
from torch.nn import functional

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(SOURCE, "tests/python"))
import golden  # noqa: E402
import harness  # noqa: E402

MASK = (1 << 64) - 1
SHUFFLE, DROPOUT = 2, 3  # base/rng.h


def mix(x):
    x = (x + 0x9e3779b97f4a7c15) & MASK
    x = ((x ^ x >> 30) * 0xbf58476d1ce4e5b9) & MASK
    x = ((x ^ x >> 27) * 0x94d049bb133111eb) & MASK
    return x ^ x >> 31


def key_of(seed, use, index):
    return mix(mix(mix(seed) ^ use) ^ index)


def order(n, seed):
    """Returns the samples of the first pass in their order (member/dataset_order.c)."""
    item, key = list(range(n)), key_of(seed, SHUFFLE, 0)
    for i in range(n - 1, 0, -1):
        j = ((mix(key ^ mix(i)) >> 32) * (i + 1)) >> 32
        item[i], item[j] = item[j], item[i]
    return item


def mix_all(x):
    x = x + numpy.uint64(0x9e3779b97f4a7c15)
    x = (x ^ x >> numpy.uint64(30)) * numpy.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ x >> numpy.uint64(27)) * numpy.uint64(0x94d049bb133111eb)
    return x ^ x >> numpy.uint64(31)


def dropout(x, rate, layer, position):
    """Applies the mask that Weir computes from seed, layer, sample and unit."""
    elems = x[0].numel()
    counter = (numpy.array(position, dtype=numpy.uint64)[:, None] * numpy.uint64(elems) +
               numpy.arange(elems, dtype=numpy.uint64)[None, :])
    key = numpy.uint64(key_of(golden.SEED, DROPOUT, layer))
    with numpy.errstate(over="ignore"):
        number = mix_all(key ^ mix_all(counter)) >> numpy.uint64(40)
    kept = number >= numpy.uint64(-int(-rate * 2 ** 24 // 1))
    return x * torch.from_numpy(kept.astype(numpy.float64) / (1 - rate)).reshape(
        x.shape)


def pair(value):
    return value if isinstance(value, list) else [value, value]


def padding(layer, x, kernel, stride):
    """Returns (left, right, top, bottom): the model's numbers, or those of TensorFlow's SAME."""
    if not isinstance(layer.get("padding", "valid"), str):
        top, left = pair(layer["padding"])
        return [left, left, top, top]
    out = []
    for k, s, n in list(zip(kernel, stride, x.shape[2:]))[::-1]:
        total = max((-(-n // s) - 1) * s + k - n, 0) if layer.get("padding") == "same" else 0
        out += [total // 2, total - total // 2]
    return out


class Net:
    """A model file, computed by PyTorch's functions. Parameters are found by their names."""

    def __init__(self, text, values):
        self.layers = text["layers"]
        self.params = {n: torch.tensor(list(v), dtype=torch.float64).reshape(shape)
                       for n, (shape, v) in values.items()}
        self.trained = [p.requires_grad_() for n, p in self.params.items() if "/moving_" not in n]
        counts = {}
        for layer in self.layers:
            kind = layer["type"]
            counts[kind] = counts.get(kind, 0) + 1
            layer.setdefault("name", "%s%d" % (kind, counts[kind]))

    def loss(self, pixels, labels, position):
        out = {"image": pixels / 255}
        last = "image"
        for i, layer in enumerate(self.layers):
            inputs = [out[n] for n in layer.get("inputs", [layer.get("input", last)])]
            last = layer["name"]
            out[last] = self.run(i, layer, inputs, labels, position)
        return out[last]

    def run(self, i, layer, inputs, labels, position):
        def p(suffix):
            return self.params.get(layer["name"] + "/" + suffix)  # None: no bias
        kind, x = layer["type"], inputs[0]
        if kind in ("conv2d", "max_pool", "avg_pool"):
            kernel = list(x.shape[2:]) if layer["kernel"] == "global" else pair(layer["kernel"])
            stride = pair(layer.get("stride", kernel if "pool" in kind else 1))
            pad = padding(layer, x, kernel, stride)
            if kind == "conv2d":
                return functional.conv2d(functional.pad(x, pad), p("weights"), p("biases"), stride)
            if kind == "max_pool":
                return functional.max_pool2d(functional.pad(x, pad, value=-torch.inf), kernel,
                                             stride)
            assert not any(pad), "PyTorch's mean counts one-sided padding"
            return functional.avg_pool2d(x, kernel, stride)
        if kind == "dense":
            return functional.linear(x, p("weights"), p("biases"))
        if kind == "batch_norm":
            return functional.batch_norm(x, p("moving_mean"), p("moving_variance"), p("gamma"),
                                         p("beta"), True, 1 - layer.get("momentum", 0.9),
                                         layer.get("epsilon", 1e-5))
        if kind == "layer_norm":
            return functional.layer_norm(x, x.shape[1:], p("gamma"), p("beta"),
                                         layer.get("epsilon", 1e-5))
        if kind == "embedding":
            numbers = (x[:, 0] * 255).round().long()
            return functional.embedding(numbers, p("weights")).permute(0, 3, 1, 2)
        if kind == "dropout":
            return dropout(x, layer["rate"], i, position)
        if kind == "sigmoid_cross_entropy":
            return functional.binary_cross_entropy_with_logits(
                x, functional.one_hot(labels, x.shape[1]).double())
        if kind == "mean_squared_error":
            if labels.is_floating_point():
                return functional.mse_loss(x, labels.reshape(x.shape))
            return functional.mse_loss(x, functional.one_hot(labels, x.shape[1]).double())
        return {"relu": lambda: functional.relu(x),
                "sigmoid": lambda: torch.sigmoid(x),
                "tanh": lambda: torch.tanh(x),
                "gelu": lambda: functional.gelu(x),
                "silu": lambda: functional.silu(x),
                "leaky_relu": lambda: functional.leaky_relu(x, layer.get("slope", 0.01)),
                "flatten": lambda: x.flatten(1),
                "add": lambda: sum(inputs[1:], x),
                "concat": lambda: torch.cat(inputs, 1),
                "softmax_cross_entropy": lambda: functional.cross_entropy(
                    x, labels, label_smoothing=layer.get("label_smoothing", 0))}[kind]()


def first_values(path, folder):
    """Returns Weir's own first values: exports them after a step whose change is too small for a
    float."""
    export = os.path.join(folder, "first")
    with open(path, encoding="utf-8") as f:
        norms = any(layer["type"] == "batch_norm" for layer in json.load(f)["layers"])
    subprocess.run([os.path.join(harness.BIN, "worker"), "--model=" + path, "--data_dir=" + folder,
                    "--seed=%d" % golden.SEED, "--batch_size=%d" % golden.BATCH, "--train_steps=1",
                    "--optimizer=sgd", "--learning_rate=1e-37", "--export=" + export,
                    *(["--freeze=*/moving_*"] if norms else [])],
                   check=True, stderr=subprocess.DEVNULL)
    return harness.read_safetensors(export)


def samples(folder):
    with open(os.path.join(folder, "train-images-idx3-ubyte"), "rb") as f:
        pixels = numpy.frombuffer(f.read()[16:], dtype=numpy.uint8).reshape(-1, 1, 28, 28)
    with open(os.path.join(folder, "train-labels-idx1-ubyte"), "rb") as f:
        head, body = f.read(8), f.read()
    if head[2] == 13:  # targets
        return pixels.astype(numpy.float64), numpy.frombuffer(body, dtype=">f4").astype("f8")
    labels = numpy.frombuffer(body, dtype=numpy.uint8)
    return pixels.astype(numpy.float64), labels.astype(numpy.int64)


def losses(path, folder):
    with open(path, encoding="utf-8") as f:
        text = json.load(f)
    net = Net(text, first_values(path, folder))
    flags = dict(f[2:].split("=") for f in golden.flags(text["name"]))
    rate = float(flags["learning_rate"])
    optimizer = (torch.optim.Adam(net.trained, lr=rate) if flags["optimizer"] == "adam" else
                 torch.optim.SGD(net.trained, lr=rate, momentum=0.9))
    pixels, labels = samples(folder)
    items = order(len(labels), golden.SEED)
    out = []
    for step in range(golden.steps(text["name"])):
        position = range(step * golden.BATCH, (step + 1) * golden.BATCH)
        batch = [items[p] for p in position]
        loss = net.loss(torch.from_numpy(pixels[batch]), torch.from_numpy(labels[batch]),
                        list(position))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        golden.make_data(folder)
        for name, path in sorted(golden.models().items()):
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            curve = losses(path, golden.data_of(folder, name))
            with open(os.path.join(HERE, name + ".json"), "w", encoding="utf-8") as f:
                f.write('{"torch": "%s",\n "losses": [%s]}\n' %
                        (torch.__version__, ",\n  ".join("%.6f" % v for v in curve)))
            print("%s: from %.4f to %.4f" % (name, curve[0], curve[-1]))


if __name__ == "__main__":
    main()
