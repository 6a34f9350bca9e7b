#!/usr/bin/python3
"""Workers that die: after --worker_timeout training continues without them, or waits. A worker that
returns in time changes no bit."""
# label: cluster sanitize waits long
import re

import generations
import harness


class Away(generations.Test):
    def test_leader_returns_and_dead_worker_is_dropped(self):
        """ps:0 returns, and a worker that died with it does not: training continues without the
        worker."""
        job = self.slow_job(2, n_workers=3, hold=30)
        flags = self.ckpt("--worker_timeout=1")
        job.start(flags)
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(job.ps[0])
        self.kill(job.workers.pop(2))
        job.start_ps(0, *flags)
        job.gate.open()
        job.ps[0].wait_line("worker 2 .*has not returned for 1 s: training continues without it")
        job.finish_alike(120)

    def test_leader_and_worker_restart_without_checkpoints(self):
        """Without checkpoints, ps:0 and a worker return. The generation with which they would begin
        has the number of the one in which the other processes still are. ps:0 waits a few seconds
        for a call of ps:1 (tests/ps_calls_test.c). If the worker joins after this wait, the test
        repeats everything."""
        for _ in range(generations.TRIES):
            job = self.training_job(2)
            self.kill(job.ps[0])
            self.kill(job.workers[0])
            with harness.paused(job.ps[1]):
                job.start_worker(0)
                job.start_ps(0)
                waits = job.workers[0].wait_line("waiting for ps:0 .*: ps:1 .* has not connected "
                                                 "to ps:0 (yet)|ps:0 .* is on this host")
            if waits.group(1):
                self.check(job)
                return
            self.kill_any(*job.workers, *job.ps)
        self.fail("ps:0 never waited for ps:1")

    def test_lost_worker_dropped_after_timeout(self):
        """After --worker_timeout the job continues without the lost worker, and ends."""
        for n_ps in (1, 2):
            job = self.training_job(n_ps, ["--worker_timeout=1"], n_workers=3, hold=20)
            self.kill(job.workers.pop(2))
            job.gate.open()
            m = job.ps[0].wait_line(r"worker 2 \(.*\) has not returned for 1 s: training "
                                    r"continues without it from step (\d+) "
                                    r"\(generation 1\.2, 2 workers\)")
            self.assertGreaterEqual(int(m.group(1)), 8)
            job.finish_alike(120)

    def wait_generation(self, ps, pattern, after):
        """Returns the match of the first line with the pattern of a generation after `after`. On a
        busy machine --worker_timeout=0 may drop another worker in between, so the number of the
        generation is not known in advance."""
        pattern += r" \(generation 1\.(?P<generation>\d+), (?P<workers>\d+) workers\)"

        def find():
            lines = [re.search(pattern, line) for line in list(ps.lines)]
            return next((m for m in lines if m and int(m["generation"]) > after), None)
        return harness.until(find, "ps 0 logs %r" % pattern)

    def test_worker_timeout_0_drops_dead_worker_at_once(self):
        """A worker that dies is dropped at once, each time, and is admitted again when it
        returns."""
        for n_ps in (1, 2):
            job = self.job(n_ps=n_ps, n_workers=3, model="small",
                           flags=[*generations.SLOW, "--train_steps=200"])
            job.start(["--worker_timeout=0"])
            job.workers[0].wait_line("training step 9 done")
            generation = 1
            for i in range(4):
                task = 2 - i % 2
                self.kill(job.workers[task])
                m = self.wait_generation(job.ps[0], r"worker %d \(.*\) has not returned for 0 s: "
                                         r"training continues without it from step \d+" % task,
                                         generation)
                self.assertLessEqual(int(m["workers"]), 2)
                job.start_worker(task)
                m = self.wait_generation(job.ps[0], r"worker %d \(.*\) joins at step (\d+)" % task,
                                         int(m["generation"]))
                generation = int(m["generation"])
                job.workers[0].wait_line(r"\(global step: %d\)" % (int(m.group(1)) + 2))
            job.finish_alike(120)

    def test_worker_back_in_time_changes_no_bit(self):
        """A worker that returns within the timeout causes no new generation."""
        job = self.training_job(2, ["--worker_timeout=60"], hold=20)
        job.restart_worker(1)
        self.check(job)
        self.assertNotIn("generation 1.2", job.ps[0].output())

    def test_training_waits_for_min_workers(self):
        """Training waits with fewer workers than --min_workers, and then resumes at the same
        step."""
        job = self.training_job(2, ["--worker_timeout=1", "--min_workers=2"], hold=20)
        self.kill(job.workers[1])
        job.gate.open()
        job.ps[0].wait_line(r"training waits at step \d+: 1 worker is present, --min_workers=2; "
                             r"missing: worker 1 \([^)]+\); start more")
        job.start_worker(1)
        self.check(job)

    def test_training_begins_with_min_workers(self):
        """Training begins without workers that never joined."""
        job = self.slow_job(1)
        job.start_ps(0, "--min_workers=1", "--worker_timeout=1")
        job.start_worker(0)
        job.ps[0].wait_line("worker 1 .*has not returned for 1 s: training continues without it "
                            "from step 0")
        job.workers.pop(1)
        self.assertGreaterEqual(job.finish(120)[0]["local_steps"], 60)


harness.main(__name__)
