"""Base of the tests of generations: a small job whose servers and workers join and leave, and the
check of its parameters at the end."""
import os

import harness

FLAGS = ["--batch_size=12", "--train_steps=60", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
SLOW = [*FLAGS, "--fault_push_delay_ms=6"]
TRIES = 10  # for conditions that a busy machine may miss


class Test(harness.Test):
    def undisturbed(self, n_workers=2):
        return self.undisturbed_digest(n_workers=n_workers, model="small", flags=FLAGS)

    def ckpt(self, *more):
        return ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=8", *more]

    def slow_job(self, n_ps, n_workers=2, hold=0):
        """hold: keep the job from that step until the test calls check()."""
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small", flags=SLOW)
        if hold:
            job.hold(hold)
        return job

    def training_job(self, n_ps, ps_flags=(), **kwargs):
        """Returns a slow job past its first steps. kwargs: arguments of slow_job()."""
        job = self.slow_job(n_ps, **kwargs)
        job.start(ps_flags)
        job.workers[0].wait_line("training step 9 done")
        return job

    def saved_job(self, n_ps, *more, **kwargs):
        """Returns a slow job with a checkpoint. more: flags of its servers."""
        job = self.slow_job(n_ps, **kwargs)
        job.start(self.ckpt(*more))
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        return job

    def check(self, job, n_workers=2, seconds=120):
        job.finish(seconds, self.undisturbed(n_workers))

    def join(self, job, *flags):
        """Starts a server that joins the running job."""
        ps = job.join_ps(*flags)
        job.ps.append(ps)
        return ps

    def leave(self, job, index, status=0):
        """Runs ps --leave=INDEX; returns its output."""
        return self.start_program("ps", "--leave=%d" % index, "--ps_hosts=" + job.ps_hosts[0],
                                  name="leave").wait_output(20, status)

    def wipe(self):
        for name in os.listdir(self.path("ckpt")):
            os.remove(self.path("ckpt", name))
