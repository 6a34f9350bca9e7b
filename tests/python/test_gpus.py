"""The worker trains on the GPUs of the fake driver (tests/fake_driver), by the CUDA backend over a
CUDA that tests/emulation emulates on the CPU. Its parameters must end near those of CPU towers with
the same parts of the batch."""
# label: cluster address computes
import os
import unittest

import fake_gpus
import harness
from fake_gpus import card, uuid

USAGE, PERMANENT, RETRY = 2, 1, 138
SMALL = "total=400 used=10"  # MB; the emulation allocates memory of the test machine


def machine_of(n, load=SMALL):
    return [card(i, load) for i in range(n)]


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class Gpus(fake_gpus.Machine):
    CUDA = fake_gpus.EMULATED

    def test_idle_gpu_of_eight_chosen(self):
        self.machine(card(0, "total=400 used=390 procs=5"), *machine_of(8)[1:])
        gpu = self.train("gpu")
        self.assertIn("tower 0: GPU 0 (NVIDIA H200, %s, 0000:3b:00.0), 20 of the 20 samples of a "
                      "batch; CUDA"
                      % uuid(1), gpu[2])
        self.assertNotIn("tower 1", gpu[2])
        self.assertEqual(gpu[0]["towers"], [{"device_type": "GPU", "samples": 20, "number": 0,
                                             "product": "NVIDIA H200", "uuid": uuid(1),
                                             "pci_bus_id": "0000:3b:00.0"}])
        self.compare(gpu, self.train("cpu", "--gpus=none"))
        self.assertGreater(gpu[0]["test_accuracy"], 0.5)

    def test_towers_on_four_of_eight_match_cpu(self):
        self.machine(*machine_of(8))
        gpus = self.train("gpus", "--gpus=auto:4", "--eval_every=10", model="small")
        cpu = self.train("cpu", "--gpus=none", "--towers=4", model="small")
        self.assertEqual([t["uuid"] for t in gpus[0]["towers"]], [uuid(i) for i in (1, 0, 2, 3)])
        self.assertEqual([t["samples"] for t in gpus[0]["towers"]], [5] * 4)
        self.assertEqual([t["samples"] for t in cpu[0]["towers"]], [5] * 4)
        self.compare(gpus, cpu)

    def test_gpu_and_cpu_towers_match_cpu(self):
        self.machine(*machine_of(2))
        mixed = self.train("mixed", "--gpus=all", "--towers_per_gpu=2", "--towers=2",
                           "--cpu_batch_size=3")
        self.assertEqual([(t["device_type"], t["samples"]) for t in mixed[0]["towers"]],
                         [("GPU", 4), ("GPU", 4), ("GPU", 4), ("GPU", 5), ("CPU", 1), ("CPU", 2)])
        self.assertEqual([t["number"] for t in mixed[0]["towers"][:4]], [0, 0, 1, 1])
        self.assertRegex(mixed[2],
                         r"tower 5: CPU, 1 thread, 2 of the 20 samples of a batch; oneDNN")
        self.compare(mixed, self.train("cpu", "--gpus=none"))
        even = self.train("even", "--gpus=0", "--towers=1")
        self.assertEqual([t["samples"] for t in even[0]["towers"]], [10, 10])

    def test_next_job_uses_gpu_of_ended_job(self):
        """The card still reports the first job's utilisation when the second one starts."""
        self.machine(card(0, SMALL + " busy=100 lag=1000"))
        for name in ("first", "second"):
            (tower,) = self.train(name)[0]["towers"]
            self.assertEqual(tower["uuid"], uuid(0))

    def test_gpus_reserved_while_worker_trains(self):
        self.machine(*machine_of(3))
        p = self.worker("--gpus=auto:2", "--train_steps=1000000", "--log_every=5")
        p.wait_line("training step 5 done")
        gpus = self.gpus()
        self.assertEqual([g["auto"] for g in gpus], [False, False, True])
        for mine in gpus[:2]:
            self.assertIn("process %d has reserved it" % p.popen.pid, mine["auto_refuses"])
            self.assertEqual(mine["processes"], [p.popen.pid])
        p.stop()
        self.assertEqual([g["auto"] for g in self.gpus()], [True, True, True])

    def test_failing_card_ends_worker(self):
        self.machine(card(0, SMALL), card(1, SMALL, "launches=300"), card(2, SMALL))
        p = self.worker("--gpus=all", "--model=lenet5", "--train_steps=100000",
                        "--cuda_graphs=off")
        self.refused(p, RETRY, "layer '", "CUDA device 0: ")
        self.assertIn("tower 2: GPU 2", p.output())

    def test_card_that_fails_in_a_graph_ends_worker(self):
        """A graph is launched as a whole, so no layer can be named."""
        self.machine(card(0, SMALL), card(1, SMALL, "launches=300"), card(2, SMALL))
        p = self.worker("--gpus=all", "--model=lenet5", "--train_steps=100000")
        p.wait(30, RETRY)
        self.assertIn("CUDA device 0: cudaGraphLaunch: ", p.output())

    def test_mig_instance_trains(self):
        self.machine(card(0, SMALL),
                     "mig uuid=MIG-aaaaaaaa-0000-4000-8000-000000000000 total=200\n")
        self.assertIn("tower 0: GPU 0 (NVIDIA H200 MIG, MIG-aaaaaaaa-0000-4000-8000-000000000000, ",
                      self.worker(env=self.env(CUDA_VISIBLE_DEVICES="MIG-aaaaaaaa")).wait_output())

    def test_card_that_does_not_start_ends_worker(self):
        for code, words in ((999, ["CUDA device 0: cudaSetDevice: ", "fell off the bus", "Xid 79"]),
                            (304, ["/dev/nvidia*"]), (804, ["cuda-compat"]),
                            (2, ["CUDA device 0 ('NVIDIA H200') has ", " MB free of its 419.4 MB",
                                 "another card (--gpus)"])):
            self.machine(card(0, SMALL, "error=%d" % code))
            p = self.worker("--gpus=0")
            self.refused(p, RETRY, *words)
            self.assertNotIn("layer '", p.output())

    def test_lower_precision_changes_only_rounding(self):
        self.machine(*machine_of(1))
        exact = self.train("fp32")
        for precision in ("tf32", "bf16"):
            rounded = self.train(precision, "--precision=" + precision)
            self.assertNotEqual(exact[0]["parameters_sha256"], rounded[0]["parameters_sha256"])
            self.assertAlmostEqual(exact[0]["loss"], rounded[0]["loss"], delta=0.05)
            self.assertNotIn("computes in fp32", rounded[2])
        cpu = self.train("cpu", "--gpus=none", "--precision=tf32", "--deterministic")
        self.assertIn("--precision=tf32: the CPU does not support products in this format; it "
                      "computes in fp32", cpu[2])

    def test_bf16_on_card_without_it_refused(self):
        self.machine(*(c.replace("cc=9.0", "cc=7.5") for c in machine_of(1)))
        self.refused(self.worker("--gpus=0", "--precision=bf16"), PERMANENT,
                     "--precision=bf16: GPU 0 (NVIDIA H200) has compute capability 7.5, and "
                     "products in bf16 need 8.0 or newer; use --precision=fp32, or another card "
                     "(--gpus)")
        self.train("tf32", "--precision=tf32")

    def test_first_steps_excluded_from_speed(self):
        """On a card the first 50 steps do not count for the speed. If the device reports several
        steps at once, the steps up to a report do not count, either. On a CPU all steps count."""
        self.machine(*machine_of(1))
        for name, left_out, *flags in (
                ("resident", 1280, "--log_every=100"), ("lines", 1000, "--log_every=1"),
                ("towers", 1000, "--towers_per_gpu=2"), ("short", 0, "--train_steps=40"),
                ("cpu", 0, "--gpus=none")):
            summary, _, said = self.train(name, "--train_steps=100", "--model=softmax", *flags)
            self.assertEqual(summary["warm_up_images"], left_out, name)
            self.assertEqual(summary["images"], 20 * summary["local_steps"])
            self.assertGreater(summary["images_per_second"], 0)
            self.assertEqual(" images/s after the first %d)" % left_out in said, left_out > 0)

    def test_bad_gpu_flags_refused(self):
        self.machine(*machine_of(3))
        for flags, status, words in (
                (["--cpu_batch_size=2"], USAGE, ["--cpu_batch_size", "--towers=N"]),
                (["--gpu_memory_fraction=1.5"], USAGE, ["--gpu_memory_fraction", "above 1"]),
                (["--towers_per_gpu=0"], USAGE, ["--towers_per_gpu"]),
                (["--gpus=auto:3", "--batch_size=2"], PERMANENT,
                 ["3 towers (3 on GPUs, 0 on the CPU)", "--batch_size of 2"]),
                (["--towers=2", "--cpu_batch_size=1"], PERMANENT,
                 ["leaves 3 samples for 1 GPU tower and 1 for 2 CPU towers"]),
                (["--towers=2", "--cpu_batch_size=4"], PERMANENT,
                 ["leaves 0 samples for 1 GPU tower and 4 for 2 CPU towers"])):
            self.refused(self.worker(*flags), status, *words)


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class Memory(fake_gpus.Machine):
    """Memory of one job; test_gpu_sharing.py tests two jobs that share a card."""
    CUDA = fake_gpus.EMULATED

    def setUp(self):
        super().setUp()
        self.machine(*machine_of(1))

    def holding(self, *flags):
        """Starts a worker that trains until the test stops it."""
        p = self.worker("--train_steps=1000000", "--log_every=5", *flags)
        p.wait_line("training step 5 done")
        return p

    def used_mb(self):
        return self.gpus()[0]["used_bytes"] / (1 << 20) - 10

    def test_growth_allocates_as_needed(self):
        """The fraction is only a cap if growth is on; the environment wins, as in TensorFlow."""
        first = self.holding("--gpu_memory_fraction=0.7", "--gpu_allow_growth")
        self.assertLess(self.used_mb(), 150)
        for choice, value in (("true", None), ("false", "True")):
            env = self.env(**({"TF_FORCE_GPU_ALLOW_GROWTH": value} if value else {}))
            second = self.worker("--gpus=0", "--gpu_memory_fraction=0.7",
                                 "--gpu_allow_growth=" + choice, env=env)
            self.assertEqual("overrides --gpu_allow_growth=false" in second.wait_output(30),
                             value is not None)
        first.stop()
        first = self.holding("--gpu_memory_fraction=0.7", "--gpu_allow_growth=true")
        second = self.worker("--gpus=0", "--gpu_memory_fraction=0.9", "--gpu_allow_growth",
                             env=self.env(TF_FORCE_GPU_ALLOW_GROWTH="0"))
        self.assertIn("TF_FORCE_GPU_ALLOW_GROWTH=0 overrides --gpu_allow_growth=true",
                      second.wait_output(30, RETRY))
        self.assertIn("377.5 MB of its memory must be free at once", second.output())
        first.stop()

    def test_memory_fraction_is_a_hard_cap(self):
        for growth in ("true", "false"): # the card has 400 MB
            p = self.worker("--gpu_memory_fraction=0.01", "--gpu_allow_growth=" + growth)
            self.refused(p, PERMANENT, "layer '", "out of GPU memory: its ", "4194304 bytes")
        self.refused(self.worker("--gpu_memory_fraction=1e-12", "--gpu_allow_growth"), PERMANENT,
                     "layer '", "out of GPU memory: its ", "1 byte")
        self.assertIn("; CUDA device 0 ('NVIDIA H200') has ", p.output())
        self.assertIn(" MB free of its 419.4 MB; use a smaller --batch_size or a larger "
                      "--gpu_memory_fraction", p.output())
        # All towers and the evaluation have to share it.
        self.worker("--gpu_memory_fraction=0.1").wait(30)
        self.refused(self.worker("--gpu_memory_fraction=0.1", "--towers_per_gpu=12",
                                 "--batch_size=12"), PERMANENT,
                     "layer '", "out of GPU memory: its ")

    def test_memory_of_other_programs_named(self):
        """No limit was set: the card itself is full."""
        self.machine(card(0, "total=400 used=396 procs=%d" % os.getpid()))
        p = self.worker("--gpus=0", "--model=lenet5", "--batch_size=100")
        p.wait(30, RETRY)
        error, = [l for l in p.lines if l.startswith("E ")]
        self.assertRegex(error, r"out of GPU memory: .* bytes.*; CUDA device 0 \('NVIDIA H200'\) "
                         r"has \d\.\d MB free of its 419\.4 MB; the GPU is also used by process %d "
                         r"\(.* of \S+\); use a smaller --batch_size or another card" %
                         os.getpid())

    def test_libraries_named_in_log(self):
        self.machine("nvml driver=550.54.15\n", "cuda version=12050\n", *machine_of(1))
        p = self.worker()
        self.assertRegex(p.wait_output(30), r"I .*NVIDIA driver 550\.54\.15 for CUDA up to 12\.5 "
                         r"\(/\S+/fake_cuda/libcuda\.so\.1\); CUDA runtime \d+\.\d+, cuDNN 9\.1\.2 "
                         r"\(/\S+/libweir_emulated\.so\), cuBLAS 12\.4\.5 \(/\S+/libweir_emulated")

    def test_default_allocates_only_needed_memory(self):
        first = self.holding()
        self.assertLess(self.used_mb(), 150)
        first.stop()


class WithoutLibraries(fake_gpus.Machine):
    """The machine has a driver and a card, but the CUDA backend cannot be loaded."""

    def broken(self):
        """Returns a backend that needs a missing library."""
        path = self.path("broken.so")
        image = harness.read_bytes(fake_gpus.EMULATED)
        self.assertIn(b"libc.so.6\0", image)
        harness.write_file(path, image.replace(b"libc.so.6\0", b"libq.so.6\0"))
        return path

    def check(self, why):
        self.machine(*machine_of(2))
        for flags in ((), ("--gpus=auto:2", "--towers=2")):
            p = self.worker(*flags)
            p.wait(30)
            warnings = [l for l in p.lines if l.startswith("W ")]
            self.assertEqual(len(warnings), 1, p.lines)
            self.assertRegex(warnings[0], "training on the CPU: backend 'cuda' cannot be loaded: " +
                             why)
            self.assertRegex(p.output(), "tower 0: CPU")
        for gpus in ("all", "1"):
            p = self.worker("--gpus=" + gpus)
            self.refused(p, PERMANENT, "--gpus=%s: backend 'cuda' cannot be loaded: " % gpus)
        self.assertEqual([g["auto"] for g in self.gpus()], [True, True])

    def test_missing_backend_falls_back_to_cpu(self):
        self.check(r".*libweir_cuda\.so: cannot open shared object file")

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_missing_library_falls_back_to_cpu(self):
        self.CUDA = self.broken()
        self.check(r"libq\.so\.6: cannot open shared object file")

    def test_gpu_released_while_cpu_trains(self):
        self.machine(*machine_of(1))
        p = self.worker("--train_steps=1000000")
        p.wait_line("tower 0: CPU")
        self.assertEqual([g["auto"] for g in self.gpus()], [True])
        p.stop()

    @unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
    def test_old_driver_falls_back_to_cpu(self):
        self.CUDA = fake_gpus.EMULATED
        self.machine("cuda runtime=35 version=11040\n", *machine_of(1))
        p = self.worker()
        self.assertRegex(p.wait_output(30), "W .*driver is too old.*\n.*W .*training on the CPU: ")
        p = self.worker("--gpus=0")
        p.wait(30, PERMANENT)
        self.assertRegex(p.output(), "E .*--gpus=0: the driver shows a GPU, but CUDA cannot use it")


harness.main(__name__)
