"""Regions end with the same values, and with the same ones in each run, whatever process dies.
Other tests have an absent region, a late region, a parent that restarts, and regions with TLS."""
# label: cluster waits
import subprocess
import tempfile

import certs
import harness
import regions


class Regions(regions.Test):
    def test_regions_same_bits_with_any_number_of_parents(self):
        """The bits are the same in each run, with any number of the parent's servers; other rules
        change them."""
        digests = []
        for region, steps in (([], 60), (["--overlap_steps=4"], 60),
                              (["--overlap_steps=4", "--overlap_mix=0.5"], 60),
                              (["--outer_optimizer=sgd"], 57), (["--outer_momentum=0.9"], 60),
                              (["--outer_learning_rate=0.7"], 60),
                              (["--parent_wire_dtype=int4"], 63)):
            with self.subTest(flags=region):
                first = self.run_all(region=region, steps=steps)
                other = self.run_all(region=region, steps=steps, n_parents=2,
                                     flags=["--fault_push_delay_ms=3"])
                self.assertEqual(first, other)
                digests.append(first)
        self.assertEqual(len(set(digests)), len(digests), "a flag has no effect")
        by_line = self.run_all(region=["--parent_wire_dtype=auto"])
        self.assertEqual(by_line, digests[0])  # `auto` chooses fp32, because all is on one host
        self.regions[1].ps[0].wait_line("this job's number format: fp32 for contributions")

    def test_killed_members_change_no_bit(self):
        """Workers, the regions' servers and the parent's server are killed. All servers have
        checkpoints; that of the parent has the last round."""
        for region in ([], ["--parent_wire_dtype=int4"]):
            with self.subTest(region=region):
                want = self.run_all(steps=200, every=20, region=region)
                keeps = ["--checkpoint_dir=%s/parent%d" % (self.dir(), len(region)),
                         "--save_steps=1"]
                gate, _, b = self.begin_held(
                    95, steps=200, every=20, region=region, parent=keeps, keeps=True,
                    flags=["--fault_push_delay_ms=10"])
                b.workers[0].wait_line(r"\(global step: 25\)")
                b.restart_worker(1)
                b.workers[0].wait_line(r"\(global step: 50\)")
                b.ps[0].wait_line(r"checkpoint at step \d+: ")
                b.restart_ps(0, *self.region_flags[1])
                # Step 100 must not be reached before.
                self.parents.ps[0].wait_line(r"checkpoint at step 4: ")
                self.parents.restart_ps(0, *self.parent_flags)
                gate.open()
                self.assertEqual(self.finish(), want)
                for i in range(2):
                    subprocess.run(["rm", "-r", "%s/region-%d" % (self.dir(), i)], check=True)

    def test_lost_bursts_change_no_bit(self):
        """30 % of the bursts from regions to the parent are lost, and each loss closes the
        connection. Regions send the lost contributions again, and the job ends with the same
        bits."""
        want = self.run_all(steps=100)
        got = self.run_all(steps=100, lossy=0.3, region=["--shared_memory=off"])
        self.assertEqual(got, want)
        n = [sum(line.n_lost for line in self.lines), sum(line.n_bursts for line in self.lines)]
        self.assertGreater(n[0], 3, n)

    def begin_apart(self, n_rounds, parent):
        """Begins a job in which region 0 has contributed to that round. Region 1 has not, because
        its gate holds it. Contributions and answers are larger than a connection's buffers, so a
        paused region never receives a whole answer. Returns the gate and the regions."""
        own = ["--shared_memory=off"]
        a, b = self.begin(steps=60, parent=[*own, *parent], region=own, late=(1,),
                          flags=["--hidden_units=1500"])
        gate = b.hold(10 * n_rounds - 8)  # or a few more
        b.start(self.region_flags[1])
        a.workers[0].wait_line(r"\(global step: %d\)" % (10 * n_rounds - 1))
        self.parent_waits_for(1)
        return gate, a, b

    def test_contributions_of_killed_parent_count_once(self):
        """The parent dies when its checkpoint has a round whose answers the regions have not
        received. The contributions of the regions to this round count once."""
        want = self.run_all(steps=60, flags=["--hidden_units=1500"])
        keeps = ["--checkpoint_dir=%s/parent" % self.dir(), "--save_steps=1"]
        gate, a, _ = self.begin_apart(3, keeps)
        with harness.paused(a.ps[0]):
            gate.open()
            self.parents.ps[0].wait_line(r"checkpoint at step 3: ")
            self.parents.restart_ps(0, *self.parent_flags)
        self.assertEqual(self.finish(), want)
        self.assertNotIn("has continued without it", a.ps[0].output())

    def test_absent_region_dropped_and_admitted_again(self):
        """The job does not wait for an absent region. When this region returns, it resumes at the
        step of the other region."""
        gate, a, b = self.begin_held(150, steps=300, every=10, late=(1,),
                                     parent=["--worker_timeout=1"])
        own = b.hold(35)
        b.start(self.region_flags[1])
        b.workers[0].wait_line(r"\(global step: 30\)")
        with harness.paused(b.ps[0]):
            a.workers[0].wait_line(r"\(global step: 90\)")
        own.open()
        b.ps[0].wait_line(r"region 1: the parent group has continued without it, to round \d+")
        gate.open()
        self.finish()

    def test_late_region_begins_at_current_step(self):
        """A region that is started in mid-training begins with the current values, at the current
        step."""
        gate, a, b = self.begin_held(80, steps=300, every=10, late=(1,),
                                     parent=["--worker_timeout=1", "--min_workers=1"])
        a.workers[0].wait_line(r"\(global step: 50\)")
        b.start(self.region_flags[1])
        m = b.ps[0].wait_line(r"region 1 of 2 is at step (\d+), the parent group at round (\d+) of")
        self.assertGreaterEqual(int(m.group(1)), 50)
        self.assertEqual(int(m.group(1)), 10 * int(m.group(2)))
        m = b.workers[0].wait_line(r"training step (\d+) done")
        self.assertGreater(int(m.group(1)), 50)
        gate.open()
        self.finish()

    def test_parent_without_checkpoint_restarts_from_regions(self):
        """A parent's server without checkpoints starts again, with the regions' values."""
        gate, a, _ = self.begin_held(90, steps=200, every=20)
        a.workers[0].wait_line(r"\(global step: 50\)")
        self.parents.restart_ps(0)
        gate.open()
        self.finish()

    def test_resumed_region_applies_missed_rounds(self):
        """The checkpoint of a region contains the last round of the parent that the region has
        applied. A region that resumes applies the rounds after it, also if the parent has made
        fewer rounds than the region has passed gates."""
        gate, a, b = self.begin_held(110, steps=200, every=10, keeps=True,
                                     parent=["--worker_timeout=1"],
                                     flags=["--fault_push_delay_ms=20"])
        a.workers[0].wait_line(r"\(global step: 45\)")
        self.parents.restart_ps(0, *self.parent_flags)
        # This checkpoint is after gate 7, 8 or 9, and has round 3, 4 or 5 of the parent.
        b.ps[0].wait_line(r"checkpoint at step (7[1-9]|[89]\d): ")
        b.ps[0].kill()
        a.workers[0].wait_line(r"\(global step: 105\)")  # then the parent is at round 6 or 7
        b.start_ps(0, *self.region_flags[1])
        b.ps[0].wait_line(r"region 1: adopts round \d+ of the parent group")
        gate.open()
        self.finish()

    def test_regions_over_tls_same_bits(self):
        """A region's server is a server to its workers, and a worker to the parent's servers."""
        want = self.run_all(steps=20)
        with tempfile.TemporaryDirectory(prefix="weir-certs-") as folder:
            own = certs.Certs(folder)
            parent = own.make("ps", "parent", harness.LOOPBACK)
            region = own.make("region", "region", harness.LOOPBACK)
            worker = own.make("worker", "worker")
            self.assertEqual(self.run_all(steps=20, parent=parent, region=region, flags=worker),
                             want)
            (a,) = self.begin(n=1, steps=20, parent=parent, late=(0,))
            a.start_ps(0, *self.region_flags[0], *own.make("ps", "server", harness.LOOPBACK))
            for i in range(2):
                a.start_worker(i, *worker)
            a.ps[0].wait(60, 1)
            self.assertRegex(a.ps[0].output(), "Join is for the role worker; the caller's "
                             r"certificate \(CN=server\) is for the role ps")
            self.kill(*a.workers, *self.parents.ps)


harness.main(__name__)
