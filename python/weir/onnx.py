"""Converts a trained network to ONNX, from a model file of Weir's worker and a file of --export.

    python3 -m weir.onnx MODEL.json WEIGHTS.safetensors out.onnx

docs/guide/models.md describes the result. Needs the package `onnx` (Debian's python3-onnx, or
PyPI's), 1.12 or later. It needs neither Weir's library nor its programs, unless MODEL.json is the
name of a model that is part of Weir."""
from __future__ import annotations

import argparse
import json
import math
import os
import re
import struct
import sys
from typing import Any, Callable, NoReturn, Optional, Sequence

from ._library import Error, Invalid, Unsupported

OPSET, IR = 17, 8  # versions of onnx 1.12, which has LayerNormalization
MOST_BYTES = 2**31 - 2**20  # most bytes of weights: a protobuf's limit, less room for the graph
LOSSES = {"softmax_cross_entropy": "Softmax", "sigmoid_cross_entropy": "Sigmoid",
          "mean_squared_error": "Identity"}
NAME = re.compile(r"[\w.-]{1,63}", re.ASCII)  # name of a layer or of a model
# The keys of a model, of any layer, and of each type of layer in the worker's model files.
MODEL_KEYS, COMMON = "name comment input inputs classes layers", "type name comment device after"
KEYS = {"conv2d": "input filters kernel stride padding init bias bias_init",
        "max_pool": "input kernel stride padding", "avg_pool": "input kernel stride padding",
        "dense": "input units init bias bias_init", "relu": "input", "sigmoid": "input",
        "tanh": "input", "gelu": "input", "silu": "input", "leaky_relu": "input slope",
        "dropout": "input rate",
        "batch_norm": "input epsilon momentum", "flatten": "input",
        "softmax_cross_entropy": "input label_smoothing", "sigmoid_cross_entropy": "input",
        "mean_squared_error": "input one_hot", "layer_norm": "input epsilon",
        "embedding": "input vocabulary units init", "add": "inputs", "concat": "inputs",
        "multiply": "inputs", "sum": "input", "factorization_machine": "input"}
MODELS = "../share/weir/models", "../../examples/models"  # paths from the worker's folder


def _texts(metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise ValueError("its \"__metadata__\" is no object of texts")
    return metadata


def _check_keys(what: str, keys: dict[str, Any], known: str) -> None:
    unknown = sorted(keys.keys() - set(known.split()))
    if unknown:
        raise Invalid("%s: unknown key \"%s\" (known: %s)" % (what, unknown[0], known))


def _check_name(what: str, name: Any) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Invalid("%s: \"name\" must be 1 to 63 letters, digits, '_', '.' or '-'" % what)
    return name


class Weights:
    """A safetensors file. read() reads one tensor at a time."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb") as f:
            size = os.fstat(f.fileno()).st_size
            head = f.read(8)
            n = struct.unpack("<Q", head)[0] if len(head) == 8 else size
            try:
                if n > size - 8:
                    raise ValueError("its header would end after the end of the file")
                tensors = json.loads(f.read(n))
                self.metadata = _texts(tensors.pop("__metadata__", {}))
                self.at = {name: (t["dtype"], tuple(map(int, t["shape"])),
                                  *map(int, t["data_offsets"])) for name, t in tensors.items()}
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                raise Invalid("%s: not a safetensors file (%s); name a file of --export" % (
                    path, e)) from None
        self.base, self.size, self.used = 8 + n, size, set()

    def read(self, name: str, shape: Sequence[int]) -> bytes:
        """Returns the float32 values of a parameter of this shape, little-endian and row-major."""
        if name not in self.at:
            raise Invalid("%s has no %s, which the model has" % (self.path, name))
        dtype, got, begin, end = self.at[name]
        if got != tuple(shape):
            raise Invalid("%s: %s has the shape %s, but in the model %s" % (
                self.path, name, list(got), list(shape)))
        if dtype != "F32":
            raise Unsupported("%s: %s is %s, but only F32, as --export writes, is converted" % (
                self.path, name, dtype))
        if end - begin != 4 * math.prod(shape) or begin < 0 or self.base + end > self.size:
            raise Invalid("%s: %s is not whole" % (self.path, name))
        self.used.add(name)
        with open(self.path, "rb") as f:
            f.seek(self.base + begin)
            return f.read(end - begin)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.at[name][1] if name in self.at else ()


class Layer:
    """A layer of the model file: its keys and its place in the list."""

    def __init__(self, keys: Any, number: int, count: dict[str, int], before: str) -> None:
        if not isinstance(keys, dict) or not isinstance(keys.get("type"), str):
            raise Invalid("layer %d must be an object with a \"type\"" % number)
        self.keys, self.type = keys, keys["type"]
        count[self.type] = count.get(self.type, 0) + 1
        self.name = _check_name("layer %d (%s)" % (number, self.type), keys.get(
            "name", "%s%d" % (self.type, count[self.type])))
        self.what = "layer %d '%s' (%s)" % (number, self.name, self.type)
        if self.type not in KEYS:
            raise Unsupported("%s: a layer of this type is not converted (known: %s)" % (
                self.what, " ".join(KEYS)))
        _check_keys(self.what, keys, COMMON + " " + KEYS[self.type])
        several = "inputs" in KEYS[self.type].split()
        self.inputs = self.get("inputs") if several else [keys.get("input", before)]
        if not isinstance(self.inputs, list) or not all(isinstance(i, str) for i in self.inputs):
            raise Invalid("%s: \"%s\" must be %s" % (self.what, *(
                ("inputs", "a list of names") if several else ("input", "a name"))))
        if several and len(self.inputs) < 2:
            raise Invalid("%s: \"inputs\" must be 2 names or more" % self.what)

    def get(self, key: str, fallback: Any = None) -> Any:
        found = self.keys.get(key, fallback)
        if found is None:
            raise Invalid("%s: the key \"%s\" is missing" % (self.what, key))
        return found

    def pair(self, key: str, fallback: Any = None, least: int = 1) -> list[int]:
        """Returns [height, width] from a key whose value is a number or such a list."""
        found = self.get(key, fallback)
        pair = found if isinstance(found, list) else [found, found]
        if len(pair) != 2 or not all(isinstance(n, int) and n >= least for n in pair):
            raise Invalid("%s: \"%s\" must be a whole number from %d on, or two of them" % (
                self.what, key, least))
        return pair

    def number(self, key: str, fallback: float) -> float:
        found = self.get(key, fallback)
        if not isinstance(found, (int, float)):
            raise Invalid("%s: \"%s\" must be a number" % (self.what, key))
        return float(found)

    def epsilon(self) -> float:
        return self.number("epsilon", 1e-5)

    def count(self, key: str) -> int:
        """Returns the value of the key, a whole number above 0."""
        found = self.get(key)
        if not isinstance(found, int) or found < 1:
            raise Invalid("%s: \"%s\" must be a whole number from 1 on" % (self.what, key))
        return found


def _dense_input(path: str, root: dict[str, Any]) -> str:
    """Returns the name of the dense input. Moves its shape to root["input"]."""
    if "inputs" not in root:
        return "image"
    inputs = root["inputs"]
    for name, keys in inputs.items() if isinstance(inputs, dict) else ():
        if isinstance(keys, dict) and keys.get("type") == "keys":
            raise Unsupported("%s: input '%s' has keys of rows, which are on servers and not in "
                              "the export; models with tables are not converted" % (path, name))
    if "input" in root or not isinstance(inputs, dict) or len(inputs) != 1:
        raise Invalid("%s: \"inputs\" must be an object with one input, without \"input\"" % path)
    (name, keys), = inputs.items()
    what = "%s: input '%s'" % (path, name)
    if not isinstance(keys, dict) or keys.get("type") != "dense":
        raise Unsupported("%s: only inputs of the type dense are converted" % what)
    _check_keys(what, keys, "type comment shape")
    root["input"] = keys.get("shape")
    return _check_name(what, name)


def _model(path: str) -> tuple[dict[str, Any], list[Layer]]:
    with open(path, encoding="utf-8") as f:
        try:
            root = json.load(f)
        except ValueError as e:
            raise Invalid("%s: not valid JSON: %s" % (path, e)) from None
    if not isinstance(root, dict) or not isinstance(root.get("layers"), list):
        raise Invalid("%s: not a model file: it has no list \"layers\"" % path)
    _check_keys(path, root, MODEL_KEYS)
    _check_name(path, root.get("name", "model"))
    dense, count = _dense_input(path, root), dict[str, int]()
    layers: list[Layer] = []
    for number, keys in enumerate(root["layers"], 1):
        layers.append(Layer(keys, number, count, layers[-1].name if layers else dense))
    if not layers or layers[-1].type not in LOSSES:
        raise Invalid("%s: the last layer is no loss" % path)
    _check_names(path, layers, dense)
    for l in layers:
        if l.name == "image":
            raise Unsupported("%s: %s: the input has this name in an ONNX file" % (path, l.what))
    layers = _in_order(path, layers, dense)
    for l in layers:
        l.inputs = ["image" if name == dense else name for name in l.inputs]
    return root, layers


def _check_names(path: str, layers: list[Layer], dense: str) -> None:
    """Checks that no two layers have the same name, and that a layer reads the output of each layer
    but the last."""
    names = {dense}
    read = {name for l in layers for name in l.inputs}
    for l in layers:
        if l.name in names:
            raise Invalid("%s: %s: another layer has this name" % (path, l.what))
        if l.name not in read and l is not layers[-1]:
            raise Invalid("%s: %s: no layer reads its output" % (path, l.what))
        names.add(l.name)


def _in_order(path: str, layers: list[Layer], dense: str) -> list[Layer]:
    """Returns the layers in an order in which each is behind the layers that it reads."""
    done, left, made = {dense}, list(layers), []
    while left:
        found = next((l for l in left if done.issuperset(l.inputs)), None)
        if found is None:
            raise Invalid("%s: %s reads a layer that does not exist, or its own output" % (
                path, left[0].what))
        left.remove(found)
        done.add(found.name)
        made.append(found)
    return made


class _Graph:
    """The graph while it is built: its nodes and weights, and the output of each layer."""

    def __init__(self, onnx: Any, weights: Weights, units: Optional[str]) -> None:
        self.onnx, self.weights = onnx, weights
        self.any_units = units  # dense layer whose size --hidden_units may have changed
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []
        # Output of each layer by the layer's name: name of the value, shape of the value.
        self.gives: dict[str, tuple[str, tuple[int, ...]]] = {}

    def constant(self, name: str, kind: str, dims: Sequence[int], values: Any) -> str:
        raw = isinstance(values, bytes)
        self.tensors.append(self.onnx.helper.make_tensor(
            name, getattr(self.onnx.TensorProto, kind), dims, values, raw=raw))
        return name

    def weight(self, layer: Layer, suffix: str, shape: Sequence[int]) -> str:
        name = "%s/%s" % (layer.name, suffix)
        return self.constant(name, "FLOAT", shape, self.weights.read(name, shape))

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(op, inputs, [output], name=output,
                                                     **attributes))
        return output

    def layer(self, op: str, inputs: Sequence[str], layer: Layer, **attributes: Any) -> str:
        """Adds the last node of a layer; returns the name of the layer's output."""
        return self.node(op, inputs, layer.name + "/output", **attributes)


def _window(layer: Layer, shape: Sequence[int], stride: Any) -> tuple[dict[str, Any], list[int]]:
    """Returns ONNX's attributes for a layer's kernel, stride and padding, and [height, width] of
    its output."""
    kernel = list(shape[1:]) if layer.get("kernel") == "global" else layer.pair("kernel")
    strides = layer.pair("stride", stride or kernel)
    padding, out, before, behind = layer.get("padding", "valid"), [], [], []
    if isinstance(padding, str) and padding not in ("same", "valid"):
        raise Invalid("%s: \"padding\" must be \"same\", \"valid\", a number or [height, width]"
                      % layer.what)
    pads = [0, 0] if isinstance(padding, str) else layer.pair("padding", least=0)
    for n, k, s, p in zip(shape[1:], kernel, strides, pads):
        out.append(-(-n // s) if padding == "same" else (n + 2 * p - k) // s + 1)
        pad = max((out[-1] - 1) * s + k - n, 0) if padding == "same" else 2 * p
        before.append(pad // 2)
        behind.append(pad - pad // 2)
    if min(out) < 1:
        raise Invalid("%s: its kernel is larger than its input" % layer.what)
    return {"kernel_shape": kernel, "strides": strides, "pads": before + behind}, out


def _biases(g: _Graph, l: Layer, n: int) -> list[str]:
    """Returns the biases as a list of inputs for a node; the list is empty if "bias" is false."""
    has_bias = l.get("bias", True)
    if not isinstance(has_bias, bool):
        raise Invalid("%s: \"bias\" must be true or false" % l.what)
    return [g.weight(l, "biases", (n,))] if has_bias else []


def _conv2d(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    attributes, out = _window(l, shape, 1)
    filters = l.count("filters")
    weights = g.weight(l, "weights", (filters, shape[0], *attributes["kernel_shape"]))
    return g.layer("Conv", [value, weights, *_biases(g, l, filters)], l,
                   **attributes), (filters, *out)


def _pool(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    attributes, out = _window(l, shape, None)
    # AveragePool computes the mean without the padding, like the worker.
    op = "MaxPool" if l.type == "max_pool" else "AveragePool"
    return g.layer(op, [value], l, **attributes), (shape[0], *out)


def _dense(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    if l.get("units") == "classes" or l.name == g.any_units:
        units = (*g.weights.shape(l.name + "/weights"), 0)[0]
    else:
        units = l.count("units")
    weights = g.weight(l, "weights", (units, *shape))
    return g.layer("Gemm", [value, weights, *_biases(g, l, units)], l, transB=1), (units,)


def _batch_norm(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    epsilon = l.epsilon()
    parts = [g.weight(l, suffix, shape[:1]) for suffix in (
        "gamma", "beta", "moving_mean", "moving_variance")]
    return g.layer("BatchNormalization", [value, *parts], l, epsilon=epsilon), shape


def _layer_norm(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    epsilon = l.epsilon()
    parts = [g.weight(l, suffix, shape) for suffix in ("gamma", "beta")]
    return g.layer("LayerNormalization", [value, *parts], l, axis=1, epsilon=epsilon), shape


def _embedding(g: _Graph, l: Layer, _value: str, shape: Any) -> Any:
    units = l.count("units")
    weights = g.weight(l, "weights", (l.count("vocabulary"), units))
    one = g.constant(l.name + "/channel", "INT64", (1,), [1])
    numbers = g.node("Squeeze", ["image", one], l.name + "/numbers")
    rows = g.node("Gather", [weights, numbers], l.name + "/rows", axis=0)
    return g.layer("Transpose", [rows], l, perm=[0, 3, 1, 2]), (units, *shape[1:])


def _gelu(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    """Adds nodes for x / 2 * (1 + erf(x / sqrt 2)), because ONNX has its own Gelu only from opset
    20 on."""
    root, one, half = (g.constant("%s/%s" % (l.name, name), "FLOAT", (), [number]) for name, number
                       in (("root", math.sqrt(2)), ("one", 1.0), ("half", 0.5)))
    part = g.node("Div", [value, root], l.name + "/scaled")
    part = g.node("Erf", [part], l.name + "/erf")
    part = g.node("Add", [part, one], l.name + "/sum")
    part = g.node("Mul", [part, half], l.name + "/share")
    return g.layer("Mul", [value, part], l), shape


def _silu(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    share = g.node("Sigmoid", [value], l.name + "/share")
    return g.layer("Mul", [value, share], l), shape


def _activation(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    op = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}[l.type]
    return g.layer(op, [value], l), shape


def _leaky_relu(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    return g.layer("LeakyRelu", [value], l, alpha=l.number("slope", 0.01)), shape


def _flatten(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    return g.layer("Flatten", [value], l, axis=1), (math.prod(shape),)


def _several(g: _Graph, l: Layer, _value: str, shape: Any) -> Any:
    values = [g.gives[name][0] for name in l.inputs]
    if l.type == "add":
        return g.layer("Sum", values, l), shape
    if l.type == "multiply":
        product = values[0]
        for i, value in enumerate(values[1:-1], 2):
            product = g.node("Mul", [product, value], "%s/first%d" % (l.name, i))
        return g.layer("Mul", [product, values[-1]], l), shape
    first = sum(g.gives[name][1][0] for name in l.inputs)
    return g.layer("Concat", values, l, axis=1), (first, *shape[1:])


def _sum(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    axis = g.constant(l.name + "/channel", "INT64", (1,), [1])
    value = g.node("ReduceSum", [value, axis], l.name + "/sum", keepdims=1)
    return g.layer("Flatten", [value], l, axis=1), (math.prod(shape[1:]),)


def _factorization_machine(g: _Graph, l: Layer, value: str, shape: Any) -> Any:
    """Adds nodes that multiply each column by the sum of the columns before it."""
    column = g.constant(l.name + "/column", "INT64", (), [1])
    axes = g.constant(l.name + "/axes", "INT64", (3,), [1, 2, 3])
    before = g.node("CumSum", [value, column], l.name + "/before", exclusive=1)
    pairs = g.node("Mul", [value, before], l.name + "/pairs")
    pairs = g.node("ReduceSum", [pairs, axes], l.name + "/sum", keepdims=1)
    return g.layer("Flatten", [pairs], l, axis=1), (1,)


KINDS: dict[str, Callable[..., Any]] = {
    "conv2d": _conv2d, "max_pool": _pool, "avg_pool": _pool, "dense": _dense,
    "relu": _activation, "sigmoid": _activation, "tanh": _activation, "gelu": _gelu,
    "silu": _silu, "leaky_relu": _leaky_relu,
    "dropout": lambda g, l, value, shape: (value, shape),  # does nothing after training
    "batch_norm": _batch_norm, "layer_norm": _layer_norm, "embedding": _embedding,
    "flatten": _flatten, "add": _several, "concat": _several,
    "multiply": _several, "sum": _sum, "factorization_machine": _factorization_machine}


def _numbers(weights: Weights, key: str, channels: int, fallback: float) -> list[float]:
    found = [float(x) for x in weights.metadata.get(key, str(fallback)).split(",")]
    return found * channels if len(found) == 1 else found


def _input(g: _Graph, layers: list[Layer], shape: Sequence[int], kind: str) -> str:
    """Adds the nodes from "image", the input, to the first layer's input. Returns their
    description."""
    value, channels, said = "image", shape[0], "bytes 0 to 255"
    if kind == "FLOAT":
        said = "floats as in training: bytes divided by 255"
    # A table (--standardize) has one mean and deviation for each column instead of each channel.
    key, n = "", channels
    each: tuple[int, ...] = (channels, 1, 1)
    if "column_mean" in g.weights.metadata or "column_std" in g.weights.metadata:
        key, n, each = "column_", math.prod(shape), tuple(shape)
    mean, std = (_numbers(g.weights, key + of, n, usual)
                 for of, usual in (("mean", 0.0), ("std", 1.0)))
    if key and (len(mean) != n or len(std) != n):
        raise Invalid("%s has means of %d columns and deviations of %d, but a sample has %d numbers"
                      % (g.weights.path, len(mean), len(std), n))
    normal = any(mean) or std != [1.0] * n
    if kind == "INT64":
        said = "whole numbers, those of the embedding"
        if normal:
            raise Unsupported("a model with an embedding, of normalised samples")
    if kind != "FLOAT" and any("image" in l.inputs for l in layers if l.type != "embedding"):
        value = g.node("Cast", [value], "image/float", to=g.onnx.TensorProto.FLOAT)
        n255 = g.constant("image/255", "FLOAT", (), [255.0])
        value = g.node("Div", [value, n255], "image/255th")
    if normal:
        mean_at = g.constant("image/mean", "FLOAT", each, mean)
        std_at = g.constant("image/std", "FLOAT", each, std)
        value = g.node("Sub", [value, mean_at], "image/centred")
        value = g.node("Div", [value, std_at], "image/normal")
        if key:
            said += "; the network itself standardizes each of the %d columns" % n
        else:
            said += "; the network itself takes the mean %s off and divides by %s" % (
                g.weights.metadata.get("mean", "0"), g.weights.metadata.get("std", "1"))
    g.gives["image"] = value, tuple(shape)
    return said


def _output(g: _Graph, loss: Layer) -> tuple[str, int]:
    value, shape = g.gives[loss.inputs[0]]
    name = "scores" if loss.type == "mean_squared_error" else "probabilities"
    if g.weights.metadata.get("labels") == "targets":
        name = "outputs"
    more = {"axis": 1} if loss.type == "softmax_cross_entropy" else {}
    return g.node(LOSSES[loss.type], [value], name, **more), shape[0]


def _sample(root: dict[str, Any], weights: Weights, given: Optional[Sequence[int]]) -> list[int]:
    """Returns [channels, height, width] of a sample."""
    shape: Any = root.get("input")
    if shape == "auto":
        told = weights.metadata.get("sample", "").split("x")
        shape = list(given or []) or [int(d) for d in told if d.isdigit()]
        if not shape:
            raise Invalid("%s does not state the size of a sample; set --input=CHANNELS,HEIGHT,"
                          "WIDTH" % weights.path)
    if not isinstance(shape, list) or len(shape) != 3 or not all(
            isinstance(d, int) and d > 0 for d in shape):
        raise Invalid("a sample must be [channels, height, width], but is %s" % (shape,))
    return shape


def _layers(g: _Graph, layers: list[Layer]) -> None:
    for l in layers[:-1]:
        if l.type not in KINDS:
            raise Invalid("%s: a loss must be the last layer, which no other reads" % l.what)
        value, shape = g.gives[l.inputs[0]]
        if len(shape) != 3 and l.type in ("conv2d", "max_pool", "avg_pool"):
            raise Invalid("%s: needs an input of (channels, height, width)" % l.what)
        g.gives[l.name] = KINDS[l.type](g, l, value, shape)


def _whole(g: _Graph, root: dict[str, Any], weights: Weights) -> None:
    left = sorted(weights.at.keys() - weights.used)
    if left:
        raise Invalid("%s: %s belongs to no layer of the model" % (weights.path, left[0]))
    if isinstance(root.get("classes"), int) and g.n_out != root["classes"]:
        raise Invalid("the network has %d outputs, but \"classes\" is %d" % (
            g.n_out, root["classes"]))
    if sum(len(t.raw_data) for t in g.tensors) > MOST_BYTES:
        raise Unsupported("the network exceeds 2 GB, the limit of one ONNX file")


def _library() -> Any:
    try:
        import onnx
    except ImportError as e:
        raise Unsupported("the Python package onnx is needed, which is not here (%s): apt-get "
                          "install python3-onnx, or pip install onnx" % e) from None
    return onnx


def convert(model: str, weights: str, uint8: bool = False,
            sample: Optional[Sequence[int]] = None) -> Any:
    """Returns an onnx.ModelProto, made from a model file and a file that --export has written.

    Its input `image` is [batch, channels, height, width]. The numbers are float32 as in training
    (bytes divided by 255), with uint8 the bytes themselves, and int64 if the model has an
    embedding. Its output is [batch, classes], with the name `probabilities`, `scores`
    (mean_squared_error) or `outputs` (targets). Its only column is the probability of class 1 if
    the model has one output for two classes.

    sample: [channels, height, width], needed if neither the model nor the weights have the shape.

    Raises Invalid if the two files do not match. Raises Unsupported if a layer cannot be converted,
    or if the package onnx is missing."""
    onnx, told = _library(), Weights(weights)
    root, layers = _model(model)
    dense = [l.name for l in layers if l.type == "dense"]
    g = _Graph(onnx, told, dense[0] if len(dense) > 1 else None)
    shape = _sample(root, told, sample)
    kind = "INT64" if any(l.type == "embedding" for l in layers) else "UINT8" if uint8 else "FLOAT"
    said = _input(g, layers, shape, kind)
    _layers(g, layers)
    output, g.n_out = _output(g, layers[-1])
    _whole(g, root, told)
    make, types = onnx.helper, onnx.TensorProto
    graph = make.make_graph(
        g.nodes, root.get("name", "model"),
        [make.make_tensor_value_info("image", getattr(types, kind), ["batch", *shape])],
        [make.make_tensor_value_info(output, types.FLOAT, ["batch", g.n_out])], g.tensors,
        doc_string="A network trained by Weir. image: batch, channels, height, width; %s. %s: one "
        "for each class." % (said, output))
    made = make.make_model(graph, producer_name="weir", ir_version=IR,
                           opset_imports=[make.make_opsetid("", OPSET)])
    make.set_model_props(made, {k: v for k, v in told.metadata.items()
                                if not k.startswith("crc32c ")})
    try:
        onnx.checker.check_model(made, full_check=True)
    except Exception as e:  # its kind depends on the version
        raise Invalid("%s: not a valid network (does the worker accept it?): %s" % (
            model, " ".join(str(e).split()))) from None
    return made


def _path(model: str) -> str:
    """Returns the path of a model's file. A model that is part of Weir has a name without "/"."""
    if "/" in model or model.endswith(".json"):
        return model
    from .cluster import program
    beside = os.path.dirname(os.path.realpath(program("weir-worker")))
    paths = [os.path.join(beside, folder, model + ".json") for folder in MODELS]
    return next(filter(os.path.exists, paths), paths[0])


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Runs the command line. After an error it prints one line, and the exit status is 1."""
    parser = argparse.ArgumentParser(prog="python3 -m weir.onnx",
                                     description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a model file, or the name of a model that is part of Weir")
    parser.add_argument("weights", help="the file that --export wrote")
    parser.add_argument("out", help="the file to write")
    parser.add_argument("--uint8", action="store_true", help="the input is bytes, 0 to 255")
    parser.add_argument("--input", metavar="C,H,W", help="the size of a sample, for \"auto\"")
    args = parser.parse_args(argv)
    try:
        sample = [int(d) for d in args.input.split(",")] if args.input else None
        made = convert(_path(args.model), args.weights, args.uint8, sample)
        beside = args.out + ".part"
        with open(beside, "wb") as f:
            f.write(made.SerializeToString())
        os.replace(beside, args.out)
    except (OSError, ValueError, Error) as e:
        _fail(str(e))


def _fail(why: str) -> NoReturn:
    print("weir.onnx: " + why, file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    main()
