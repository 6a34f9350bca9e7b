"""Child processes with deadlines, and commands that run to their end."""
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time

from .settings import LOOPBACK, PATIENCE


class Failure(AssertionError):
    """The failure of a process: it did not do what the test expected."""


# A child dies with this program, and handles SIGINT like a program that a user has started: a
# program in a shell's background ignores SIGINT, and its children would, too. The programs env and
# setpriv arrange both: Python code between fork and exec could wait for ever for a lock that
# another thread, for example of gRPC, held during the fork.
AS_CHILD = ["/usr/bin/env", "--default-signal=INT",
            "/usr/bin/setpriv", "--pdeathsig", "KILL", "--"]


def free_ports(n, host=LOOPBACK):
    """Returns n different ports that were free a moment ago."""
    sockets = []
    for _ in range(n):
        s = socket.socket()
        s.bind((host, 0))
        sockets.append(s)
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run(argv, **kwargs):
    """Runs a command to its end; returns its status and, as text, stdout and stderr together."""
    return subprocess.run(argv, **{"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT,
                                   "text": True, "check": False, **kwargs})


def capture(argv, seconds=60, **kwargs):
    """Runs a command to its end, in so many seconds at most; returns its status and, as text,
    stdout and stderr."""
    return run(argv, **{"stderr": subprocess.PIPE, "timeout": seconds * PATIENCE, **kwargs})


def check_output(argv, **kwargs):
    """Runs a command that must succeed; returns its stdout as text."""
    return subprocess.run(argv, stdout=subprocess.PIPE, **{"text": True, "check": True,
                                                           **kwargs}).stdout


class Process:
    """A child process: its output line by line, its exit status, its readiness."""

    def __init__(self, name, argv, env=None, ready=False, cwd=None):
        self.name, self.argv = name, argv
        self.lines, self.changed = [], threading.Condition()
        self.status = None  # exit status once collected by wait(); negative: killed by that signal
        self.ready_read = None
        self.n_holds, self.holding = 0, threading.Lock()
        self.begun, self.n_looked = None, 0  # cache of has_begun()
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
        """Returns the address in the process' "ready <addr>" line; an early end is a failure."""
        deadline = time.monotonic() + seconds * PATIENCE
        got = b""
        os.set_blocking(self.ready_read, False)
        while not got.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.ready_read], [], [], left)[0]:
                raise Failure("%s: not ready within %g s" % (self.name, seconds * PATIENCE))
            part = os.read(self.ready_read, 256)
            if not part:
                raise Failure("%s: closed its ready pipe without a line" % self.name)
            got += part
        os.close(self.ready_read)
        self.ready_read = None
        words = got.decode().split()
        if len(words) != 2 or words[0] != "ready":
            raise Failure("%s: wrote %r to its ready pipe" % (self.name, got))
        return words[1]

    def wait_line(self, pattern, seconds=30):
        """Waits for a line with the pattern, old or new; returns the match of the first."""
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

    def wait_output(self, seconds=60, status=0):
        """Collects the exit, which must have this status (None: any); returns the whole output."""
        self.wait(seconds, status)
        return self.output()

    def ends(self, status, pattern, seconds=60):
        """Collects the exit, which must have this status; returns the match of the first line with
        the pattern."""
        self.wait(seconds, status)
        return self.wait_line(pattern)

    def kill(self):
        """Ends the process by SIGKILL and collects it."""
        return self.stop(signal.SIGKILL, 60, -signal.SIGKILL)

    def stop(self, signum=signal.SIGTERM, seconds=20, status=143):
        self.popen.send_signal(signum)
        return self.wait(seconds, status)

    def output(self):
        with self.changed:
            return "\n".join(self.lines)

    def hold(self):
        """Stops the process until resume() was called as often as hold()."""
        with self.holding:
            self.n_holds += 1
            if self.n_holds == 1:
                self.popen.send_signal(signal.SIGSTOP)

    def resume(self):
        with self.holding:
            self.n_holds -= 1
            if self.n_holds == 0:
                self.popen.send_signal(signal.SIGCONT)

    def global_step(self):
        """Returns the global step of the last line that has one (--log_every=1), or 0."""
        with self.changed:
            found = re.findall(r"\(global step: (\d+)\)", "\n".join(self.lines[-20:]))
        return int(found[-1]) if found else 0

    def has_begun(self):
        """Returns whether this worker has printed a step, or that it joined."""
        with self.changed:
            while not self.begun and self.n_looked < len(self.lines):
                self.begun = re.search(r"\(global step: \d|joined as worker \d",
                                       self.lines[self.n_looked])
                self.n_looked += 1
        return bool(self.begun)

    def is_asleep(self, states="ST"):
        """Returns whether every thread of the process waits; with "TZ", whether every thread is
        stopped or ended."""
        folder = "/proc/%d/task" % self.popen.pid
        for thread in os.listdir(folder):
            try:
                with open("%s/%s/stat" % (folder, thread), encoding="ascii") as f:
                    if f.read().rsplit(") ", 1)[1][0] not in states:
                        return False
            except FileNotFoundError:
                pass  # the thread has ended
        return True

    def _end(self):
        """Ends the process after the test; returns whether the test had collected it."""
        collected = self.status is not None
        # Kills the whole group, since a grandchild must not hold the output open. The group keeps
        # its id while it has members. If the child has ended and a process has its id now, that
        # process belongs to another program, and the group has no members left.
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
