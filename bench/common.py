"""Functions that several measuring programs use. Standard library only."""
import json
import math
import os
import platform
import re
import socket
import statistics
import subprocess
import sys
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STEP = re.compile(r"(\d\d):(\d\d):(\d\d\.\d+) .*\(global step: (\d+)\)")


def free_ports(n):
    """Returns n different ports of 127.0.0.1 that no program listens on."""
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def loopback_hosts(n_workers):
    """Returns the flags of a cluster of one server and these workers on this machine."""
    ports = ["127.0.0.1:%d" % port for port in free_ports(1 + n_workers)]
    return ["--ps_hosts=" + ports[0], "--worker_hosts=" + ",".join(ports[1:])]


def wait_all(processes, what, seconds):
    """Returns the output of the processes, in order; the run ends if one fails or hangs."""
    deadline, outputs = time.monotonic() + seconds, []
    try:
        for p in processes:
            out = p.communicate(timeout=max(1, deadline - time.monotonic()))[0]
            if p.returncode != 0:
                sys.exit("bench: %s failed with status %d:\n%s" % (what, p.returncode, out))
            outputs.append(out)
    except subprocess.TimeoutExpired:
        sys.exit("bench: %s did not end within %d s" % (what, seconds))
    finally:
        for p in processes:
            if p.poll() is None:
                p.kill()
            p.wait()
    return outputs


def run_weir(argvs, seconds):
    """Runs programs of Weir at the same time; returns the output of each."""
    return wait_all([subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      text=True) for argv in argvs], "Weir", seconds)


def in_turns(n_rounds, kinds):
    """Yields (round, kind). Every second round has the reverse order, so that no kind always runs
    on a machine that is still cool."""
    for i in range(n_rounds):
        for kind in list(kinds)[::1 if i % 2 == 0 else -1]:
            yield i, kind


def step_times(lines):
    """Returns {global step: time in seconds} from a worker's lines, also across midnight. A
    repeated step has its last time."""
    times, day, last = {}, 0, 0
    for h, m, s, step in (found.groups() for found in map(STEP.search, lines) if found):
        now = int(h) * 3600 + int(m) * 60 + float(s)
        day += 86400 if now < last else 0
        times[int(step)], last = day + now, now
    return times


def read_json(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def write_json(result, path, indent=2):
    """Writes the result as JSON; without a path it does nothing."""
    if path:
        with open(path, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=indent)


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return next((l.split(":", 1)[1].strip() for l in f if l.startswith("model name")),
                    "unknown CPU")


def memory_gb():
    with open("/proc/meminfo", encoding="utf-8") as f:
        return int(f.readline().split()[1]) / 1e6


def vector_units():
    """Returns the name of the CPU's widest vector units, on which its speed depends."""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        flags = next((line.split() for line in f if line.startswith("flags")), [])
    names = ("amx_tile", "avx512_bf16", "avx512f", "avx2")
    return next((name for name in names if name in flags), "no AVX2")


def congestion_control():
    with open("/proc/sys/net/ipv4/tcp_congestion_control", encoding="ascii") as f:
        return f.read().strip()


def machine():
    """Returns the hardware, and the kernel's settings that change figures."""
    return "%d cores of %s (%s), %.0f GB, Linux %s, TCP %s" % (
        os.cpu_count(), cpu_model(), vector_units(), memory_gb(), platform.release(),
        congestion_control())


def commit(source):
    """Returns the tree's commit; -dirty if files differ from it."""
    try:
        return subprocess.run(["git", "describe", "--always", "--dirty"], cwd=source, text=True,
                              check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def paired(blocks):
    """Returns by how many percent B is above A: (mean, half of its 95% interval). Each block is a
    list [(a, b), ...] of measurements in both orders (A B, B A), so that a drift of the machine and
    the order cancel out. The interval is Student's t over the blocks, of which there must be
    two."""
    each = [statistics.fmean(math.log(b / a) for a, b in block) for block in blocks]
    free = len(each) - 1
    t = 1.96 + 2.37 / free + 2.8 / free ** 2
    if free < 4:
        t = {1: 12.71, 2: 4.30, 3: 3.18}[free]
    mean, half = statistics.fmean(each), t * statistics.stdev(each) / math.sqrt(len(each))
    return 100 * math.expm1(mean), 100 * half
