"""What Weir and PyTorch are compared on: models, data and flags of the golden loss curves, for
test_golden.py, which runs Weir, and tests/golden/make_golden.py, which runs PyTorch."""
import os

import harness

FOLDER = os.path.join(harness.SOURCE, "tests/golden")
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
