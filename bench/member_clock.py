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
    """Measures wall and CPU seconds between two steps, of this process and of the servers."""

    def __init__(self, first, servers):
        self.first, self.servers, self.begun, self.losses = first, servers, None, []

    def now(self):
        return (time.monotonic(), time.process_time(), sum(cpu_of(pid) for pid in self.servers))

    def at(self, step, loss=None):
        if loss is not None:
            self.losses.append(loss.item())
        if step == self.first:
            self.begun = self.now()

    def report(self, end=None):
        end = end or self.now()
        print(json.dumps({
            "from": self.begun[0], "to": end[0], "cpu": end[1] - self.begun[1],
            "cpu_of_servers": end[2] - self.begun[2], "losses": self.losses,
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)
