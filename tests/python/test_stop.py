#!/usr/bin/python3
"""weirctl, or the program of a member, stops a job in order. The servers write a last checkpoint,
and then all programs exit with 0."""
# label: cluster
import re
import signal
import sys
import unittest

import ckpt_folder
import generations
import harness

LONG = [*generations.FLAGS, "--train_steps=100000"]
MEMBER = """
import sys, weir
settings, (does,) = weir.flags()
with weir.Member(train_steps=100000, batch_size=4, **settings) as m:
    w = m.param("w", (3,))
    for step in m:
        print("step", step.step, flush=True)
        if step.step >= 5 and does == "stops":
            print("stops", m.stop_job(), flush=True)
            does = "waits"
        if step.step >= 5 and does == "leaves":
            m.leave_soon()
        if step.step >= 5 and does == "interrupted":
            raise KeyboardInterrupt
        if step.step >= 5 and does == "exits":
            sys.exit("enough")
        m.push(w, samples=4)
print("ends", m.result)
"""


class Stop(generations.Test):
    def stop_job(self, job, status=0):
        done = harness.run([harness.program("weirctl"), "--ps_hosts=" + job.ps_hosts[0], "stop"],
                           timeout=30 * harness.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def begin(self, flags, n_ps=2):
        job = self.job(n_ps=n_ps, n_workers=2, model="small", flags=flags).start(self.ckpt())
        job.workers[0].wait_line(r"training step \d+9 done")
        return job

    def test_stop_by_weirctl_saves_and_job_resumes(self):
        """weirctl stops jobs of each mode. A new job with the same flags resumes from the
        checkpoint."""
        folder = self.path("ckpt")
        for mode in "sync", "async":
            job = self.begin([*LONG, "--sync_mode=" + mode])
            self.assertIn("the job ends at its present step", self.stop_job(job))
            summaries = job.finish_alike()
            step = int(job.ps[0].wait_line(r"the job is stopped, as requested: it ends at step "
                                           r"(\d+) of 100000").group(1))
            self.assertEqual(ckpt_folder.steps(folder)[-1], step)
            for worker in job.workers:
                self.assertIn("the job has ended at step %d of 100000: weirctl stop, or a member's "
                              "program, stopped it" % step, worker.output())
            self.assertFalse(any(s.get("stopped_early") for s in summaries))
            job = self.begin([*LONG, "--sync_mode=" + mode])
            job.ps[0].wait_line("found a checkpoint at step %d:" % step)
            self.stop_job(job)
            job.finish(60)
            self.assertGreater(ckpt_folder.steps(folder)[-1], step)
            self.wipe()

    def test_export_of_stopped_job_is_marked(self):
        """The export is marked as interrupted, and the log states that its figures are those of an
        incomplete training."""
        path = self.path("stopped.safetensors")
        job = self.begin([*LONG, "--export=" + path])
        self.stop_job(job)
        job.finish(60)
        job.workers[0].wait_line("exported .*, marked as interrupted")
        p = self.start_program("worker", "--evaluate=" + path, "--data_dir=" + self.data(),
                               name="evaluate")
        p.ends(0, r"the training that wrote .* was interrupted at step \d+")

    def test_stop_precedes_early_stopping(self):
        """A job with --early_stopping reports the stop, which was earlier."""
        job = self.begin([*LONG, "--validation_split=0.25", "--eval_every=1000000",
                          "--early_stopping=3"])
        self.stop_job(job)
        summaries = job.finish(60)
        for worker in job.workers:
            self.assertRegex(worker.output(), r"the job has ended at step \d+ of 100000: weirctl "
                                              "stop, or a member's program, stopped it")
        self.assertIs(summaries[0]["stopped_early"], False)

    def test_stop_without_job_ends_servers(self):
        job = self.job(n_ps=1, n_workers=1)
        job.start_ps()
        self.assertIn("there is no job yet; the servers exit", self.stop_job(job))
        job.ps[0].wait(30)
        self.assertIn("not reachable", self.stop_job(job, status=138))

    def test_stop_with_serve_and_no_workers_ends_job(self):
        """Servers with --serve stay though no worker is left. The next worker that joins ends the
        job."""
        job = self.job(n_workers=1, model="small", flags=LONG)
        ps = job.start_ps(0, "--serve")
        job.start_worker(0).wait_line("training step 5 done")
        job.workers[0].stop(signal.SIGTERM, 60, 0)
        ps.wait_line("worker 0 left before the job's end")
        self.assertIn("if it has no workers, when the next one joins", self.stop_job(job))
        job.start_worker(0).wait(60)
        ps.wait_line("the job is done; this server waits for the next one")
        self.assertRegex(job.workers[0].output(), "the job has ended at step [0-9]+ of ")
        other = self.job(n_workers=1, model="small", flags=["--train_steps=7", "--seed=4"])
        other.ps_hosts = job.ps_hosts
        other.start_worker(0).wait(60)
        self.assertEqual(other.summary(0)["global_step"], 7)
        ps.stop()

    def test_stop_with_serve_keeps_servers(self):
        """The workers of the stopped job exit. Servers with --serve stay, and serve the next
        job."""
        job = self.job(n_ps=1, n_workers=2, model="small", flags=LONG)
        ps = job.start_ps(0, "--serve")
        self.assertIn("there is no job to stop", self.stop_job(job, status=1))
        for _ in range(2):
            job.start_workers()
            job.workers[0].wait_line("training step 9 done")
            self.assertIn("its servers, which run with --serve, wait for the next job",
                          self.stop_job(job))
            self.wait_all(job.workers, 60)
        ps.stop()

    def test_next_job_of_serve_may_have_another_model(self):
        """No server compares the model, or the columns of the data, with those of the job before.
        Each job has parts on both servers."""
        job = self.job(n_ps=2, n_workers=1, model="small", flags=["--train_steps=5"])
        servers = [job.start_ps(i, "--serve") for i in range(2)]
        job.start_worker(0).wait(60)
        for model in ("mlp", "small"):
            other = self.job(n_ps=2, n_workers=1, model=model, flags=["--train_steps=5"])
            other.ps_hosts = job.ps_hosts
            other.start_worker(0).wait(60)
            self.assertEqual(other.summary(0)["global_step"], 5)
        for ps in servers:
            ps.stop()

    def test_stop_with_missing_worker_makes_one_step(self):
        """The worker that did join makes one step: a job has at least one."""
        job = self.job(n_ps=2, n_workers=2, model="small", flags=LONG)
        job.start_servers(*self.ckpt())
        worker = job.start_worker(0)
        worker.wait_line(r"waiting for worker 1 \(never joined\)")
        self.stop_job(job)
        self.wait_all((worker, *job.ps), 60)
        job.ps[0].wait_line("the job is stopped, as requested: it ends at step 1 of")
        self.assertEqual(ckpt_folder.steps(self.path("ckpt")), [1])

    def members(self, job, *does):
        return [self.start("member:%d" % i, [
            sys.executable, "-c", MEMBER, "--ps_hosts=" + ",".join(job.ps_hosts),
            "--n_workers=2", "--task_index=%d" % i, what], env=harness.package_env())
                for i, what in enumerate(does)]

    @unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
    def test_stop_by_member_ends_job_for_all(self):
        """The program of a member ends the job for all: each has the result "done"."""
        job = self.job(n_ps=2)
        job.start_servers(*self.ckpt())
        members = self.members(job, "stops", "waits")
        for m in members:
            m.ends(0, "ends done")
        members[0].wait_line("stops True")
        self.wait_all(job.ps, 60)
        last = max(int(s) for s in re.findall(r"^step (\d+)$", members[1].output(), re.M))
        self.assertGreaterEqual(ckpt_folder.steps(self.path("ckpt"))[-1], last)

    @unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
    def test_stop_after_all_members_left_ends_servers(self):
        """The command stops servers that wait for members."""
        job = self.job(n_ps=2)
        job.start_servers(*self.ckpt())
        for m in self.members(job, "leaves", "leaves"):
            m.ends(0, "ends left")
        self.stop_job(job)
        self.wait_all(job.ps, 60)
        job.ps[0].wait_line("has no workers: the job is done")
        self.assertGreaterEqual(ckpt_folder.steps(self.path("ckpt"))[-1], 5)

    @unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
    def test_interrupted_member_leaves_job(self):
        """Ctrl-C and sys.exit() within `with` leave the job, which continues without this
        member."""
        for does in "interrupted", "exits":
            job = self.job(n_ps=1, n_workers=2)
            job.start_ps(0)
            ends, stays = self.members(job, does, "stays")
            self.assertNotEqual(ends.wait(60, status=None), 0)
            job.ps[0].wait_line(r"generation 1\.\d+ from step \d+: 1 worker, 1 server")
            self.assertIn("worker 0 requests to leave", job.ps[0].output())
            seen = len(stays.lines)
            harness.until(lambda n=seen, m=stays: len(m.lines) > n + 20, "the other member trains")
            self.stop_job(job)
            stays.wait(60)
            job.ps[0].wait(60)


harness.main(__name__)
