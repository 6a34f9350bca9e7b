"""The parts that runs of Weir and of PyTorch share: models, data and flags of the golden loss
curves, and the samples of the golden predictions. test_golden*.py run Weir, and
tests/golden/make_*.py run PyTorch."""
import math
import os
import random
import shutil
import struct

import harness
import weights

FOLDER = harness.source("tests/golden")
PREDICTIONS = os.path.join(FOLDER, "predictions")
SEED, BATCH, STEPS = 11, 8, 50
# Networks that are too large for more steps.
FEWER_STEPS = {"resnet18": 3, "resnet18_cifar": 3}
RESNET18 = os.path.join(FOLDER, "torchvision/resnet18.json")
ADAM = ("mlp", "softmax", "embedded", "squared", "regression")
# Learning rates of networks with large first weights. At higher rates the rounding errors of
# float32 grow to some percent within fifty steps, in PyTorch as well as in Weir; on a CPU with only
# AVX2 this happens to deep_mnist at 0.0003 already.
SLOW = {"deep_mnist": 0.0001, "deep_mnist_bn": 0.0003}


# Models that are trained on targets: floats instead of classes.
ON_TARGETS = ("regression",)
# Models whose samples have keys: test_sparse_models.py trains them.
WITH_TABLES = ("deepfm", "wide_deep")


def models():
    """Returns {name: path} of the models of Weir and of these tests, except models with tables."""
    folders = (harness.MODELS, os.path.join(FOLDER, "models"))
    return {f[:-5]: os.path.join(folder, f) for folder in folders for f in os.listdir(folder)
            if f.endswith(".json") and f[:-5] not in WITH_TABLES}


def steps(name):
    return FEWER_STEPS.get(name, STEPS)


def flags(name):
    rule = (["--optimizer=adam", "--learning_rate=0.001"] if name in ADAM else
            ["--optimizer=momentum", "--learning_rate=%g" % SLOW.get(name, 0.01)])
    return [*rule, "--seed=%d" % SEED, "--batch_size=%d" % BATCH,
            "--train_steps=%d" % steps(name)]


def make_data(folder):
    harness.make_data(folder, n_train=BATCH * STEPS + 30, n_test=10, seed=23)
    make_targets(folder)


def make_targets(folder):
    """Copies the samples of this folder, and writes a float for each of them instead of a class."""
    targets = data_of(folder, ON_TARGETS[0])
    os.mkdir(targets)
    for part in ("train", "t10k"):
        shutil.copy(os.path.join(folder, part + "-images-idx3-ubyte"), targets)
        name = part + "-labels-idx1-ubyte"
        labels = harness.read_bytes(os.path.join(folder, name))[8:]
        with open(os.path.join(targets, name), "wb") as f:
            f.write(struct.pack(">HBBI%df" % len(labels), 0, 13, 1, len(labels),
                                *(label - 4.5 for label in labels)))


def data_of(folder, name):
    """Returns the folder of the data on which this model is trained."""
    return os.path.join(folder, "targets") if name in ON_TARGETS else folder


def write_samples(folder, part, sample, data, labels):
    """Writes samples of (C,H,W) and their labels as IDX files."""
    shape = sample[1:] if sample[0] == 1 else sample
    harness.write_samples(os.path.join(folder, part), (len(labels), *shape), data, labels)


def torch_state(tensors):
    """Returns {name: (dtype, shape, values)}, the argument of weights.write(), for the names and
    shapes of a network's state dict. The numbers are the same in every run and in PyTorch. Weights
    are as large as in He's initialization. Running statistics are numbers like any others: no batch
    has them."""
    table = weights.random_values(random.Random(5), 65521, -1, 1)
    state = {}
    for at, (name, shape) in enumerate(tensors):
        n = math.prod(shape)
        first = 977 * at % len(table)
        values = (table[first:] + table * (n // len(table) + 1))[:n]
        scale, shift = 0.2, 0.0
        if name.endswith("num_batches_tracked"):
            state[name] = "I64", (), [3]
            continue
        if len(shape) > 1:
            scale = math.sqrt(6 / math.prod(shape[1:]))
        elif name.endswith("running_var") or "bn" in name and name.endswith("weight"):
            shift = 1.0
        state[name] = "F32", tuple(shape), weights.rounded([shift + scale * v for v in values])
    return state
