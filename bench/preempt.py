"""Measures the throughput of a synchronous cluster in which one worker is killed (kill -9) again
and again, and started again each time. It compares that with the same cluster without kills.

  full       all workers, undisturbed
  less       one worker fewer, undisturbed
  dropped    kills; --worker_timeout=0: the other workers continue at once, the killed one rejoins
  waited     kills; the default --worker_timeout: the other workers wait until it is back

The program counts the steps of worker 0, which is never killed. A step is one batch of every worker
in the job, so steps per second are the throughput of a worker that stays. No figure includes the
killed worker's own share. A repeated step has its last time.

The program measures the cost of kills in two ways:

- Pauses: the time from worker 0's last step before a kill to its third step after the return of the
  killed worker, beyond the usual time of that number of steps. The usual time is the mean over the
  steps of the same cluster outside of all kills, so it includes neither another run nor a drift of
  the machine.
- Phases: the steps per second of a phase compared with those of `full`. --rounds repeats the phases
  in turn. A cluster of fewer workers waits for fewer workers, so its steps are a little shorter;
  both measures of `dropped` include that gain.

The launcher's share of a pause lasts from the kill to the new start, and Weir cannot shorten it. If
the other workers wait, they wait for all of it.

Workers that compute would compete for the cores of a small machine, and when one is killed, the
other workers would have its cores. So the model is small, and each of its many pushes waits a
random time (--fault_push_delay_ms), as if a separate device computed the gradient.
"""
import argparse
import os
import sys
import tempfile
import time

from common import SOURCE, loopback_hosts, machine, step_times

sys.path.insert(0, os.path.join(SOURCE, "tests/python"))

PHASES = ("full", "less", "dropped", "waited")


class Cluster:
    def __init__(self, o, n_workers, ps_flags, data):
        import harness
        self.harness, self.killed, self.workers = harness, [], []
        self.hosts = loopback_hosts(n_workers)
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
        """Kills worker i; returns the times of the kill, of the new start, and of its next step."""
        killed = time.time()
        self.workers[i].popen.kill()
        self.workers[i].wait(20, None)
        self.killed.append(self.workers[i])
        time.sleep(max(0, killed + back - time.time()))
        started = time.time()
        self.workers[i] = self.start(i)
        self.workers[i].wait_line("training step", 60)
        return killed, started, time.time()

    def steps(self):
        """Returns [(time, global step)] of worker 0, each step once."""
        day = time.mktime((*time.localtime()[:3], 0, 0, 0, 0, 0, -1))
        times = step_times(list(self.workers[0].lines))
        return sorted((t + day - 86400 * (t + day > time.time() + 3600), step)
                      for step, t in times.items())

    def close(self):
        for p in [self.ps, *self.workers, *self.killed]:
            p._end()


class Phase:
    """The measurements of one phase, over all rounds."""

    def __init__(self):
        self.steps, self.seconds = 0, 0
        self.usual_steps, self.usual_seconds = 0, 0  # steps outside of all kills, and their time
        self.kills = []  # (steps, seconds, the launcher's part of the seconds) around each kill

    def add(self, steps, kills):
        """Adds a run. kills: results of Cluster.kill(); the last kill must be over in `steps`."""
        self.steps += steps[-1][1] - steps[0][1]
        self.seconds += steps[-1][0] - steps[0][0]
        usual = [steps[-1][1] - steps[0][1], steps[-1][0] - steps[0][0]]
        for killed, started, returned in kills:
            first = [s for s in steps if s[0] <= killed][-1]
            last = [s for s in steps if s[0] > returned][2]
            n, seconds = last[1] - first[1], last[0] - first[0]
            self.kills.append((n, seconds, started - killed))
            usual = [usual[0] - n, usual[1] - seconds]
        self.usual_steps += usual[0]
        self.usual_seconds += usual[1]

    def rate(self):
        return self.steps / self.seconds

    def pauses(self):
        usual = self.usual_seconds / self.usual_steps
        return [seconds - n * usual for n, seconds, _ in self.kills]

    def launcher(self):
        return sum(k[2] for k in self.kills) / len(self.kills)


def run_phase(o, name, data, phase):
    flags = {"dropped": ["--worker_timeout=0"]}.get(name, [])
    cluster = Cluster(o, o.workers - (name == "less"), flags, data)
    try:
        for worker in cluster.workers:
            worker.wait_line("training step 5 done", 60)
        began, kills = time.monotonic(), []
        first = cluster.steps()[-1][1]
        if name in ("full", "less"):
            time.sleep(o.undisturbed)
        else:
            n = max(1, round(o.seconds / o.every))
            for k in range(n):
                time.sleep(max(0, began + (k + 0.5) * o.every - time.monotonic()))
                kills.append(cluster.kill(1 + (o.killed + k) % (o.workers - 1), o.back))
            o.killed += n
            time.sleep(max(0, began + n * o.every - time.monotonic()))
        phase.add([s for s in cluster.steps() if s[1] >= first], kills)
    finally:
        cluster.close()


def tell(o, name, phase, full):
    words = "%-8s %6.3f steps/s over %.0f s" % (name, phase.rate(), phase.seconds)
    if phase.kills:
        pauses = phase.pauses()
        mean = sum(pauses) / len(pauses)
        words += "; %d kills, each a pause of %.2f s (%s; the launcher takes %.2f s)" % (
            len(pauses), mean, " ".join("%.2f" % p for p in pauses), phase.launcher())
        words += ": %.1f%% by pauses" % (100 * (1 - mean / o.every))
        if full:
            words += ", %.1f%% of full by phases" % (100 * phase.rate() / full.rate())
    print(words, flush=True)


def main(argv):
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--workers", type=int, default=4, metavar="N",
                   help="workers of the full cluster (4)")
    p.add_argument("--every", type=float, default=30, metavar="S", help="a kill every S s (30)")
    p.add_argument("--back", type=float, default=1, metavar="S",
                   help="time from a kill to the new start (1), to which the set-up is added")
    p.add_argument("--seconds", type=float, default=90, metavar="S",
                   help="length of a phase with kills, whole times --every (90)")
    p.add_argument("--undisturbed", type=float, default=30, metavar="S",
                   help="length of a phase without kills (30)")
    p.add_argument("--rounds", type=int, default=2, metavar="N", help="rounds of all phases (2)")
    p.add_argument("--push_delay", type=int, default=3, metavar="MS",
                   help="longest wait of each of the 62 pushes of a step (3)")
    p.add_argument("--phases", default=",".join(PHASES), help="phases to run, in order (all)")
    p.add_argument("--bin", default=os.path.join(SOURCE, "build/bin"), metavar="FOLDER",
                   help="programs to measure")
    o = p.parse_args(argv)
    import harness
    print("%s; %d workers, 1 ps, loopback; a kill every %g s, started again after %g s" %
          (machine(), o.workers, o.every, o.back), flush=True)
    names, o.killed = o.phases.split(","), 0
    phases = {name: Phase() for name in names}
    with tempfile.TemporaryDirectory(prefix="weir-preempt-") as data:
        harness.make_data(data)
        for _ in range(o.rounds):
            for name in names:
                run_phase(o, name, data, phases[name])
    for name in names:
        tell(o, name, phases[name], phases.get("full"))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
