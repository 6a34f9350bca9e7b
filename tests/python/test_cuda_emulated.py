"""The worker trains through the CUDA backend, over a CUDA that tests/emulation plays, and ends
where the CPU backend ends: pinned copies, gradients that come late, two towers, evaluation."""
# label: cluster
import json
import os
import re
import shutil
import unittest

import harness

EMULATED = os.path.join(harness.BIN, "../tests/libweir_emulated.so")
WHY_NOT = "" if os.path.exists(EMULATED) else \
    "skipped: the emulated CUDA backend is not in this build (no CUDA headers, or no C++ compiler)"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class CudaEmulated(harness.Test):
    def run_on(self, name, *flags):
        folder = os.path.join(self.dir(), name)
        os.mkdir(folder)
        source = EMULATED if name == "cuda" else os.path.join(harness.BIN, "../lib/libweir_cpu.so")
        # the worker of this test asks for "cpu"; what lies under that name is the test's choice
        shutil.copy(source, os.path.join(folder, "libweir_cpu.so"))
        summary = os.path.join(folder, "summary.json")
        worker = self.run_worker("--backend_dir=" + folder, "--summary_json=" + summary,
                                 "--seed=3", "--learning_rate=0.01", "--intra_op_threads=1",
                                 *flags, model="mlp")
        # the whole data set lies on the device, one copy for all its towers
        self.assertEqual(len(re.findall(r"cuda:0 holds \d+ images", worker.output())),
                         2 if name == "cuda" else 0)
        with open(summary, encoding="utf-8") as f:
            return json.load(f)

    def check(self, *flags):
        cpu, cuda = self.run_on("cpu", *flags), self.run_on("cuda", *flags)
        self.assertEqual(cuda["global_step"], cpu["global_step"])
        self.assertAlmostEqual(cuda["loss"], cpu["loss"], delta=1e-3)
        self.assertAlmostEqual(cuda["test_accuracy"], cpu["test_accuracy"], delta=0.01)
        self.assertGreater(cuda["test_accuracy"], 0.5)

    def test_one_tower(self):
        self.check("--batch_size=20", "--train_steps=30")

    def test_two_towers_and_evaluation(self):
        self.check("--batch_size=21", "--train_steps=20", "--towers=2", "--eval_every=10")


if __name__ == "__main__":
    harness.main()
