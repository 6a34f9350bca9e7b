"""Makes one measured run of synthetic workers against real servers on loopback, for bench/scale.

All children are in their own process groups, die with this program, and are killed at the end of a
run in any case. Every wait has a deadline. The clients read the CPU times themselves at the first
and last measured step (see scale_client.c), so that start-up, joining and warm-up steps do not
count.
"""
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import tempfile
import time

from common import SOURCE, free_ports

BIN = os.environ.get("WEIR_BIN") or os.path.join(SOURCE, "build/bin")
LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
FILES_BESIDE = 128  # descriptors of a process besides those of connections and workers
READY_S, END_S = 30, 30


class Failure(Exception):
    """A run without figures; the text has the reason."""


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def raise_file_limit(point):
    """Raises the soft limit of descriptors to the hard one; fails if that is still too low."""
    n_workers = point["workers"]
    need = FILES_BESIDE + (point["servers"] + 2) * n_workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < need:
        raise Failure("%d workers need up to %d open files, the hard limit is %d: raise it "
                      "(ulimit -Hn), or use fewer --workers" % (n_workers, need, hard))
    if soft != resource.RLIM_INFINITY and soft < need:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))


def status_kb(pid, key):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        for line in f:
            if line.startswith(key + ":"):
                return int(line.split()[1])
    return 0


class Children:
    """The processes of one run. The end of the `with` block kills those that still run."""

    def __enter__(self):
        self.all = []
        return self

    def __exit__(self, *exc):
        for p, out, err in self.all:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
            p.wait()
            out.close()
            err.close()

    def start(self, argv, fds=()):
        out, err = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, pass_fds=fds,
                             preexec_fn=die_with_parent, start_new_session=True)
        self.all.append((p, out, err))
        return p

    def text(self, process, stream):
        """Returns the output of a process: stream 1 or 2."""
        entry = next(e for e in self.all if e[0] is process)
        entry[stream].seek(0)
        return entry[stream].read()

    def wait(self, process, deadline, what):
        try:
            status = process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failure("%s did not end in time; its last lines:\n%s" %
                          (what, self.text(process, 2)[-2000:])) from None
        if status != 0:
            raise Failure("%s ended with status %d:\n%s" %
                          (what, status, self.text(process, 2)[-2000:]))


def start_server(children, index, ps_hosts, worker_hosts):
    """Starts a server. --serve keeps it running after the job, to read its peak memory."""
    read_fd, write_fd = os.pipe()
    p = children.start([os.path.join(BIN, "ps"), "--ps_hosts=" + ps_hosts,
                        "--worker_hosts=" + worker_hosts, "--task_index=%d" % index, "--serve",
                        "--log_level=warn", "--ready_fd=%d" % write_fd], (write_fd,))
    os.close(write_fd)
    try:
        if not select.select([read_fd], [], [], READY_S)[0] or not os.read(read_fd, 256):
            raise Failure("ps:%d was not ready in time:\n%s" % (index, children.text(p, 2)[-2000:]))
    finally:
        os.close(read_fd)
    return p, status_kb(p.pid, "VmRSS")


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(point, steps, results, servers):
    """Returns the figures of a run. Bytes are those of both ways; a pull has only one way."""
    n, m = point["workers"], results[0]["model_bytes"]
    seconds = (max(r["end_ns"] for r in results) - min(r["begin_ns"] for r in results)) * 1e-9
    ways = 1 if point["mode"] == "pull" else 2
    gb = ways * n * m * steps * 1e-9
    step_us = [us for r in results for us in r["step_us"]]
    client_s, server_s = sum(r["cpu_s"] for r in results), results[0]["watched_cpu_s"]
    others = results[0]["machine_cpu_s"] - client_s - server_s
    peaks = [status_kb(p.pid, "VmHWM") for p, _ in servers]
    grown = max(peak - idle for peak, (_, idle) in zip(peaks, servers))
    return dict(point, steps=steps, model_bytes=m, chunks=results[0]["chunks"],
                seconds=seconds, steps_s=steps / seconds, gb_s=gb / seconds,
                p50_ms=percentile(step_us, 0.5) / 1e3, p99_ms=percentile(step_us, 0.99) / 1e3,
                server_cpu_s=server_s / steps, client_cpu_s=client_s / steps,
                server_s_gb=server_s / gb, client_s_gb=client_s / gb,
                others_cores=max(0.0, others / results[0]["window_s"]),
                server_peak_mb=max(peaks) / 1024, server_mb_per_worker=grown / 1024 / n,
                client_mb_per_worker=sum(r["peak_kb"] for r in results) / 1024 / n,
                join_s=max(r["join_s"] for r in results),
                reconnects=sum(r["reconnects"] for r in results))


def run(point, steps, per_process, deadline_s):
    """Returns the figures of one run, or raises a Failure. point: workers, servers, model_bytes,
    chunk_bytes, tensors, mode, compute_ms, jitter_ms, straggler_ms."""
    n = point["workers"]
    raise_file_limit(point)
    ps_hosts = ",".join("127.0.0.1:%d" % p for p in free_ports(point["servers"]))
    worker_hosts = ",".join("localhost:%d" % (10000 + i) for i in range(n))
    deadline = time.monotonic() + deadline_s
    with Children() as children:
        servers = [start_server(children, i, ps_hosts, worker_hosts)
                   for i in range(point["servers"])]
        pids = ",".join(str(p.pid) for p, _ in servers)
        same = ["--%s=%s" % (key, point[key]) for key in point if key != "servers"]
        clients = []
        for first in range(0, n, per_process):
            clients.append(children.start(
                [os.path.join(BIN, "bench_scale_client"), "--ps_hosts=" + ps_hosts,
                 "--first=%d" % first, "--n=%d" % min(per_process, n - first),
                 "--steps=%d" % steps, "--deadline_s=%d" % deadline_s] + same +
                (["--watch_pids=" + pids] if first == 0 else [])))
        for i, p in enumerate(clients):
            children.wait(p, deadline + END_S, "client process %d" % i)
        results = [json.loads(children.text(p, 1)) for p in clients]
        return summary(point, steps, results, servers)


def primitives(chunk_bytes):
    """Returns the seconds per byte of the loops that a server runs over a chunk."""
    with Children() as children:
        p = children.start([os.path.join(BIN, "bench_scale_client"), "--primitives",
                            "--chunk_bytes=%d" % chunk_bytes])
        children.wait(p, time.monotonic() + 120, "the timing of loops")
        return json.loads(children.text(p, 1))
