"""The AUC of a network with two classes. It appears in the line of the evaluation and in
--summary_json, also with --evaluate and with --predict, and equals the AUC of the outputs that
--predict writes. A network with three classes has no AUC."""
# label: cluster
import json
import random

import harness
import weights

MODEL = {"input": "auto", "classes": "auto", "layers": [
    {"type": "flatten"}, {"type": "dense", "units": 8}, {"type": "tanh"},
    {"type": "dense", "units": "classes"}, {"type": "softmax_cross_entropy"}]}
ALONE = ["--intra_op_threads=1", "--seed=5"]


def auc(scores, labels):
    """Returns the AUC by its definition: the share of pairs in the right order."""
    pairs = [(a > b) + (a == b) / 2 for a, k in zip(scores, labels) if k == 1
             for b, j in zip(scores, labels) if j == 0]
    return sum(pairs) / len(pairs)


class Auc(harness.Test):
    def write(self, classes):
        """Writes samples with two features that partly predict the class."""
        rng = random.Random(8)
        flags = ["--model=" + self.path("m.json")]
        for part, n in (("train", 200), ("test", 310)):
            labels = [rng.randrange(classes) for _ in range(n)]
            with open(self.path(part + ".csv"), "w", encoding="utf-8") as f:
                f.write("a,b,label\n" + "".join("%.3f,%.3f,%d\n" % (
                    rng.gauss(k, 1), rng.gauss(0, 1), k) for k in labels))
            flags.append("--%s_data=%s" % (part, self.path(part + ".csv")))
        harness.write_file(self.path("m.json"), json.dumps(MODEL))
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

    def test_three_classes_have_no_auc(self):
        said, figures = self.run_one(*self.write(3)[0], "--train_steps=5")
        self.assertIn("test accuracy: ", said)
        self.assertNotIn("AUC", said)
        self.assertIsNone(figures["test_auc"])


harness.main(__name__)
