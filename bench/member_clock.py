"""Measures what one member of a benchmark costs between two of its steps."""
import json
import os
import resource
import time


def cpu_of(pid):
    """Returns the CPU seconds of another process so far."""
    with open("/proc/%d/stat" % pid, encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Clock:
    """Measures wall and CPU seconds between two steps, of this process and of the servers. child: a
    process that trains for this process, and is measured instead of it."""

    def __init__(self, first, servers, child=None):
        self.first, self.servers, self.child = first, servers, child
        self.begun, self.losses = None, []

    def now(self):
        own = cpu_of(self.child) if self.child else time.process_time()
        return (time.monotonic(), own, sum(cpu_of(pid) for pid in self.servers))

    def at(self, step, loss=None):
        if loss is not None:
            self.losses.append(loss)
        if step == self.first:
            self.begun = self.now()

    def report(self, end=None):
        end = end or self.now()
        whose = resource.RUSAGE_CHILDREN if self.child else resource.RUSAGE_SELF
        print(json.dumps({
            "from": self.begun[0], "to": end[0], "cpu": end[1] - self.begun[1],
            "cpu_of_servers": end[2] - self.begun[2], "losses": self.losses,
            "rss": resource.getrusage(whose).ru_maxrss / 1024}), flush=True)
