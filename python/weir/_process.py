"""The processes of a Cluster. They end with this process at the latest, and print to files."""
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

TAIL_LINES, TAIL_BYTES = 20, 4000  # end of a process' output that an error quotes
STOP = 20  # seconds from SIGTERM to SIGKILL
# Code that runs in a process before its program: it has the kernel kill the process when the thread
# that started it ends. It cannot run between fork and exec, where Python may wait for a lock of
# another thread. It also resets the two signals that Python ignores.
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
    """The thread that starts all processes. The kernel kills a process when the thread that started
    it ends. This thread lives as long as the program; the thread that makes a cluster may end
    earlier."""

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
            del future, call  # keeps no object of the caller alive during the next wait


_starter: Optional[_Starter] = None


def in_starter(call: Callable[[], T]) -> T:
    """Makes the call in the starter's thread, and returns its result. If Ctrl-C ends the wait for
    the result, the call is made nevertheless."""
    global _starter
    if _starter is None or not _starter.is_alive():  # a forked child has no starter thread
        _starter = _Starter()
    future: concurrent.futures.Future = concurrent.futures.Future()
    _starter.calls.put((future, call))
    return future.result()


class Ports:
    """Reserves ports of 127.0.0.1. This object binds them without listening. So no other program
    receives them, and Weir's servers can listen on them repeatedly (SO_REUSEADDR)."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def take(self) -> int:
        """Reserves one more port."""
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", 0))
        self._held.append(s)
        return s.getsockname()[1]

    def close(self) -> None:
        """Releases all ports."""
        while self._held:
            self._held.pop().close()


class Process:
    """A server or a worker. popen: the process. log: the file of its output. counts: whether the
    job waits for this process and requires that it exits with 0; False after it was killed or
    removed. again: appends to the log instead of truncating it."""

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
        """Returns whether the process runs."""
        return self.popen.poll() is None

    def is_at(self, address: str) -> bool:
        """Returns whether a member with this address is this process. The address is the one of its
        flag --address, or HOST:PID of this process or of a process that it started."""
        if "--address=" + address in self.argv:
            return True
        try:
            pid = int(address.rpartition(":")[2])
            return self.popen.pid in (pid, os.getsid(pid))  # children are in its session
        except (ValueError, OverflowError, ProcessLookupError):
            return address.endswith(":%d" % self.popen.pid)

    def output(self) -> str:
        """Returns all output of this process and of earlier processes with the same name."""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def _tail(self) -> str:
        with open(self.log, "rb") as f:
            f.seek(max(0, os.path.getsize(self.log) - TAIL_BYTES))
            lines = f.read().decode("utf-8", "replace").splitlines()
        return "\n".join(lines[-TAIL_LINES:])

    def error(self, what: str, kind: type[Error] = Error) -> Error:
        """Returns an exception that ends with the last lines of the output."""
        said = self._tail()
        return kind("%s: %s; %s" % (self.name, what, "it printed last (all: %s):\n%s" % (
            self.log, said) if said else "it printed nothing"))

    def wait_ready(self, timeout: float) -> None:
        """Waits until the process listens."""
        got = select.select([self._ready], [], [], timeout)[0]
        line = os.read(self._ready, 256) if got else b""
        os.close(self._ready)
        if not line:
            raise self.error("has ended" if got else "not ready within %g s" % timeout)

    def wait(self, timeout: float) -> None:
        """Waits until the process has exited with 0. Raises Error for another status, Timeout at
        the deadline."""
        try:
            status = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.error("still runs after %g s" % timeout, Timeout) from None
        if status < 0:
            raise self.error("ended by %s" % signal.Signals(-status).name)
        if status:
            raise self.error("exit status %d" % status)

    def stop(self, number: int, timeout: float = STOP) -> None:
        """Sends the process a signal, waits until it has ended, and sends SIGKILL at the
        deadline."""
        stop([self], number, timeout)


def stop(processes: Iterable[Process], number: int, timeout: float = STOP) -> None:
    """Sends the signal to all processes, and waits until they have ended. Sends SIGKILL to
    processes that do not end in time, and on Ctrl-C to all."""
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
            p.popen.kill()  # does nothing if the exit was collected above
        for p in left:
            p.popen.wait(timeout)
