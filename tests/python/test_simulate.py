"""The simulation of bench/simulate.py against cases whose answer can be computed by hand."""
# label: unit
import os
import sys
import unittest
import unittest.mock

import harness

SOURCE = os.environ.get("WEIR_SOURCE") or os.path.abspath(os.path.join(__file__, "../../.."))
sys.path.insert(0, os.path.join(SOURCE, "bench"))
import scale
import simulate
from simulate import Costs, chunk_table, shard

MB = 1 << 20
GBIT = 8.0          # 1e9 bytes a second, so that seconds are easy to read
RATE = GBIT * 1e9 / 8
FREE = Costs()
LATENCY = 1e-4
COSTS = Costs(server={"bytes_in": 3e-10, "bytes_out": 2e-10, "chunk": 20e-6, "stream": 8e-6},
              worker={"bytes_in": 5e-10, "bytes_out": 4e-10, "chunk": 10e-6, "stream": 6e-6},
              loops={"add": 1e-10, "copy": 7e-11, "update": 9e-11, "crc": 1e-11})


def step_s(costs, **spec):
    return simulate.simulate(costs, **spec)["step_s"]


class OneWorkerOneServer(unittest.TestCase):
    def by_hand(self, n, rate=None):
        """Returns the time of one chunk, in which nothing overlaps."""
        cpu = (4e-10 + 3e-10 + 9e-11 + 1e-11 + 2e-10 + 5e-10) * n + 2 * (20e-6 + 10e-6) / 2
        cpu += 8e-6 + 6e-6
        return cpu + 2 * LATENCY + (2 * n / rate if rate else 0)

    def test_costs_of_one_chunk_add_up(self):
        got = step_s(COSTS, model_bytes=MB, latency_s=LATENCY)
        self.assertAlmostEqual(got, self.by_hand(MB), delta=1e-9)

    def test_costs_of_one_chunk_add_up_on_one_core(self):
        got = step_s(COSTS, model_bytes=MB, latency_s=LATENCY, shared_cores=1)
        self.assertAlmostEqual(got, self.by_hand(MB), delta=1e-9)

    def test_link_adds_its_time_in_each_direction(self):
        got = step_s(COSTS, model_bytes=MB, latency_s=LATENCY, gbit=GBIT)
        self.assertAlmostEqual(got, self.by_hand(MB, RATE), delta=1e-9)

    def test_wrong_rate_changes_result(self):
        got = step_s(COSTS, model_bytes=MB, latency_s=LATENCY, gbit=GBIT / 2)
        self.assertGreater(abs(got / self.by_hand(MB, RATE) - 1), 0.2)

    def test_slower_link_at_either_end_counts(self):
        for one, other in ((GBIT, GBIT / 4), (GBIT / 4, GBIT)):
            got = step_s(FREE, model_bytes=MB, gbit=one, server_gbit=other)
            self.assertAlmostEqual(got, 2 * MB / (RATE / 4), delta=1e-9)

    def test_chunks_overlap_in_stages(self):
        """Many chunks need the time of the slowest stage for all of them, and the time of one chunk
        for the other stages."""
        n = 64
        free = Costs(worker={"bytes_in": 5e-10, "bytes_out": 4e-10})
        got = step_s(free, model_bytes=n * MB)
        self.assertAlmostEqual(got, n * MB * 5e-10 + MB * 4e-10, delta=1e-9)


class Links(unittest.TestCase):
    def test_workers_on_one_link_bound_by_it(self):
        for workers, n in ((1, 1), (3, 1), (16, 1), (1, 5)):
            got = step_s(FREE, workers=workers, model_bytes=n * MB, gbit=GBIT, latency_s=LATENCY)
            # All chunks go up. Member 0, which receives the last one's answer first, begins its
            # next step and keeps the link busy while the other members receive theirs.
            want = (workers * n + 1) * MB / RATE + 2 * LATENCY
            self.assertAlmostEqual(got, want, delta=1e-9)

    def test_simultaneous_answers_queue_at_workers_link(self):
        """Chunks 1 to 3 are one frame; a server with a hundredfold link answers them at once."""
        n = 256 << 10
        got = step_s(FREE, model_bytes=4 * n, chunk_bytes=n, gbit=GBIT, server_gbit=100 * GBIT)
        self.assertAlmostEqual(got, (4 + 3) * n / RATE, delta=1e-9)

    def test_first_step_is_all_up_then_all_down(self):
        for workers in (2, 16):
            got = step_s(FREE, workers=workers, model_bytes=MB, gbit=GBIT, steps=1)
            self.assertAlmostEqual(got, 2 * workers * MB / RATE, delta=1e-9)

    def test_chunks_go_up_and_down_at_once(self):
        """At best one direction of the link is never idle. At worst all chunks go up, and then all
        versions go down."""
        for workers, n in ((3, 5), (16, 20)):
            got = step_s(FREE, workers=workers, model_bytes=n * MB, gbit=GBIT)
            self.assertGreaterEqual(got, (workers * n + 1) * MB / RATE - 1e-9)
            self.assertLess(got, 2 * workers * n * MB / RATE)

    def test_wrong_rate_changes_result(self):
        got = step_s(FREE, workers=16, model_bytes=MB, gbit=GBIT * 1.25)
        self.assertGreater(abs(got / (17 * MB / RATE) - 1), 0.15)

    def test_servers_help_until_workers_link_is_the_bound(self):
        workers, n = 4, 64
        for servers in (1, 2, 4, 8, 16):
            r = simulate.simulate(FREE, workers=workers, servers=servers, model_bytes=n * MB,
                                  gbit=GBIT)
            bound = n * MB / RATE * max(1, workers / servers)
            self.assertGreater(r["step_s"], bound)
            self.assertLess(r["step_s"], bound * 1.15)
            self.assertIn("server link" if servers < workers else "worker link",
                          [k for k, v in r["use"].items() if v > 0.85])

    def test_chunk_is_on_one_server(self):
        """More servers than chunks do not help: one chunk has one server."""
        self.assertAlmostEqual(
            step_s(FREE, workers=8, servers=1, model_bytes=MB, gbit=GBIT),
            step_s(FREE, workers=8, servers=50, model_bytes=MB, gbit=GBIT), delta=1e-9)


class Computing(unittest.TestCase):
    def test_straggler_bounds_the_step(self):
        r = simulate.simulate(COSTS, workers=8, model_bytes=MB, compute_s=0.01, straggler_s=0.2)
        alone = step_s(COSTS, workers=8, model_bytes=MB)
        self.assertGreater(r["step_s"], 0.21)
        self.assertLess(r["step_s"], 0.21 + alone)
        self.assertEqual(r["bottleneck"], "straggler")

    def test_contributions_before_member_0_summed_late(self):
        """The server copies member 1's contribution; member 0's contribution triggers both sums and
        the update."""
        got = step_s(COSTS, workers=2, model_bytes=MB, straggler_s=1.0)
        one = OneWorkerOneServer().by_hand(MB) - 2 * LATENCY
        # The server sends the last answer at the same time as the first, because it has two cores.
        self.assertAlmostEqual(got, 1.0 + one + 1e-10 * MB, delta=1e-9)

    def test_copies_of_early_contributions_cost_time(self):
        r = simulate.Simulation(COSTS, workers=2, model_bytes=MB, straggler_s=1.0, steps=1)
        r.run()
        both = 2 * (5e-10 * MB + 28e-6) + (1e-10 + 7e-11) * MB  # receive, send; update, copy
        self.assertAlmostEqual(sum(p.busy_s for p in r.pools), both, delta=1e-9)

    def test_same_seed_same_result(self):
        spec = dict(workers=6, servers=2, model_bytes=4 * MB, jitter_s=0.01, steps=10)
        self.assertEqual(simulate.simulate(COSTS, **spec), simulate.simulate(COSTS, **spec))
        other = simulate.simulate(COSTS, **dict(spec, seed=2))
        self.assertNotEqual(other["step_s"], step_s(COSTS, **spec))


class Cores(unittest.TestCase):
    def test_shared_machine_does_all_work(self):
        """If there are many workers, the cores are idle only at the beginning and end of a step."""
        workers, cores = 32, 2
        sim = simulate.Simulation(COSTS, workers=workers, model_bytes=4 * MB, shared_cores=cores)
        r = sim.run()
        work = sim.shared.busy_s / cores / sim.p["steps"]
        self.assertGreater(r["step_s"], 0.98 * work)
        self.assertLess(r["step_s"], 1.1 * work)
        self.assertEqual(r["bottleneck"], "the machine's cores")

    def test_connection_keeps_one_core_busy(self):
        n, costs = 64, Costs(server={"bytes_in": 3e-10})
        for workers, streams in ((1, 1), (2, 1), (4, 2)):
            got = step_s(costs, workers=workers, model_bytes=n * MB, server_cores=2)
            self.assertAlmostEqual(got, streams * n * MB * 3e-10, delta=2 * MB * 3e-10)

    def test_slowdown_applies_to_cpu_only(self):
        once = step_s(COSTS, workers=4, model_bytes=MB, shared_cores=2)
        self.assertAlmostEqual(step_s(COSTS, workers=4, model_bytes=MB, shared_cores=2,
                                      slowdown=2.0), 2 * once, delta=1e-9)

    def test_other_programs_slow_a_job_without_idle_cores(self):
        """On two cores, other programs slow a job that uses both cores, but not a job that
        waits."""
        run = dict(scale.POINT, workers=16, model_bytes=4 * MB, others_cores=0.0)
        with unittest.mock.patch("os.cpu_count", return_value=2):
            alone = scale.predict_run(COSTS, 0.0, run)["step_s"]
            beside = scale.predict_run(COSTS, 0.0, dict(run, others_cores=1.0))["step_s"]
            self.assertAlmostEqual(beside / alone, 2.0, delta=0.1)
            waits = dict(run, workers=1, compute_ms=100.0)
            self.assertEqual(scale.predict_run(COSTS, 0.0, waits),
                             scale.predict_run(COSTS, 0.0, dict(waits, others_cores=1.0)))

    def test_bytes_cost_more_with_many_streams(self):
        costs = Costs(server={"bytes_in": 1e-10, "crowd": 1e-10}, crowd_half=7)
        self.assertAlmostEqual(step_s(costs, model_bytes=MB), 1e-10 * MB, delta=1e-12)
        sim = simulate.Simulation(costs, workers=8, model_bytes=MB, steps=1)
        sim.run()
        work = 8 * MB * (1e-10 + 2 * 0.5e-10)  # either direction
        self.assertAlmostEqual(sim.pools[0].busy_s, work, delta=1e-12)

class Tables(unittest.TestCase):
    def test_chunk_table_splits_model(self):
        self.assertEqual(chunk_table(2 * MB + 8), [MB, MB, 8])
        self.assertEqual(chunk_table(4 * 65536, tensors=4), [65536] * 4)
        self.assertEqual(chunk_table(100 * 1024, tensors=100), [65536, 36864])
        self.assertEqual(chunk_table(100 * 1024, tensors=100, chunk_bytes=4096), [4096] * 25)
        self.assertEqual(chunk_table(3 * (MB + 4), tensors=3), [MB, 4] * 3)
        self.assertEqual(sum(chunk_table(13100000)), 13100000)

    def test_frames_group_chunks(self):
        self.assertEqual(simulate.make_frames([4, 4, 4], [0, 1, 0]), [(0, 2), (1,)])
        kb = [256 << 10] * 6
        self.assertEqual(simulate.make_frames(kb, [0] * 6), [(0,), (1, 2, 3, 4), (5,)])
        small = [1 << 10] * 900
        self.assertEqual([len(f) for f in simulate.make_frames(small, [0] * 900)], [128, 512, 260])
        small = [16 << 10] * 64
        self.assertEqual([len(f) for f in simulate.make_frames(small, [0] * 64)], [8, 56])

    def test_frame_handled_when_complete(self):
        """Two frames: the second one's chunks wait for each other."""
        costs = Costs(worker={"bytes_out": 4e-10}, server={"bytes_in": 3e-10})
        n = 256 << 10
        got = step_s(costs, model_bytes=4 * n, chunk_bytes=n)
        self.assertAlmostEqual(got, 4 * n * 4e-10 + 3 * n * 3e-10, delta=1e-9)

    def test_shards_match_servers(self):
        self.assertEqual(shard([5, 9, 5, 7], 2), [1, 0, 0, 1])
        self.assertEqual(shard([4, 4, 4, 4, 4], 2), [0, 1, 0, 1, 0])
        self.assertEqual(shard([1, 1], 5), [0, 1])

    def test_fit_finds_costs(self):
        rows = [[1.0, 2.0, 0.0], [4.0, 1.0, 1.0], [2.0, 7.0, 3.0], [5.0, 5.0, 1.0]]
        truth = [3.0, 0.5, 0.0]
        ys = [sum(a * b for a, b in zip(row, truth)) for row in rows]
        x, error = scale.least_squares(rows, ys)
        self.assertLess(error, 1e-12)
        for got, want in zip(x, truth):
            self.assertAlmostEqual(got, want, delta=1e-9)

    def test_fit_has_no_negative_costs(self):
        x, _ = scale.least_squares([[1.0, 1.0], [2.0, 1.0]], [1.0, 3.0])
        self.assertGreaterEqual(min(x), 0.0)

    def test_unknown_setting_refused(self):
        self.assertRaises(ValueError, simulate.simulate, FREE, wrokers=3)


harness.main(__name__)
