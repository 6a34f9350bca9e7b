"""Real ps and worker processes on loopback, for the tests in this folder.

Every process gets a free port on a loopback address of this test program's own, tells through a
pipe when it listens (--ready_fd), is waited for with a deadline, and has its exit status looked at:
a process that the test did not collect fails the test. When a test fails, all that its processes
printed is printed. Children die with the test program.

A skip says why; when any test of a file was skipped and none failed, the program ends with 77,
ctest's "skipped".
No test asserts how long something took: a machine may be as busy as it likes. Tests wait for what
is to happen, with deadlines that end what hangs and say nothing else: they are several times what a
busy machine needs. What is to be held back while something else goes on is stopped (paused()).
Environment: WEIR_BIN (programs), WEIR_TEST_SLOWNESS (of the programs; sanitizers).
"""
import atexit
import contextlib
import ctypes
import faulthandler
import fcntl
import json
import os
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = os.environ.get("WEIR_SOURCE") or os.path.abspath(os.path.join(__file__, "../../.."))
BIN = os.environ.get("WEIR_BIN") or os.path.join(SOURCE, "build/bin")
MODELS = os.path.join(SOURCE, "examples/models")
OWN_MODELS = os.path.join(SOURCE, "tests/python/models")  # of tests alone
SLOWNESS = float(os.environ.get("WEIR_TEST_SLOWNESS") or 1)
PATIENCE = SLOWNESS + 3  # factor on every deadline; tests/CMakeLists.txt has it for ctest's
SANITIZE = os.environ.get("WEIR_SANITIZE", "")
SKIPPED = 77
with open(os.path.join(SOURCE, "net/wire/message.h"), encoding="utf-8") as header:
    PROTOCOL = int(re.search(r"MESSAGE_PROTOCOL = (\d+)", header.read()).group(1))
# Tests of the CPU stay on it, whatever the machine has; tests of GPUs set an environment.
CUDA_VISIBLE_DEVICES = os.environ.get("CUDA_VISIBLE_DEVICES")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
# A test is not part of the cluster in which it is started, and a test's Python programs write their
# output as they do for a user (PYTHONUNBUFFERED hides lines that are lost or late).
for name in [n for n in os.environ if n in ("TF_CONFIG", "PYTHONUNBUFFERED") or
             n.startswith("SLURM_")]:
    del os.environ[name]
LIBC = ctypes.CDLL(None, use_errno=True)
TEST_SECONDS = 100  # times PATIENCE: no test takes so long

# An address of our own, so that test programs running at once never fight about a port.
LOOPBACK = "127.%d.%d.%d" % (1 + (os.getpid() >> 16) % 200, os.getpid() >> 8 & 255,
                             1 + (os.getpid() & 255) % 254)


def term(n, epoch=1):
    """The number of ps 0's n-th generation in its life `epoch` (base/term.h)."""
    return epoch << 24 | n


def models_dir(model):
    """The flag for a model of the examples, or of the tests' own."""
    own = os.path.exists(os.path.join(OWN_MODELS, model + ".json"))
    return "--models_dir=" + (OWN_MODELS if own else MODELS)


def why_no_localhost():
    """None, or why commands of the docs that name localhost cannot run here."""
    try:
        socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)
    except OSError as e:
        return "localhost has no address (%s): add the line '127.0.0.1 localhost' to " \
            "/etc/hosts" % e.strerror
    return None


class Failure(AssertionError):
    """A process did not do what it was expected to do."""


# A child dies with this program, and SIGINT is as for a program that a user has started: in a
# shell's background it is not. By programs, as Python code between fork and exec may wait for ever
# for what another thread (gRPC's) held.
AS_CHILD = ["/usr/bin/env", "--default-signal=INT",
            "/usr/bin/setpriv", "--pdeathsig", "KILL", "--"]


def free_ports(n, host=LOOPBACK):
    """n different ports that were free a moment ago."""
    sockets = []
    for _ in range(n):
        s = socket.socket()
        s.bind((host, 0))
        sockets.append(s)
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Process:
    """One child: its output line by line, its exit status, its readiness."""

    def __init__(self, name, argv, env=None, ready=False, cwd=None):
        self.name, self.argv = name, argv
        self.lines, self.changed = [], threading.Condition()
        self.status = None  # exit status once collected by wait(); negative: killed by that signal
        self.ready_read = None
        self.n_holds, self.holding = 0, threading.Lock()
        self.begun, self.n_looked = None, 0  # of has_begun()
        fds = ()
        if ready:
            self.ready_read, ready_write = os.pipe()
            argv = argv + ["--ready_fd=%d" % ready_write]
            fds = (ready_write,)
        self.popen = subprocess.Popen(
            AS_CHILD + argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, pass_fds=fds, env=env, cwd=cwd, start_new_session=True)
        for fd in fds:
            os.close(fd)
        self.eof = False
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for raw in self.popen.stdout:
            with self.changed:
                self.lines.append(raw.decode("utf-8", "replace").rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.eof = True
            self.changed.notify_all()

    def wait_ready(self, seconds=20):
        """The address of the process' "ready <addr>" line; an early end is a failure."""
        deadline = time.monotonic() + seconds * PATIENCE
        got = b""
        os.set_blocking(self.ready_read, False)
        while not got.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.ready_read], [], [], left)[0]:
                raise Failure("%s: not ready within %g s" % (self.name, seconds * PATIENCE))
            part = os.read(self.ready_read, 256)
            if not part:
                raise Failure("%s: closed its ready pipe without a word" % self.name)
            got += part
        os.close(self.ready_read)
        self.ready_read = None
        words = got.decode().split()
        if len(words) != 2 or words[0] != "ready":
            raise Failure("%s: wrote %r to its ready pipe" % (self.name, got))
        return words[1]

    def wait_line(self, pattern, seconds=30):
        """The match of the first line, old or new, that has the pattern."""
        deadline = time.monotonic() + seconds * PATIENCE
        seen = 0
        with self.changed:
            while True:
                for line in self.lines[seen:]:
                    m = re.search(pattern, line)
                    if m:
                        return m
                seen = len(self.lines)
                if self.eof:
                    raise Failure("%s: ended without a line like %r" % (self.name, pattern))
                left = deadline - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    raise Failure("%s: no line like %r within %g s" %
                                  (self.name, pattern, seconds * PATIENCE))

    def wait(self, seconds=60, status=0):
        """Collects the exit; any other status than `status` (None: any) is a failure."""
        try:
            self.status = self.popen.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure("%s: still running after %g s" %
                          (self.name, seconds * PATIENCE)) from None
        self.reader.join(10)
        if status is not None and self.status != status:
            raise Failure("%s: exit status %d, expected %d" % (self.name, self.status, status))
        return self.status

    def stop(self, signum=signal.SIGTERM, seconds=20, status=143):
        self.popen.send_signal(signum)
        return self.wait(seconds, status)

    def output(self):
        with self.changed:
            return "\n".join(self.lines)

    def hold(self):
        """It stands still until as many have let it go on as have held it."""
        with self.holding:
            self.n_holds += 1
            if self.n_holds == 1:
                self.popen.send_signal(signal.SIGSTOP)

    def go_on(self):
        with self.holding:
            self.n_holds -= 1
            if self.n_holds == 0:
                self.popen.send_signal(signal.SIGCONT)

    def global_step(self):
        """The one that it said last (--log_every=1); 0: none."""
        with self.changed:
            found = re.findall(r"\(global step: (\d+)\)", "\n".join(self.lines[-20:]))
        return int(found[-1]) if found else 0

    def has_begun(self):
        """Whether this worker has said that it takes part: a step, or that it joined."""
        with self.changed:
            while not self.begun and self.n_looked < len(self.lines):
                self.begun = re.search(r"\(global step: \d|joined as worker \d",
                                       self.lines[self.n_looked])
                self.n_looked += 1
        return bool(self.begun)

    def is_asleep(self, states="ST"):
        """No thread of it runs, or wants to; with "TZ": all are stopped, or ended."""
        folder = "/proc/%d/task" % self.popen.pid
        for thread in os.listdir(folder):
            try:
                with open("%s/%s/stat" % (folder, thread), encoding="ascii") as f:
                    if f.read().rsplit(") ", 1)[1][0] not in states:
                        return False
            except FileNotFoundError:
                pass  # it has ended
        return True

    def _end(self):
        """After the test: True if the process had been collected."""
        collected = self.status is not None
        # The whole group: what a child of ours started must not hold its output open. Its number is
        # not given away while it has members; if it is a process again, that is somebody else's.
        if self.popen.poll() is None or not os.path.exists("/proc/%d" % self.popen.pid):
            try:
                os.killpg(self.popen.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.popen.wait()
        self.reader.join(10)
        self.popen.stdout.close()
        if self.ready_read is not None:
            os.close(self.ready_read)
            self.ready_read = None
        return collected


@contextlib.contextmanager
def paused(*processes):
    """Meanwhile they do nothing: what is to happen first needs no luck."""
    for p in processes:
        p.hold()
    try:
        until(lambda: all(p.is_asleep("TZ") for p in processes), "they are stopped")
        yield
    finally:
        for p in processes:
            p.go_on()


def until(condition, what, seconds=30):
    """What the condition gave when it came true."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > deadline:
            raise Failure("%s: not within %g s" % (what, seconds * PATIENCE))
        time.sleep(0.02)


def wait_still(*processes, seconds=60):
    """Until all stand still, as who waits for others does: for a second nothing was said, and at no
    look a thread ran. With no pause of their own they would have said a line (--log_every=1)."""
    seen, n_same = None, 0

    def still():
        nonlocal seen, n_same
        now = [len(p.lines) for p in processes]
        n_same = n_same + 1 if now == seen and all(p.is_asleep() for p in processes) else 0
        seen = now
        return n_same >= 50
    until(still, "%s: stands still" % ", ".join(p.name for p in processes), seconds)


class Gate:
    """Holds a worker back after about so many steps: those it writes down (--record_samples) into a
    pipe that is full then. Opened, it lets them all through; what was written is in `into`."""
    LINE = 20  # bytes, or a few less: "16777217 100 1200 12"

    def __init__(self, test, n_steps, into=None):
        self.path = os.path.join(test.dir(), "gate-%x" % id(self))
        self.into, self.reader = into or os.devnull, None
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR)
        size = fcntl.fcntl(self.fd, fcntl.F_SETPIPE_SZ, 4096)
        os.write(self.fd, b"#" * (size - n_steps * self.LINE - 1) + b"\n")
        test.addCleanup(self.close)

    def open(self):
        if not self.reader:
            self.reader = threading.Thread(target=self._read, daemon=True)
            self.reader.start()

    def _read(self):
        with open(self.into, "ab") as f:
            left = b"#"
            while not left.endswith(b"end"):
                left += os.read(self.fd, 4096)
                *lines, left = left.split(b"\n")
                f.writelines(line + b"\n" for line in lines if not line.startswith(b"#"))

    def close(self):
        """All that is in the pipe is in the file now: who wrote there has ended."""
        if self.fd < 0:
            return
        self.open()
        os.write(self.fd, b"end")
        self.reader.join()
        os.close(self.fd)
        self.fd = -1


class Brake:
    """A job that is not to end before its test has done its part, however slow the machine makes
    that: from the global step `limit` on its workers stand still nearly all of the time, until
    released. Where the part ends before that step, it costs nothing. workers(): those there are;
    one that still starts or joins is not held: it would need 20 times as long."""
    TURN, REST = 0.05, 20  # seconds; how much longer they stand still

    def __init__(self, test, workers, limit):
        self.workers, self.limit = workers, limit
        self.over = threading.Event()
        test.addCleanup(self.release)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        began = time.monotonic()
        while not self.over.wait(self.TURN):
            there = [p for p in self.workers() if p is not None and p.has_begun()]
            if there and max(p.global_step() for p in there) >= self.limit:
                for p in there:
                    p.hold()
                self.over.wait(self.REST * (time.monotonic() - began))
                for p in there:
                    p.go_on()
            began = time.monotonic()

    def release(self):
        self.over.set()
        self.thread.join()


class Job:
    """A ps group and its workers: addresses, flags that all share, and the processes."""

    def __init__(self, test, n_ps=1, n_workers=2, data=None, model="softmax", flags=()):
        self.test = test
        ports = free_ports(n_ps + n_workers)
        self.ps_hosts = ["%s:%d" % (LOOPBACK, p) for p in ports[:n_ps]]
        self.worker_hosts = ["%s:%d" % (LOOPBACK, p) for p in ports[n_ps:]]
        self.ps, self.workers = [None] * n_ps, [None] * n_workers
        self.flags = [models_dir(model), "--model=" + model, "--progress=lines",
                      "--data_dir=" + (data or test.data()), *flags]
        self.gate = self.held = self.brake = None
        self.generation = 0  # that a test has seen last

    def brake_from(self, step, more=lambda: []):
        """Its workers, and those that `more` gives, are slow from there on; until finish()."""
        self.brake = Brake(self.test, lambda: [*self.workers, *more()], step)

    def release(self):
        """What was held back goes on."""
        if self.brake:
            self.brake.release()
        if self.gate:
            self.gate.open()

    def hold(self, n_steps, into=None, task=0):
        """That worker, and with it training in lock step, gets no further than that; its gate."""
        self.gate, self.held = Gate(self.test, n_steps, into), task
        return self.gate

    def hosts(self):
        return ["--ps_hosts=" + ",".join(self.ps_hosts),
                "--worker_hosts=" + ",".join(self.worker_hosts)]

    def start_ps(self, task=0, *flags, wait=True, env=None):
        argv = [os.path.join(BIN, "ps"), *self.hosts(), "--job_name=ps", "--task_index=%d" % task]
        self.ps[task] = self.test.start("ps:%d" % task, argv + list(flags), ready=wait,
                                       env=env)
        if wait:
            self.test.assertEqual(self.ps[task].wait_ready(), self.ps_hosts[task])
        return self.ps[task]

    def summary_path(self, task):
        return os.path.join(self.test.dir(), "summary-%s-%d.json" %
                            (self.worker_hosts[task].split(":")[1], task))

    def start_worker(self, task=0, *flags, env=None):
        argv = [os.path.join(BIN, "worker"), *self.hosts(), "--job_name=worker",
                "--task_index=%d" % task, "--summary_json=" + self.summary_path(task)]
        if task == self.held:
            argv.append("--record_samples=" + self.gate.path)
        self.workers[task] = self.test.start("worker:%d" % task, argv + self.flags + list(flags),
                                             env=env)
        return self.workers[task]

    def start(self, ps_flags=(), worker_flags=()):
        for i in range(len(self.ps)):
            self.start_ps(i, *ps_flags)
        for i in range(len(self.workers)):
            self.start_worker(i, *worker_flags)

    def finish(self, seconds=60):
        """Waits until every process ended with 0; the workers' summaries, in task order."""
        self.release()
        for process in self.workers + self.ps:
            process.wait(seconds)
        return [self.summary(i) for i in range(len(self.workers))]

    def summary(self, task):
        with open(self.summary_path(task), encoding="utf-8") as f:
            return json.load(f)


class Test(unittest.TestCase):
    """Base of the tests: processes that are cleaned up, a scratch folder, synthetic data."""
    _data = None

    def setUp(self):
        self.processes = []
        self._dir = None
        # Where every thread stands is said, and the program ends, when this test does not.
        faulthandler.dump_traceback_later(TEST_SECONDS * PATIENCE, exit=True)

    def dir(self):
        if self._dir is None:
            self._dir = tempfile.TemporaryDirectory(prefix="weir-test-")
        return self._dir.name

    @classmethod
    def data(cls):
        """The folder of the small data set, made once per program."""
        if Test._data is None:
            Test._data = tempfile.TemporaryDirectory(prefix="weir-data-")
            make_data(Test._data.name)
        return Test._data.name

    def start(self, name, argv, **kwargs):
        process = Process(name, argv, **kwargs)
        self.processes.append(process)
        return process

    def run_worker(self, *flags, status=0, seconds=60, data=None, model="softmax"):
        """A worker alone, to its end; the collected process."""
        argv = [os.path.join(BIN, "worker"), "--models_dir=" + MODELS, "--model=" + model,
                "--progress=lines", "--data_dir=" + (data or self.data()), *flags]
        process = self.start("worker", argv)
        process.wait(seconds, status)
        return process

    def job(self, **kwargs):
        return Job(self, **kwargs)

    def tearDown(self):
        left = [p.name for p in self.processes if not p._end()]
        if self._dir is not None:
            self._dir.cleanup()
        self.assertEqual(left, [], "the test did not collect these processes")


def pattern(rng, size):
    """A class' picture: a few bright rectangles on black."""
    rows = [bytearray(size) for _ in range(size)]
    for _ in range(4):
        h, w = rng.randint(size // 7, size // 3), rng.randint(size // 7, size // 3)
        y, x = rng.randint(2, size - h - 2), rng.randint(2, size - w - 2)
        for r in rows[y:y + h]:
            r[x:x + w] = b"\xc0" * w
    return b"".join(bytes(r) for r in rows)


def make_data(folder, n_train=2400, n_test=500, seed=7, size=28):
    """Writes the four IDX files: ten classes of noisy, shifted rectangles. A pure function of its
    arguments. Easy on purpose: a linear model learns it within a hundred steps."""
    rng = random.Random(seed)
    cells = size * size
    classes = [int.from_bytes(pattern(rng, size), "big") for _ in range(10)]
    noise_mask = int.from_bytes(b"\x3f" * cells, "big")
    whole = (1 << 8 * cells) - 1
    for prefix, n in (("train", n_train), ("t10k", n_test)):
        labels = bytes(rng.randrange(10) for _ in range(n))
        images = []
        for label in labels:
            shift = 8 * (rng.randint(-1, 1) + size * rng.randint(-1, 1))
            picture = classes[label] << shift if shift >= 0 else classes[label] >> -shift
            noise = int.from_bytes(rng.randbytes(cells), "big") & noise_mask
            images.append((picture & whole ^ noise).to_bytes(cells, "big"))
        write_idx(os.path.join(folder, prefix + "-images-idx3-ubyte"), (n, size, size),
                  b"".join(images))
        write_idx(os.path.join(folder, prefix + "-labels-idx1-ubyte"), (n,), labels)


def write_idx(path, dims, payload):
    with open(path, "wb") as f:
        f.write(struct.pack(">HBB", 0, 8, len(dims)) + struct.pack(">%dI" % len(dims), *dims))
        f.write(payload)


def safetensors_metadata(path):
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(n)).get("__metadata__", {})


def read_safetensors(path):
    """{name: (shape, floats as array.array)} of a file with float32 tensors."""
    import array
    with open(path, "rb") as f:
        (n,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(n))
        body = f.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            raise Failure("%s: %s has dtype %s" % (path, name, entry["dtype"]))
        begin, end = entry["data_offsets"]
        values = array.array("f")
        values.frombytes(body[begin:end])
        tensors[name] = (entry["shape"], values)
    return tensors


def join(call, request, seconds=20):
    """A plain client's Join: asks again, as the protocol says, while the answer is RETRY."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        reply = call(request, timeout=10 * PATIENCE)
        if reply.answer != type(reply).RETRY or time.monotonic() > deadline:
            return reply
        select.select([], [], [], 0.01)


class Result(unittest.TextTestResult):
    """Prints what a failed test's processes said."""

    def _processes(self, test):
        for process in getattr(test, "processes", []):
            self.stream.writeln("----- %s: %s" % (process.name, " ".join(process.argv)))
            self.stream.writeln(process.output())
            self.stream.writeln("----- %s: status %s" % (process.name, process.popen.poll()))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._processes(test)

    def addError(self, test, err):
        super().addError(test, err)
        self._processes(test)


def main():
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
    program = unittest.main(module="__main__", testRunner=runner, exit=False)
    result = program.result
    for test, why in result.skipped:
        print("SKIP: %s: %s" % (test.id().replace("__main__.", ""), why), file=sys.stderr)
    if result.testsRun == 0:
        print("no test ran", file=sys.stderr)
    good = result.wasSuccessful() and result.testsRun > 0
    leave(1 if not good else SKIPPED if result.skipped else 0)


_kept = []


def keep(channel):
    """A gRPC channel of a test, closed and not freed at its end: gRPC's Python module (Debian's
    1.51) was seen to stop for ever between two tests, where the first one's objects are freed."""
    _kept.append(channel)
    return channel


def leave(status):
    """Ends the program. gRPC's Python module may wait for ever for a thread of its own as the
    interpreter ends (seen with Debian's 1.51): who has loaded it goes without that end."""
    sys.stdout.flush()
    sys.stderr.flush()
    if "grpc" in sys.modules:
        atexit._run_exitfuncs()
        os._exit(status)
    sys.exit(status)
