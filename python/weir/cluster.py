"""Servers and workers on this machine, for tests and notebooks; and how a running job stands."""
from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from typing import Any, Mapping, Optional, Sequence, Union

from ._library import HERE, Error, Timeout, Unavailable

AGAIN_LATER = 138  # weirctl's and ps' exit status
TAIL = 2000  # bytes of a process' output that an error quotes


def program(name: str) -> str:
    """The path of weir-ps, weir-worker or weirctl: in the folder that WEIR_PROGRAMS names, alone;
    else beside this package; else where the shell finds it."""
    folder = os.environ.get("WEIR_PROGRAMS")
    folders = [folder] if folder else [os.path.join(HERE, "installed/bin")]
    for where in folders:
        for file in (name, name.replace("weir-", "")):  # as a build folder has it
            path = os.path.join(where, file)
            if os.access(path, os.X_OK):
                return path
    found = None if folder else shutil.which(name)
    if found is None:
        raise Error("weir: there is no program %s in %s; install Weir, or set WEIR_PROGRAMS to the "
                    "folder that has it" % (name, folder or "PATH"))
    return found


def status(ps_hosts: Union[str, Sequence[str]], timeout: float = 10,
           flags: Sequence[str] = ()) -> dict[str, Any]:
    """How a running job stands: the document of `weirctl --json status` (docs/operations.md).
    flags: more of weirctl's, as --tls_ca=FILE. Unavailable: nobody was reached. Reads only."""
    hosts = ps_hosts if isinstance(ps_hosts, str) else ",".join(ps_hosts)
    done = subprocess.run([program("weirctl"), "--json", "--ps_hosts=" + hosts,
                           "--timeout_s=%d" % max(1, round(timeout)), *flags, "status"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    kind = Unavailable if done.returncode == AGAIN_LATER else Error
    lines = done.stderr.strip().splitlines()
    raise kind(lines[-1] if lines else "weirctl: exit status %d" % done.returncode)


def _free_ports(n: int) -> list[int]:
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Process:
    """A server or a worker: `popen`, and what it has printed."""

    def __init__(self, name: str, argv: Sequence[str], folder: str, env: Mapping[str, str],
                 ready: bool) -> None:
        self.name, self.log = name, os.path.join(folder, name.replace(":", "-") + ".log")
        self._ready, write = os.pipe() if ready else (-1, -1)
        argv = [*argv, "--ready_fd=%d" % write] if ready else list(argv)
        with open(self.log, "ab") as out:
            self.popen = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env,
                pass_fds=(write,) if ready else (), start_new_session=True)
        if ready:
            os.close(write)

    def output(self) -> str:
        """All that it and those before it in its place have printed."""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def error(self, what: str) -> Error:
        """An exception that ends with what was printed last."""
        return Error("%s: %s; it printed:\n%s" % (self.name, what, self.output()[-TAIL:]))

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
            status_ = self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Timeout(str(self.error("still runs after %g s" % timeout))) from None
        if status_ != 0:
            raise self.error("exit status %d" % status_)

    def stop(self, number: int, timeout: float = 20) -> None:
        """Sends a signal, with its end waited for; SIGKILL where it is too late."""
        for send in (number, signal.SIGKILL):
            if self.popen.poll() is None:
                self.popen.send_signal(send)
            try:
                self.popen.wait(timeout)
                return
            except subprocess.TimeoutExpired:
                pass


class Cluster:
    """Servers on this machine, and workers if `command` says what they run.

        with weir.Cluster(n_workers=2, command=[sys.executable, "train.py"]) as cluster:
            cluster.wait()

    Each worker finds its place in TF_CONFIG, as all members do that are told nothing else; a member
    in this very process takes `weir.Member(**cluster.settings(task_index))`. Processes write to
    files in `folder`, which goes with the cluster if it is none of yours. Those of a cluster that
    was not stopped end with this program, but not where a signal kills it.

    n_ps, n_workers: how many. checkpoint_dir, ps_flags: of the servers. env: more variables for
    workers. timeout: seconds for a server to listen."""

    def __init__(self, n_ps: int = 1, n_workers: int = 1, command: Optional[Sequence[str]] = None,
                 checkpoint_dir: Optional[str] = None, ps_flags: Sequence[str] = (),
                 env: Optional[Mapping[str, str]] = None, folder: Optional[str] = None,
                 timeout: float = 60) -> None:
        ports = ["127.0.0.1:%d" % port for port in _free_ports(n_ps + n_workers)]
        self.ps_hosts, self.worker_hosts = ports[:n_ps], ports[n_ps:]
        self.command, self.timeout, self.env = command, timeout, dict(env or {})
        self.ps_flags = ["--checkpoint_dir=" + checkpoint_dir] if checkpoint_dir else []
        self.ps_flags += ps_flags
        self._own = None if folder else tempfile.TemporaryDirectory(prefix="weir-")
        self.folder = folder or self._own.name
        self.processes: dict[str, Process] = {}
        self._end = weakref.finalize(self, _kill_all, self.processes)
        try:
            for i in range(n_ps):
                self.start_ps(i)
            for i in range(n_workers if command else 0):
                self.start_worker(i)
        except BaseException:
            self.stop()
            raise

    def settings(self, task_index: int = 0) -> dict[str, Any]:
        """Of a member in this process, in a worker's place."""
        return {"ps_hosts": ",".join(self.ps_hosts), "n_workers": len(self.worker_hosts),
                "task_index": task_index}

    def _start(self, name: str, argv: Sequence[str], env: Mapping[str, str],
               ready: bool) -> Process:
        before = self.processes.get(name)
        if before and before.popen.poll() is None:
            raise Error("%s runs already" % name)
        made = self.processes[name] = Process(name, argv, self.folder, env, ready)
        return made

    def start_ps(self, index: int = 0) -> Process:
        """That server, again if it has ended; returns when it listens."""
        made = self._start("ps:%d" % index, [
            program("weir-ps"), "--ps_hosts=" + ",".join(self.ps_hosts),
            "--task_index=%d" % index, *self.ps_flags], _without_cluster(), True)
        made.wait_ready(self.timeout)
        return made

    def start_worker(self, index: int = 0, command: Optional[Sequence[str]] = None) -> Process:
        """That worker, again if it has ended."""
        place = {"cluster": {"ps": self.ps_hosts, "worker": self.worker_hosts},
                 "task": {"type": "worker", "index": index}}
        argv = command or self.command
        if not argv:
            raise Error("what a worker runs is not said; give command")
        return self._start("worker:%d" % index, argv, {
            **_without_cluster(), **self.env, "TF_CONFIG": json.dumps(place)}, False)

    def add_worker(self, command: Optional[Sequence[str]] = None) -> Process:
        """One more in the running job: the setting join, told by the argument --join, and
        --ps_hosts."""
        argv = command or self.command
        if not argv:
            raise Error("what a worker runs is not said; give command")
        n = sum(name.startswith("joined:") for name in self.processes)
        return self._start("joined:%d" % n, [
            *argv, "--join", "--ps_hosts=" + ",".join(self.ps_hosts)],
            {**_without_cluster(), **self.env}, False)

    def kill(self, name: str) -> None:
        """kill -9 of "ps:0", "worker:1": what start_ps and start_worker start again goes on."""
        self.processes[name].stop(signal.SIGKILL)

    def status(self) -> dict[str, Any]:
        """How the job stands, as status()."""
        return status(self.ps_hosts)

    def output(self, name: str) -> str:
        """All that the process of this name has printed."""
        return self.processes[name].output()

    def wait(self, timeout: float = 600) -> None:
        """Until the job is done: all have ended with 0. Error: one has ended otherwise, with what
        it printed; Timeout."""
        deadline = time.monotonic() + timeout
        left = list(self.processes.values())
        while left:
            for process in left[:]:
                if process.popen.poll() is not None:
                    process.wait(0)
                    left.remove(process)
            if left and time.monotonic() > deadline:
                left[0].wait(0)
            if left:
                time.sleep(0.02)

    def stop(self) -> None:
        """Ends all of them; logs in a folder of the cluster's own go with it."""
        for process in reversed(list(self.processes.values())):
            process.stop(signal.SIGTERM)
        self._end.detach()
        if self._own is not None:
            self._own.cleanup()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.stop()


def _without_cluster() -> dict[str, str]:
    """This environment, without one that a worker would take its cluster from; with the library
    that this process has."""
    told = ("TF_CONFIG", "TORCHELASTIC_RUN_ID", "WEIR_PS_HOSTS")
    made = {k: v for k, v in os.environ.items() if k not in told and not k.startswith("SLURM_")}
    paths = [os.path.dirname(HERE), *filter(None, [made.get("PYTHONPATH")])]
    return {**made, "PYTHONPATH": os.pathsep.join(paths)}


def _kill_all(processes: dict[str, Process]) -> None:
    for process in processes.values():
        process.stop(signal.SIGKILL)
