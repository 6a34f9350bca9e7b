"""A job with the same seed and members ends with the same bits, whatever the number of servers and
the order of arrival. One worker with two towers and twice the batch computes the same as two
workers."""
# label: cluster long
import random
import time

import harness

TOLERANCE = 1e-5


class Determinism(harness.Test):
    def digest(self, model, flags, n_ps=1, extra=(), n_workers=2):
        job = self.started_job(n_ps=n_ps, n_workers=n_workers, model=model, flags=[*flags, *extra])
        summaries = job.finish(180)
        self.assertEqual(summaries[0]["parameters_sha256"], summaries[1]["parameters_sha256"])
        return summaries[0]["parameters_sha256"]

    def check_same_bits(self, model, flags):
        first = self.digest(model, [*flags, "--seed=11"])
        runs = {
            "again": self.digest(model, [*flags, "--seed=11"]),
            "two ps, disturbed": self.digest(model, [*flags, "--seed=11"], n_ps=2,
                                             extra=["--fault_push_delay_ms=15"]),
        }
        for name, digest in runs.items():
            self.assertEqual(digest, first, name)
        self.assertNotEqual(self.digest(model, [*flags, "--seed=12"]), first,
                            "the seed has no effect")

    def test_same_bits_lenet5(self):
        self.check_same_bits("lenet5", ["--batch_size=16", "--train_steps=25", "--optimizer=adam",
                                        "--learning_rate=0.002", "--chunk_bytes=16384",
                                        "--intra_op_threads=1"])

    def test_same_bits_softmax_many_steps(self):
        self.check_same_bits("softmax", ["--batch_size=10", "--train_steps=150",
                                         "--optimizer=momentum", "--chunk_bytes=4096"])

    def test_same_bits_deep_mnist(self):
        self.check_same_bits("deep_mnist", ["--batch_size=16", "--train_steps=4",
                                            "--optimizer=adam", "--learning_rate=0.001",
                                            "--intra_op_threads=1"])

    def test_same_bits_resnet_mini(self):
        """A graph: gradients of outputs with several readers are added in a fixed order."""
        self.check_same_bits("resnet_mini", ["--batch_size=8", "--train_steps=6",
                                             "--optimizer=momentum", "--learning_rate=0.01",
                                             "--chunk_bytes=16384", "--intra_op_threads=1"])

    def test_same_bits_three_workers(self):
        """The order of a sum changes the bits if there are three contributions."""
        digests = set()
        for extra in ([], ["--fault_push_delay_ms=10"], ["--fault_push_delay_ms=25"]):
            job = self.started_job(n_workers=3, n_ps=2, model="mlp",
                                   flags=["--batch_size=12", "--train_steps=25", "--seed=5",
                                          "--chunk_bytes=16384", "--learning_rate=0.01", *extra])
            digests.add(job.finish(120)[0]["parameters_sha256"])
        self.assertEqual(len(digests), 1)

    def test_same_bits_after_a_killed_worker(self):
        """A worker that is killed in the middle of a step returns and redoes the step (I8)."""
        flags = ["--batch_size=12", "--train_steps=60", "--seed=5", "--chunk_bytes=32768",
                 "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
        delay = random.Random(7)
        for extra in ([], ["--wire_dtype=bf16"]):
            undisturbed = self.digest("lenet5", [*flags, *extra], n_ps=2)
            job = self.started_job(n_ps=2, model="lenet5", flags=[*flags, *extra,
                                                                  "--fault_push_delay_ms=8"])
            for step in range(1, 41, 4):
                job.workers[1].wait_line("training step %d done" % step)
                time.sleep(delay.uniform(0, 0.04))
                job.restart_worker(1)
            for s in job.finish(120):
                self.assertEqual(s["parameters_sha256"], undisturbed, extra)

    def test_same_bits_in_16_bits(self):
        """A value is rounded once, wherever it is sent and whenever it arrives."""
        digests = {}
        for dtypes in ("bf16", "fp16,fp32"):
            flags = ["--batch_size=12", "--train_steps=25", "--seed=11", "--chunk_bytes=16384",
                     "--optimizer=momentum", "--intra_op_threads=1", "--wire_dtype=" + dtypes]
            digests[dtypes] = self.digest("mlp", flags, n_workers=3)
            self.assertEqual(self.digest("mlp", flags, n_workers=3), digests[dtypes], "again")
            self.assertEqual(self.digest("mlp", flags, n_ps=2, n_workers=3,
                                         extra=["--fault_push_delay_ms=10"]), digests[dtypes],
                             "two ps, disturbed")
        digests["fp32"] = self.digest("mlp", flags[:-1], n_workers=3)
        self.assertEqual(len(set(digests.values())), 3, "a dtype has no effect")

    def compare_towers(self, model, steps, batch, optimizer):
        """Compares the exports of two workers and of one worker with two towers and twice the
        batch."""
        common = ["--train_steps=%d" % steps, "--optimizer=" + optimizer, "--seed=4",
                  "--learning_rate=0.001", "--intra_op_threads=1"]
        two = self.path(model + "-workers.safetensors")
        one = self.path(model + "-towers.safetensors")
        job = self.job(model=model, flags=[*common, "--batch_size=%d" % batch])
        job.start_ps(0)
        job.start_worker(0, "--export=" + two)
        job.start_worker(1)
        job.finish(180)
        self.run_worker(*common, "--batch_size=%d" % (2 * batch), "--towers=2", "--export=" + one,
                        model=model, seconds=180)
        a, b = harness.read_safetensors(two), harness.read_safetensors(one)
        self.assertEqual(a.keys(), b.keys())
        worst, same = 0.0, True
        for name in a:
            self.assertEqual(a[name][0], b[name][0])
            x, y = a[name][1], b[name][1]
            if x == y:
                continue
            same = False
            largest = max(max(map(abs, x)), 1e-30)
            worst = max(worst, max(abs(p - q) for p, q in zip(x, y)) / largest)
        print("\n%s, %s, %d steps: two workers against two towers: %s" %
              (model, optimizer, steps, "bit-identical" if same else
               "differ by %.3g of a parameter's largest element" % worst), flush=True)
        self.assertLessEqual(worst, TOLERANCE)

    def test_two_towers_lenet5(self):
        self.compare_towers("lenet5", 20, 16, "sgd")

    def test_two_towers_lenet5_adam(self):
        self.compare_towers("lenet5", 20, 16, "adam")

    def test_two_towers_deep_mnist(self):
        self.compare_towers("deep_mnist", 4, 16, "adam")


harness.main(__name__)
