"""Regions: their results, their samples, the bytes between region and parent, training without an
answer of the parent, and refusals."""
# label: cluster sanitize
import re

import harness
import regions
from regions import FLAGS
import samples


class Regions(regions.Test):
    def test_region_equals_group_without_parent(self):
        """A single region with plain averaging ends like the same group without a parent, up to the
        rounding of differences."""
        alone, region = self.dir() + "/alone.safetensors", self.dir() + "/region.safetensors"
        job = self.job(model="mlp", flags=[*FLAGS, "--train_steps=20"])
        job.start_ps(0)
        job.start_worker(0, "--export=" + alone)
        job.start_worker(1)
        job.finish()
        self.begin(n=1, steps=20, every=5, late=(0,), region=["--outer_optimizer=sgd"])
        job = self.regions[0]
        job.start_ps(0, *self.region_flags[0])
        job.start_worker(0, "--export=" + region)
        job.start_worker(1)
        self.finish()
        a, b = harness.read_safetensors(alone), harness.read_safetensors(region)
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            for x, y in zip(a[name][1], b[name][1]):
                self.assertAlmostEqual(x, y, delta=1e-5)

    def test_regions_read_each_sample_once(self):
        """The positions of the samples of one region lie between those of the other region."""
        paths = [[self.dir() + "/samples-%d-%d" % (i, k) for k in range(2)] for i in range(2)]
        self.begin(late=(0, 1), steps=30)
        for i, job in enumerate(self.regions):
            job.start_ps(0, *self.region_flags[i])
            for k in range(2):
                job.start_worker(k, "--record_samples=" + paths[i][k])
        self.finish()
        rows = samples.last(samples.read(paths[0] + paths[1]))
        self.assertEqual(sum(r[3] for r in rows), 30 * 2 * 2 * 10)
        numbers = sorted(n for r in rows for n in range(r[2], r[2] + 2 * r[3], 2))
        self.assertEqual(numbers, list(range(30 * 2 * 2 * 10)))

    def test_region_continues_without_answer(self):
        """Without an answer of the parent the region continues alone for --max_region_drift steps,
        and then applies the late answer."""
        a, _ = self.begin(steps=400, every=10, region=["--max_region_drift=25"],
                          flags=["--fault_push_delay_ms=10"])
        a.workers[0].wait_line(r"\(global step: 20\)")
        with harness.paused(self.parents.ps[0]):
            m = a.ps[0].wait_line(r"no answer from the parent group at step (\d+): the region "
                                  r"continues alone, for 25 steps at most")
            gate = int(m.group(1))
            a.workers[0].wait_line(r"\(global step: %d\)" % (gate + 20))
            harness.wait_still(*a.workers)
            self.assertLess(max(p.global_step() for p in a.workers), gate + 26)
        self.finish()

    def test_last_steps_alone_count(self):
        """If a region makes its last steps alone, these steps count: the parent's next rounds
        include them."""
        self.check_drift_to_the_end(every=10)

    def test_region_steps_count_workers_steps(self):
        """--region_steps counts the steps of workers also if they make local steps; another region,
        whose workers make none, exchanges at the same steps."""
        a, b = self.begin(steps=60, every=20, late=(0,))
        a.start_ps(0, *self.region_flags[0])
        for k in range(2):
            a.start_worker(k, "--local_steps=10")
        self.finish()
        for job in (a, b):
            self.assertRegex(job.ps[0].output(), r"at step 0, the parent group at round \d of 3 "
                                                 r"\(20 steps each\)")
            self.assertIn("round 3 of 3 exchanged", job.ps[0].output())

    def test_few_exchanges_average_and_warn(self):
        """After one exchange all have the mean of the regions' changes, and log a warning."""
        ends = []
        for outer in ([], ["--outer_optimizer=sgd"], ["--outer_optimizer=nesterov"]):
            path = "%s/%d.safetensors" % (self.dir(), len(ends))
            self.begin(steps=10, every=10, n_workers=1, region=outer, flags=["--export=" + path])
            self.finish()
            ends.append(harness.read_safetensors(path))
            for job in self.regions:
                self.assertIn("exchange their parameters only 1 times in this job of 10 steps",
                              job.ps[0].output())
        self.assertEqual(ends[0], ends[1])
        self.assertNotEqual(ends[0], ends[2])
        self.begin(steps=50, every=10, n_workers=1)
        self.finish()
        self.assertNotIn("exchange their parameters only", self.regions[0].ps[0].output())

    def test_large_first_values_arrive(self):
        """The first values exceed the bytes that may be in flight, and no answer arrives before all
        of them."""
        self.begin(steps=2, every=2, flags=["--hidden_units=1500"])
        self.finish()

    def test_round_moves_one_contribution_per_region(self):
        """A region sends one contribution to the parent in each round, however many workers it
        has."""
        self.begin(steps=40, every=20, n_workers=3)
        self.finish()
        for job in self.regions:
            n, sent, _ = self.moved(job, 2)
            self.assertAlmostEqual(sent, 2 * n + (n if job is self.regions[0] else 0), delta=0.11)

    def test_waits_for_parent_reported(self):
        """ps 0 logs how long its workers have waited for the parent. Here the parent waits for a
        region that stands still."""
        gate, region, other = self.begin_held(5, steps=40, every=20)
        harness.wait_still(*other.workers)  # lasts a second at least
        gate.open()
        self.finish()
        pattern = r"round 2 of 2 .*workers waited for answers ([0-9.]+) s, ([0-9.]+) % of the time"
        waited, share = (float(x) for x in re.search(pattern, other.ps[0].output()).groups())
        self.assertGreaterEqual(waited, 0.9)
        self.assertGreater(share, 0)
        self.assertLessEqual(share, 100)

    def refused(self, *flags):
        argv = [harness.program("ps"), "--ps_hosts=127.0.0.1:1", "--job_name=ps", *flags]
        return self.start("ps", argv).wait_output(30, 2)

    def test_bad_region_flags_refused(self):
        parent = ["--parent_hosts=127.0.0.1:2", "--regions=2"]
        self.assertIn("--region_steps", self.refused("--region_steps=5"))
        self.assertIn("needs --regions", self.refused("--parent_hosts=127.0.0.1:2"))
        self.assertIn("--region_index must be below --regions",
                      self.refused(*parent, "--region_index=2"))
        self.assertIn("--overlap_steps must be below", self.refused(*parent, "--overlap_steps=50"))
        self.assertIn("--fragments", self.refused("--fragments=2"))
        self.assertIn("--overlap_mix needs --overlap_steps",
                      self.refused(*parent, "--overlap_mix=0.5"))
        self.assertIn("--region_steps must be a multiple of --fragments",
                      self.refused(*parent, "--fragments=3"))
        self.assertIn("--overlap_steps must be below --region_steps / --fragments",
                      self.refused(*parent, "--fragments=2", "--overlap_steps=25"))
        self.assertIn("--parent_wire_dtype must be auto", self.refused(*parent,
                                                                 "--parent_wire_dtype=int2"))
        self.assertIn("need --parent_hosts", self.refused("--wire_step_ms=20"))
        self.assertIn("--wire_step_ms needs --parent_wire_dtype=auto",
                      self.refused(*parent, "--wire_step_ms=20"))
        self.assertIn("--parent_hosts excludes --serve", self.refused(*parent, "--serve"))
        for flags, why in ((["--sync_mode=async"], "a region needs --sync_mode=sync"),
                           (["--wire_dtype=int8"],
                            "parameters cannot be sent in int8, int4 or topk"),
                           (["--train_steps=3"], "no more steps than --overlap_steps"),
                           (["--local_steps=3"],
                            "--region_steps is not a multiple of --local_steps"),
                           (["--local_steps=5"],
                            "--overlap_steps is not a multiple of --local_steps")):
            self.begin(n=1, n_workers=1, late=(0,), region=["--overlap_steps=4"])
            job = self.regions[0]
            job.start_ps(0, *self.region_flags[0])
            job.start_worker(0, *flags)
            self.assertIn(why, job.workers[0].wait_output(30, 1))
            job.ps[0].stop()
            self.parents.ps[0].stop()

    def test_region_with_other_rounds_refused(self):
        """Regions of one job have the same flags: the second region is refused, and logs the
        reason."""
        a, b = self.begin(late=(1,))
        self.parents.ps[0].wait_line("worker 0 joined")
        b.start([*self.region_flags[1], "--region_steps=5"])
        self.assertRegex(b.ps[0].wait_output(60, 1), r"refuse.*local_steps")
        self.kill(*a.workers, *a.ps, *b.workers, *self.parents.ps)


harness.main(__name__)
