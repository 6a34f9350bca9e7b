"""The AUC of a network for two classes, with two outputs or one. It appears in the line of the
evaluation and in --summary_json, also with --evaluate and with --predict, and equals the AUC of the
outputs that --predict writes. A network with three classes has no AUC."""
# label: cluster
import csv
import json
import math
import random

import harness
import weights

MODEL = {"input": "auto", "classes": "auto", "layers": [
    {"type": "flatten"}, {"type": "dense", "units": 8}, {"type": "tanh"},
    {"type": "dense", "units": "classes"}, {"type": "softmax_cross_entropy"}]}
ONE = {"input": "auto", "classes": 1, "layers": [
    {"type": "flatten"}, {"type": "dense", "units": 8}, {"type": "tanh"},
    {"type": "dense", "units": 1}, {"type": "sigmoid_cross_entropy"}]}
ALONE = ["--intra_op_threads=1", "--seed=5"]


def auc(scores, labels):
    """Returns the AUC by its definition: the share of pairs in the right order."""
    pairs = [(a > b) + (a == b) / 2 for a, k in zip(scores, labels) if k == 1
             for b, j in zip(scores, labels) if j == 0]
    return sum(pairs) / len(pairs)


class Auc(harness.Test):
    def write(self, classes, names="012", model=MODEL):
        """Writes samples with two features that partly predict the class."""
        rng = random.Random(8)
        flags = ["--model=" + self.path("m.json")]
        for part, n in (("train", 200), ("test", 310)):
            labels = [rng.randrange(classes) for _ in range(n)]
            with open(self.path(part + ".csv"), "w", encoding="utf-8") as f:
                f.write("a,b,label\n" + "".join("%.3f,%.3f,%s\n" % (
                    rng.gauss(k, 1), rng.gauss(0, 1), names[k]) for k in labels))
            flags.append("--%s_data=%s" % (part, self.path(part + ".csv")))
        harness.write_file(self.path("m.json"), json.dumps(model))
        return flags, labels

    def run_one(self, *flags):
        """Returns the output of the worker and its figures."""
        said = self.start_program("worker", *ALONE, *flags, "--progress=lines",
                                  "--summary_json=" + self.path("s.json")).wait_output(60, 0)
        return said, self.figures("s.json")

    def test_two_classes_have_an_auc(self):
        data, labels = self.write(2)
        export, out = self.path("w.safetensors"), self.path("p.csv")
        said, trained = self.run_one(
            *data, "--train_steps=40", "--eval_every=20", "--optimizer=adam",
            "--learning_rate=0.01", "--batch_size=50", "--export=" + export)
        self.assertRegex(said, r"global step 20: test accuracy: [\d.]+, test loss: [\d.]+, "
                               r"test AUC: 0\.\d{4}")
        self.assertIn("test AUC: %.4f (310 samples)" % trained["test_auc"], said)
        said, figures = self.run_one(*data, "--predict=" + export, "--output=" + out)
        want = auc([row[1] for row in weights.predicted(out)], labels)
        self.assertAlmostEqual(figures["test_auc"], want, delta=1e-9)
        self.assertAlmostEqual(trained["test_auc"], want, delta=1e-9)
        self.assertTrue(0.6 < want < 0.99, want)
        said, figures = self.run_one(*data, "--evaluate=" + export)
        self.assertIn("test AUC: %.4f (310 samples)" % want, said)

    def test_one_output_is_the_probability_of_class_1(self):
        for names in ("01", ("no", "yes")):
            with self.subTest(names=names):
                data, labels = self.write(2, names, ONE)
                export, out = self.path("w.safetensors"), self.path("p.csv")
                said, trained = self.run_one(
                    *data, "--train_steps=60", "--optimizer=adam", "--learning_rate=0.02",
                    "--batch_size=50", "--export=" + export)
                self.assertIn("2 classes", said)
                self.assertIn("the output of model 'model' is the probability of class 1" + (
                    " ('yes')" if names[1] == "yes" else ""), said)
                said, figures = self.run_one(*data, "--predict=" + export, "--output=" + out)
                with open(out, encoding="utf-8", newline="") as f:
                    rows = list(csv.DictReader(f))
                p = [float(row["p1"]) for row in rows]
                self.assertEqual([int(row["class"]) for row in rows], [int(v > 0.5) for v in p])
                if names[1] == "yes":
                    self.assertEqual([row["class_name"] for row in rows],
                                     [names[v > 0.5] for v in p])
                right = sum((v > 0.5) == k for v, k in zip(p, labels)) / len(p)
                loss = -sum(math.log(v if k else 1 - v) for v, k in zip(p, labels)) / len(p)
                self.assertTrue(0.6 < right < 0.99, right)
                for of in (trained, figures):
                    self.assertAlmostEqual(of["test_accuracy"], right, delta=1e-9)
                    self.assertAlmostEqual(of["test_auc"], auc(p, labels), delta=1e-9)
                    self.assertAlmostEqual(of["test_loss"], loss, delta=1e-5)

    def test_one_output_refuses_a_third_class(self):
        data, _ = self.write(3, model=ONE)
        self.assertIn("is 2, but the model has 2 classes (0 to 1)", self.start_program(
            "worker", *ALONE, *data, "--train_steps=5").wait_output(60, 1))

    def test_three_classes_have_no_auc(self):
        said, figures = self.run_one(*self.write(3)[0], "--train_steps=5")
        self.assertIn("test accuracy: ", said)
        self.assertNotIn("AUC", said)
        self.assertIsNone(figures["test_auc"])


harness.main(__name__)
