"""Whole jobs that must learn, and whose programs must exit with 0: one ps and two workers, a worker
alone, several ps, async mode, a late ps, --serve."""
# label: cluster sanitize
import math
import re
import socket

import harness

QUICK = ["--batch_size=20", "--train_steps=60", "--learning_rate=0.01", "--seed=3",
         "--intra_op_threads=1"]


class Train(harness.Test):
    def check_learned(self, summaries, steps=60, least=0.9):
        first = summaries[0]
        for task, s in enumerate(summaries):
            self.assertEqual(s["role"], "worker")
            self.assertEqual(s["task_index"], task)
            self.assertEqual(s["global_step"], steps)
            self.assertGreater(s["images"], 0)
            self.assertGreater(s["images_per_second"], 0)
            self.assertEqual(len(bytes.fromhex(s["parameters_sha256"])), 32)
            self.assertEqual(s["parameters_sha256"], first["parameters_sha256"])
            self.assertTrue(math.isfinite(s["loss"]))
        self.assertGreaterEqual(first["test_accuracy"], least)

    def test_job_with_one_ps_learns(self):
        job = self.started_job(flags=[*QUICK, "--log_every=20"])
        summaries = job.finish()
        self.check_learned(summaries)
        self.assertEqual(summaries[0]["parameters"], 7850)
        for worker in job.workers:
            text = worker.output()
            for step in (20, 40, 60):
                self.assertRegex(text, r"Worker \d: its part of training step %d done "
                                 r"\(global step: %d\)" % (step, step))
            self.assertRegex(text, r"Training elapsed time: \d+\.\d+ s")
            self.assertRegex(text, r"test accuracy: [01]\.\d{4}")

    def test_job_with_two_ps_learns(self):
        job = self.started_job(n_ps=2, n_workers=3, model="mlp",
                               flags=[*QUICK, "--hidden_units=32", "--chunk_bytes=4096"])
        self.check_learned(job.finish())

    def test_job_with_more_servers_than_chunks_learns(self):
        self.check_learned(self.started_job(n_ps=4, n_workers=1, flags=QUICK).finish())

    def test_worker_alone_learns(self):
        self.check_learned([self.train_alone(*QUICK)[1]])

    def test_worker_alone_same_bits_as_job_of_one(self):
        self.assertEqual(self.undisturbed_digest(n_workers=1, flags=QUICK),
                         self.digest_alone(*QUICK, model="softmax"))

    def test_async_job_learns(self):
        job = self.started_job(flags=[*QUICK, "--sync_mode=async", "--train_steps=200"])
        for s in job.finish():
            self.assertGreaterEqual(s["global_step"], 200)
            self.assertGreaterEqual(s["test_accuracy"], 0.85)

    def test_job_with_ps_started_last_learns(self):
        job = self.job(flags=QUICK)
        job.start_workers()
        self.wait_lines(job.workers, re.escape(job.ps_hosts[0]))
        job.start_ps(0)
        self.check_learned(job.finish())

    def test_job_with_ps_started_between_workers_learns(self):
        """One worker starts, then the ps, then the other worker."""
        job = self.job(flags=QUICK)
        job.start_worker(1).wait_line(re.escape(job.ps_hosts[0]))
        job.start_ps(0)
        job.start_worker(0)
        self.check_learned(job.finish())

    def test_serve_keeps_ps_up(self):
        job = self.started_job(flags=QUICK, ps_flags=["--serve"])
        self.wait_all(job.workers)
        host, port = job.ps_hosts[0].split(":")
        socket.create_connection((host, int(port)), 10).close()
        self.assertIsNone(job.ps[0].popen.poll())
        job.ps[0].stop()

    def test_sigterm_stops_worker_and_ps(self):
        job = self.started_job(n_workers=1, flags=["--batch_size=20", "--train_steps=1000000000",
                                                   "--log_every=10"])
        job.workers[0].wait_line("training step 20 done")
        job.workers[0].stop(status=0)
        # The ps waits for another worker.
        if job.ps[0].popen.poll() is None:
            job.ps[0].stop(status=None)
        self.assertIn(job.ps[0].wait(status=None), (0, 143))

    def test_help_and_version_printed(self):
        for program in ("ps", "worker"):
            argv = [harness.program(program)]
            p = self.start(program, argv + ["--help"])
            p.wait()
            for flag in ("--ps_hosts", "--worker_hosts", "--job_name", "--task_index"):
                self.assertIn(flag, p.output())
            p = self.start(program, argv + ["--version"])
            self.assertRegex(p.wait_output(), r"\d+\.\d+\.\d+")


harness.main(__name__)
