#!/usr/bin/python3
"""A server whose stderr is a full pipe without a reader serves its job to the end."""
# label: cluster
import os
import select
import subprocess

import harness


class FullPipe(harness.Test):
    def start_unread(self, argv):
        """Starts the program with a full stderr."""
        read_end, write_end = os.pipe()
        self.addCleanup(os.close, read_end)
        os.set_blocking(write_end, False)
        for size in (4096, 1):
            try:
                while True:
                    os.write(write_end, b"x" * size)
            except BlockingIOError:
                pass
        os.set_blocking(write_end, True)
        ready_read, ready_write = os.pipe()
        program = subprocess.Popen(harness.AS_CHILD + argv + ["--ready_fd=%d" % ready_write],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=write_end, pass_fds=(ready_write,))
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        os.close(write_end)
        os.close(ready_write)
        with os.fdopen(ready_read, "rb") as ready:
            self.assertTrue(select.select([ready], [], [], 20 * harness.SLOWNESS)[0], "not ready")
            self.assertTrue(os.read(ready.fileno(), 256).startswith(b"ready "))
        return program

    def test_server_with_full_stderr_serves_job(self):
        job = self.job(n_workers=1)
        ps = self.start_unread([harness.program("ps"), *job.hosts(), "--log_level=debug"])
        job.start_worker(0, "--train_steps=30", "--batch_size=8").wait()
        self.assertEqual(job.summary(0)["global_step"], 30)
        self.assertEqual(ps.wait(60 * harness.SLOWNESS), 0)

    def test_server_with_full_stderr_exits_on_signal(self):
        job = self.job(n_workers=1)
        ps = self.start_unread([harness.program("ps"), *job.hosts()])
        ps.terminate()
        self.assertEqual(ps.wait(60 * harness.SLOWNESS), 143)

    def test_quiet_programs_print_nothing(self):
        """Neither program prints a line during a job without faults; a command of weirctl prints
        none, too."""
        job = self.job(flags=["--train_steps=3", "--quiet"], n_workers=1).start(["--quiet"])
        status = self.start_program("weirctl", "--quiet", "status", "--ps_hosts=127.0.0.1:1",
                                    "--timeout_s=1", name="status")
        self.assertRegex(status.wait_output(30, 138), "^E ")
        job.finish()
        self.assertEqual([p.output() for p in (*job.ps, *job.workers)], ["", ""])


harness.main(__name__)
