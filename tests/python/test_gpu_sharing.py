"""Several jobs on one card, and several towers on one or more cards. Without real cards the tests
use those of the fake driver, for which the emulation computes. The test test_gpu_sharing_cuda
(label gpu) uses the cards of this machine, which must be idle."""
# label: cluster gpu computes
import json
import os
import time
import unittest

import fake_gpus
import harness
from fake_gpus import card

RETRY = 138
MODEL = "lenet5" if fake_gpus.REAL else "mlp"  # convolutions are slow in the emulation
STEPS = 40
WHY_NOT = fake_gpus.why_no_cards()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Sharing(fake_gpus.Machine):
    CUDA = fake_gpus.CUDA

    def setUp(self):
        super().setUp()
        self.summaries = 0

    def cards(self, n):
        """Shows the worker n cards and nothing else; skips the test if there are fewer."""
        if not fake_gpus.REAL:
            self.machine(*(card(i, "total=400 used=10 busy=0") for i in range(n)))
        there = self.gpus(env=self.here(None))
        if len(there) < n:
            self.skipTest("the test needs %d cards, this machine has %d" % (n, len(there)))
        if fake_gpus.REAL:
            there = self.idle(n)
        # Cards are named only if the machine has more than n, because --gpus=auto uses a named card
        # even if it is busy.
        self.visible = ",".join(g["uuid"] for g in there[:n]) if len(there) > n else None
        for gpu in there[:n]:
            self.assertTrue(gpu["auto"], "the card is not idle: %s" % gpu["auto_refuses"])
        return [g["uuid"] for g in there[:n]], there[0]["memory_bytes"]

    def idle(self, n):
        """Returns the first n cards; waits up to 1 s while they show the load of the previous
        job."""
        until = time.monotonic() + 20
        while True:
            there = self.gpus(env=self.here(None))
            if all(g["auto"] for g in there[:n]) or time.monotonic() > until:
                return there
            time.sleep(0.2)

    def here(self, visible):
        """Returns the environment in which a worker sees those cards."""
        env = fake_gpus.real_env() if fake_gpus.REAL else self.env()
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        return env

    def job(self, *flags):
        """Starts a worker that trains; finish() returns its summary."""
        self.summaries += 1
        path = self.path("summary-%d.json" % self.summaries)
        p = self.worker("--model=" + MODEL, "--batch_size=24", "--seed=5", "--log_every=5",
                        "--intra_op_threads=1", "--optimizer=sgd", "--learning_rate=0.05",
                        "--train_steps=%d" % STEPS, "--summary_json=" + path, *flags,
                        env=self.here(self.visible))
        p.summary = path
        return p

    def finish(self, p, seconds=120):
        p.wait(seconds)
        return harness.read_json(p.summary)

    def run_job(self, *flags):
        return self.finish(self.job(*flags))

    def endless(self, *flags):
        p = self.job("--train_steps=100000000", *flags)
        p.wait_line("training step 5 done", 60)
        return self.stop_at_end(p)

    def same(self, got, want):
        """Checks that both saw the same samples and differ only by rounding. SGD, unlike Adam,
        exposes gradients that are all too small."""
        self.assertEqual(got["global_step"], want["global_step"])
        self.assertAlmostEqual(got["loss"], want["loss"], delta=2e-3)
        self.assertAlmostEqual(got["test_accuracy"], want["test_accuracy"], delta=0.01)


class TwoJobs(Sharing):
    def test_fractions_share_a_card(self):
        (uuid,), memory = self.cards(1)
        alone = self.run_job("--gpus=0", "--gpu_memory_fraction=0.4")
        first = self.endless("--gpus=0", "--gpu_memory_fraction=0.4")
        second = self.run_job("--gpus=0", "--gpu_memory_fraction=0.4")
        self.same(second, alone)
        self.assertEqual([t["uuid"] for t in second["towers"]], [uuid])
        self.assertIsNone(first.popen.poll())
        self.endless("--gpus=0", "--gpu_memory_fraction=0.4")
        (gpu,) = self.gpus(env=self.here(self.visible))
        self.assertGreaterEqual(gpu["used_bytes"], 0.8 * memory * 0.99)
        if not fake_gpus.REAL:  # the emulation's libraries use no memory of their own
            self.assertLess(gpu["used_bytes"], 0.8 * memory + (12 << 20))
        self.assertEqual(gpu["n_processes"], 2)

    def test_equal_fractions_share_a_card_until_full(self):
        """Fractions are added up: the second worker shares the card, the third has no place."""
        uuid = self.all_cards()
        first = self.endless("--gpu_memory_fraction=0.4")
        second = self.endless("--gpu_memory_fraction=0.4")
        (gpu,) = self.gpus(env=self.here(self.visible))
        self.assertEqual(gpu["uuid"], uuid)
        self.assertEqual(sorted(gpu["processes"]), sorted([first.popen.pid, second.popen.pid]))
        self.assertEqual(sorted(r["pid"] for r in gpu["reservations"]), sorted(gpu["processes"]))
        for r in gpu["reservations"]:
            self.assertEqual((r["program"], r["memory_fraction"], r["at_once"]),
                             ("worker", 0.4, True))
            self.assertRegex(r["since"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
            self.assertTrue(r["user"])
        for fraction, fits in (("0.4", False), ("0.1", True)):
            listed = json.loads(self.listed("--list_devices=json", "--gpu_memory_fraction=" +
                                            fraction, env=self.here(self.visible))[0])
            self.assertEqual(listed["devices"][1]["auto"], fits)
        third = self.job("--gpu_memory_fraction=0.4")
        done = self.finish(third)
        self.assertEqual([t["device_type"] for t in done["towers"]], ["CPU"])
        line, = [l for l in third.lines if "no GPU is free" in l]
        named = self.job("--gpus=0", "--gpu_memory_fraction=0.4")
        named.wait(60, RETRY)
        error, = [l for l in named.lines if l.startswith("E ")]
        for text in (line, error):
            for holder in (first, second):
                self.assertRegex(text, r"process %d has reserved 0\.4 of its memory \(worker of "
                                 r"\S+, since \d+-" % holder.popen.pid)
            self.assertIn(", so 0.4 of it does not fit", text)
        self.assert_has(error, "E ", "--gpu_memory_fraction=0.4: GPU 0 (")
        second.stop()
        self.assertEqual([t["uuid"] for t in self.run_job("--gpu_memory_fraction=0.5")["towers"]],
                         [uuid])

    def test_free_card_preferred_to_shared_one(self):
        uuids, _ = self.cards(2)
        self.endless("--gpu_memory_fraction=0.4")
        second = self.run_job("--gpu_memory_fraction=0.4")
        self.assertEqual([t["uuid"] for t in second["towers"]], uuids[1:])

    def test_memory_of_unreserved_programs_found_at_allocation(self):
        """The worker finds the memory of programs without a reservation when it allocates its
        own."""
        self.cards(1)
        first = self.endless("--gpus=0", "--gpu_memory_fraction=0.7")
        os.rename(self.locks(), self.locks() + ".gone")
        second = self.job("--gpus=0", "--gpu_memory_fraction=0.7")
        second.wait(60, RETRY)
        errors = [l for l in second.lines if l.startswith("E ")]
        self.assertEqual(len(errors), 1, second.output())
        self.assertRegex(errors[0], r"CUDA device 0 \('.+'\): \d+\.\d MB of its memory must be "
                         r"free at once, but only \d+\.\d MB of its \d+\.\d MB are free; the GPU "
                         r"is also used by process %d \(worker of \S+\); use a smaller "
                         r"--gpu_memory_fraction" % first.popen.pid)
        if not fake_gpus.REAL:
            self.assertIn(" 293.6 MB of its memory", errors[0])
            self.assertIn(" only 115.3 MB of its 419.4 MB are free", errors[0])

    def test_auto_chooses_idle_card(self):
        uuids, _ = self.cards(2)
        self.endless()
        second = self.run_job()
        self.assertEqual([t["uuid"] for t in second["towers"]], uuids[1:])

    def all_cards(self):
        """Returns the UUID of the machine's only card, which no variable names."""
        (uuid,), _ = self.cards(1)
        if self.visible or "CUDA_VISIBLE_DEVICES" in self.here(None):
            self.skipTest("the environment names cards, which auto uses even if busy")
        return uuid

    def test_auto_falls_back_to_cpu(self):
        self.all_cards()
        first = self.endless()
        second = self.job()
        done = self.finish(second)
        self.assertEqual([t["device_type"] for t in done["towers"]], ["CPU"])
        self.assertRegex(second.output(), r"no GPU is free, training on the CPU: GPU 0: process "
                         r"%d .*has reserved it" % first.popen.pid)

    def test_auto_uses_named_card(self):
        (uuid,), _ = self.cards(1)
        first = self.endless()
        self.visible = uuid
        second = self.job()
        self.assertEqual([t["uuid"] for t in self.finish(second)["towers"]], [uuid])
        self.assertRegex(second.output(), r"W .* is shared: CUDA_VISIBLE_DEVICES='%s' names it, so "
                         r"it is used, but process %d .*has reserved it" % (uuid, first.popen.pid))

    def test_auto_waits_with_gpu_wait(self):
        uuid = self.all_cards()
        first = self.endless()
        second = self.job("--gpu_wait=600")
        second.wait_line(r"waiting for 1 more GPU, at most (600|59\d) s: GPU 0: process %d " %
                         first.popen.pid)
        first.stop()
        self.assertEqual([t["uuid"] for t in self.finish(second)["towers"]], [uuid])


class Towers(Sharing):
    def cpu(self):
        return self.run_job("--gpus=none")

    def test_two_towers_on_a_card_match_cpu(self):
        self.cards(1)
        one, two = self.run_job("--gpus=0"), self.run_job("--gpus=0", "--towers_per_gpu=2")
        self.assertEqual([t["samples"] for t in two["towers"]], [12, 12])
        cpu = self.cpu()
        self.same(one, cpu)
        self.same(two, cpu)

    def test_towers_on_two_cards_match_cpu(self):
        uuids, _ = self.cards(2)
        two = self.run_job("--gpus=all")
        self.assertEqual([t["uuid"] for t in two["towers"]], uuids)
        self.same(two, self.cpu())

    def test_two_towers_on_each_card_match_cpu(self):
        self.cards(2)
        four = self.run_job("--gpus=all", "--towers_per_gpu=2")
        self.assertEqual([(t["number"], t["samples"]) for t in four["towers"]],
                         [(0, 6), (0, 6), (1, 6), (1, 6)])
        self.same(four, self.cpu())

    def test_gpu_and_cpu_towers_match_cpu(self):
        self.cards(1)
        mixed = self.run_job("--gpus=0", "--towers=1", "--cpu_batch_size=3")
        self.assertEqual([(t["device_type"], t["samples"]) for t in mixed["towers"]],
                         [("GPU", 21), ("CPU", 3)])
        self.same(mixed, self.cpu())

    def test_deterministic_towers_repeat_bits(self):
        self.cards(1)
        flags = ("--gpus=0", "--towers_per_gpu=2", "--deterministic")
        self.assertEqual(self.run_job(*flags)["parameters_sha256"],
                         self.run_job(*flags)["parameters_sha256"])


class SelfTest(Sharing):
    def test_self_test_runs_on_every_card(self):
        self.cards(1)
        p = self.start_program("worker", "--self_test", "--gpus=all",
                               "--backend_dir=" + self.backends(self.CUDA), env=self.here(None))
        self.assertEqual(p.wait_output(300).count(": GPU is running! "),
                         len(self.gpus(env=self.here(None))))


harness.main(__name__)
