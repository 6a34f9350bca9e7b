#!/usr/bin/python3
"""The cores that a worker uses: the machine's, divided among the job's workers on the same host."""
# label: cluster
import os
import unittest

import harness

N = os.cpu_count()
SHARED = r"I .* %d of the machine's %d cores (is|are) used: --worker_hosts has %d workers"
THREADS = r"tower 0: CPU, %d threads?,"


@unittest.skipIf(len(os.sched_getaffinity(0)) < max(N, 2), "this process has no cores to share")
class Cores(harness.Test):
    def job_of(self, n_workers, *flags):
        job = self.started_job(n_workers=n_workers, flags=["--train_steps=2", *flags])
        job.finish()
        return [w.output() for w in job.workers]

    def test_workers_of_one_host_share_cores(self):
        for said in self.job_of(2):
            self.assertRegex(said, SHARED % (N // 2, N, 2))
            self.assertRegex(said, THREADS % (N // 2))

    def test_single_worker_has_all_cores(self):
        said, = self.job_of(1)
        self.assertNotIn("cores are used", said)
        self.assertRegex(said, THREADS % N)

    def test_threads_of_the_flag_used(self):
        for said in self.job_of(2, "--intra_op_threads=3"):
            self.assertNotRegex(said, "cores (is|are) used")
            self.assertRegex(said, THREADS % 3)

    def test_more_threads_than_cores_warned(self):
        cores = len(os.sched_getaffinity(0))
        for n, words in ((cores, None), (cores + 1, "--intra_op_threads=%d on %d usable core" % (
                cores + 1, cores))):
            said, = self.job_of(1, "--intra_op_threads=%d" % n)
            warned = [line for line in said.split("\n") if line.startswith("W ")]
            self.assertEqual(len(warned), 1 if words else 0, said)
            if words:
                self.assertIn(words, warned[0])

    def test_cores_of_an_affinity_mask_not_divided(self):
        """The worker has its own cores already."""
        whole = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, whole)
        os.sched_setaffinity(0, {min(whole)})
        for said in self.job_of(2):
            self.assertRegex(said, "I .* 1 of the machine's %d cores .*: CPU affinity" % N)
            self.assertRegex(said, THREADS % 1)


harness.main(__name__)
