"""The pure parts of bench/peers: moments of kills, costs of a kill, counters, shapes and tables."""
# label: unit
import json
import os
import subprocess
import sys

import harness

sys.path[:0] = [harness.source("bench"), harness.source("bench/peer")]
import note  # noqa: E402
import peers_env  # noqa: E402
import peers_kills  # noqa: E402
import peers_outcome  # noqa: E402
import peers_rounds  # noqa: E402
import peers_watch  # noqa: E402
import shapes  # noqa: E402


def steps(rank, *made):
    """Returns notes of a rank. made: (time, number of steps made)."""
    return [{"rank": rank, "at": at, "n": n} for at, n in made]


def together(*lists):
    return sorted(sum(lists, []), key=lambda n: n["at"])


class Kills(harness.Test):
    def test_schedule_same_seed_same_moments(self):
        first = peers_outcome.schedule(1, "weir", "ps 0", 20, 60)
        self.assertEqual(first, peers_outcome.schedule(1, "weir", "ps 0", 20, 60))
        self.assertNotEqual(first, peers_outcome.schedule(2, "weir", "ps 0", 20, 60))
        self.assertNotEqual(first, peers_outcome.schedule(1, "weir", "ps 1", 20, 60))
        self.assertEqual(len(first), 20)
        self.assertTrue(all(15 <= n <= 60 and 0 <= delay <= 0.1 for n, delay in first))
        self.assertGreater(len({n for n, _ in first}), 5)

    def test_run_has_steps_for_all_its_kills(self):
        """The steps of a schedule and those until training moves are less than a run has."""
        for kind, system in peers_kills.KINDS.items():
            for role in system.roles:
                moments = peers_outcome.schedule(1, kind, role.name, 5, system.between)
                needed = sum(n + peers_outcome.AFTER for n, _ in moments)
                self.assertLess(needed, 5 * (system.between + system.spare), (kind, role.name))

    def test_outcome_without_new_steps_is_absent(self):
        notes = steps(0, (1, 1), (2, 2), (3.5, 3), (4, 4))
        self.assertIsNone(peers_outcome.outcome(notes, 3, 1))  # two steps may have been under way
        self.assertIsNone(peers_outcome.outcome([], 3, 1))

    def test_outcome_of_waiting_job_loses_no_step(self):
        """A worker is killed at 3.2 and returns at 10; no step is repeated."""
        notes = together(steps(0, (1, 1), (2, 2), (3, 3), (10, 4), (11, 5), (12, 6)),
                         steps(1, (1, 1), (2, 2), (9.5, 3), (10, 4), (11, 5), (12, 6)))
        lost, seconds = peers_outcome.outcome(notes, 3.2, 1)
        self.assertEqual(lost, 0)
        self.assertAlmostEqual(seconds, 12 - 3.2 - 3)

    def test_outcome_after_rollback_counts_repeated_steps(self):
        """Training goes back from step 9 to the checkpoint of step 5."""
        notes = together(steps(0, *[(t, t) for t in range(1, 10)], (20, 5),
                               *[(15 + n, n) for n in range(6, 14)]))
        lost, seconds = peers_outcome.outcome(notes, 9.5, 1)
        self.assertEqual(lost, 4)
        self.assertAlmostEqual(seconds, 27 - 9.5 - 3)

    def test_outcome_of_received_state_loses_no_step(self):
        """A rank starts with an old snapshot, and then receives the state of the other rank."""
        notes = together(steps(0, *[(t, t) for t in range(1, 15)]),
                         steps(1, *[(t, t) for t in range(1, 6)], (8, 2), (10, 10), (11, 11)))
        lost, seconds = peers_outcome.outcome(notes, 5.5, 1)
        self.assertEqual(lost, 0)
        self.assertEqual(seconds, 0)

    def test_outcome_counts_steps_in_strides(self):
        """A coordinator notes every fifth step, and resumes from step 10."""
        notes = steps(0, (1, 5), (2, 10), (3, 15), (4, 20), (9, 10), (10, 15), (11, 20), (12, 25))
        self.assertEqual(peers_outcome.outcome(notes, 4.5, 0.2)[0], 10)

    def test_job_is_together_after_steps_of_each_rank(self):
        first = steps(0, *[(t, t) for t in range(6)])
        self.assertFalse(peers_outcome.together(first + steps(1, (1, 0)), 2))
        self.assertTrue(peers_outcome.together(first + steps(1, (1, 0), (2, 1)), 2))
        self.assertFalse(peers_outcome.together(steps(0, (1, 1)) + steps(1, (1, 1)), 2))

    def test_usual_step_is_median(self):
        notes = together(steps(0, (0, 0), (1, 1), (2, 2), (9, 3)), steps(1, (0, 0), (4, 4)))
        self.assertEqual(peers_outcome.usual(notes), 1)
        self.assertEqual(peers_outcome.usual([]), 0)

    def test_row_names_each_reason(self):
        kills = [(4, 1.5), (0, 0.5), "no new step"]
        line = peers_outcome.row("Weir", "ps", kills, ["a"], ["a", "a"])
        self.assertEqual(line, "| Weir | ps | 2 of 3 (1: no new step) | 2 (0 to 4) | "
                               "1.0 (0.5 to 1.5) | yes |")
        line = peers_outcome.row("x", "y", ["dead"] * 3, [], ["a", "a"])
        self.assertEqual(line, "| x | y | 0 of 3 (3: dead) |  |  | no run ended |")

    def test_same_bits_need_two_equal_references(self):
        self.assertEqual(peers_outcome.same(["a", "a"], ["a", "a"]), "yes")
        self.assertEqual(peers_outcome.same(["a", "b"], ["a", "a"]), "1 of 2 runs")
        self.assertEqual(peers_outcome.same(["b"], ["a", "a"]), "no")
        self.assertEqual(peers_outcome.same(["a"], ["a", "b"]), "no: nor do two runs without kills")


class Rounds(harness.Test):
    def test_shapes_are_those_of_gpt2(self):
        self.assertEqual(shapes.count("124m"), 124439808)
        self.assertEqual(len(shapes.shapes("124m")), 148)

    def test_check_refuses_wrong_average(self):
        shapes.check(shapes.expected(0, 6, 2), 0, 6, 2)
        with self.assertRaises(SystemExit):
            shapes.check(6 * shapes.change(0), 0, 6, 2)  # without the second client

    def test_figures_leave_out_first_round(self):
        marks = [(0, 0, (0, 0)), (9, 5, (100, 200)), (10, 6, (300, 600)), (12, 7, (500, 1000))]
        found = peers_rounds.figures(marks, (7, 8, 9, 10), 2)
        self.assertEqual(found, {"seconds": 1.5, "cpu": 1, "server_peak": 7, "client_peak": 8,
                                 "server_rss": 9, "client_rss": 10, "up": 100, "down": 200})
        uncounted = [(at, cpu, None) for at, cpu, _ in marks]
        self.assertNotIn("up", peers_rounds.figures(uncounted, (7, 8, 9, 10), 2))

    def test_table_has_medians_and_reasons(self):
        run = {"seconds": 2.0, "cpu": 1.0, "server_peak": 1e9, "client_peak": 2e9,
               "server_rss": 3e9, "client_rss": 4e9, "up": 5e8, "down": 5e8}
        results = {("fp32", 2, "weir"): [run, {**run, "seconds": 1.0}, {**run, "seconds": 4.0}],
                   ("fp32", 2, "flower"): "pip | failed",
                   ("fp32", 2, "gloo"): [{**run, "seconds": s} for s in (4.0, 4.0, 4.0)]}
        lines = peers_rounds.table(results, "124m")
        self.assertEqual(lines[2], "| fp32 | 2 | Weir, shared memory | 2.00 | 1.00 to 4.00 | 249 | "
                                   "500, 500 | 1.0 | 1000 (3000) | 2000 (4000) |")
        self.assertEqual(lines[3].count("|"), lines[2].count("|"))
        self.assertIn("did not run: pip / failed", lines[3])
        self.assertEqual(peers_rounds.ratios(results), [
            "fp32, 2 clients: gloo all-reduce needs 2.0 times Weir's time (1.0 to 4.0)"])

    def test_nvflare_processes_have_roles(self):
        role = peers_rounds.nvflare_role
        self.assertEqual(role("starter", "python -m nvflare /x/prod_00/site-2/startup"), "client 1")
        self.assertEqual(role("starter", "python -m nvflare /x/prod_00/server"), "server")
        self.assertEqual(role("starter", "python rounds_nvflare.py"), "starter")


class Watch(harness.Test):
    def test_stat_of_any_name_is_read(self):
        fields = ["S", "7"] + ["0"] * 9 + ["150", "50"] + ["0"] * 8 + ["3"] + ["0"] * 20
        parent, cpu, size = peers_watch.parse_stat("12 (a) b (c) " + " ".join(fields))
        self.assertEqual((parent, size), (7, 3 * peers_watch.PAGE))
        self.assertAlmostEqual(cpu, 200 / peers_watch.TICK)

    def test_process_has_role_of_its_root_at_once(self):
        """A process is counted in the role of add(), even if it was seen before."""
        watch = peers_watch.Watch(every=60)
        p = subprocess.Popen(["sleep", "60"])
        try:
            watch.look()
            watch.add("client 0", p.pid)
            watch.look()
            self.assertGreater(watch.peaks()[1], 0)
        finally:
            p.kill()
            p.wait()
            watch.close()

    def test_shared_page_counts_once_at_owner(self):
        """A segment counts for the process that has made it, whether it has pages in its page
        table or not; other memory counts as RSS."""
        pid, rss = os.getpid(), 1 << 40
        self.assertEqual(peers_watch.parse_unshared(
            "VmRSS: 7 kB\nRssAnon:\t 8 kB\nRssFile:\t 4 kB\nRssShmem:\t 9 kB\n"), 12288)
        self.assertEqual(peers_watch.own_memory(pid, rss), rss)
        made = os.memfd_create("weir-payloads")
        os.posix_fallocate(made, 0, 8 << 20)
        again = os.dup(made)
        with open("/proc/self/status", encoding="ascii") as f:
            other = peers_watch.parse_unshared(f.read())
        self.assertAlmostEqual(peers_watch.own_memory(pid, rss), other + (8 << 20), delta=1 << 20)
        os.close(made)
        os.close(again)

    def test_descendants_belong_to_nearest_root(self):
        tree = {pid: (parent, 0, 0) for pid, parent in
                ((1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 5), (7, 99))}
        self.assertEqual(peers_watch.descendants(tree, {2: "a", 4: "b", 98: "c"}),
                         {2: 2, 3: 2, 4: 4})

    def test_counters_of_nft_are_read(self):
        def rule(name, size):
            return {"rule": {"comment": name, "expr": [
                {"match": {}}, {"counter": {"packets": 1, "bytes": size}}]}}
        text = json.dumps({"nftables": [{"metainfo": {}}, rule("to", 5), rule("from", 6)]})
        self.assertEqual(peers_watch.parse_counters(text), (5, 6))

    def test_notes_are_read_in_whole_lines(self):
        path = self.write("notes", '{"kind": "step", "n": 1}\n{"kind": "st')
        found, offset = note.read(path)
        self.assertEqual([n["n"] for n in found], [1])
        with open(path, "a", encoding="ascii") as f:
            f.write('ep", "n": 2}\n')
        found, offset = note.read(path, offset)
        self.assertEqual([n["n"] for n in found], [2])
        self.assertEqual(note.read(self.path("absent")), ([], 0))


class Environments(harness.Test):
    def test_each_package_is_pinned(self):
        for peer, packages in peers_env.PINS.items():
            for package in packages:
                self.assertRegex(package, r"^[\w-]+==[\w.]+$", peer)

    def test_each_kind_has_an_environment(self):
        for kinds in (peers_rounds.KINDS, peers_kills.KINDS):
            for _, environments, *_ in kinds.values():
                self.assertLessEqual(set(environments), set(peers_env.PINS))

    def test_reason_is_error_line_of_pip(self):
        self.assertEqual(peers_env.last_error(
            "Collecting x\nERROR: no matching distribution for x==1\nnote: a pip error\n"),
            "ERROR: no matching distribution for x==1")
        self.assertIn("--setup flower", peers_env.reason(self.dir(), "flower"))
        self.write("flower.failed", "pip install flwr: it failed\n")
        self.assertEqual(peers_env.reason(self.dir(), "flower"), "pip install flwr: it failed")


harness.main(__name__)
