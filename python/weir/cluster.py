"""Servers and workers on this machine, for tests and notebooks; the status of a running job."""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
import weakref
from typing import Any, Iterator, Mapping, Optional, Sequence, Union

from . import _process
from ._library import HERE, Error, Timeout, Unavailable
from ._process import Process
from .progress import Course, Progress

AGAIN_LATER = 138  # weirctl's and ps' exit status
LATE = 5  # seconds after the job's end until workers that have not joined are stopped
LOOK = 0.05  # seconds between two checks whether processes run
Folder = Union[str, "os.PathLike[str]"]


def program(name: str) -> str:
    """Returns the path of weir-ps, weir-worker or weirctl: in the folder WEIR_PROGRAMS if it is
    set, otherwise beside this package, otherwise in PATH."""
    folder = os.environ.get("WEIR_PROGRAMS")
    folders = [folder] if folder else [os.path.join(HERE, "installed/bin")]
    for where in folders:
        for file in (name, name.replace("weir-", "")):  # a build folder has names without weir-
            path = os.path.join(where, file)
            if os.access(path, os.X_OK):
                return path
    found = None if folder else shutil.which(name)
    if found is None:
        raise Error("weir: there is no program %s in %s; install Weir, or set WEIR_PROGRAMS to the "
                    "folder that has it" % (name, folder or "PATH"))
    return found


def _weirctl(ps_hosts: Union[str, Sequence[str]], timeout: float, flags: Sequence[str],
             *command: str) -> dict[str, Any]:
    hosts = ps_hosts if isinstance(ps_hosts, str) else ",".join(ps_hosts)
    done = subprocess.run([program("weirctl"), "--json", "--ps_hosts=" + hosts,
                           "--timeout_s=%d" % max(1, round(timeout)), *flags, *command],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    kind = Unavailable if done.returncode == AGAIN_LATER else Error
    lines = done.stderr.strip().splitlines()
    raise kind(lines[-1] if lines else "weirctl: exit status %d" % done.returncode)


def status(ps_hosts: Union[str, Sequence[str]], timeout: float = 10,
           flags: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the status of a running job, the JSON of `weirctl --json status`
    (docs/reference/weirctl.md). flags: further flags of weirctl, such as --tls_ca=FILE. Raises
    Unavailable if no server was reached. Changes nothing."""
    return _weirctl(ps_hosts, timeout, flags, "status")


class Cluster:
    """Starts servers on this machine. If `command` is set, it also starts workers, which run it.

        with weir.Cluster(n_workers=2, command=[sys.executable, "train.py"]) as cluster:
            cluster.wait()

    Each worker gets its task in TF_CONFIG, which members read by default. A member in this process
    is `weir.Member(**cluster.settings(task_index))`. Weir's own worker is
    `command=[weir.program("weir-worker"), "--model=lenet5"]`.

    Processes have names: "ps:0", "worker:0", and those that were added "joined-ps:0", "joined:0".
    Each process writes to a file with its name in `folder`. Without `folder` the files are in a
    temporary folder, which stop() removes. All these processes end with this program, however it
    ends, but processes that they started may continue. Only status() may be called by several
    threads at once.

    n_ps, n_workers: numbers of servers and workers.
    checkpoint_dir, ps_flags: checkpoint folder and further flags of the servers.
    env: further environment variables of the workers.
    timeout: seconds until a server must listen.
    regions: number of groups of n_ps servers and n_workers workers each (docs/guide/regions.md).
        The server above them is "parent:0". The numbers of servers and workers of region 1 continue
        those of region 0. Each region has its own folder in checkpoint_dir. 0: one group without a
        parent.
    region_flags: flags for each region's ps 0, such as --region_steps=50."""

    def __init__(self, n_ps: int = 1, n_workers: int = 1, command: Optional[Sequence[str]] = None,
                 checkpoint_dir: Optional[Folder] = None, ps_flags: Sequence[str] = (),
                 env: Optional[Mapping[str, str]] = None, folder: Optional[Folder] = None,
                 timeout: float = 60, regions: int = 0, region_flags: Sequence[str] = ()) -> None:
        n_groups = max(1, regions)
        self._ports = _process.Ports()
        self.parent_hosts = ["127.0.0.1:%d" % self._ports.take()] if regions else []
        self.ps_hosts = ["127.0.0.1:%d" % self._ports.take() for _ in range(n_groups * n_ps)]
        # Workers do not listen: these are only names, which must differ.
        self.worker_hosts = ["127.0.0.1:%d" % (1 + i) for i in range(n_groups * n_workers)]
        self.n_ps, self.n_workers, self.regions = n_ps, n_workers, regions
        self.command, self.timeout, self.env = command, timeout, dict(env or {})
        self.checkpoint_dir, self.ps_flags = checkpoint_dir, list(ps_flags)
        self.region_flags = list(region_flags)
        self._own = None if folder else tempfile.TemporaryDirectory(prefix="weir-")
        self.folder = self._own.name if self._own else os.fspath(folder)
        os.makedirs(self.folder, exist_ok=True)
        self.processes: dict[str, Process] = {}
        self._added: list[Process] = []  # all processes of add_worker()
        self._joined: dict[str, int] = {}  # name of each added process: its region
        self._page = int(self._told("metrics_port") or self._ports.take())
        self._summary = self._told("summary_json") or os.path.join(self.folder, "ps-0.json")
        self._course = Course(time.time())
        self._over: Optional[float] = None  # time at which this object found that servers had ended
        self._end = weakref.finalize(self, _end, self.processes, self._ports, self._own)
        try:
            if regions:
                self.start_parent()
            for i in range(len(self.ps_hosts)):
                self.start_ps(i)
            for i in range(len(self.worker_hosts) if command else 0):
                self.start_worker(i)
        except BaseException:
            self.stop()
            raise

    def settings(self, task_index: int = 0) -> dict[str, Any]:
        """Returns the settings of a weir.Member in this process, which replaces a worker."""
        region, index = self._split(task_index, self.n_workers)
        return {"ps_hosts": ",".join(self._servers(region)), "n_workers": self.n_workers,
                "task_index": index}

    def _split(self, index: int, n: int) -> tuple[int, int]:
        """Returns (region, index in the region) of a server or worker. n: number of servers or
        workers in each region. Without regions it returns (0, index)."""
        return divmod(index, max(1, n)) if self.regions else (0, index)

    def _servers(self, region: int) -> list[str]:
        if not 0 <= region < max(1, self.regions):
            raise Error("there is no region %d of %d" % (region, self.regions))
        return self.ps_hosts[region * self.n_ps:(region + 1) * self.n_ps]

    def _kept(self, part: str) -> list[str]:
        """Returns a server's flag --checkpoint_dir, if any. part: name of the folder of a
        region or of the parent in checkpoint_dir."""
        if not self.checkpoint_dir:
            return []
        if not self.regions:
            return ["--checkpoint_dir=" + os.fspath(self.checkpoint_dir)]
        os.makedirs(self.checkpoint_dir, exist_ok=True)
        return ["--checkpoint_dir=" + os.path.join(self.checkpoint_dir, part)]

    def _told(self, flag: str) -> Optional[str]:
        """Returns the value of the flag in ps_flags, or None."""
        found = re.findall("^--%s[=\n](.*)" % flag, "\n".join(self.ps_flags), re.M)
        return found[-1] if found else None

    def _start(self, name: str, argv: Sequence[str], env: Mapping[str, str],
               ready: bool = False) -> Process:
        before = self.processes.get(name)
        if before and before.runs():
            raise Error("%s is already running" % name)

        def start() -> None:
            self.processes[name] = Process(name, argv, self.folder, env, ready,
                                           before is not None)
            if name.startswith("joined:"):
                self._added.append(self.processes[name])
        _process.in_starter(start)
        made = self.processes[name]
        if ready:
            made.wait_ready(self.timeout)
        return made

    def _free_name(self, kind: str) -> str:
        return "%s:%d" % (kind, sum(name.startswith(kind + ":") for name in self.processes))

    def _start_server(self, name: str, flags: Sequence[str]) -> Process:
        return self._start(name, [program("weir-ps"), *flags, *self.ps_flags], _without_cluster(),
                           True)

    def start_ps(self, index: int = 0) -> Process:
        """Starts that server, also if an earlier process of it has ended, and waits until it
        listens."""
        region, task = self._split(index, self.n_ps)
        flags = ["--ps_hosts=" + ",".join(self._servers(region)), "--task_index=%d" % task]
        if index == 0:
            flags += ["--metrics_port=%d" % self._page, "--metrics_bind=127.0.0.1",
                      "--summary_json=" + self._summary]
        if self.regions and task == 0:
            flags += ["--parent_hosts=" + ",".join(self.parent_hosts),
                      "--regions=%d" % self.regions, "--region_index=%d" % region,
                      *self.region_flags]
        return self._start_server("ps:%d" % index, flags + self._kept("region-%d" % region))

    def start_parent(self) -> Process:
        """Starts the server above the regions, also if an earlier process of it has ended, and
        waits until it listens."""
        return self._start_server("parent:0", ["--ps_hosts=" + self.parent_hosts[0],
                                               "--task_index=0", *self._kept("parent")])

    def add_ps(self, region: int = 0) -> Process:
        """Adds a server to the running job, and waits until it listens. Then parameters move to it:
        status()["servers"] has its state."""
        name = self._free_name("joined-ps")
        self._joined[name] = region
        return self._start_server(name, ["--join", "--ps_hosts=" + self._servers(region)[0],
                                         "--address=127.0.0.1:%d" % self._ports.take(),
                                         *self._kept("region-%d" % region)])

    def _command(self, command: Optional[Sequence[str]]) -> Sequence[str]:
        argv = command or self.command
        if not argv:
            raise Error("the worker has no command; set command")
        return argv

    def start_worker(self, index: int = 0, command: Optional[Sequence[str]] = None) -> Process:
        """Starts that worker, also if an earlier process of it has ended."""
        region, task = self._split(index, self.n_workers)
        first = region * self.n_workers
        place = {"cluster": {"ps": self._servers(region),
                             "worker": self.worker_hosts[first:first + self.n_workers]},
                 "task": {"type": "worker", "index": task}}
        return self._start("worker:%d" % index, self._command(command), {
            **_without_cluster(), **self.env, "TF_CONFIG": json.dumps(place)})

    def add_worker(self, command: Optional[Sequence[str]] = None, region: int = 0) -> Process:
        """Adds a worker to the running job: its command receives the arguments --join and
        --ps_hosts. Returns at once; the worker joins when its program has started."""
        name = self._free_name("joined")
        self._joined[name] = region
        return self._start(name, [
            *self._command(command), "--join", "--ps_hosts=" + ",".join(self._servers(region))],
            {**_without_cluster(), **self.env})

    def start(self, name: str) -> Process:
        """Starts a process that has ended again, with the same command line. A worker of
        add_worker() joins as a new worker."""
        p = self._process(name)
        return self._start(name, p.argv, p.env, p.ready)

    def _process(self, name: str) -> Process:
        if name not in self.processes:
            raise Error("there is no %s; there are %s" % (name, ", ".join(self.processes)))
        return self.processes[name]

    def kill(self, name: str) -> bool:
        """Kills a process, such as "ps:0" or "worker:1", with SIGKILL. The other members wait for
        it (ps --worker_timeout), and it resumes if it is started again (start, start_ps,
        start_worker). Returns False if it had ended before."""
        process = self._process(name)
        if not process.runs():
            return False
        process.counts = False
        process.stop(signal.SIGKILL)
        return True

    def remove(self, name: str, timeout: float = 60) -> None:
        """Removes a worker, or a server except ps 0, from the running job. The job continues
        without it, and its process ends. Raises Error if the process is not in the job, and Timeout
        if it still runs after the timeout."""
        process = self._process(name)
        if name.startswith("parent:"):
            raise Error("the regions' parent stays as long as the job")
        region, number = self._place(name, process)
        command = "drain" if _is_server(name) else "remove-worker"
        before, process.counts = process.counts, False
        try:
            _weirctl(self._servers(region), 10, (), command, str(number))
        except BaseException:
            process.counts = before
            raise
        try:
            process.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise process.error("still runs after %g s" % timeout, Timeout) from None

    def _place(self, name: str, process: Process) -> tuple[int, int]:
        """Returns the region of a process, and its index in the region's job."""
        if name not in self._joined:
            kind, index = name.split(":")
            return self._split(int(index), self.n_ps if kind == "ps" else self.n_workers)
        region = self._joined[name]
        for entry in self.status(region)["servers" if _is_server(name) else "members"]:
            if entry["index"] is not None and process.is_at(entry["address"]):
                return region, entry["index"]
        raise Error("%s is not in the job" % name)

    def status(self, region: int = 0) -> dict[str, Any]:
        """Returns weir.status() of this job, or of a region's."""
        return status(self._servers(region))

    def progress(self) -> Progress:
        """Returns the job's state, its speed so far, and its losses. The losses are those of Weir's
        workers, or those in lines such as "step 12 loss 0.5" that programs print. The step
        and the speed are those of the first region. May also be called after the job's end."""
        done = self._is_done("ps:0")
        if done:
            self._course.read_summary(self._summary)
        else:
            self._course.read_page(self._page)
        for name, process in list(self.processes.items()):
            if not _is_server(name):
                self._course.read_log(process.log)
        return self._course.progress(done)

    def output(self, name: str) -> str:
        """Returns all output of the process of this name."""
        return self._process(name).output()

    def wait_line(self, name: str, text: str, timeout: float = 60) -> None:
        """Waits until the process of this name has printed a line with that text. Raises Error if
        this process exits without that line, or if any process exits with another status than 0.
        Raises Timeout after the timeout."""
        process, deadline = self._process(name), time.monotonic() + timeout
        while text not in process.output():
            if not process.runs() and text not in process.output():
                raise process.error("has ended without a log line that matches %r" % text)
            self._left()  # raises an error of another process
            if time.monotonic() > deadline:
                raise process.error("no log line that matches %r within %g s" % (text, timeout),
                                    Timeout)
            time.sleep(LOOK)

    def _firsts(self) -> list[str]:
        """Returns ps 0 of each region."""
        return ["ps:%d" % (r * self.n_ps) for r in range(max(1, self.regions))]

    def _is_done(self, name: str) -> bool:
        return name in self.processes and self.processes[name].popen.poll() == 0

    def _servers_done(self) -> bool:
        return all(self._is_done(name) for name in self._firsts())

    def _left(self) -> list[Process]:
        """Returns the processes for which the job still waits. Raises Error if a process exited
        with another status than 0."""
        counting = [p for p in self.processes.values() if p.counts]
        for p in counting:
            if not p.runs():
                p.wait(0)
        left = [p for p in counting if p.runs()]
        if left and self._servers_done() and all(p.name.startswith("joined:") for p in left):
            self._over = self._over or time.monotonic()
            if time.monotonic() > self._over + LATE:
                self._end_late(left)
        return left

    def _end_late(self, left: Sequence[Process]) -> None:
        """Stops workers of add_worker() that have not joined before the job ended, and would wait
        for ever. If the log of ps 0 does not show which workers have joined, it stops none, because
        a worker that has joined may still work."""
        said = [self.output(name) for name in self._firsts()]
        if not all(" joined from " in log for log in said):  # for example with --log_level=warn
            return
        members = []
        for address in re.findall(r" \((.*)\) joins at step", "".join(said)):
            of = [p for p in self._added if p.is_at(address)]
            if not of:
                return
            members += of
        for p in left:
            if p not in members:
                p.counts = False
                p.stop(signal.SIGTERM)
                warnings.warn("%s joined after the end of the job and was stopped" % p.name)

    def watch(self, every: float = 1, timeout: Optional[float] = None) -> Iterator[Progress]:
        """Yields progress() every `every` seconds, and once more when the job is done. Raises the
        same errors as wait().

            for now in cluster.watch():
                print(now.step, now.losses[-1:])
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._wait(every, deadline):
            yield self.progress()
        yield self.progress()

    def _wait(self, seconds: float, deadline: Optional[float]) -> list[Process]:
        """Waits for `seconds`, or until the job is done. Returns the processes for which the job
        still waits."""
        until = time.monotonic() + seconds
        while True:
            left, now = self._left(), time.monotonic()
            if left and deadline is not None and now > deadline:
                raise left[0].error("still runs after the timeout", Timeout)
            if not left or now >= until:
                return left
            time.sleep(LOOK)

    def wait(self, timeout: float = 600) -> None:
        """Waits until the job is done: all processes have exited with 0, except those that were
        killed or removed. If a process exits with another status, raises Error with its last
        output. Raises Timeout after the timeout."""
        while self._wait(timeout + 1, time.monotonic() + timeout):
            pass

    def stop(self) -> None:
        """Ends all processes, workers first, and removes a temporary folder of logs. A second call
        does nothing. Ctrl-C during the call kills the processes."""
        try:
            _process.in_starter(lambda: None)  # waits for a start that Ctrl-C interrupted
            for servers in (False, True):
                _process.stop([p for name, p in self.processes.items()
                               if _is_server(name) == servers], signal.SIGTERM)
        finally:
            self._end()

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_error: Any) -> None:
        self.stop()


def _is_server(name: str) -> bool:
    return "ps:" in name or name.startswith("parent:")


def _without_cluster() -> dict[str, str]:
    """Returns this environment without variables from which a worker would read its cluster, and
    with the path of this process' library."""
    told = ("TF_CONFIG", "TORCHELASTIC_RUN_ID", "WEIR_PS_HOSTS")
    made = {k: v for k, v in os.environ.items() if k not in told and not k.startswith("SLURM_")}
    paths = [os.path.dirname(HERE), *filter(None, [made.get("PYTHONPATH")])]
    return {**made, "PYTHONPATH": os.pathsep.join(paths)}


def _end(processes: dict[str, Process], ports: _process.Ports,
         own: Optional[tempfile.TemporaryDirectory]) -> None:
    _process.stop(processes.values(), signal.SIGKILL)
    ports.close()
    if own is not None:
        own.cleanup()
