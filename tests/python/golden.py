"""What Weir and PyTorch are compared on: models, data and flags of the golden loss curves, and the
samples of the golden predictions; for test_golden*.py, which run Weir, and tests/golden/make_*.py,
which run PyTorch."""
import os

import harness

FOLDER = os.path.join(harness.SOURCE, "tests/golden")
PREDICTIONS = os.path.join(FOLDER, "predictions")
SEED, BATCH, STEPS = 11, 8, 50
ADAM = ("mlp", "softmax", "embedded", "squared")
# Large first weights: at ten times the rate what float32 rounds away grows to percents within fifty
# steps, in PyTorch as here.
SLOW = ("deep_mnist", "deep_mnist_bn")


def models():
    """{name: path}: those that come with Weir, and those of these tests."""
    folders = (harness.MODELS, os.path.join(FOLDER, "models"))
    return {f[:-5]: os.path.join(folder, f) for folder in folders for f in os.listdir(folder)
            if f.endswith(".json")}


def flags(name):
    rule = (["--optimizer=adam", "--learning_rate=0.001"] if name in ADAM else
            ["--optimizer=momentum", "--learning_rate=%g" % (0.0003 if name in SLOW else 0.01)])
    return [*rule, "--seed=%d" % SEED, "--batch_size=%d" % BATCH, "--train_steps=%d" % STEPS]


def make_data(folder):
    harness.make_data(folder, n_train=BATCH * STEPS + 30, n_test=10, seed=23)


def write_samples(folder, part, sample, data, labels):
    """Bytes of samples of (C,H,W) and their labels, as IDX files."""
    shape = sample[1:] if sample[0] == 1 else sample
    prefix, dims = os.path.join(folder, part), (len(labels), *shape)
    harness.write_idx("%s-images-idx%d-ubyte" % (prefix, len(dims)), dims, data)
    harness.write_idx(prefix + "-labels-idx1-ubyte", dims[:1], labels)
