"""What the measuring programs share. Standard library only."""
import math
import os
import platform
import socket
import statistics


def free_ports(n):
    """Ports of 127.0.0.1 that nobody listens on, all different."""
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        return next((l.split(":", 1)[1].strip() for l in f if l.startswith("model name")),
                    "unknown CPU")


def memory_gb():
    with open("/proc/meminfo", encoding="utf-8") as f:
        return int(f.readline().split()[1]) / 1e6


def machine():
    return "%d cores of %s, %.0f GB, Linux %s" % (os.cpu_count(), cpu_model(), memory_gb(),
                                                  platform.release())


def paired(blocks):
    """What B costs over A, in percent: (mean, half of its 95% interval), from blocks of
    measurements [(a, b), ...], each made in both orders (A B, B A), so that a drift, and who is
    first, cancel out in it. By Student's t over the blocks, of which there are two at least."""
    each = [statistics.fmean(math.log(b / a) for a, b in block) for block in blocks]
    free = len(each) - 1
    t = 1.96 + 2.37 / free + 2.8 / free ** 2
    if free < 4:
        t = {1: 12.71, 2: 4.30, 3: 3.18}[free]
    mean, half = statistics.fmean(each), t * statistics.stdev(each) / math.sqrt(len(each))
    return 100 * math.expm1(mean), 100 * half
