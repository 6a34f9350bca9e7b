"""What the measuring programs share. Standard library only."""
import os
import platform
import socket


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
