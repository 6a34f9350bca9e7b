"""Regions of several servers. Their result is the same also if a server dies, has no flags for
regions, or joins and leaves."""
# label: cluster waits
import signal

import harness
import regions

SMALL = ["--chunk_bytes=8192"]  # 10 chunks, on all servers


class Servers(regions.Test):
    def test_regions_of_several_servers_same_bits(self):
        """Regions of several servers end with the bits of regions of one server, with any rule, and
        with a parent of another number of servers."""
        for region in ([], ["--overlap_steps=4", "--fragments=2", "--parent_wire_dtype=int4"],
                       ["--overlap_steps=4", "--overlap_mix=0.5"]):
            with self.subTest(region=region):
                want = self.run_all(steps=40, flags=SMALL, region=region, n_workers=1)
                self.assertEqual(want, self.run_all(steps=40, flags=SMALL, region=region,
                                                    n_workers=1, n_servers=2, n_parents=3))

    def test_killed_members_change_no_bit(self):
        """Each of a region's servers in turn, and its worker, are killed."""
        want = self.run_all(steps=240, every=20, flags=SMALL)
        gate, _, b = self.begin_held(205, steps=240, every=20, flags=[
            *SMALL, "--fault_push_delay_ms=3"], keeps=True, n_servers=2)
        for after, i in ((r"2[1-9]|[3-9]\d", 1), (r"[4-9]\d|1\d\d", 0), (r"\d+", 1)):
            # This checkpoint has the region's last round.
            b.ps[0].wait_line(r"checkpoint at step (%s): " % after)
            b.restart_ps(i, *self.region_flags[1])
        b.restart_worker(1)
        gate.open()
        self.assertEqual(self.finish(), want)

    def test_servers_of_a_region_join_and_leave(self):
        """Only ps 0 of a region needs the flags for regions. Other servers may join and leave."""
        want = self.run_all(steps=120, every=20, flags=SMALL)
        gate, _, b = self.begin_held(105, steps=120, every=20, n_servers=2, late=(1,), flags=[
            *SMALL, "--fault_push_delay_ms=3"])
        b.start_ps(0, *self.region_flags[1])
        b.start_ps(1)
        for i in range(2):
            b.start_worker(i)
        b.workers[0].wait_line(r"\(global step: 25\)")
        more = b.join_ps("--job_name=ps", "--drain")
        b.ps[0].wait_line(r"ps:2 .* joins at step \d+: ")
        b.workers[0].wait_line(r"\(global step: 65\)")
        more.popen.send_signal(signal.SIGTERM)
        more.wait(60)
        gate.open()
        self.assertEqual(self.finish(), want)

    def test_finished_region_sends_leave_message_after_restart(self):
        """The exchange of the region ends while its other server still runs. The parent receives
        the region's leave message."""
        parent = ["--checkpoint_dir=%s/parent" % self.dir(), "--save_steps=1",
                  "--worker_timeout=600"]
        a, = self.begin(n=1, n_workers=1, n_servers=2, steps=20, flags=SMALL, keeps=True,
                        parent=parent)
        self.finish()
        for i in range(2):
            a.start_ps(i, *self.region_flags[0])
        a.start_worker(0)
        a.workers[0].wait(30)
        self.parents.start_ps(0, *parent)
        self.finish()


harness.main(__name__)
