#!/usr/bin/python3
"""Too few descriptors (ulimit -n): a program that cannot open as many as its job needs exits before
it joins, with 138 and a line that has the limit. If the limit is higher, the program works."""
# label: cluster
import unittest

import harness

# Limits of the search: with fewer than LEAST no program can be loaded, and none here needs MOST.
LEAST, MOST = 6, 80
WHY = r"needs \d+ more descriptors, and can open \d+: the limit is %d; raise it with ulimit -n"
FLAGS = ["--train_steps=10", "--batch_size=20"]


@unittest.skipIf(harness.SANITIZE, "sanitizers open files of their own")
class DescriptorLimit(harness.Test):
    limit = None  # limit for programs of start(); None: the test's own

    def start(self, name, argv, **kwargs):
        if self.limit:
            argv = ["bash", "-c", 'ulimit -n %d; exec "$@"' % self.limit, "bash", *argv]
        return super().start(name, argv, **kwargs)

    def is_refused(self, process):
        """Waits for the process' exit, or for the first line of a process that works."""
        harness.until(lambda: process.eof or "listening on" in process.output(), "ready")
        if not process.eof or process.wait(60, None) == 0:
            return False
        self.assertEqual(process.status, 138, process.output())
        process.wait_line(WHY % self.limit)
        return True

    def least_that_works(self, start):
        for n in range(LEAST, MOST):
            self.limit = n
            process = start()
            if not self.is_refused(process):
                self.assertGreater(n, LEAST)
                self.limit = None
                return process
        raise harness.Failure("the program does not work with %d descriptors" % MOST)

    def test_worker_works_or_exits_with_138(self):
        job = self.job(n_ps=2, n_workers=1, flags=FLAGS)
        job.start_servers()
        self.least_that_works(job.start_worker)
        self.wait_all(job.ps, 60)

    def test_server_works_or_exits_with_138(self):
        """A job at the lowest limit with which its server starts ends well, with all its
        workers."""
        job = self.job(n_workers=3, flags=FLAGS)
        self.least_that_works(lambda: job.start_ps(0, wait=False))
        job.start_workers()
        job.finish()

    def test_weirctl_works_or_exits_with_138(self):
        job = self.job(n_workers=1)
        job.start_ps(0)
        argv = [harness.program("weirctl"), "status", "--ps_hosts=" + job.ps_hosts[0]]
        self.least_that_works(lambda: self.start("weirctl", argv))
        job.ps[0].stop()


harness.main(__name__)
