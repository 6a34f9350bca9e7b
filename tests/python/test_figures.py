#!/usr/bin/python3
"""The figures of a process count its own work. A process that joined a job late, or resumed from a
checkpoint, does not count earlier steps."""
# label: cluster waits
import re
import socket

import harness

FLAGS = ["--batch_size=12", "--seed=5", "--chunk_bytes=5120", "--log_every=1",
         "--intra_op_threads=1"]


class Figures(harness.Test):
    def ckpt(self, *more):
        return ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=20", *more]

    def run_to(self, steps):
        job = self.job(model="small", flags=[*FLAGS, "--train_steps=%d" % steps])
        summary = self.path("ps.json")
        job.start(self.ckpt("--summary_json=" + summary))
        job.finish()
        return job.ps[0], harness.read_json(summary)

    def steps_of(self, summary):
        return tuple(summary[key] for key in ("first_step", "steps", "last_step"))

    def test_resumed_run_counts_its_own_steps(self):
        ps, summary = self.run_to(40)
        ps.wait_line(r" 40 steps in [0-9.]+ s; ")
        self.assertEqual(self.steps_of(summary), (0, 40, 40))
        ps, summary = self.run_to(60)
        ps.wait_line(r" 20 steps in [0-9.]+ s, from step 40 to 60; ")
        self.assertEqual(self.steps_of(summary), (40, 20, 60))
        ps, summary = self.run_to(60)  # steps of the checkpoint
        ps.wait_line(r" 0 steps in [0-9.]+ s, from step 60 to 60; ")
        self.assertEqual(self.steps_of(summary), (60, 0, 60))

    def test_server_without_chunks_counts_no_steps(self):
        """The model is too small for two servers: the second server has no steps."""
        summary = self.path("ps.json")
        job = self.job(n_ps=2, n_workers=1, model="small", flags=[
            "--batch_size=12", "--seed=5", "--log_every=1", "--train_steps=100000000"])
        job.start(["--summary_json=" + summary])
        job.workers[0].wait_line("training step 3 done")
        job.ps[1].stop()
        job.ps[1].wait_line("this server had no chunks; 0.0 MB of gradients received, "
                             "0.0 MB of parameters sent")
        self.assertEqual(self.steps_of(harness.read_json(summary)), (0, 0, 0))
        self.kill(job.workers[0], job.ps[0])

    def test_joined_worker_counts_its_own_steps(self):
        job = self.job(model="small", flags=[*FLAGS, "--train_steps=60"])
        job.hold(20)
        job.start()
        job.workers[0].wait_line("training step 9 done")
        joined = job.join_ps()
        step = int(job.ps[0].wait_line(r"ps:1 .* joins at step (\d+)").group(1))
        job.gate.open()
        job.finish()
        joined.ends(0, r" %d steps in [0-9.]+ s, from step %d to 60; " % (60 - step, step))
        job.ps[0].wait_line(r" 60 steps in [0-9.]+ s; ")

    def test_async_last_step_logged_once(self):
        """In async mode further steps are in flight when the job makes its last one. The line of
        the last step appears once."""
        job = self.job(model="small", flags=["--batch_size=12", "--seed=5", "--sync_mode=async",
                                             "--chunk_bytes=5120", "--intra_op_threads=1",
                                             "--train_steps=60", "--log_every=7"]).start()
        job.finish()
        for worker in job.workers:
            text = worker.output()
            self.assertLessEqual(text.count("(global step: 60)"), 1, text)

    def test_resumed_async_worker_counts_its_own_steps(self):
        """A worker counts the steps that it makes; evaluations follow the job's steps."""
        for steps, first in ((40, 0), (80, 40)):
            job = self.job(model="small", n_workers=1, flags=[
                "--batch_size=12", "--seed=5", "--sync_mode=async", "--log_every=1",
                "--intra_op_threads=1", "--eval_every=15", "--train_steps=%d" % steps])
            job.start(self.ckpt())
            summary = job.finish()[0]
            text = job.workers[0].output()
            numbers = [int(n) for n in re.findall(r"training step (\d+) done", text)]
            self.assertEqual(numbers[0], 1)
            self.assertLessEqual(numbers[-1], summary["local_steps"])
            said = [int(n) for n in re.findall(r": global step (\d+): test accuracy", text)]
            due = [n for n in range(15, steps, 15) if n > first]
            self.assertEqual(said, due)

    def test_resumed_run_evaluates_at_the_jobs_steps(self):
        """A resumed run does not evaluate at its own steps."""
        for steps, due in ((40, [15, 30]), (80, [45, 60, 75])):
            job = self.job(model="small", flags=[*FLAGS, "--eval_every=15",
                                                 "--train_steps=%d" % steps]).start(self.ckpt())
            job.finish()
            text = job.workers[0].output()
            self.assertEqual(due, [int(n) for n in re.findall(
                r": global step (\d+): test accuracy", text)])

    def test_workers_of_one_host_have_distinct_addresses(self):
        """Two workers of one host have different addresses, by which other programs distinguish
        them."""
        job = self.started_job(model="small", flags=[*FLAGS, "--train_steps=100000000"])
        self.wait_lines(job.workers, "training step 3 done")
        shown = job.report()
        self.assertEqual([m["address"] for m in shown["members"]],
                         ["%s:%d" % (socket.gethostname(), w.popen.pid) for w in job.workers])
        self.kill(*job.workers, *job.ps)


harness.main(__name__)
