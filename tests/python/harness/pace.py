"""Functions that wait for events, and brakes that hold processes back until a test has done its
part."""
import contextlib
import fcntl
import os
import threading
import time

from .process import Failure
from .settings import PATIENCE


@contextlib.contextmanager
def paused(*processes):
    """Stops these processes inside the `with` block, so that the order of events is certain."""
    for p in processes:
        p.hold()
    try:
        until(lambda: all(p.is_asleep("TZ") for p in processes), "the processes are stopped")
        yield
    finally:
        for p in processes:
            p.resume()


def until(condition, what, seconds=30):
    """Waits until the condition is true; returns its value."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        got = condition()
        if got:
            return got
        if time.monotonic() > deadline:
            raise Failure("%s: not within %g s" % (what, seconds * PATIENCE))
        time.sleep(0.02)


def wait_still(*processes, seconds=60):
    """Waits until all processes are idle: for a second they printed no line, and no sample found a
    thread that ran. A process that trains prints lines (--log_every=1)."""
    seen, n_same = None, 0

    def still():
        nonlocal seen, n_same
        now = [len(p.lines) for p in processes]
        n_same = n_same + 1 if now == seen and all(p.is_asleep() for p in processes) else 0
        seen = now
        return n_same >= 50
    until(still, "%s: stands still" % ", ".join(p.name for p in processes), seconds)


class Gate:
    """Holds a worker back after about n_steps steps: the worker records its samples
    (--record_samples) in a pipe, which is full by then. open() lets all records through; the file
    `into` receives them."""
    LINE = 20  # length of a line, or a few bytes less: "16777217 100 1200 12"

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
        """Moves the rest of the pipe into the file; the writer has ended."""
        if self.fd < 0:
            return
        self.open()
        os.write(self.fd, b"end")
        self.reader.join()
        os.close(self.fd)
        self.fd = -1


class Brake:
    """Keeps a job from ending before the test calls release(), however slow the machine is: from
    the global step `limit` on, the job's workers stand still nearly all of the time. A test that
    calls release() before that step loses no time. workers() lists the processes. A worker that
    still starts or joins is not held, because its start would last 20 times as long."""
    TURN, REST = 0.05, 20  # seconds of work per turn; factor for the pause after it

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
                    p.resume()
            began = time.monotonic()

    def release(self):
        self.over.set()
        self.thread.join()
