"""worker --precision=bf16 on CPUs: it trains, to the same bits on each run, or says why not.
oneDNN's own variable ONEDNN_MAX_CPU_ISA makes of any CPU one without the instructions."""
# label: cluster computes
import json
import os
import unittest

import harness

PERMANENT = 1
REFUSED = (r"--precision=bf16: oneDNN finds neither AVX512_BF16 nor AMX on this CPU \(oneDNN \S+"
           r".*\), and without them bf16 is slower than floats; take --precision=fp32")


class Precision(harness.Test):
    def train(self, name, *flags, isa=None, status=0):
        """The summary, or None after an error; and what it said."""
        path = os.path.join(self.dir(), name + ".json")
        env = dict(os.environ)
        env.pop("ONEDNN_MAX_CPU_ISA", None)
        if isa:
            env["ONEDNN_MAX_CPU_ISA"] = isa
        p = self.start(name, [os.path.join(harness.BIN, "worker"), "--models_dir=" + harness.MODELS,
                              "--data_dir=" + self.data(), "--gpus=none", "--model=lenet5",
                              "--batch_size=20", "--train_steps=15", "--seed=3",
                              "--summary_json=" + path, *flags], env=env)
        p.wait(120, status)
        if status:
            return None, p.output()
        with open(path, encoding="utf-8") as f:
            return json.load(f), p.output()

    def test_refused_without_the_instructions(self):
        _, said = self.train("refused", "--precision=bf16", isa="AVX2", status=PERMANENT)
        self.assertRegex(said, REFUSED)

    def test_trains_to_the_same_bits(self):
        with open("/proc/cpuinfo", encoding="ascii") as f:
            flags = f.read()
        if "avx512_bf16" not in flags and "amx_bf16" not in flags:
            self.skipTest("this CPU has neither AVX512_BF16 nor AMX")
        exact, _ = self.train("fp32")
        runs = [self.train("bf16-%d" % i, "--precision=bf16") for i in range(2)]
        for summary, said in runs:
            self.assertRegex(said, "bf16: 2 of 5 layers with products multiply in bf16: ")
            self.assertAlmostEqual(exact["loss"], summary["loss"], delta=0.05)
        shas = [s["parameters_sha256"] for s, _ in runs]
        self.assertEqual(shas[0], shas[1])
        self.assertNotEqual(shas[0], exact["parameters_sha256"])


if __name__ == "__main__":
    harness.main()
