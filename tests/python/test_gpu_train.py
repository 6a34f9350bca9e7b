"""bench/gpu_train.py over the fake driver and the emulation, with a stand-in for PyTorch. The bench
chooses one card and names it. If a run of Weir or PyTorch used another device, it reports an
error."""
# label: cluster computes
import argparse
import json
import os
import sys
import unittest

import fake_gpus
import harness
from fake_gpus import card, uuid

sys.path.insert(0, harness.source("bench"))
import gpu_train  # pylint: disable=wrong-import-position

SMALL = "total=2000 used=10"


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class GpuTrain(fake_gpus.Machine):
    CUDA = fake_gpus.EMULATED

    def measure(self, *flags, on=None, status=0, backend=fake_gpus.EMULATED, visible=uuid(1)):
        """Returns (stdout, stderr); the runs of PyTorch report the device in `on`."""
        data = self.path("data")
        if not os.path.isdir(data):
            os.mkdir(data)
            harness.make_data(data, n_train=64, n_test=4)
        stand_in = self.path("python")
        more = fake_gpus.stand_in_torch(stand_in, "NVIDIA H200", visible, **(on or {}))
        argv = [sys.executable, "-B", harness.source("bench/gpu_train.py"), "--rounds=1",
                "--steps=1", "--batch_size=4", "--precision=fp32", "--data_dir=" + data,
                "--mnist_dir=" + self.dir(), "--bin=" + harness.BIN,
                "--worker_flag=--backend_dir=" + self.backends(backend),
                "--worker_flag=--gpu_lock_dir=" + self.locks(), "--python=" + stand_in, *flags]
        done = harness.capture(argv, 90, env=self.env(**more))
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def test_output_names_card(self):
        self.machine(card(0, SMALL), card(1, SMALL))
        out, err = self.measure("--more")
        name = "NVIDIA H200 (%s, 0000:3b:00.0)" % uuid(1)
        self.assertIn("gpu_train: measures on %s\n" % name, err)
        self.assertIn("\n%s; " % name, out)
        report = json.loads(out.strip().split("\n")[-1])
        self.assertEqual(report["card"]["uuid"], uuid(1))
        self.assertEqual(set(report["median"]), {"weir", "launches", "ps1", "eager", "compiled"})

    def test_idle_or_named_card_chosen(self):
        """The bench uses the first card without processes, or the named card."""
        self.machine(card(0, SMALL), card(1, SMALL + " procs=5"))
        self.assertIn("measures on NVIDIA H200 (%s" % uuid(0), self.measure(visible=uuid(0))[1])
        err = self.measure("--gpu=0")[1]
        self.assertIn("measures on NVIDIA H200 (%s" % uuid(1), err)
        self.assertIn("other programs use this card, too, so the figures are low: process 5", err)
        err = self.measure("--gpu=GPU-", status=1)[1]
        self.assertIn("--gpu=GPU- names 2 of the cards that CUDA shows; there are %s, " % uuid(1),
                      err)

    def test_run_on_cpu_is_an_error(self):
        self.machine(card(1, SMALL))
        err = self.measure(on={"device_types": ["cpu"]}, status=1)[1]
        self.assertIn("gpu_train: PyTorch (eager) did not train on NVIDIA H200 (%s, 0000:3b:00.0): "
                      "its parameters were on cpu" % uuid(1), err)
        err = self.measure("--worker_flag=--gpus=none", status=1)[1]
        self.assertIn("gpu_train: Weir did not train on NVIDIA H200 (%s, 0000:3b:00.0): its towers "
                      "were on CPU; its lines:\n" % uuid(1), err)
        self.assertIn("libweir_cuda.so", self.measure(backend=None, status=1)[1])

    def fails(self, check, *arguments):
        args = argparse.Namespace(cpu=False, torch_cpu=False, card={
            "product": "NVIDIA H200", "uuid": uuid(1), "pci_bus_id": "0000:3b:00.0", "mig": False})
        with self.assertRaises(SystemExit) as end:
            check(args, *arguments)
        return end.exception.code

    def test_runs_on_other_devices_are_errors(self):
        right = {"device_types": ["cuda"], "product": "NVIDIA H200", "uuid": uuid(1)[4:],
                 "peak_bytes": 50000000}
        for on, words in (({"device_types": ["cpu", "cuda"]}, "its parameters were on cpu, cuda"),
                          ({"product": "NVIDIA T4"}, "its card was a 'NVIDIA T4'"),
                          ({"uuid": uuid(0)[4:]}, "its card was " + uuid(0)),
                          ({"peak_bytes": 4096}, "it took 4096 bytes of the card's memory")):
            self.assertIn(words, self.fails(gpu_train.check_torch, "eager", dict(right, **on)))
        mine = {"device_type": "GPU", "uuid": uuid(1)}
        other = {"device_type": "GPU", "uuid": uuid(0)}
        stays = "I 1 worker training runs on cuda:0 without copies to the host"
        for towers, words in (([other], "its towers were on %s;" % uuid(0)),
                              ([mine, {"device_type": "CPU"}], "on %s, CPU;" % uuid(1)),
                              ([], "on ;")):
            for ps in (False, True):
                said = self.fails(gpu_train.check_weir, {"towers": towers}, stays, ps)
                self.assertIn(words, said)
        self.assertIn("Weir did not keep its training on NVIDIA H200",
                      self.fails(gpu_train.check_weir, {"towers": [mine]}, "its lines", False))

    def test_missing_parts_skip_bench(self):
        self.machine()
        self.assertIn("gpu_train: missing: an NVIDIA card: CUDA shows no GPU (cuInit: 100",
                      self.measure(status=77)[1])
        self.assertIn("gpu_train: missing: /nowhere/worker; build first\n",
                      self.measure("--bin=/nowhere", status=77)[1])


class Recipes(harness.Test):
    """The fixed schedules of the bench on the CPU, with two seeds and little data."""

    def measure(self, mnist_dir, status=0):
        argv = [sys.executable, "-B", harness.source("bench/gpu_train.py"), "--cpu",
                "--only_recipes", "--seeds=2", "--mnist_dir=" + mnist_dir, "--bin=" + harness.BIN,
                "--worker_flag=--intra_op_threads=1"]
        done = harness.capture(argv, 90)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def test_each_recipe_runs_with_each_seed(self):
        harness.make_data(self.dir(), n_train=512, n_test=300)
        out, err = self.measure(self.dir())
        recipes = json.loads(out.strip().split("\n")[-1])["recipes"]
        self.assertEqual({name: r["steps"] for name, r in recipes.items()},
                         {"mnist_fast": 2, "deep_mnist": 2})
        for name, r in recipes.items():
            self.assertEqual([len(r["accuracy"]), len(r["seconds"])], [2, 2])
            self.assertAlmostEqual(r["mean_accuracy"], sum(r["accuracy"]) / 2)
            self.assertNotEqual(*r["accuracy"], "both seeds trained alike")
            self.assertIn("seed 2 of 2: %s accuracy %.4f" % (name, r["accuracy"][1]), err)
            self.assertIn("| %s | %.4f | " % (name, r["mean_accuracy"]), out)
        self.assertIn("ON CPUS, to try the program; ", out)
        self.assertIn("original MNIST, fixed schedules, mean of 2 seeds", out)

    def test_missing_mnist_skips_recipes(self):
        self.assertIn("gpu_train: missing: the original MNIST in /nowhere (scripts/get_mnist)",
                      self.measure("/nowhere", status=77)[1])


harness.main(__name__)
