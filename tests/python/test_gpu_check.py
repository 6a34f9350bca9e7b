"""scripts/gpu_check without a card: it says so in one line, and its whole course runs over the
fakes and the emulation, so that it does not meet its first card with its first mistake."""
# label: cluster computes
import os
import re
import subprocess
import unittest

import fake_gpus
import harness

SCRIPT = os.path.join(harness.SOURCE, "scripts/gpu_check")
BUILD = os.path.dirname(harness.BIN)


class GpuCheck(harness.Test):
    def check(self, *flags, status=0, **more):
        """(what it printed, the report or None)."""
        out = os.path.join(self.dir(), "out")
        env = dict(os.environ, **more)
        done = subprocess.run([SCRIPT, "--build=" + BUILD, "--out=" + out, *flags], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=200 * harness.PATIENCE)
        self.assertEqual(done.returncode, status, done.stdout)
        if not os.path.isdir(out):
            return done.stdout, None
        (report,) = os.listdir(out)
        self.assertRegex(report, r"^\d{4}-\d\d-\d\d-Emulated-GPU\.md$")
        with open(os.path.join(out, report), encoding="utf-8") as f:
            return done.stdout, f.read()

    def test_no_card(self):
        if os.path.exists("/dev/nvidiactl") or fake_gpus.there("libcuda.so.1"):
            self.skipTest("this machine has a driver")
        said, report = self.check(status=1)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("gpu_check: there is no NVIDIA card here", said)
        self.assertIsNone(report)

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_course(self):
        said, report = self.check("--emulated")
        self.assertIn("gpu_check: all passed on Emulated GPU", said)
        self.assertIn("**Emulated: no card was there", report)
        for row in ("tests", "compute-sanitizer memcheck, conformance",
                    "compute-sanitizer racecheck, group", "self test",
                    "bench_backend emulated mlp 8 bf16 1 1 graph"):
            self.assertRegex(report, r"\n\| %s \| passed \| \d+ \| `" % re.escape(row))
        self.assertEqual(report.count(": GPU is running! "), 4)
        self.assertRegex(report, r"\n    1/\d+ Test +#\d+: kernel_cuda_\w+ \.* +Passed")
        self.assertRegex(report, r"\n\| mlp \| 8 \| fp32 \| host \| \d+ \| \d+ \|\n")

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_failure_is_reported(self):
        said, report = self.check("--emulated", status=1, FAKE_SANITIZER_FAILS="racecheck")
        self.assertTrue(said.endswith("".join(
            "gpu_check: FAILED: compute-sanitizer racecheck, %s\n" % suite
            for suite in ("conformance", "group", "split", "resident"))))
        self.assertEqual(report.count("| FAILED |"), 4)
        self.assertEqual(report.count("| passed |"), 16)


if __name__ == "__main__":
    harness.main()
