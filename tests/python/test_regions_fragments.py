"""Regions that exchange one fragment of their parameters at each gate (--fragments). The bits are
the same in each run, whatever process dies, and all regions end with the same values. Other tests
count the bytes at a gate, and check refusals."""
# label: cluster

import harness
import regions

CHUNKS = ["--chunk_bytes=16384"]  # the parameters have about 76 KB in all


class Fragments(regions.Test):
    def test_gate_moves_one_fragment(self):
        """A gate exchanges one fragment, and the last gate all of them. Region and parent keep the
        other fragments unchanged."""
        self.begin(steps=80, every=40, region=["--fragments=4"], flags=CHUNKS)
        self.finish()
        for job in self.regions:
            n, sent, received = self.moved(job, 8)
            gates = (7 / 4 + 1) * n  # fragments have nearly equal numbers of chunks
            first = n if job is self.regions[0] else 0
            self.assertAlmostEqual(sent, gates + first, delta=0.07)
            self.assertAlmostEqual(received, gates + n, delta=0.07)

    def test_killed_members_change_no_bit(self):
        """A worker is killed. Then the parent's server is killed when its checkpoint has the last
        gate, and a region's server when it has passed this gate, but its checkpoint has not."""
        region = ["--fragments=4", "--outer_momentum=0.9"]
        want = self.run_all(steps=140, every=80, region=region, flags=CHUNKS, n_parents=2)
        keeps = ["--checkpoint_dir=%s/parent" % self.dir(), "--save_steps=1"]
        gate, a, b = self.begin_held(55, steps=140, every=80, region=region, parent=keeps,
                                     keeps=True, flags=[*CHUNKS, "--fault_push_delay_ms=20"])
        b.workers[0].wait_line(r"\(global step: 25\)")
        b.restart_worker(1)
        b.ps[0].wait_line(r"checkpoint at step (4[1-9]|5\d): ")
        self.parent_waits_for(0)
        b.ps[0].kill()
        gate.open()
        self.parents.ps[0].wait_line(r"checkpoint at step 3: ")
        a.workers[0].wait_line(r"\(global step: 61\)")
        self.parents.restart_ps(0, *self.parent_flags)
        b.start_ps(0, *self.region_flags[1])
        b.ps[0].wait_line("region 1: adopts round 3 of the parent group")
        self.assertEqual(self.finish(), want)
        whole = self.run_all(steps=140, every=80, region=region[1:], flags=CHUNKS)
        self.assertNotEqual(whole, want, "--fragments has no effect")

    def test_int4_fragments_same_bits(self):
        """In int4, with an overlap, the bits do not depend on the number of the parent's
        servers."""
        digests = [self.run_all(steps=63, every=40, flags=CHUNKS, n_parents=n, region=[
            "--fragments=4", "--overlap_steps=4", "--parent_wire_dtype=int4"]) for n in (1, 2)]
        self.assertEqual(*digests)

    def test_last_steps_alone_count(self):
        """A single region makes its last steps alone, as in test_regions.py. The changes of each
        fragment count once."""
        self.check_drift_to_the_end(every=20, region=["--fragments=2"], flags=CHUNKS)

    def test_wrong_number_of_fragments_refused(self):
        """A region is refused if it has another number of fragments than the job, or more fragments
        than the model has chunks."""
        a, b = self.begin(late=(1,), every=20, region=["--fragments=2"], flags=CHUNKS)
        self.parents.ps[0].wait_line("worker 0 joined")
        b.start([*self.region_flags[1], "--region_steps=10", "--fragments=1"])
        b.ps[0].wait(60, 1)
        self.assertIn("--fragments: the servers have 2, the worker has 1", b.ps[0].output())
        self.kill(*a.workers, *a.ps, *b.workers, *self.parents.ps)
        job, = self.begin(n=1, n_workers=1, late=(0,), every=20, region=["--fragments=20"],
                          flags=CHUNKS)
        job.start_ps(0, *self.region_flags[0])
        job.start_worker(0)
        job.workers[0].wait(30, 1)
        self.assertRegex(job.workers[0].output(), r"the region's server has --fragments=20, but "
                         r"the model has only \d chunk\(s\) of at most 16384 bytes")
        self.kill(*job.ps, *self.parents.ps)


harness.main(__name__)
