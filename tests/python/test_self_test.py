"""worker --self_test on a machine with fake cards (tests/fake_driver) and an emulated CUDA. The
tests check its lines for cards that work, and for each way in which a card may fail."""
# label: cluster address
import json
import os
import pwd
import shutil
import signal
import subprocess
import unittest

import fake_gpus
import harness
from fake_gpus import card, there, uuid

PERMANENT = 1
SMALL = "total=2 used=0 busy=0"
LABEL = r"^GPU %d \(NVIDIA H200, %s, 0000:%02x:00.0\): "


class SelfTest(fake_gpus.Machine):
    def self_test(self, *flags, status=0, env=None, backends=None, seconds=60, prefix=()):
        """Returns the output, line by line."""
        argv = [*prefix, harness.program("worker"), "--gpu_lock_dir=" + self.locks(),
                "--backend_dir=" + (backends or self.backends()),
                "--self_test_seconds=%d" % (seconds * harness.SLOWNESS), *flags]
        done = harness.capture(argv, 120, env=env or self.env())
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual(os.listdir(self.locks()), [])
        self.errors = done.stderr
        return done.stdout.splitlines()

    def one(self, more="", load=fake_gpus.IDLE, machine="", **kwargs):
        """Returns the line of a single card that does not work, between two cards that do."""
        self.machine(machine, card(0), card(2, load, more), card(3))
        lines = self.self_test("--self_test", status=PERMANENT, **kwargs)
        self.assertEqual(len(lines), 4, lines)
        for i in (1, 3):
            self.assertIn(": GPU is running! ", lines[i])
        self.assertIn(": GPU is NOT running: ", lines[2])
        return lines[2]


class WithoutGpu(SelfTest):
    def test_missing_driver_tests_cpu_only(self):
        if there("libcuda.so.1"):
            self.skipTest("this machine has a driver")
        lines = self.self_test("--self_test", env=self.env(()))
        self.assertRegex(lines[0], r"^CPU \(.*\): CPU is running! \S+ ms a step, \S+ MB of memory")
        self.assertRegex(lines[1], r"^no GPU: there is no NVIDIA driver \(libcuda.so.1: ")
        self.assertEqual(len(lines), 2)
        everything = json.loads("".join(self.self_test("--self_test=json", env=self.env(()))))
        self.assertTrue(everything["passed"])
        self.assertIn("no NVIDIA driver", everything["why_no_gpu"])
        for gpus in ("all", "0"):
            self.assertEqual(self.self_test("--self_test", "--gpus=" + gpus, status=PERMANENT,
                                            env=self.env(())), [])
            self.assertIn("--gpus=%s: there is no GPU, only the CPU: there is no NVIDIA" % gpus,
                          self.errors)

    def test_self_test_runs_as_process_1(self):
        """The worker works also as process 1, like the program of a container."""
        inside = ["unshare", "--pid", "--fork", "--kill-child"]
        if subprocess.run(inside + ["true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("skipped: no right to make a PID namespace")
        lines = self.self_test("--self_test", "--gpus=none", prefix=inside)
        self.assertIn("CPU is running!", lines[0])

    def test_failing_driver_named(self):
        self.machine("cuda init=803\n", card(0))
        lines = self.self_test("--self_test", status=PERMANENT)
        self.assertIn("CPU is running!", lines[0])
        self.assertIn("no GPU: CUDA shows no GPU (cuInit: 803, ", lines[1])

    def test_hidden_or_excluded_cards_named(self):
        self.machine(card(0))
        lines = self.self_test("--self_test", env=self.env(CUDA_VISIBLE_DEVICES=""))
        self.assertIn("CUDA_VISIBLE_DEVICES='' shows 0 of this machine's 1", lines[1])
        self.assertEqual(self.self_test("--self_test", "--gpus=none")[1:], ["no GPU: --gpus=none"])

    def test_wrong_cpu_found(self):
        """The self-test finds a wrong CPU backend, because it compares with the definitions of the
        layers."""
        wrong = os.path.join(fake_gpus.FAKES, "libweir_wrong.so")
        backends = self.backends(cuda=None, cpu=wrong)
        (line, _) = self.self_test("--self_test", "--gpus=none", status=PERMANENT,
                                   backends=backends)
        self.assertRegex(line, r"CPU is NOT running: it computes wrongly: the gradient of \S+ is "
                         r"off by \S+ of its largest value \(allowed: 5e-05\)")

    def test_backend_of_another_build_refused(self):
        stale = os.path.join(fake_gpus.FAKES, "libweir_stale.so")
        (line, _) = self.self_test("--self_test", "--gpus=none", status=PERMANENT,
                                   backends=self.backends(cuda=None, cpu=stale))
        self.assertRegex(line, r"CPU is NOT running: backend 'cpu': \S+/libweir_cpu.so is from "
                         r"another build: its interface version is 0\.\S+, but this program "
                         r"needs [1-9]\d*\.\S+; build or install both from the same")

    def test_missing_library_named(self):
        self.machine(card(0))
        lines = self.self_test("--self_test", status=PERMANENT, backends=self.backends(cuda=None))
        self.assertIn("CPU is running!", lines[0])
        self.assertIn("libweir_cuda.so: cannot open shared object file", lines[1])
        self.assertIn("the output of CMake states what the backend needs", lines[1])

    def test_library_that_lacks_another_named(self):
        cc = shutil.which("cc") or shutil.which("gcc")
        if not cc:
            self.skipTest("there is no C compiler")
        build = self.new_folder("lacking")
        lacked, cuda = (os.path.join(build, f) for f in ("libcudnn_lacked.so.9", "libweir_cuda.so"))
        for argv in (["-Wl,-soname,libcudnn_lacked.so.9", "-o", lacked],
                     ["-Wl,--no-as-needed", "-o", cuda, lacked]):
            subprocess.run([cc, "-shared", "-x", "c", "/dev/null", "-x", "none", *argv], check=True)
        os.unlink(lacked)
        self.machine(card(0))
        lines = self.self_test("--self_test", status=PERMANENT, backends=self.backends(cuda=cuda))
        self.assert_has(
            lines[1], "NOT running: backend 'cuda' cannot be loaded: libcudnn_lacked.so.9: cannot "
            "open", "install NVIDIA's package libcudnn9-cuda-12, with CUDA 13 libcudnn9-cuda-13")


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class WithGpus(SelfTest):
    CUDA = fake_gpus.EMULATED

    def test_eight_cards_tested(self):
        self.machine(*(card(i) for i in range(8)))
        self.reserve(3)
        for f in os.listdir(self.locks()):  # the self-test does not find the deleted lock files
            os.unlink(os.path.join(self.locks(), f))
        lines = self.self_test("--self_test")
        self.assertEqual(len(lines), 9)
        for line, (i, c) in zip(lines[1:], enumerate([1, 0, 2, 3, 4, 5, 6, 7])):
            self.assertRegex(line, LABEL % (i, uuid(c), 0x3a + c) + r"GPU is running! \S+ ms a "
                             r"step, \S+ MB of memory, off by \S+ \(5e-05 is allowed\); copies to "
                             r"the card at [\d.]+ GB/s, back at [\d.]+ \([\d.]+ and [\d.]+ if the "
                             r"host's memory is not pinned\)$")
        self.assertEqual(self.errors, "")

    def test_chosen_cards_tested(self):
        self.machine(*(card(i) for i in range(4)))
        env = self.env(CUDA_VISIBLE_DEVICES="2,3")
        lines = self.self_test("--self_test", env=env)
        self.assertRegex(lines[1], LABEL % (0, uuid(2), 0x3c))
        self.assertRegex(lines[2], LABEL % (1, uuid(3), 0x3d))
        self.assertEqual(lines[3:], ["not tested; CUDA_VISIBLE_DEVICES='2,3' shows 2 of this "
                                     "machine's 4"])
        (line,) = self.self_test("--self_test", "--gpus=1", env=env)[1:-1]
        self.assertRegex(line, LABEL % (1, uuid(3), 0x3d) + "GPU is running!")
        self.self_test("--self_test", "--gpus=1,4", env=env, status=PERMANENT)
        self.assertIn("'4' is not a GPU that CUDA shows", self.errors)

    def test_results_as_json(self):
        self.machine(card(0), card(1, more="wrong=1"))
        everything = json.loads("".join(self.self_test("--self_test=json", status=PERMANENT)))
        self.assertEqual((everything["passed"], everything["why_no_gpu"]), (False, None))
        cpu, wrong, right = everything["devices"]
        self.assertEqual((cpu["device_type"], cpu["running"]), ("CPU", True))
        self.assertLess(0, cpu["difference"])
        self.assertLess(cpu["difference"], cpu["difference_allowed"])
        self.assertEqual((wrong["gpu"], wrong["uuid"], wrong["running"]), (0, uuid(1), False))
        self.assertIn("it computes wrongly: ", wrong["why"])
        self.assertEqual((right["gpu"], right["uuid"], right["pci_bus_id"], right["running"],
                          right["compute_capability"], right["product"], right["why"]),
                         (1, uuid(0), "0000:3a:00.0", True, "9.0", "NVIDIA H200", None))
        self.assertLess(0, right["step_ms"])
        self.assertLess(100000, right["memory_bytes"])
        self.assertLess(right["difference"], right["difference_allowed"])
        for device, is_measured in ((cpu, False), (wrong, False), (right, True)):
            self.assertEqual("copies_gb_per_second" in device, is_measured)
        self.assertIsNone(right["warning"])
        for kind in ("pinned", "pageable"):
            for way in ("to_device", "to_host"):
                self.assertLess(0, right["copies_gb_per_second"][kind][way])

    def test_memory_that_cannot_be_pinned_named(self):
        self.machine(card(0, more="unpinned=1"), card(2))
        lines = self.self_test("--self_test")
        self.assertRegex(lines[1], r": GPU is running! .*; copies to the card at [\d.]+ GB/s, back "
                         r"at [\d.]+, because the host's memory is not pinned$")
        self.assertIn(" if the host's memory is not pinned)", lines[2])
        (warning,) = self.errors.splitlines()
        self.assertRegex(warning, r"^W .*GPU 0 \(NVIDIA H200, .*\): CUDA backend: 33554432 bytes "
                         r"of host memory cannot be pinned \(.+\): copies to and from the GPU need "
                         r"one more copy on the host, and are slower$")
        everything = json.loads("".join(self.self_test("--self_test=json")))
        self.assertTrue(everything["passed"])
        _, slow, fast = everything["devices"]
        self.assertIn("33554432 bytes of host memory cannot be pinned", slow["warning"])
        self.assertIsNone(slow["copies_gb_per_second"]["pinned"])
        self.assertLess(0, slow["copies_gb_per_second"]["pageable"]["to_host"])
        self.assertLess(0, fast["copies_gb_per_second"]["pinned"]["to_host"])
        worker = self.worker("--model=mlp", "--gpus=0")
        worker.wait(60)
        self.assertRegex(worker.output(), r"(?m)^W .* bytes of host memory cannot be pinned ")

    def test_card_without_memory_for_copies_works(self):
        self.machine(card(0, load="total=2000 used=1980 busy=0"))
        line = self.self_test("--self_test")[1]
        self.assertRegex(line, r": GPU is running! .*\(5e-05 is allowed\)$")
        self.assertIn("the rates of copies are not measured: the GPU lacks 33554432 bytes of "
                      "free memory", self.errors)

    def test_wrong_card_found(self):
        self.assertRegex(self.one("wrong=1"), r"it computes wrongly: the gradient of \S+/\S+ is "
                         r"off by \S+ of its largest value \(allowed: 5e-05\)")

    def test_full_card_named(self):
        self.assertRegex(self.one(load=SMALL), r"out of GPU memory.*'conv2d1'|layer '\S+'.* bytes")

    def test_process_that_fills_card_named(self):
        line = self.one(load="total=2000 used=1999 busy=9 procs=%d" % os.getpid())
        self.assertRegex(line, r" bytes.* \(2.1 of its 2.1 GB of memory were in use, process %d "
                         r"\(\S+ of %s\) computes on it\)$" %
                         (os.getpid(), pwd.getpwuid(os.getuid()).pw_name))

    def test_exclusive_card_names_its_process(self):
        line = self.one("error=46", load="total=81559 used=700 procs=%d" % os.getpid())
        self.assert_has(line, "the card allows only one process", "process %d (" % os.getpid())

    def test_missing_kernels_named(self):
        self.assertIn("no kernels for this card's compute capability: add it to CMake's "
                      "-DWEIR_CUDA_ARCHITECTURES", self.one("error=209"))

    def test_lost_card_named(self):
        self.assertIn("the card is lost (NVML: 15, GPU is lost): reset it, or reboot",
                      self.one("lost=1"))

    def test_crash_named(self):
        self.assertIn("the driver or a library crashed (signal 6, Aborted)", self.one("error=-2"))

    def test_hang_named(self):
        for seconds in (3, 12, 48):  # s; on a busy machine the cards that work may need more
            try:
                line = self.one("error=-1", seconds=seconds)
            except AssertionError:
                if seconds == 48:
                    raise
                continue
            self.assertIn("it does not answer within %d s" % (seconds * harness.SLOWNESS), line)
            return

    def test_old_driver_named(self):
        self.machine("cuda version=12040 runtime=35\n", card(0))
        lines = self.self_test("--self_test", status=PERMANENT)
        self.assertIn("the driver supports CUDA up to 12.4, this build has ", lines[1])
        self.assertIn("; the NVIDIA driver is too old for this build: update it", lines[1])

    def test_signal_ends_self_test(self):
        self.machine(card(0, more="error=-1"))
        p = self.start_program("worker", "--self_test", "--backend_dir=" + self.backends(),
                               env=self.env())
        p.wait_line("CPU is running!")
        p.stop(signal.SIGINT, status=-signal.SIGINT)  # sooner than the 120 s that a test may last


harness.main(__name__)
