"""scripts/gpu_check prints one line if there is no card. Here all its stages run over the fakes and
the emulation, so that faults of the script are found before its first run on a card."""
# label: cluster computes
import glob
import os
import re
import unittest

import fake_gpus
import harness

SCRIPT = harness.source("scripts/gpu_check")
BUILD = os.path.dirname(harness.BIN)


class GpuCheck(harness.Test):
    def check(self, *flags, status=0, **more):
        """Runs scripts/gpu_check. Returns (its output, the report or None)."""
        out = self.path("out")
        env = dict(os.environ, **more)
        done = harness.run([SCRIPT, "--build=" + BUILD, "--out=" + out, *flags], env=env,
                           timeout=200 * harness.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout)
        if not os.path.isdir(out):
            return done.stdout, None
        (report,) = os.listdir(out)
        self.assertRegex(report, r"^\d{4}-\d\d-\d\d-Emulated-GPU\.md$")
        return done.stdout, harness.read_text(os.path.join(out, report))

    def test_missing_card_reported_in_one_line(self):
        if os.path.exists("/dev/nvidiactl") or fake_gpus.there("libcuda.so.1"):
            self.skipTest("this machine has a driver")
        said, report = self.check(status=1)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("gpu_check: there is no NVIDIA card here", said)
        self.assertIsNone(report)

    def stages(self, said):
        """Returns [(number, of how many, name, verdict)]; each line has a time limit."""
        begun = re.findall(r"^=== (\d+) of (\d+): (.*) \(at most \d+ min\)$", said, re.M)
        ended = re.findall(r"^=== (.*): (passed|skipped|FAILED), \d+ s$", said, re.M)
        self.assertEqual([name for _, _, name in begun], [name for name, _ in ended])
        self.assertEqual([(n, of) for n, of, _ in begun],
                         [(str(i + 1), str(len(begun))) for i in range(len(begun))])
        return ended

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_course_runs_over_emulation(self):
        python = self.path("venv/bin/python")
        os.makedirs(os.path.dirname(python))
        env = fake_gpus.stand_in_torch(python, "Emulated GPU",
                                       "GPU-00000000-0000-4000-8000-000000000000")
        said, report = self.check("--emulated", VIRTUAL_ENV=self.path("venv"), **env)
        self.assertIn("gpu_check: all 37 stages passed on Emulated GPU", said)
        self.assertNotIn("skipped", said)
        self.assertIn("**Emulated: no card was there", report)
        names = [name for name, _ in self.stages(said)]
        self.assertEqual(len(names), 37)
        self.assertEqual(names[:2], ["self test", "first tests"])
        for row in ("tests", "compute-sanitizer memcheck, conformance", "two cards",
                    "one of two cards",
                    "compute-sanitizer racecheck, group", "self test",
                    "short training, beside PyTorch 2.9.0", "training, beside PyTorch 2.9.0",
                    "bench_backend emulated mlp 8 bf16 1 1 graph none", "short weir.torch",
                    "weir.torch, resnet18", "weir.torch, gpt"):
            self.assertIn(row, names)
            self.assertRegex(report, r"\n\| %s \| passed \| \d+ \| `" % re.escape(row))
        self.assertEqual(report.count(": GPU is running! "), 4)
        self.assertRegex(report, r"\n    1/\d+ Test +#\d+: kernel_cuda_\w+ \.* +Passed")
        self.assertRegex(report, r"\n\| mlp \| 8 \| fp32 \| host \| auto \| \d+ \| \d+ \|\n")
        self.assertRegex(report, r"\n    \| (eager|compiled) \| 8 \|")
        for flags in ("--network=resnet18 --rounds=1", "--network=gpt"):
            self.assertIn("\n    | stand-in | %s --device=cpu --rounds=1 " % flags, report)
        self.assertIn("\n    Emulated GPU (GPU-00000000-0000-4000-8000-000000000000, ", report)

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_quick_course_runs_three_stages(self):
        said, report = self.check("--emulated", "--quick", "--python=/nowhere/python")
        names = [name for name, _ in self.stages(said)]
        self.assertEqual([names[i] for i in (0, 1, -1)],
                         ["self test", "first tests", "short training"])
        self.assertEqual(len(names), 6)
        why = "PyTorch: no PyTorch that sees a card in /nowhere/python; bench/train --setup2 makes"
        self.assertIn("\ngpu_check: skipped: %s build/venv-torch2\n" % why, said)
        self.assertIn("| PyTorch | skipped: no PyTorch that sees a card in /nowhere", report)
        self.assertRegex(report, r"\n    \| weir \| ")

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_missing_parts_named(self):
        for only, flag, why in (
                ("two cards", "--no_setup", "CUDA shows 1"),
                ("compute-sanitizer", "--sanitizer=/nowhere/compute-sanitizer",
                 "there is no /nowhere/compute-sanitizer; it comes with the CUDA toolkit")):
            said, report = self.check("--emulated", "--only=" + only, flag, FAKE_CARDS="1")
            self.assertEqual(self.stages(said), [])
            self.assertIn("\ngpu_check: skipped: %s: %s\n" % (only, why), said)
            self.assertIn("\n| %s | skipped: %s | | |\n" % (only, why), report)
        said, _ = self.check("--emulated", "--only=three cards", status=2)
        self.assertTrue(said.endswith("--only=three cards: no stage has such a name\n"), said)
        said, _ = self.check("--fast", status=2)
        self.assertIn("unknown argument '--fast'", said)

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_card_without_bf16_skips_stages(self):
        """Stages that this card or machine cannot run are skipped with a line, and are no
        failure."""
        old = {"WEIR_EMULATED_CC": "7.5"}
        said, report = self.check("--emulated", "--quick", "--python=/nowhere/python", **old)
        self.assertIn("gpu_check: 5 of 6 stages passed on Emulated GPU, 1 skipped\n", said)
        for row, verdict in (("bf16 1 1 graph auto", "skipped"),
                             ("fp32 1 1 graph auto", "passed"),
                             ("tf32 1 1 graph auto", "passed")):
            row = "bench_backend emulated mlp 8 " + row
            self.assertIn("\n| %s | %s | " % (row, verdict), report)
            self.assertEqual("gpu_check: skipped: %s\n" % row in said,
                             verdict == "skipped")
        tests = os.path.join(BUILD, "tests")
        suite = harness.run([os.path.join(tests, "kernel_conformance_test"), "emulated", tests],
                            env=dict(os.environ, **old))
        self.assertEqual(suite.returncode, 77, suite.stdout)
        self.assertIn("refuses bf16 here", suite.stdout)

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_failure_reported_and_later_stages_run(self):
        """The stages after a failed one run, too."""
        tools = ("memcheck", "racecheck", "initcheck")
        suites = ("conformance", "group", "cards", "split", "resident")
        for tool in tools:
            said, report = self.check("--emulated", "--only=compute-sanitizer", status=1,
                                      FAKE_SANITIZER_FAILS=tool)
            self.assertTrue(said.endswith("".join(
                "gpu_check: FAILED: compute-sanitizer %s, %s\n" % (tool, suite)
                for suite in suites)), said)
            self.assertEqual(report.count("| FAILED |"), 5)
            self.assertEqual(report.count("| passed |"), 10)
            self.assertEqual([verdict for _, verdict in self.stages(said)],
                             [("passed", "FAILED")[t == tool] for t in tools for _ in suites])
            self.assertEqual(said.count("gpu_check: %d errors of ours; 120 in kernels of others" %
                                        (tool == "initcheck")), 5)

    def test_names_of_kernels_are_weirs(self):
        """racecheck and initcheck distinguish them from cuDNN's by their names."""
        names = []
        for path in glob.glob(harness.source("kernels/cuda/*/*.cu")):
            text = harness.read_text(path)
            found = re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(", text)
            self.assertEqual(len(found), text.count("__global__"), path)
            names += found
        self.assertGreater(len(names), 30)
        self.assertEqual([n for n in names if not n.startswith("weir_")], [])


harness.main(__name__)
