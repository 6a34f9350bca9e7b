#!/usr/bin/python3
"""Worker 0 decides a job's settings: an early worker with wrong flags does not lock out the other
workers. A worker above the number that the job admits is refused with the reason."""
# label: cluster
import harness

FLAGS = ["--batch_size=20", "--train_steps=20", "--seed=3"]


class Admission(harness.Test):
    def test_wrong_flags_of_early_worker_do_not_settle_job(self):
        job = self.job(flags=FLAGS)
        job.start_ps(0)
        stray = job.start_worker(1, "--seed=4")
        stray.wait_line("worker 0 decides the job's settings, and has not joined yet")
        job.start_worker(0)
        stray.wait(60, 1)
        text = ("another job: --seed: the servers have 3, the worker has 4; worker 0 from .* "
                "decided this job's settings: start both")
        stray.wait_line("refused this worker: " + text)
        job.ps[0].wait_line("worker 1 from .* refused: " + text)
        job.start_worker(1)
        job.finish()

    def test_server_order_differs_refused(self):
        """Both servers wait for a job. A worker exits if its --ps_hosts begins with ps:1, and its
        error has the remedy."""
        job = self.job(n_ps=2, n_workers=1, flags=FLAGS)
        job.start_ps(0)
        job.start_ps(1)
        worker = job.start_worker(0, "--ps_hosts=" + ",".join(reversed(job.ps_hosts)))
        worker.wait(60, 1)
        text = "this server is ps:1 of its job; --ps_hosts must begin with ps:0"
        worker.wait_line("refused this worker: " + text)
        job.ps[1].wait_line("worker 0 from .* refused: " + text)
        job.start_worker(0)
        job.finish()

    def test_second_worker_of_an_index_refused(self):
        """The user runs the guide's command on a second host, with the first worker's
        --task_index."""
        job = self.started_job(flags=["--batch_size=20", "--train_steps=100000000", "--seed=3",
                                      "--fault_push_delay_ms=2"])
        first = job.workers[0]
        first.wait_line("training step")
        twin = job.start_worker(0)
        text = (r"another process is already worker 0: it runs "
                r"at ipv4:127\.0\.0\.1:(\d+) \(.*\), and "
                r"this process at ipv4:127\.0\.0\.1:(\d+) \(.*\); to train with both, start each "
                "with its own --task_index")
        twin.wait_line("waiting for .*" + text)
        twin.ends(1, "refused this worker: " + text)
        job.ps[0].wait_line("worker 0 from .* refused: " + text)
        self.assertIsNone(first.popen.poll())
        # The replacement of a dead worker joins at once.
        first.kill()
        member = harness.until(lambda: self.missing(job), "worker 0 is missing")
        self.assertIsNone(member["refused"], "worker 0 has no refused twin")
        job.start_worker(0).wait_line("training step")
        job.ps[0].wait_line("worker 0 joined from .*, in place of an earlier process")
        self.kill(*job.workers, *job.ps)

    def missing(self, job):
        """Returns worker 0's entry in the status of ps 0 if its state is "missing", or None."""
        member = job.report("members")[0]
        return member if member["state"] == "missing" else None

    def test_hung_worker_keeps_its_place_until_removed(self):
        """The connection of the hung worker lives, so it keeps its place. After its removal the
        waiting worker has the place."""
        job = self.job(flags=["--batch_size=20", "--train_steps=100000000", "--seed=3",
                              "--fault_push_delay_ms=2", "--log_every=1"])
        job.hold(10, task=1)
        job.start()
        job.workers[1].wait_line("training step 5 done")
        harness.wait_still(*job.workers)
        hung, job.held = job.workers[1], None
        twin = job.start_worker(1)
        twin.wait_line("waiting for .*another process is already worker 1: .*; if the other "
                       "process hangs, kill it, or run weirctl remove-worker 1")
        job.ctl("remove-worker", "1")
        twin.wait_line(r"training step \d+ done")
        self.kill_any(hung, *job.workers, *job.ps)

    def test_worker_above_limit_refused(self):
        job = self.started_job(flags=["--batch_size=20", "--train_steps=100000000", "--seed=3",
                                      "--fault_push_delay_ms=2"], ps_flags=["--max_workers=2"])
        job.workers[1].wait_line("training step")
        more = job.join_worker("worker more", *job.flags)
        more.ends(1, "the job has 2 workers, and accepts no more: --max_workers=2 of ps:0")
        self.kill(*job.workers, *job.ps)

    def test_longer_worker_list_refused(self):
        """Users of TensorFlow add a worker by starting it with a --worker_hosts that is longer by
        one entry. The worker is refused."""
        job = self.started_job(flags=["--batch_size=20", "--train_steps=100000000", "--seed=3",
                                      "--fault_push_delay_ms=2"])
        job.workers[1].wait_line("training step")
        more = self.start_program("worker", job.hosts()[0], job.hosts()[1] + ",localhost:2226",
                                  "--task_index=2", *job.flags, name="worker 2")
        more.ends(1, "--worker_hosts: the servers have 2, the worker has 3; start an additional "
                  "worker of a running job with --join, without --worker_hosts")
        self.kill(*job.workers, *job.ps)

    def test_job_above_limit_refused(self):
        job = self.job(n_workers=3, flags=FLAGS)
        ps = job.start_ps(0, "--max_workers=2")
        job.start_worker(0).ends(1, "the job has 3 workers, above --max_workers=2 of this server")
        ps.stop()
        self.start_program("ps", *job.hosts(), "--min_workers=3", "--max_workers=2").wait(20, 2)


harness.main(__name__)
