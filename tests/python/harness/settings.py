"""Paths, limits and the environment of the tests."""
import ctypes
import os
import re
import socket
import sys

SOURCE = os.environ.get("WEIR_SOURCE") or os.path.abspath(os.path.join(__file__, "../../../.."))
BIN = os.environ.get("WEIR_BIN") or os.path.join(SOURCE, "build/bin")
LIBRARY = os.path.join(os.path.dirname(BIN), "lib/libweir.so.0")
MODELS = os.path.join(SOURCE, "examples/models")
OWN_MODELS = os.path.join(SOURCE, "tests/python/models")  # for tests only
SLOWNESS = float(os.environ.get("WEIR_TEST_SLOWNESS") or 1)
PATIENCE = SLOWNESS + 3  # factor of every deadline; tests/CMakeLists.txt has the same for ctest
SANITIZE = os.environ.get("WEIR_SANITIZE", "")
SKIPPED = 77
with open(os.path.join(SOURCE, "net/wire/message.h"), encoding="utf-8") as header:
    PROTOCOL = int(re.search(r"MESSAGE_PROTOCOL = (\d+)", header.read()).group(1))
# Tests of the CPU use no GPU of the machine; tests of GPUs set an environment of their own.
CUDA_VISIBLE_DEVICES = os.environ.get("CUDA_VISIBLE_DEVICES")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A test does not belong to the cluster in which it is started. Python programs of a test buffer
# their output as for a user (PYTHONUNBUFFERED hides lines that are lost or late).
for name in [n for n in os.environ if n in ("TF_CONFIG", "PYTHONUNBUFFERED") or
             n.startswith("SLURM_")]:
    del os.environ[name]
# Runs a program whose files cannot grow past a few bytes, as on a full disk.
FULL_DISK = ["/bin/sh", "-c", 'ulimit -f 8; exec "$@"', "sh"]
LIBC = ctypes.CDLL(None, use_errno=True)

# Loopback address of this test program alone: programs that run at once share no port.
LOOPBACK = "127.%d.%d.%d" % (1 + (os.getpid() >> 16) % 200, os.getpid() >> 8 & 255,
                             1 + (os.getpid() & 255) % 254)


def term(n, epoch=1):
    """Returns the number of ps 0's n-th generation in its life `epoch` (base/term.h)."""
    return epoch << 24 | n


def source(*names):
    """Returns a path in the source tree."""
    return os.path.join(SOURCE, *names)


def program(name):
    """Returns the path of a program of this build."""
    return os.path.join(BIN, name)


def use_package():
    """Lets this program import the package `weir` of the source tree, with this build's library."""
    os.environ.setdefault("WEIR_LIBRARY", LIBRARY)
    os.environ.setdefault("WEIR_PROGRAMS", BIN)
    sys.path.insert(0, source("python"))


def package_env(**more):
    """Returns the environment of a program that imports the package `weir`."""
    return {"WEIR_LIBRARY": LIBRARY, "WEIR_PROGRAMS": BIN, **os.environ,
            "PYTHONPATH": source("python"), **more}


def models_dir(model):
    """Returns the flag for the folder of a model: of the examples, or of the tests alone."""
    own = os.path.exists(os.path.join(OWN_MODELS, model + ".json"))
    return "--models_dir=" + (OWN_MODELS if own else MODELS)


def why_no_localhost():
    """Returns None, or why commands of the docs that name localhost cannot run here."""
    try:
        socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)
    except OSError as e:
        return "localhost has no address (%s): add the line '127.0.0.1 localhost' to " \
            "/etc/hosts" % e.strerror
    return None
