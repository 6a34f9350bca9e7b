"""A job of one server and one worker grows to three and four and shrinks back while it trains:
nobody stops for long, each sample of each pass is read once, and it learns as well as a fixed
cluster."""
# label: net
import os
import re
import signal
import statistics
import unittest

import harness
import samples

DATA = "/usr/share/datasets/fashion-mnist"
STEPS, BATCH = 500, 80
FLAGS = ["--model=mlp", "--models_dir=" + harness.MODELS, "--data_dir=" + DATA, "--progress=lines",
         "--log_every=1", "--batch_size=%d" % BATCH, "--seed=3", "--learning_rate=0.01",
         "--lr_schedule=linear", "--intra_op_threads=1"]
# Pieces so small that three servers have several each; each push waits, which makes the length of a
# step, so that it can be measured on a machine with two cores.
ELASTIC = ["--train_steps=%d" % STEPS, "--chunk_bytes=16384", "--fault_push_delay_ms=8"]
STEP = re.compile(r"\w (\d+):(\d+):(\d+\.\d+) .*\(global step: (\d+)\)")
MAX_STOP = 2  # steps


def step_times(process):
    """[(second of the day, global step)]"""
    out = []
    for line in process.lines:
        m = STEP.match(line)
        if m:
            h, minute, s, step = m.groups()
            out.append((int(h) * 3600 + int(minute) * 60 + float(s), int(step)))
    return out


@unittest.skipUnless(os.path.exists(DATA), "needs Debian's dataset-fashion-mnist")
class Elastic(harness.Test):
    def setUp(self):
        super().setUp()
        ports = harness.free_ports(3)
        self.addresses = ["%s:%d" % (harness.LOOPBACK, p) for p in ports]
        self.servers, self.workers = [], []

    def ps(self, *flags):
        i = len(self.servers)
        p = self.start("ps:%d" % i, [os.path.join(harness.BIN, "ps"), "--ps_hosts=" +
                                     self.addresses[0], *flags], ready=True)
        p.wait_ready()
        self.servers.append(p)
        return p

    def worker(self, *flags):
        i = len(self.workers)
        p = self.start("worker %d" % i,
                       [os.path.join(harness.BIN, "worker"), "--ps_hosts=" + self.addresses[0],
                        *FLAGS, *ELASTIC, "--record_samples=" + self.path(i),
                        "--summary_json=%s/summary-%d" % (self.dir(), i), *flags])
        self.workers.append(p)
        return p

    def path(self, i):
        return "%s/samples-%d" % (self.dir(), i)

    def at_step(self, n):
        self.workers[0].wait_line(r"\(global step: %d\)" % n, 120)

    def grow_and_shrink(self):
        """Each change 25 steps after the one before; what each was, and at which step."""
        changes, at = [], 40
        self.ps()
        self.worker()

        def change(what, act):
            nonlocal at
            self.at_step(at)
            changes.append((at, what))
            act()
            at += 25

        for i in (1, 2):
            change("worker joins", lambda: self.worker("--join"))
            change("ps joins", lambda: self.ps("--join", "--address=" + self.addresses[i]))
        change("worker joins", lambda: self.worker("--join"))
        self.at_step(at)
        rows = samples.read([self.path(i) for i in range(4)])
        self.assertEqual(len({r[2] for r in rows if r[1] == at - 2}), 4, "four workers take part")
        at += 25
        for i in (2, 1):
            change("worker leaves", lambda: self.leave(i))
            change("ps leaves", lambda: self.drain(i))
        change("worker leaves", lambda: self.leave(3))
        return changes

    def leave(self, i):
        self.workers[i].popen.send_signal(signal.SIGTERM)
        self.workers[i].wait(30, 0)

    def drain(self, i):
        self.start("leave", [os.path.join(harness.BIN, "ps"), "--ps_hosts=" + self.addresses[0],
                             "--leave=%d" % i]).wait(30, 0)
        self.servers[i].wait(30, 0)

    def stops(self, changes):
        """What each change cost worker 0, which stays: the longest time between two of its steps in
        the 25 after the change was asked for, less the median of the 20 before it, in steps of that
        median. The pushes' pauses make most of a step, and the median is taken anew before each
        change, so that workers who share two cores do not count as a stop."""
        times = step_times(self.workers[0])
        out = []
        for at, what in changes:
            before = [b[0] - a[0] for a, b in zip(times, times[1:]) if at - 20 <= a[1] < at]
            near = [b[0] - a[0] for a, b in zip(times, times[1:]) if at <= a[1] < at + 25]
            median = statistics.median(before)
            out.append((what, at, median, max(near), (max(near) - median) / median))
        return out

    def fixed(self, n_samples):
        """Accuracy of two workers from start to end with as many samples."""
        job = self.job(n_ps=1, n_workers=2, data=DATA)
        job.flags = [*FLAGS, "--train_steps=%d" % round(n_samples / (2 * BATCH))]
        job.start()
        return job.finish(120)[0]["test_accuracy"]

    def test_grow_and_shrink(self):
        changes = self.grow_and_shrink()
        self.workers[0].wait(180)
        self.servers[0].wait(30)
        paths = [self.path(i) for i in range(4)]
        self.assertEqual(samples.wrong(paths, STEPS), [])
        rows = samples.last(samples.read(paths))
        n_samples = sum(r[3] for r in rows)
        print("%d generations, %d steps, %d samples" % (len({r[0] for r in rows}), STEPS,
                                                        n_samples))
        stops = self.stops(changes)
        for what, at, median, longest, stop in stops:
            print("%-13s at step %3d: steps of %3.0f ms, the longest after it %3.0f ms: "
                  "a stop of %.1f steps" % (what, at, 1000 * median, 1000 * longest, stop))
        with open(self.dir() + "/summary-0", encoding="utf-8") as f:
            elastic = harness.json.load(f)["test_accuracy"]
        fixed = self.fixed(n_samples)
        print("accuracy %.4f, of the fixed cluster %.4f" % (elastic, fixed))
        self.assertLess(max(s[4] for s in stops), MAX_STOP)
        self.assertLess(abs(elastic - fixed), 0.005)


if __name__ == "__main__":
    harness.main()
