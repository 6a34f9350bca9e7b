"""tests/chaos with a few fixed seeds: the job ends with the parameters of the undisturbed job,
whatever faults strike. A schedule depends on its seed alone."""
# label: net waits long
import os
import sys

import chaos_schedule
import harness

CHAOS = harness.source("tests/chaos")
SEEDS = (1, 2, 3, 4, 5)


class Chaos(harness.Test):
    def test_seeds_end_with_undisturbed_bits(self):
        """One program runs all seeds, so that the undisturbed run is made once."""
        p = self.start("chaos", [sys.executable, "-B", CHAOS, "--steps=80", "--save_steps=5",
                                 "--seeds=" + ",".join(str(s) for s in SEEDS),
                                 "--logs=" + self.path("logs")])
        p.wait(250, None)
        print("\n".join(p.lines))
        self.assertEqual(p.status, 0)
        self.assertIn("5 of 5 seeds ended well", p.output())

    def test_tables_end_with_undisturbed_bits(self):
        p = self.start("chaos", [sys.executable, "-B", CHAOS, "--tables", "--steps=60",
                                 "--save_steps=5", "--seeds=2,4", "--logs=" + self.path("logs")])
        p.wait(250, None)
        print("\n".join(p.lines))
        self.assertEqual(p.status, 0)
        self.assertIn("2 of 2 seeds ended well", p.output())

    def test_same_seed_makes_same_schedule(self):
        """The same seed makes the same faults. An omitted kind moves no other fault."""
        kinds = list(chaos_schedule.KINDS)
        shape = chaos_schedule.Shape(2, 3, kinds)
        without = chaos_schedule.Shape(2, 3, [k for k in kinds if k != "cut"])
        for seed in range(50):
            faults = chaos_schedule.make(seed, shape)
            self.assertEqual(faults, chaos_schedule.make(seed, shape))
            self.assertNotEqual(faults, chaos_schedule.make(seed + 1, shape))
            left = [f for f in faults if f.kind != "cut"]
            self.assertEqual([f[1:] for f in left],
                             [f[1:] for f in chaos_schedule.make(seed, without)])

    def test_hang_fails_with_report(self):
        """A run that does not end in time fails, with a full report."""
        logs = self.path("logs")
        p = self.start("chaos", [sys.executable, "-B", CHAOS, "--steps=20", "--push_delay=5000",
                                 "--deadline=5", "--seed=7", "--kinds=stop", "--logs=" + logs])
        p.wait(60, 1)
        self.assertRegex(p.output(), "FAILED in .*\n *not done after")
        self.assertIn("0 of 1 seeds", p.output())
        kept = os.listdir(os.path.join(logs, "seed-7"))
        self.assert_has(kept, "events", "ps-1.log", "worker-2.log", "worker-2.stack", "folder")

    def test_unknown_kind_refused(self):
        done = harness.run([sys.executable, "-B", CHAOS, "--kinds=kill,hug"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no 'hug'", done.stdout)


harness.main(__name__)
