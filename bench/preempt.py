"""Throughput of a synchronous cluster in which one worker is killed (kill -9) every so often and
started again, compared with the same cluster left alone.

  full       all workers, undisturbed
  less       one worker fewer, undisturbed
  dropped    kills; --worker_timeout=0: the others go on at once, the killed one rejoins when it can
  waited     kills; the default --worker_timeout: the others wait until it is back

What is counted are the steps of worker 0, which is never killed: each is one batch of every worker
that takes part, so steps per second are the throughput of a worker that stays, and the killed
one's own share is in none of the figures. A cluster of fewer waits for fewer, so its steps are a
little shorter; `dropped` is therefore also compared with what its two sizes would do undisturbed,
each for as long as it lasted (away: from the kill to the killed one's next step).

On a machine with few cores, workers that compute would take turns, and one that is killed would
leave its cores to the others. So the model is small and each of its many pushes waits a random
time (--fault_push_delay_ms), as if it were computed by a device of the worker's own.
"""
import argparse
import os
import re
import sys
import tempfile
import time

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(SOURCE, "tests/python"))
from common import free_ports, machine  # noqa: E402

PHASES = ("full", "less", "dropped", "waited")
STEP = re.compile(r"\w (\d+):(\d+):(\d+\.\d+) .*\(global step: (\d+)\)")


class Cluster:
    def __init__(self, o, n_workers, ps_flags, data):
        import harness
        self.harness, self.killed, self.workers = harness, [], []
        ports = free_ports(1 + n_workers)
        self.hosts = ["--ps_hosts=127.0.0.1:%d" % ports[0],
                      "--worker_hosts=" + ",".join("127.0.0.1:%d" % p for p in ports[1:])]
        self.flags = ["--model=lenet5", "--models_dir=" + harness.MODELS, "--data_dir=" + data,
                      "--progress=lines", "--log_every=1", "--train_steps=1000000000",
                      "--batch_size=10", "--intra_op_threads=1", "--chunk_bytes=4096",
                      "--fault_push_delay_ms=%d" % o.push_delay]
        self.ps = harness.Process("ps:0", [os.path.join(o.bin, "ps"), *self.hosts,
                                           "--job_name=ps", *ps_flags], ready=True)
        self.ps.wait_ready()
        self.bin = o.bin
        for i in range(n_workers):
            self.workers.append(self.start(i))

    def start(self, i):
        return self.harness.Process("worker:%d" % i, [os.path.join(self.bin, "worker"), *self.hosts,
                                                      "--task_index=%d" % i, *self.flags])

    def kill(self, i, back):
        """away: from here to the step that it takes part in next."""
        began = time.monotonic()
        self.workers[i].popen.kill()
        self.workers[i].wait(20, None)
        self.killed.append(self.workers[i])
        time.sleep(back)
        self.workers[i] = self.start(i)
        self.workers[i].wait_line("training step", 60)
        return time.monotonic() - began

    def at(self):
        """(seconds of the day, global step) of worker 0's newest line."""
        for line in reversed(list(self.workers[0].lines)):
            m = STEP.match(line)
            if m:
                h, minute, s, step = m.groups()
                return int(h) * 3600 + int(minute) * 60 + float(s), int(step)
        return None

    def close(self):
        for p in [self.ps, *self.workers, *self.killed]:
            p._end()


def phase(o, name, data):
    """(steps per second, kills, seconds away in all, seconds)"""
    flags = {"dropped": ["--worker_timeout=0"]}.get(name, [])
    cluster = Cluster(o, o.workers - (name == "less"), flags, data)
    try:
        for worker in cluster.workers:
            worker.wait_line("training step 2 done", 60)
        began, (first_time, first_step) = time.monotonic(), cluster.at()
        away, kills = 0, 0
        seconds = o.seconds if name in ("dropped", "waited") else o.undisturbed
        while time.monotonic() - began < seconds:
            left = began + seconds - time.monotonic()
            if seconds == o.undisturbed and name in ("full", "less"):
                time.sleep(left)
                break
            next_kill = began + (kills + 0.5) * o.every - time.monotonic()
            time.sleep(max(0, min(left, next_kill)))
            if left > next_kill:
                away += cluster.kill(1 + kills % (o.workers - 1), o.back)
                kills += 1
        last_time, last_step = cluster.at()
        lasted = (last_time - first_time) % 86400
        return (last_step - first_step) / lasted, kills, away, lasted
    finally:
        cluster.close()


def main(argv):
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", type=int, default=4, metavar="N", help="in the full cluster (4)")
    p.add_argument("--every", type=float, default=30, metavar="S", help="a kill every S s (30)")
    p.add_argument("--back", type=float, default=1, metavar="S",
                   help="from the kill to the new start (1); it then sets up, too")
    p.add_argument("--seconds", type=float, default=180, metavar="S",
                   help="length of the phases with kills (180)")
    p.add_argument("--undisturbed", type=float, default=30, metavar="S",
                   help="length of those without (30)")
    p.add_argument("--push_delay", type=int, default=3, metavar="MS",
                   help="longest wait of each of the 62 pushes of a step (3)")
    p.add_argument("--phases", default=",".join(PHASES), help="which, in order (all)")
    p.add_argument("--bin", default=os.path.join(SOURCE, "build/bin"), metavar="FOLDER",
                   help="programs to measure")
    o = p.parse_args(argv)
    import harness
    print("%s; %d workers, 1 ps, loopback; a kill every %g s, started again after %g s" %
          (machine(), o.workers, o.every, o.back), flush=True)
    rate = {}
    with tempfile.TemporaryDirectory(prefix="weir-preempt-") as data:
        harness.make_data(data)
        for name in o.phases.split(","):
            rate[name], kills, away, seconds = phase(o, name, data)
            words = "%-8s %6.3f steps/s over %.0f s" % (name, rate[name], seconds)
            if kills:
                words += ", %d kills, one away %.1f s on average" % (kills, away / kills)
            if kills and "full" in rate:
                words += "; %.1f%% of full" % (100 * rate[name] / rate["full"])
            if name == "dropped" and "full" in rate and "less" in rate:
                gone = away / seconds
                ideal = rate["full"] * (1 - gone) + rate["less"] * gone
                words += ", %.1f%% of its two sizes" % (100 * rate[name] / ideal)
            print(words, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
