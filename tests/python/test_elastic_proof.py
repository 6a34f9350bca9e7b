"""A job of one server and one worker grows to three servers and four workers, and shrinks back,
while it trains. Each change repeats at most one step, each sample of each pass is read once, and
the job learns as well as a fixed cluster. bench/elastic measures how long each change stops the
workers."""
# label: net waits long
import os
import signal
import unittest

import harness
import samples

DATA = "/usr/share/datasets/fashion-mnist"
STEPS, BATCH = 500, 80
FLAGS = ["--model=mlp", "--models_dir=" + harness.MODELS, "--data_dir=" + DATA, "--progress=lines",
         "--log_every=1", "--batch_size=%d" % BATCH, "--seed=3", "--learning_rate=0.01",
         "--lr_schedule=linear", "--intra_op_threads=1"]
# Chunks so small that three servers have several each. Each push waits, which makes a step so long
# that the job outlasts the starts of its processes.
ELASTIC = ["--train_steps=%d" % STEPS, "--chunk_bytes=16384", "--fault_push_delay_ms=8"]
GAP = 10  # least number of steps from one change to the next


@unittest.skipUnless(os.path.exists(DATA), "needs Debian's dataset-fashion-mnist")
class Elastic(harness.Test):
    def setUp(self):
        super().setUp()
        ports = harness.free_ports(3)
        self.addresses = ["%s:%d" % (harness.LOOPBACK, p) for p in ports]
        self.servers, self.workers = [], []

    def ps(self, *flags):
        i = len(self.servers)
        p = self.start_program("ps", "--ps_hosts=" + self.addresses[0], *flags, name="ps:%d" % i,
                               ready=True)
        p.wait_ready()
        self.servers.append(p)
        return p

    def worker(self, *flags):
        i = len(self.workers)
        p = self.start_program("worker", "--ps_hosts=" + self.addresses[0], *FLAGS, *ELASTIC,
                               "--record_samples=" + self.path(i), "--summary_json=%s/summary-%d" %
                               (self.dir(), i), *flags, name="worker %d" % i)
        self.workers.append(p)
        return p

    def path(self, i):
        return "%s/samples-%d" % (self.dir(), i)

    def at_step(self, n):
        self.workers[0].wait_line(r"\(global step: %d\)" % n, 120)

    def grow_and_shrink(self):
        """Makes each change after the previous one is complete and GAP steps have passed. Returns
        the kind and step of each."""
        changes, at = [], 40
        self.ps()
        brake = harness.Brake(self, lambda: self.workers[:1], STEPS * 5 // 8)
        self.worker()

        def change(what, act, n_workers, n_servers):
            nonlocal at
            self.at_step(at)
            changes.append((at, what))
            act()
            m = self.workers[0].wait_line(
                r"generation 1\.%d from step (\d+): %d worker(?:s|), %d server(?:s|)$" %
                (len(changes) + 1, n_workers, n_servers))
            at = max(at, int(m.group(1))) + GAP

        for i in (1, 2):
            change("worker joins", lambda: self.worker("--join"), i + 1, i)
            change("ps joins", lambda: self.ps("--join", "--address=" + self.addresses[i]),
                   i + 1, i + 1)
        change("worker joins", lambda: self.worker("--join"), 4, 3)
        self.at_step(at)
        rows = samples.read([self.path(i) for i in range(4)])
        self.assertEqual(len({r[2] for r in rows if r[1] == at - 2}), 4, "four workers train")
        for i in (2, 1):
            change("worker leaves", lambda: self.leave(i), i + 1, i + 1)
            change("ps leaves", lambda: self.drain(i), i + 1, i)
        change("worker leaves", lambda: self.leave(3), 1, 1)
        brake.release()
        return changes

    def leave(self, i):
        self.workers[i].popen.send_signal(signal.SIGTERM)
        self.workers[i].wait(30, 0)

    def drain(self, i):
        self.start_program("ps", "--ps_hosts=" + self.addresses[0], "--leave=%d" % i,
                           name="leave").wait(30, 0)
        self.servers[i].wait(30, 0)

    def repeated_steps(self, i):
        """Returns {generation: number of steps of the previous generation that this worker repeated
        in it}."""
        steps = {}
        for generation, step, _, _ in samples.read([self.path(i)]):
            steps.setdefault(generation, set()).add(step)
        numbers = sorted(steps)
        return {b: len(steps[a] & steps[b]) for a, b in zip(numbers, numbers[1:])}

    def fixed(self, n_samples):
        """Returns the accuracy of two workers, from start to end, with as many samples."""
        job = self.job(n_ps=1, n_workers=2, data=DATA)
        job.flags = [*FLAGS, "--train_steps=%d" % round(n_samples / (2 * BATCH))]
        job.start()
        return job.finish(120)[0]["test_accuracy"]

    def test_growing_and_shrinking_job_learns_as_fixed_cluster(self):
        changes = self.grow_and_shrink()
        self.workers[0].wait(180)
        self.servers[0].wait(30)
        paths = [self.path(i) for i in range(4)]
        self.assertEqual(samples.wrong(paths, STEPS), [])
        rows = samples.last(samples.read(paths))
        n_samples = sum(r[3] for r in rows)
        print("%d generations, %d steps, %d samples" % (len({r[0] for r in rows}), STEPS,
                                                        n_samples))
        again = self.repeated_steps(0)
        for (at, what), generation in zip(changes, map(harness.term, range(2, 12))):
            print("%-13s at step %3d: steps done again: %d" % (what, at, again[generation]))
        elastic = harness.read_json(self.dir() + "/summary-0")["test_accuracy"]
        fixed = self.fixed(n_samples)
        print("accuracy %.4f, of the fixed cluster %.4f" % (elastic, fixed))
        self.assertEqual(sorted(again), [harness.term(n) for n in range(2, 12)])
        self.assertLessEqual(max(again.values()), 1)
        # The job makes more steps of the same samples, with smaller batches: it may well be better.
        self.assertGreater(elastic, fixed - 0.005)


harness.main(__name__)
