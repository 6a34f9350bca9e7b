"""Writes state dicts to files, and computes networks in plain double precision by PyTorch's
definitions, for tests of --init and --predict. A tensor is a flat list, row-major, and a shape."""
import csv
import json
import math
import operator
import random
import struct

import harness

try:
    if harness.SANITIZE:
        raise ImportError("it is compiled without a sanitizer")
    import torch
except ImportError as missing:
    torch, _why = None, str(missing)

FORMATS = {"F32": "f", "F64": "d", "I64": "q"}


def torch2(test):
    """Returns PyTorch 2 or later; skips the test without it."""
    if torch is None:
        test.skipTest("no PyTorch: " + _why)
    if int(torch.__version__.split(".", maxsplit=1)[0]) < 2:
        test.skipTest("PyTorch %s is installed; the comparison is with 2 or later" %
                      torch.__version__)
    return torch


def torch_state(net):
    """Returns a module's state dict as the argument of write()."""
    return {name: ("I64" if t.dtype == torch.int64 else "F32", tuple(t.shape),
                   t.detach().flatten().tolist()) for name, t in net.state_dict().items()}


def predicted(path):
    """Returns the outputs of each sample in a .csv of --predict. Checks the order of the samples,
    and that each row names the largest output."""
    with open(path, encoding="ascii", newline="") as f:
        rows = list(csv.reader(f))[1:]
    outputs = [[float(v) for v in row[2:]] for row in rows]
    assert [int(row[0]) for row in rows] == list(range(len(rows)))
    for row, values in zip(rows, outputs):
        assert values[int(row[1])] == max(values), row
    return outputs


def furthest(outputs, want):
    """Returns the largest difference of two lists of rows."""
    return max(abs(g - w) for got, row in zip(outputs, want, strict=True)
               for g, w in zip(got, row, strict=True))


def write(path, tensors, metadata=None):
    """Writes a safetensors file. tensors: {name: (dtype, shape, flat list)}."""
    header, body = {}, b""
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, values) in tensors.items():
        data = struct.pack("<%d%s" % (len(values), FORMATS[dtype]), *values)
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


def rounded(values):
    """Returns the values rounded to float32, as they are stored."""
    return list(struct.unpack("<%df" % len(values), struct.pack("<%df" % len(values), *values)))


def random_values(rng, n, low=-0.5, high=0.5):
    return rounded([rng.uniform(low, high) for _ in range(n)])


def read_idx(path, head):
    with open(path, "rb") as f:
        return f.read()[head:]


def conv2d(x, shape, w, wshape, b, pad):
    """Computes nn.Conv2d, stride 1; x: flat (C,H,W)."""
    c, h, wd = shape
    o, _, kh, kw = wshape
    oh, ow = h + 2 * pad - kh + 1, wd + 2 * pad - kw + 1
    y = []
    for f in range(o):
        for i in range(oh):
            for j in range(ow):
                s = b[f]
                for a in range(kh):
                    for e in range(kw):
                        r, q = i + a - pad, j + e - pad
                        if 0 <= r < h and 0 <= q < wd:
                            for k in range(c):
                                s += (w[((f * c + k) * kh + a) * kw + e] *
                                      x[(k * h + r) * wd + q])
                y.append(s)
    return y, (o, oh, ow)


def batch_norm(x, shape, gamma, beta, mean, variance, epsilon=1e-5):
    """Computes nn.BatchNorm2d in evaluation."""
    plane = shape[1] * shape[2]
    return [(v - mean[k // plane]) / math.sqrt(variance[k // plane] + epsilon) * gamma[k // plane] +
            beta[k // plane] for k, v in enumerate(x)]


def max_pool2(x, shape):
    c, h, w = shape
    y = [max(x[(k * h + 2 * i + a) * w + 2 * j + b] for a in (0, 1) for b in (0, 1))
         for k in range(c) for i in range(h // 2) for j in range(w // 2)]
    return y, (c, h // 2, w // 2)


def linear(x, w, b):
    """Computes nn.Linear; w: flat [out][in]."""
    n = len(x)
    return [b[u] + sum(map(operator.mul, w[u * n:(u + 1) * n], x)) for u in range(len(b))]


def softmax(x):
    top = max(x)
    e = [math.exp(v - top) for v in x]
    whole = sum(e)
    return [v / whole for v in e]


def cross_entropy(x, label):
    top = max(x)
    return math.log(sum(math.exp(v - top) for v in x)) + top - x[label]


def small_state(seed, size=10, filters=3, classes=10):
    """Returns a state dict of Conv2d(1, filters, 3, padding=1), BatchNorm2d, ReLU, MaxPool2d(2),
    Flatten, Linear; by PyTorch's names in a Sequential called `features`, and a `head`."""
    rng = random.Random(seed)
    n_in = filters * (size // 2) ** 2
    return {
        "features.0.weight": ("F32", (filters, 1, 3, 3), random_values(rng, filters * 9)),
        "features.0.bias": ("F32", (filters,), random_values(rng, filters)),
        "features.1.weight": ("F32", (filters,), random_values(rng, filters, 0.5, 2)),
        "features.1.bias": ("F32", (filters,), random_values(rng, filters)),
        "features.1.running_mean": ("F32", (filters,), random_values(rng, filters)),
        "features.1.running_var": ("F32", (filters,), random_values(rng, filters, 0.1, 2)),
        "features.1.num_batches_tracked": ("I64", (), [77]),
        "head.weight": ("F64", (classes, n_in), random_values(rng, classes * n_in)),
        "head.bias": ("F32", (classes,), random_values(rng, classes)),
    }


def small_predict(state, pixels, size=10):
    """Returns the network's values before the softmax for one image of bytes."""
    v = {name: t[2] for name, t in state.items()}
    x = [p / 255 for p in pixels]
    shape = state["features.0.weight"][1]
    x, shape = conv2d(x, (1, size, size), v["features.0.weight"], shape, v["features.0.bias"], 1)
    x = batch_norm(x, shape, v["features.1.weight"], v["features.1.bias"],
                   v["features.1.running_mean"], v["features.1.running_var"])
    x, shape = max_pool2([max(k, 0.0) for k in x], shape)
    return linear(x, v["head.weight"], v["head.bias"])
