"""A worker whose ps is not up logs repeatedly which server it waits for; then it trains."""
# label: cluster waits
import re

import harness


class Wait(harness.Test):
    def test_missing_ps_named_repeatedly(self):
        job = self.job(flags=["--train_steps=5"])
        worker = job.start_worker(0)
        name = re.escape(job.ps_hosts[0])
        worker.wait_line(name, 15)
        seen = sum(1 for line in worker.lines if re.search(name, line))
        # The second line follows after five seconds.
        with worker.changed:
            again = worker.changed.wait_for(
                lambda: sum(1 for l in worker.lines if re.search(name, l)) > seen,
                15 * harness.PATIENCE)
        self.assertTrue(again, "the missing ps was named only once")
        worker.stop()

    def test_only_missing_ps_named(self):
        job = self.job(n_ps=2, n_workers=1, flags=["--train_steps=5"])
        job.start_ps(0)
        worker = job.start_worker(0)
        worker.wait_line(re.escape(job.ps_hosts[1]), 15)
        waiting = [l for l in worker.lines if re.search("wait", l) and job.ps_hosts[0] in l]
        self.assertEqual([l for l in waiting if job.ps_hosts[1] not in l], [])
        job.start_ps(1)
        job.finish()

    def test_waiting_worker_ends_on_sigterm(self):
        job = self.job(n_workers=1)
        worker = job.start_worker(0)
        worker.wait_line(re.escape(job.ps_hosts[0]), 15)
        worker.stop(seconds=10)


harness.main(__name__)
