"""worker --precision=bf16 on CPUs. The worker trains to the same bits in each run, or reports why
it cannot. oneDNN's own variable ONEDNN_MAX_CPU_ISA disables the instructions for bf16 on any
CPU."""
# label: cluster computes
import os
import re

import harness

PERMANENT = 1
# The layers are named, because which layers are faster in bf16 depends on the machine.
BF16 = ["--precision=bf16", "--bf16_layers=c3,c5"]
REFUSED = (r"--precision=bf16: oneDNN finds neither AVX512_BF16 nor AMX on this CPU \(oneDNN \S+"
           r".*\), and without them bf16 is slower than fp32; use --precision=fp32")


class Precision(harness.Test):
    def train(self, name, *flags, isa=None, status=0):
        """Returns the summary, or None after an error, and the output."""
        path = self.path(name + ".json")
        env = dict(os.environ)
        env.pop("ONEDNN_MAX_CPU_ISA", None)
        if isa:
            env["ONEDNN_MAX_CPU_ISA"] = isa
        p = self.start_program("worker", "--models_dir=" + harness.MODELS,
                               "--data_dir=" + self.data(), "--gpus=none", "--model=lenet5",
                               "--batch_size=20", "--train_steps=15", "--seed=3",
                               "--summary_json=" + path, *flags, name=name, env=env)
        p.wait(120, status)
        if status:
            return None, p.output()
        return harness.read_json(path), p.output()

    def test_bf16_without_instructions_refused(self):
        _, said = self.train("refused", "--precision=bf16", isa="AVX2", status=PERMANENT)
        self.assertRegex(said, REFUSED)

    def needs_bf16(self):
        flags = harness.read_text("/proc/cpuinfo")
        if "avx512_bf16" not in flags and "amx_bf16" not in flags:
            self.skipTest("this CPU has neither AVX512_BF16 nor AMX")

    def test_bf16_trains_to_the_same_bits(self):
        self.needs_bf16()
        exact, _ = self.train("fp32")
        runs = [self.train("bf16-%d" % i, *BF16) for i in range(2)]
        for summary, said in runs:
            self.assertRegex(said, "bf16: 2 of 5 dense and convolution layers compute in bf16: ")
            self.assertAlmostEqual(exact["loss"], summary["loss"], delta=0.05)
        shas = [s["parameters_sha256"] for s, _ in runs]
        self.assertEqual(shas[0], shas[1])
        self.assertNotEqual(shas[0], exact["parameters_sha256"])

    def test_bf16_keeps_small_updates(self):
        """The parameters stay floats. A step of Adam moves each by about the learning rate. Two
        runs with slightly different rates must end with parameters that differ by the same amount,
        which is far below the distance of neighbours in bf16."""
        self.needs_bf16()
        for name, servers in (("alone", False), ("served", True)):
            with self.subTest(name):
                self.check_small_updates(*(self.updated(name, rate, servers)
                                           for rate in (1e-6, 2e-6)))

    def updated(self, name, rate, servers):
        """Returns the parameters after one step at that rate."""
        export = self.path("%s-%g.safetensors" % (name, rate))
        flags = [*BF16, "--optimizer=adam", "--learning_rate=%g" % rate,
                 "--train_steps=1", "--batch_size=20", "--seed=3", "--export=" + export]
        if servers:
            self.started_job(n_workers=1, model="lenet5", flags=["--gpus=none", *flags]).finish(120)
        else:
            self.train("%s-%g" % (name, rate), *flags)
        return harness.read_safetensors(export)

    def check_small_updates(self, one, two):
        moved = n = 0
        for name, (_, values) in one.items():
            for a, b in zip(values, two[name][1]):
                if abs(a) < 2 ** -9:  # above this, neighbours in bf16 are at least 15e-6 apart
                    continue
                n += 1
                self.assertLess(abs(a - b), 2e-6, name)
                moved += 0.5e-6 < abs(a - b) < 1.5e-6
        self.assertGreater(n, 20000)
        self.assertGreater(moved, 0.5 * n)

    def test_kernel_tests_without_bf16_skipped(self):
        """If bf16 is refused, its tests count as skipped, not as passed."""
        env = dict(os.environ, ONEDNN_MAX_CPU_ISA="AVX2")
        program = os.path.join(os.path.dirname(harness.BIN), "tests/kernel_conformance_test")
        p = self.start("conformance", [program, "cpu"], env=env)
        p.wait(120, harness.SKIPPED)
        skips = re.findall(r"SKIP: backend 'cpu' \(oneDNN.*\) refuses bf16 here", p.output())
        self.assertEqual(len(skips), 2)


harness.main(__name__)
