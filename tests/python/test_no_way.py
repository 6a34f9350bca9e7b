#!/usr/bin/python3
"""A worker that reaches ps 0 but not another server. The worker's log names the closed path. The
job does not wait for the worker for ever, and ps 0 admits it again when the path is open."""
# label: net waits
import unittest

import harness
import namespaces

FLAGS = ["--batch_size=12", "--train_steps=1000000", "--seed=5", "--chunk_bytes=8192",
         "--log_every=1", "--intra_op_threads=1", "--fault_push_delay_ms=6"]
WHY_NOT = namespaces.why_not(bridge=True)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class NoWay(harness.Test):
    def test_unreachable_worker_dropped_and_admitted_again(self):
        self.net = namespaces.Network(4, test=self)
        job = self.job(n_ps=2, n_workers=2, model="lenet5", flags=FLAGS)
        job.ps_hosts = [self.net.address(i) + ":2221" for i in range(2)]
        job.worker_hosts = [self.net.address(i) + ":2223" for i in (2, 3)]
        for i in (1, 0):
            job.start_ps(i, "--worker_timeout=1", wait=False, prefix=self.net.hosts[i].enter)
        self.set_link(False)
        for i in range(2):
            job.start_worker(i, prefix=self.net.hosts[2 + i].enter)
        job.ps[0].wait_line("worker 1 .* reaches ps:0 but not ps:1 .*: training continues without "
                            "it from step [0-9]+; the worker may rejoin after 10 s", 60)
        job.workers[0].wait_line(r"generation 1\.2 from step [0-9]+: 1 worker, 2 servers")
        self.wait_more_steps(job.workers[0])
        self.set_link(True)
        job.ps[0].wait_line("worker 1 .* joins at step ([0-9]+) ", 60)
        self.wait_more_steps(*job.workers)
        self.kill(*job.workers, *job.ps)

    def wait_more_steps(self, *workers):
        """Waits until the workers log more steps than so far."""
        for worker in workers:
            n = worker.output().count("training step")
            harness.until(lambda: worker.output().count("training step") > n + 5, worker.name)

    def set_link(self, is_open):
        for pair in ((1, 3), (3, 1)):
            self.net.pair(*pair, cut=not is_open)


harness.main(__name__)
