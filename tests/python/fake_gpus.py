"""A machine with emulated GPUs, for tests of the real worker. The worker loads fakes of the
driver's two libraries (tests/fake_driver) instead of NVIDIA's. Its CUDA backend is the one that
tests/emulation emulates, and has the cards of the fakes. Tests that support real cards use this
machine's cards if the environment has WEIR_TEST_GPU=real."""
import ctypes
import fcntl
import json
import os
import re
import sys
import tempfile

import harness

FAKES = os.environ.get("WEIR_FAKES") or harness.source("build/tests")
EMULATED = os.path.join(FAKES, "libweir_emulated.so")
NO_EMULATION = "" if os.path.exists(EMULATED) else \
    "skipped: the emulated CUDA backend is not in this build (no CUDA headers, or no C++ compiler)"
REAL = os.environ.get("WEIR_TEST_GPU") == "real"
CUDA = os.path.join(harness.BIN, "../lib/libweir_cuda.so") if REAL else EMULATED
IDLE = "total=81559 used=500 busy=0"


def uuid(i):
    return "GPU-%s-0000-4000-8000-%012d" % (str(i) * 8, i)


def card(i, load=IDLE, more=""):
    """Returns a line of the fakes' file. Card 1 is the fastest, so CUDA counts it first."""
    return ("gpu uuid=%s pci=0000:%02x:00.0 name=NVIDIA_H200 cc=9.0 speed=%d %s %s\n" %
            (uuid(i), 0x3a + i, i == 1, load, more))


# A stand-in for a Python with PyTorch. It answers with versions if bench/gpu_train.py calls it with
# -c, prints a line instead of bench/torch_gpu.py, and otherwise $FAKE_TORCH.
TORCH = """#!%s
import json, os, sys
if sys.argv[1] == "-c":
    print("2.9.0 True True")
elif "bench/torch_gpu.py" in sys.argv:
    print("| stand-in |", *sys.argv[3:])
else:
    assert os.environ["CUDA_VISIBLE_DEVICES"] == os.environ["FAKE_TORCH_VISIBLE"], os.environ
    print(json.dumps(dict({"images": 4, "seconds": 0.5, "loss": 2.3},
                          **json.loads(os.environ["FAKE_TORCH"]))))
""" % sys.executable


def stand_in_torch(path, product, visible, **on):
    """Writes the stand-in for PyTorch. Returns the environment in which its runs report that they
    ran on the card with the UUID `visible`, except where `on` has another value."""
    harness.write_file(path, TORCH)
    os.chmod(path, 0o755)
    said = dict({"device_types": ["cuda"], "product": product, "uuid": visible[4:],
                 "peak_bytes": 50000000}, **on)
    return {"FAKE_TORCH": json.dumps(said), "FAKE_TORCH_VISIBLE": visible}


def there(library):
    """Returns whether this machine has the real library."""
    try:
        ctypes.CDLL(library)
        return True
    except OSError:
        return False


def real_env():
    """Returns the environment in which this machine's cards are visible."""
    env = dict(os.environ)
    del env["CUDA_VISIBLE_DEVICES"]
    if harness.CUDA_VISIBLE_DEVICES is not None:
        env["CUDA_VISIBLE_DEVICES"] = harness.CUDA_VISIBLE_DEVICES
    return env


def why_no_cards():
    """Returns why a test of cards, real or not, cannot run here, or "" if it can."""
    if not REAL:
        return NO_EMULATION
    if not os.path.exists(CUDA):
        return "skipped: this build has no CUDA backend"
    listed = harness.check_output([harness.program("worker"), "--list_devices=json"],
                                  env=real_env())
    why = json.loads(listed)["why_no_gpu"]
    return "skipped: no card here: " + why if why else ""


class Machine(harness.Test):
    CUDA = None  # the CUDA backend that worker() finds
    _data = None

    @classmethod
    def data(cls):
        """Returns the folder of data with fewer test images, because an emulated card is slow."""
        if Machine._data is None:
            Machine._data = tempfile.TemporaryDirectory(prefix="weir-data-")
            harness.make_data(Machine._data.name, n_test=128)
        return Machine._data.name

    def machine(self, *lines):
        path = self.path("state")
        harness.write_file(path + ".new", "".join(lines))
        os.rename(path + ".new", path)

    def env(self, fakes=("fake_cuda", "fake_nvml"), **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_")}
        env["LD_LIBRARY_PATH"] = ":".join(os.path.join(FAKES, f) for f in fakes)
        env["WEIR_FAKE_GPUS"] = self.path("state")
        env.update(more)
        return env

    def locks(self):
        path = self.path("locks")
        os.makedirs(path, exist_ok=True)
        return path

    def reserve(self, i):
        f = open(os.path.join(self.locks(), "weir-gpu-%s.lock" % uuid(i)), "w", encoding="ascii")
        self.addCleanup(f.close)
        fcntl.flock(f, fcntl.LOCK_EX)

    def backends(self, cuda=EMULATED, cpu=os.path.join(harness.BIN, "../lib/libweir_cpu.so")):
        """Returns a folder for --backend_dir."""
        path = self.path("backends")
        os.makedirs(path, exist_ok=True)
        for name, file in (("cuda", cuda), ("cpu", cpu)):
            at = os.path.join(path, "libweir_%s.so" % name)
            if os.path.lexists(at) and file and os.readlink(at) == os.path.abspath(file):
                continue
            if os.path.lexists(at):
                os.unlink(at)
            if file:
                os.symlink(os.path.abspath(file), at)
        return path

    def worker(self, *flags, env=None):
        argv = [harness.program("worker"), "--models_dir=" + harness.MODELS, "--backend_dir=" +
                self.backends(self.CUDA), "--model=softmax", "--train_steps=1", "--batch_size=4",
                "--data_dir=" + self.data(), "--gpu_lock_dir=" + self.locks(), *flags]
        return self.start("worker", argv, env=env or self.env())

    def listed(self, *flags, env=None):
        """Returns (stdout, stderr) of a worker that lists its devices."""
        argv = [harness.program("worker"), "--gpu_lock_dir=" + self.locks(), *flags]
        done = harness.capture(argv, 20, env=env or self.env(), check=True)
        return done.stdout, done.stderr

    def json(self, **kwargs):
        return json.loads(self.listed("--list_devices=json", **kwargs)[0])

    def gpus(self, **kwargs):
        return [d for d in self.json(**kwargs)["devices"] if d["device_type"] == "GPU"]

    def train(self, name, *flags, model="mlp", env=None):
        """Returns (summary, parameters, output) of a complete run."""
        summary = self.path(name + ".json")
        export = self.path(name + ".safetensors")
        p = self.worker(harness.models_dir(model), "--model=" + model, "--train_steps=20",
                        "--batch_size=20", "--seed=3", "--intra_op_threads=1",
                        "--summary_json=" + summary, "--export=" + export, *flags, env=env)
        p.wait(60)
        return harness.read_json(summary), harness.read_safetensors(export), p.output()

    def compare(self, a, b):
        """Checks that two runs of train() saw the same samples and differ only by rounding."""
        self.assertAlmostEqual(a[0]["loss"], b[0]["loss"], delta=1e-3)
        self.assertAlmostEqual(a[0]["test_accuracy"], b[0]["test_accuracy"], delta=0.01)
        self.assertEqual(a[1].keys(), b[1].keys())
        for name, (_, values) in a[1].items():
            furthest = max(abs(x - y) for x, y in zip(values, b[1][name][1]))
            # Adam's first steps are as large for a small gradient as for a large one.
            self.assertLess(furthest, 2e-2, name)
            off = sum(abs(x - y) for x, y in zip(values, b[1][name][1])) / len(values)
            self.assertLess(off, 1e-4, name)

    def refused(self, process, status, *words):
        """Checks that the process exits with this status and prints one line above information
        (except lines of the address sanitizer about the emulation's threads)."""
        process.wait(30, status)
        lines = [l for l in process.lines if not re.match(r"I |==\d+==WARNING: ASan", l)]
        self.assertEqual(len(lines), 1, process.lines)
        self.assert_has(lines[0], *words)
