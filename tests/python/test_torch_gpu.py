#!/usr/bin/python3
"""bench/torch_gpu.py, which measures weir.torch on a GPU: its whole course on the CPU with small
networks, and how it reads a trace of torch.profiler."""
# label: cluster computes
import os
import sys
import unittest
from unittest import mock

import harness
import weights

harness.use_package()
sys.path.insert(0, harness.source("bench"))
import torch_gpu  # noqa: E402

SCRIPT = harness.source("bench/torch_gpu.py")


class TorchGpu(harness.Test):
    def run_bench(self, *flags, status=0):
        env = dict(os.environ, WEIR_PROGRAMS=harness.BIN, CUDA_VISIBLE_DEVICES="",
                   OMP_NUM_THREADS="1")
        done = harness.capture([sys.executable, "-B", SCRIPT, *flags], 200 * harness.PATIENCE,
                               env=env)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    @unittest.skipIf(harness.SANITIZE, "PyTorch is compiled without a sanitizer")
    def test_course_on_the_cpu(self):
        weights.torch2(self)
        small = ("--device=cpu", "--rounds=1", "--steps=2", "--warmup=1", "--traced=1")
        for network, item, kinds in (("resnet18", "images/s", ("early", "own", "plain")),
                                     ("gpt", "tokens/s", ("weir", "ddp"))):
            path = self.path(network + ".json")
            out, _ = self.run_bench("--network=" + network, "--json=" + path,
                                    "--kinds=" + ",".join(kinds), *small)
            self.assertIn("\nON THE CPU, to try the program; ", out)
            self.assertIn("| | %s | lowest" % item, out)
            for kind in kinds:
                self.assertRegex(out, r"\n\| %s \| \d+ \| \d+ to \d+ \| (\d\.\d+|-) \| - \| - \| "
                                 "- " % torch_gpu.NAMES[kind])
            rounds = harness.read_json(path)["rounds"]
            losses = [of[0]["loss"] for of in rounds.values()]
            self.assertEqual(len(losses), len(kinds))
            self.assertLess(max(losses) - min(losses), 1e-3)
        with self.assertRaisesRegex(SystemExit, "do not train alike"):
            rounds["ddp"][0]["loss"] *= 1.1
            torch_gpu.report(self.args(*small), rounds, "")

    def args(self, *flags):
        with mock.patch.object(sys, "argv", ["torch_gpu.py", *flags]):
            return torch_gpu.parse()

    @unittest.skipIf(harness.SANITIZE, "PyTorch is compiled without a sanitizer")
    def test_missing_card_skips(self):
        if weights.torch2(self).cuda.is_available():
            self.skipTest("this machine has a card")
        self.assertRegex(self.run_bench(status=77)[1], "PyTorch of .* sees no card")

    def test_sizes_of_networks(self):
        torch = weights.torch2(self)
        with torch.device("meta"):
            for name, want in (("resnet18", 11.2), ("gpt", 124.5)):
                made = torch_gpu.resnet18(torch, 64) if name == "resnet18" else torch_gpu.gpt(
                    torch, torch_gpu.SIZES[name][0])
                self.assertAlmostEqual(sum(p.numel() for p in made.parameters()) / 1e6, want, 1)

    def test_hidden_share_of_copies(self):
        """Kernels that overlap each other count once, and copies on the card do not count."""
        def event(cat, name, ts, dur):
            return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur}
        events = [event("kernel", "gemm", 0, 10), event("kernel", "relu", 5, 10),
                  event("kernel", "ncclDevKernel_AllReduce", 15, 100),
                  event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", 10, 10),
                  event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 12, 4),
                  event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 30, 10),
                  event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 0, 10),
                  {"ph": "f", "cat": "kernel", "name": "flow", "ts": 30}]
        self.assertEqual(torch_gpu.overlap(events), {"copied": 20, "hidden": 0.25, "unpinned": 1})
        self.assertIsNone(torch_gpu.overlap(events[:3])["hidden"])


harness.main(__name__)
