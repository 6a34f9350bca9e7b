#!/usr/bin/python3
"""A ps 0 without a checkpoint folder, or with a lost one, does not have the number of its earlier
lives, and begins with epoch 1 again. If another process is still in a generation of the earlier
ps 0, whose number is not below the new one's, the job begins again from the first step, in a
generation with a higher number."""
# label: cluster waits
import os
import re
import shutil

import harness

FLAGS = ["--batch_size=12", "--train_steps=600", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]


class LostCount(harness.Test):
    def begin(self, n_ps, ps_flags=()):
        """Begins a job that is slow until worker 0 is started again."""
        job = self.job(n_ps=n_ps, n_workers=2, model="small", flags=FLAGS)
        job.start_servers(*ps_flags)
        job.start_worker(0, "--fault_push_delay_ms=10")
        job.start_worker(1).wait_line("training step 3 done")
        return job

    def one_more_generation(self, job):
        """A third worker joins in generation 1.2, and leaves, which begins generation 1.3."""
        third = job.join_worker("third", *job.flags)
        third.wait_line("training step [0-9]+ done", 60)
        third.stop(seconds=60, status=0)
        job.workers[1].wait_line(r"generation 1\.3 from step", 60)

    def restart(self, job, ps_flags=()):
        """Starts ps 0 and worker 0, which have died, again, before the other processes continue."""
        job.start_ps(0, *ps_flags)
        job.start_worker(0)
        job.ps[0].wait_line("worker 0 joined|waits for ps:1", 60)

    def check(self, job):
        job.finish(120, self.undisturbed_digest(n_workers=2, model="small", flags=FLAGS))

    def check_rollback(self, job):
        job.ps[0].wait_line("the job, which began before this ps:0 started, begins again", 60)
        job.workers[1].wait_line(r"generation 2\.1 from step 0", 60)
        job.workers[1].wait_line("going back from step [0-9]+ to step 0")

    def test_worker_of_higher_generation_restarts_from_first_step(self):
        """The number of the worker's generation is higher than that of the next ps 0's first one,
        or equals it."""
        for is_higher in (True, False):
            with self.subTest(is_higher=is_higher):
                job = self.begin(1)
                if is_higher:
                    self.one_more_generation(job)
                with harness.paused(job.workers[1]):
                    self.kill(job.ps[0], job.workers[0])
                    self.restart(job)
                self.check_rollback(job)
                self.check(job)

    def test_server_of_higher_generation_restarts_from_first_step(self):
        """The server hangs while ps 0 makes its first plan."""
        job = self.begin(2)
        with harness.paused(job.ps[1], job.workers[1]):
            self.kill(job.ps[0], job.workers[0])
            self.restart(job)
            job.ps[0].wait_line(r"generation 1\.1 waits for ps:1", 60)
        self.check_rollback(job)
        self.check(job)

    def test_raised_epoch_recorded_before_use(self):
        """The folder is lost: ps 0 records the raised epoch in a new folder before it uses the
        epoch."""
        folder = self.path("ckpt")
        flags = ["--checkpoint_dir=" + folder, "--save_steps=1000"]
        job = self.begin(1, flags)
        self.one_more_generation(job)
        with harness.paused(job.workers[1]):
            self.kill(job.ps[0], job.workers[0])
            shutil.rmtree(folder)
            self.restart(job, flags)
        self.check_rollback(job)
        leases = [n for n in os.listdir(folder) if re.fullmatch("lease-[0-9]+", n)]
        self.assertEqual(leases, ["lease-2"])
        self.check(job)


harness.main(__name__)
