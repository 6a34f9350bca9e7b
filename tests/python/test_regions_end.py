"""Regions: the end of a region whose parent group has ended or is unreachable, and the end of a
region that failed."""
# label: cluster waits
import os

import harness
import regions


class RegionsEnd(regions.Test):
    def lose_parent(self):
        self.parents.ps[0].kill()

    def test_region_without_parent_ends_with_own_parameters(self):
        """A region that has made all its steps ends with its own parameters, and reports that."""
        path = self.dir() + "/lost.safetensors"
        gate, a = self.begin_held(
            15, n=1, n_workers=1, steps=20, every=10, keeps=True, flags=["--export=" + path],
            region=["--parent_timeout=12"])
        a.ps[0].wait_line("round 1 of 2 exchanged")
        self.lose_parent()
        gate.open()
        a.workers[0].wait(60)
        a.ps[0].wait(60, 1)
        where = self.parents.ps_hosts[0]
        a.ps[0].wait_line(r"the parent group \(%s\) has not been reached for \d+ s; this region "
                          r"is at step 20 of 20, and has not delivered its changes since round 1 "
                          r"of 2; the region waits [1-6] s more \(--parent_timeout\)" % where)
        a.ps[0].wait_line(r"the parent group \(%s\) has not been reached for (?:1[2-9]|[2-9]\d) s "
                          r"\(--parent_timeout\): the job of this region is done, with the "
                          r"region's own parameters; its changes since round 1 of 2 were not "
                          r"delivered"
                          % where)
        self.assertTrue(os.path.exists(path))
        self.assertIn("checkpoint at step 20: ", a.ps[0].output())

    def test_late_region_of_ended_job_stops_at_its_gate(self):
        """A region that returns after the job's end stops at its gate: its workers exit, and its
        checkpoint has its newest step, from which it resumes once there is a parent."""
        gate, a = self.begin_held(15, n=1, n_workers=1, steps=40, every=20, keeps=True,
                                     region=["--parent_timeout=2"])
        a.ps[0].wait_line(r"checkpoint at step (7|14): ")
        self.lose_parent()
        a.restart_ps(0, *self.region_flags[0])
        gate.open()
        a.ps[0].ends(1, r"\(--parent_timeout\): the region ends at step 19 of 40; its changes "
                     r"since round 0 of 2 were not delivered")
        self.assertIn("checkpoint at step 19: ", a.ps[0].output())
        a.workers[0].ends(1, r"refused this worker: the region has ended: the parent group \(")
        self.parents.start_ps(0)
        a.start_ps(0, *self.region_flags[0], "--parent_timeout=1800")
        a.start_worker(0)
        self.finish(60)

    def test_region_that_never_reached_parent_ends(self):
        """A region that never received the parent's first values has no parameters to keep. All its
        programs exit."""
        a, = self.begin(n=1, n_workers=1, steps=20, late=(0,), region=["--parent_timeout=12"])
        self.lose_parent()
        a.start(self.region_flags[0])
        a.ps[0].wait(60, 1)
        a.workers[0].wait(60, 1)
        a.ps[0].wait_line(r"not been reached for \d+ s; this region has no parameters yet; "
                          r"the region waits [1-6] s more \(--parent_timeout\)")
        a.ps[0].wait_line(r"\(--parent_timeout\): the region ends before its first step; when")

    def test_restarted_parent_serves_late_region(self):
        """The parent's checkpoint shows that all rounds are made: a late region receives the job's
        parameters, and no other region is waited for."""
        keeps = ["--checkpoint_dir=%s/parent" % self.dir(), "--save_steps=1", "--worker_timeout=1"]
        gate, a, b = self.begin_held(15, n_workers=1, steps=20, every=10, parent=keeps, keeps=True)
        b.ps[0].wait_line(r"checkpoint at step \d+: ")
        b.ps[0].kill()
        gate.open()
        first = a.finish(60)
        self.parents.ps[0].wait(60)
        self.parents.start_ps(0, *self.parent_flags)
        b.start_ps(0, *self.region_flags[1])
        self.assertEqual(b.finish(60)[0]["parameters_sha256"], first[0]["parameters_sha256"])
        self.parents.ps[0].wait(60)

    def test_failed_region_sends_leave_message(self):
        """The leave message of a failed region reaches the parent, which then does not wait for
        --worker_timeout."""
        (a,) = self.begin(n=1, n_workers=1, steps=40, every=10, parent=["--worker_timeout=600"],
                          flags=["--optimizer=sgd", "--learning_rate=1e6", "--weight_decay=1e3"])
        a.workers[0].wait(60, 1)
        a.ps[0].wait(60, 1)
        self.parents.ps[0].ends(1, "worker 0 ended with an error: all workers of the region "
                                "have ended with an error", 30)


harness.main(__name__)
