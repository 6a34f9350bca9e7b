"""Computes the outputs of an ONNX network by onnxruntime, if it is installed. Otherwise it uses its
own definitions of the operators in numpy, because Debian's package of onnx has no runtime; they
follow the pages of ONNX."""
import math

import numpy
import onnx
from onnx import numpy_helper

try:
    import onnxruntime
except ImportError:
    onnxruntime = None


def _windows(x, a, outside):
    """Returns the windows of x, with the shape [n, c, h', w', kernel height, kernel width]."""
    top, left, bottom, right = a["pads"]
    x = numpy.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=outside)
    all_ = numpy.lib.stride_tricks.sliding_window_view(x, a["kernel_shape"], axis=(2, 3))
    return all_[:, :, ::a["strides"][0], ::a["strides"][1]]


def _conv(a, x, w, b=None):
    y = numpy.einsum("nchwij,fcij->nfhw", _windows(x, a, 0), w, optimize=True)
    return y if b is None else y + b[:, None, None]


def _average(a, x):
    inside = _windows(numpy.ones_like(x), a, 0).sum(axis=(4, 5))
    return _windows(x, a, 0).sum(axis=(4, 5)) / inside


def _per_channel(v, x):
    return v.reshape([-1] + [1] * (x.ndim - 2))


def _batch_norm(a, x, *parts):
    gamma, beta, mean, variance = (_per_channel(p, x) for p in parts)
    return gamma * (x - mean) / numpy.sqrt(variance + a["epsilon"]) + beta


def _layer_norm(a, x, gamma, beta):
    axes = tuple(range(a["axis"], x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return gamma * (x - mean) / numpy.sqrt(variance + a["epsilon"]) + beta


def _softmax(a, x):
    e = numpy.exp(x - x.max(a["axis"], keepdims=True))
    return e / e.sum(a["axis"], keepdims=True)


OPS = {
    "Conv": _conv, "AveragePool": _average, "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm, "Softmax": _softmax,
    "MaxPool": lambda a, x: _windows(x, a, -numpy.inf).max(axis=(4, 5)),
    "Gemm": lambda a, x, w, b=0: x @ (w.T if a["transB"] else w) + b,
    "Relu": lambda a, x: numpy.maximum(x, 0),
    "Sigmoid": lambda a, x: 1 / (1 + numpy.exp(-x)),
    "Tanh": lambda a, x: numpy.tanh(x),
    "Erf": lambda a, x: numpy.vectorize(math.erf, otypes=["f4"])(x),
    "LeakyRelu": lambda a, x: numpy.where(x > 0, x, x * numpy.float32(a["alpha"])),
    "Add": lambda a, x, y: x + y, "Mul": lambda a, x, y: x * y,
    "Identity": lambda a, x: x,
    "Flatten": lambda a, x: x.reshape(len(x), -1),
    "Sum": lambda a, *xs: sum(xs),
    "ReduceSum": lambda a, x, axes: x.sum(tuple(axes), keepdims=bool(a["keepdims"])),
    "CumSum": lambda a, x, axis: x.cumsum(int(axis)) - x * a["exclusive"],
    "Concat": lambda a, *xs: numpy.concatenate(xs, a["axis"]),
    "Sub": lambda a, x, y: x - y, "Div": lambda a, x, y: x / y,
    "Cast": lambda a, x: x.astype("f4"),
    "Squeeze": lambda a, x, axes: x.squeeze(tuple(axes)),
    "Gather": lambda a, w, i: w[i],
    "Transpose": lambda a, x: x.transpose(a["perm"])}


def run(path, images):
    """Returns (name of the output, its values) for a batch [n, channels, height, width]."""
    if onnxruntime:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return session.get_outputs()[0].name, session.run(None, {"image": images})[0]
    graph = onnx.load(path).graph
    values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    values["image"] = images
    for node in graph.node:
        attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        values[node.output[0]] = OPS[node.op_type](attributes, *(values[i] for i in node.input))
    return graph.output[0].name, values[graph.output[0].name]
