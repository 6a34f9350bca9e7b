"""Programs that a Cluster starts: none outlives this process; what they print goes to files."""
from __future__ import annotations

import concurrent.futures
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Callable, Iterable, Mapping, Optional, Sequence, TypeVar

from ._library import Error, Timeout

TAIL_LINES, TAIL_BYTES = 20, 4000  # of what a process printed last, which an error quotes
STOP = 20  # seconds from SIGTERM to SIGKILL
# What runs before a program, in its process: the kernel kills it when the thread that has started
# it ends. Not between fork and exec, where Python may wait for what another thread held. The two
# signals that Python ignores would stay ignored.
ENDS_WITH_US = """import ctypes, os, sys
libc = ctypes.CDLL(None)
libc.prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
for number in 13, 25:  # SIGPIPE, SIGXFSZ
    libc.signal(number, None)  # SIG_DFL
if os.getppid() != int(sys.argv[1]):
    sys.exit("the program that has started this one is gone")
os.execvp(sys.argv[2], sys.argv[2:])
"""
T = TypeVar("T")


class _Starter(threading.Thread):
    """Starts all processes, as it lives as long as this program does: the thread of whoever makes
    a cluster may end before."""

    def __init__(self) -> None:
        super().__init__(name="weir-starter", daemon=True)
        self.calls: queue.SimpleQueue = queue.SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            future, call = self.calls.get()
            try:
                future.set_result(call())
            except BaseException as e:  # pylint: disable=broad-except
                future.set_exception(e)
            del future, call  # hold nothing while waiting


_starter: Optional[_Starter] = None


def in_starter(call: Callable[[], T]) -> T:
    """The call's result. It is made also where Ctrl-C ends the wait for it."""
    global _starter
    if _starter is None or not _starter.is_alive():  # as in a process that has forked
        _starter = _Starter()
    future: concurrent.futures.Future = concurrent.futures.Future()
    _starter.calls.put((future, call))
    return future.result()


class Ports:
    """Ports of 127.0.0.1 that nobody else gets: they are bound here, without listening, which a
    server of ours may do beside it (SO_REUSEADDR), time and again."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self) -> int:
        """One more."""
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        self._held.append(s)
        return s.getsockname()[1]

    def close(self) -> None:
        """Gives them up."""
        while self._held:
            self._held.pop().close()


class Process:
    """A server or a worker: `popen`, `log` (a file), and what it has printed. `counts`: it is to
    end with 0; not so once it was killed, or removed from the job. again: the log goes on."""

    def __init__(self, name: str, argv: Sequence[str], folder: str, env: Mapping[str, str],
                 ready: bool = False, again: bool = False) -> None:
        self.name, self.log = name, os.path.join(folder, name.replace(":", "-") + ".log")
        self.argv, self.env, self.ready = list(argv), env, ready
        self.counts = True
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            raise Error("%s: there is no program %s" % (name, argv[0]))
        self._ready, write = os.pipe() if ready else (-1, -1)
        begin = [sys.executable, "-I", "-S", "-c", ENDS_WITH_US, str(os.getpid())]
        with open(self.log, "ab" if again else "wb") as out:
            self.popen = subprocess.Popen(
                [*begin, *argv, *(["--ready_fd=%d" % write] if ready else [])],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env,
                pass_fds=(write,) if ready else (), start_new_session=True)
        if ready:
            os.close(write)

    def runs(self) -> bool:
        """Has it not ended?"""
        return self.popen.poll() is None

    def is_at(self, address: str) -> bool:
        """Has the member or server of that address been told it by the flag, or is it this process
        or one that this process has started (HOST:PID)?"""
        if "--address=" + address in self.argv:
            return True
        try:
            pid = int(address.rpartition(":")[2])
            return self.popen.pid in (pid, os.getsid(pid))  # the session that it began with
        except (ValueError, OverflowError, ProcessLookupError):
            return address.endswith(":%d" % self.popen.pid)

    def output(self) -> str:
        """All that it and those before it in its place have printed."""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def _tail(self) -> str:
        with open(self.log, "rb") as f:
            f.seek(max(0, os.path.getsize(self.log) - TAIL_BYTES))
            lines = f.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def error(self, what: str, kind: type[Error] = Error) -> Error:
        """An exception that ends with the lines that were printed last."""
        said = self._tail()
        return kind("%s: %s; %s" % (self.name, what, "it printed last (all: %s):\n%s" % (
            self.log, said) if said else "it printed nothing"))

    def wait_ready(self, timeout: float) -> None:
        """Until it listens."""
        got = select.select([self._ready], [], [], timeout)[0]
        line = os.read(self._ready, 256) if got else b""
        os.close(self._ready)
        if not line:
            raise self.error("has ended" if got else "not ready within %g s" % timeout)

    def wait(self, timeout: float) -> None:
        """Until it has ended, with 0; another status is an Error, the deadline's a Timeout."""
        try:
            status = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.error("still runs after %g s" % timeout, Timeout) from None
        if status < 0:
            raise self.error("ended by %s" % signal.Signals(-status).name)
        if status:
            raise self.error("exit status %d" % status)

    def stop(self, number: int, timeout: float = STOP) -> None:
        """Sends a signal, with its end waited for; SIGKILL where it is too late."""
        stop([self], number, timeout)


def stop(processes: Iterable[Process], number: int, timeout: float = STOP) -> None:
    """All at once; SIGKILL to those that have not ended in time, and on Ctrl-C to all."""
    left = [p for p in processes if p.runs()]
    deadline = time.monotonic() + timeout
    try:
        for p in left:
            p.popen.send_signal(number)
        for p in left:
            try:
                p.popen.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
    finally:
        for p in left:
            p.popen.kill()  # nothing, where it has been waited for
        for p in left:
            p.popen.wait(timeout)
