#!/usr/bin/python3
"""async, ssp and backup workers: servers assign samples to workers batch by batch, so that each
sample of each pass counts once at any speed of the workers (I6). If the worker that reads a batch
is lost, another worker reads the batch."""
# label: cluster waits
import signal

import harness
import samples
from test_modes import QUICK, count_steps
from test_passes import wait_generation

BATCH = 20
TURNS = 1200
LONG = 3000  # steps that last while processes are started on a busy machine
STEPS = 300  # batches of 20: two and a half passes over the 2400 samples
MODES = {"async": ["--sync_mode=async"], "ssp": ["--sync_mode=ssp", "--staleness=200"],
         "backup": ["--replicas_to_aggregate=1"]}


class GivenOut(harness.Test):
    def start_job(self, mode, n_workers, ps_flags=(), steps=STEPS):
        job = self.job(n_ps=2, n_workers=n_workers, flags=[
            *QUICK, *mode, "--train_steps=%d" % steps, "--log_every=1",
            "--fault_push_delay_ms=3"])
        job.start_servers(*ps_flags)
        job.brake_from(steps // 2)
        for i in range(n_workers):
            job.start_worker(i, self.record(i))
        self.wait_lines(job.workers, r"training step \d+ done")
        return job

    def check(self, n_workers, n_batches=STEPS):
        self.assertEqual(samples.wrong_batches(self.records, n_batches, BATCH, n_workers), [])

    def test_fast_worker_reads_the_remaining_samples(self):
        """While one worker stands still, the other one reads all remaining samples."""
        for name, mode in MODES.items():
            with self.subTest(mode=name):
                self.records = []
                job = self.start_job(mode, 2, steps=TURNS)
                # The division between running workers depends on the machine.
                with harness.paused(*job.workers):
                    for turn in (0, 1, 0):
                        worker = job.workers[turn]
                        worker.resume()
                        before = count_steps(worker)
                        harness.until(lambda w=worker, n=before + 40: count_steps(w) >= n,
                                      "40 steps more of %s" % worker.name, 60)
                        worker.hold()
                job.finish(90)
                self.check(2, TURNS)

    def test_restarted_worker_reads_its_batch_again(self):
        """A worker that returns within --worker_timeout reads the batch that it had before."""
        job = self.start_job(MODES["async"], 2, steps=TURNS)
        for _ in range(3):
            self.kill(job.workers[1])
            with harness.paused(job.workers[0]):  # otherwise the job could end before worker 1 runs
                job.start_worker(1, self.record(1))
                job.workers[1].wait_line(r"training step \d+ done")
        job.finish(90)
        self.check(2, TURNS)

    def test_survivors_read_batches_of_lost_worker(self):
        """The survivors read the samples of a lost worker, also after servers moved chunks and
        after a checkpoint."""
        for name in ("async", "ssp"):
            with self.subTest(mode=name):
                self.records = []
                ckpt = ["--checkpoint_dir=" + self.path(name), "--save_steps=20"]
                job = self.start_job(MODES[name], 3, ["--worker_timeout=1", *ckpt], steps=LONG)
                self.kill(job.workers[2])
                wait_generation(self, job, 2, 2, "2 servers")
                job.start_worker(2, self.record(2))
                wait_generation(self, job, 3, 3, "2 servers")
                job.workers[1].stop(signal.SIGTERM, status=0)
                wait_generation(self, job, 4, 2, "2 servers")
                job.restart_ps(1, *ckpt)
                wait_generation(self, job, 5, 2, "2 servers")
                job.release()
                self.wait_all((job.workers[0], job.workers[2], *job.ps), 90)
                self.check(3, LONG)

    def test_check_finds_missing_and_repeated_batches(self):
        """The check finds a missing batch, and one that two workers read."""
        path = self.path("one-0")
        rows = ["1 %d %d %d\n" % (i, i * BATCH, BATCH) for i in range(10)]
        for lines, right in ((rows, True), (rows[:4] + rows[5:], False), (rows[:-2], False)):
            harness.write_file(path, "".join(lines))
            self.assertEqual(samples.wrong_batches([path], 10, BATCH, 1) == [], right)
        for name, right in (("one-1", True), ("two-0", False)):
            other = self.path(name)
            harness.write_file(path, "".join(rows))
            harness.write_file(other, rows[3])
            self.assertEqual(samples.wrong_batches([path, other], 10, BATCH, 1) == [], right)


harness.main(__name__)
