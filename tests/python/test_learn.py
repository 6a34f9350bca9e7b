"""Whole jobs with every optimizer and every model of Weir: their results, and the files that they
write. test_train.py tests jobs with other numbers of programs."""
# label: cluster address
import hashlib
import math
import os

import harness
import test_train
from test_train import QUICK

# Under a sanitizer the small models must suffice. test_golden.py runs some steps of resnet18_cifar;
# regression is for targets (test_targets.py), and two models have tables (test_sparse_models.py).
MODELS = ["softmax", "mlp", "lenet5"] if harness.SANITIZE else [
    name[:-5] for name in sorted(os.listdir(harness.MODELS)) if name.endswith(".json") and
    name not in ("resnet18_cifar.json", "regression.json", "deepfm.json", "wide_deep.json")]


class Learn(harness.Test):
    check_learned = test_train.Train.check_learned

    def test_tensorflow_flags_learn(self):
        job = self.started_job(model="mlp", flags=["--sync_replicas", "--replicas_to_aggregate=2",
                                                   "--hidden_units=50", *QUICK])
        summaries = job.finish()
        self.check_learned(summaries)
        self.assertEqual(summaries[0]["parameters"], 784 * 50 + 50 + 50 * 10 + 10)

    def test_epochs_learn(self):
        job = self.job(flags=["--batch_size=20", "--epochs=2", "--learning_rate=0.01", "--seed=3"])
        job.start()
        self.check_learned(job.finish(), steps=2 * 2400 // 40)

    def test_every_optimizer_learns(self):
        rates = {"sgd": 0.2, "momentum": 0.05, "nesterov": 0.05, "adagrad": 0.05, "rmsprop": 0.01,
                 "adam": 0.01, "adamw": 0.01}
        digests = set()
        for name, rate in rates.items():
            with self.subTest(optimizer=name):
                job = self.job(flags=[*QUICK, "--optimizer=" + name, "--learning_rate=%g" % rate])
                job.start()
                summaries = job.finish()
                self.check_learned(summaries, least=0.85)
                digests.add(summaries[0]["parameters_sha256"])
        self.assertEqual(len(digests), len(rates), "two optimizers had equal results")

    def test_every_model_runs(self):
        self.assertIn("lenet5", MODELS)
        for name in MODELS:
            with self.subTest(model=name):
                job = self.job(model=name, flags=["--batch_size=8", "--train_steps=4", "--seed=1",
                                                  "--learning_rate=0.001", "--intra_op_threads=1"])
                job.start()
                summaries = job.finish(120)
                self.check_learned(summaries, steps=4, least=0)
                if name == "deep_mnist":
                    self.assertEqual(summaries[0]["parameters"], 3274634)

    def test_eval_every_logs_accuracy(self):
        text = self.run_worker(*QUICK, "--eval_every=20").output()
        for step in (20, 40):
            self.assertRegex(text, r"global step %d: test accuracy: [01]\.\d{4}" % step)

    def test_export_holds_the_digested_parameters(self):
        export, path = self.path("m.safetensors"), self.path("s.json")
        self.run_worker(*QUICK, "--export=" + export, "--summary_json=" + path)
        summary = harness.read_json(path)
        tensors = harness.read_safetensors(export)
        self.assertEqual(sum(len(v) for _, v in tensors.values()), summary["parameters"])
        self.assertEqual(sorted(math.prod(shape) for shape, _ in tensors.values()), [10, 7840])
        by_order = sorted(tensors.items(), key=lambda item: item[0].endswith("biases"))
        digest = hashlib.sha256(b"".join(v.tobytes() for _, (_, v) in by_order)).hexdigest()
        self.assertEqual(digest, summary["parameters_sha256"])


harness.main(__name__)
