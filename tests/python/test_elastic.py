"""Workers that join and leave while a job trains: some join online, some leave by SIGTERM, one
returns late. Each sample of each pass is still read once (I6)."""
# label: cluster waits
import re
import signal

import ckpt_folder
import harness
from test_passes import wait_generation
import samples

STEPS = 400
FLAGS = ["--train_steps=%d" % STEPS, "--batch_size=20", "--seed=3", "--eval_every=0",
         "--log_every=20", "--fault_push_delay_ms=15"]


class Elastic(harness.Test):
    def records_flag(self, k):
        return "--record_samples=" + self.records[k]

    def start_job(self, n_workers, n_ps=1, *ps_flags):
        job = harness.Job(self, n_ps=n_ps, n_workers=n_workers, flags=FLAGS)
        for k in range(n_ps):
            job.start_ps(k, *ps_flags)
        self.record("0")
        job.hold(60, self.records[0])
        job.start_worker(0)
        for k in range(1, n_workers):
            job.start_worker(k, self.record("%d" % k))
        return job

    def join(self, job, name, *flags):
        """Starts a worker with the address of ps 0 only; the job sends it the rest. Training is
        held back until the worker has joined."""
        joiner = job.join_worker("joiner-" + name, "--data_dir=" + self.data(), "--log_every=20",
                                 "--progress=lines", "--fault_push_delay_ms=15",
                                 self.record("joiner-" + name), *flags)
        joiner.wait_line("tower 0: CPU")
        return joiner

    def end(self, job):
        """Waits for the job's first worker and its servers, and checks the samples of all
        workers."""
        job.workers[0].wait(120)
        self.wait_all(job.ps, 30)
        job.gate.close()
        self.assertEqual(samples.wrong(self.records, STEPS), [])

    def test_joined_worker_leaves(self):
        job = self.start_job(1)
        job.workers[0].wait_line(r"global step")
        joiner = self.join(job, "a")
        job.gate.open()
        joiner.wait_line(r" worker:1 joined as worker 1 of 2 at step \d+")
        job.workers[0].wait_line(r"generation 1\.2 from step \d+: 2 workers, 1 server")
        joiner.wait_line("training step")  # a joiner that has made no step would exit at once
        joiner.stop(signal.SIGTERM, status=0)
        self.assertRegex(joiner.output(), r"left the job at step \d+, as worker 1")
        job.workers[0].wait_line(r"generation [\d.]+ from step \d+: 1 worker, 1 server")
        self.end(job)
        self.assertNotIn("going back", job.workers[0].output())
        self.assertNotIn("lost", job.workers[0].output())

    def test_number_above_number_of_workers_named(self):
        job = self.start_job(1)
        job.workers[0].wait_line("global step")
        joiner = self.join(job, "a", "--task_index=5")
        job.gate.open()
        joiner.wait_line(r" worker:5 joined as worker 5, one of 2, at step \d+")
        joiner.wait_line("training step")
        joiner.stop(signal.SIGTERM, status=0)
        self.end(job)

    def test_three_workers_join_and_leave(self):
        """The job has 1 worker, then 4, then 1."""
        job = self.start_job(1)
        job.workers[0].wait_line("global step")
        joiners = [self.join(job, name) for name in "abc"]
        job.gate.open()
        self.wait_lines(joiners, r"joined as worker [123](, one)? of \d,? at step \d+")
        # Wait for all of them: a worker that has not begun exits with 143.
        wait_generation(self, job, r"[\d.]+", 4)
        self.terminate(joiners, 30)
        job.workers[0].wait_line(r"generation [\d.]+ from step \d+: 1 worker, 1 server")
        self.end(job)

    def test_joiner_continues_without_first_workers(self):
        """ps:0 returns and finds none of the job's first workers: the joiner continues."""
        folder = "--checkpoint_dir=" + self.path("ckpt")
        job = self.start_job(1, 1, folder, "--save_steps=10")
        job.workers[0].wait_line("global step")
        joiner = self.join(job, "a")
        job.gate.open()
        joiner.wait_line(r"joined as worker 1 of 2 at step \d+")
        job.workers[0].stop(signal.SIGTERM, status=0)
        alone = joiner.wait_line(r"generation [\d.]+ from step (\d+): 1 worker, 1 server")
        path = self.path("ckpt")
        harness.until(lambda: (ckpt_folder.steps(path) or [0])[-1] > int(alone.group(1)),
                      "a checkpoint of the joiner alone", 60)
        job.restart_ps(0, folder, "--save_steps=10")
        job.ps[0].wait_line("resumes from step")
        joiner.wait(120)
        job.ps[0].wait(30)

    def test_wait_for_dead_joiner_continues_while_another_joins(self):
        """A joiner is killed and started again, as a new worker: the job still waits for the dead
        one, and reports one wait, whose step has no line before it is made."""
        job = self.start_job(1, 1, "--worker_timeout=12")
        job.workers[0].wait_line("global step")
        joiner = self.join(job, "a")
        job.gate.open()
        joiner.wait_line("training step")
        joiner.kill()
        first = job.workers[0]
        first.wait_line(r"waiting for worker 1 \(")
        second = self.join(job, "b")
        first.wait_line(r"generation [\d.]+ from step \d+: 3 workers")
        second.wait_line("joined as worker 2 of 3")
        first.wait_line(r"generation [\d.]+ from step \d+: 2 workers")
        second.wait(60)
        self.end(job)
        text = first.output()
        waits = text[text.index("waiting for worker 1"):]
        during, rest = re.split(r"generation [\d.]+ from step \d+: 2 workers", waits)
        self.assertNotIn("is over", during)
        self.assertEqual(len(re.findall("waiting for worker 1", waits)), 1, waits)
        self.assertRegex(rest, r"the wait for worker 1.* is over after (9|1\d|[2-9]\d) s")
        self.assertRegex(text, r"Training elapsed time: .*/s, without \d+\.\d s of waits\)")

    def test_killed_joiner_returns_by_number(self):
        job = self.start_job(1)
        job.workers[0].wait_line("global step")
        joiner = self.join(job, "a")
        job.gate.open()
        joiner.wait_line("training step")
        joiner.kill()
        second = self.join(job, "b", "--task_index=1")
        second.wait_line(r"joined as worker 1 of 2 at step [1-9]\d*")
        second.wait(120)
        self.end(job)
        self.assertNotIn("3 workers", job.workers[0].output())
        self.assertNotIn("1 worker,", job.workers[0].output())

    def test_late_worker_admitted_again(self):
        """A killed worker returns after the job continued without it, and is admitted again."""
        job = self.start_job(2, 1, "--worker_timeout=1")
        job.workers[1].wait_line("global step")
        job.workers[1].kill()
        job.gate.open()
        job.workers[0].wait_line(r"generation 1\.2 from step \d+: 1 worker, 1 server")
        job.start_worker(1, self.records_flag(1))
        job.workers[0].wait_line(r"generation 1\.3 from step \d+: 2 workers, 1 server")
        job.workers[1].wait(120)
        self.end(job)


harness.main(__name__)
