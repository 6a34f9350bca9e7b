"""Networks of PyTorch 2 predict the same in Weir, sample by sample. Their state dicts, samples and
probabilities lie in tests/golden/predictions, made by make_predictions.py. --predict reads the
state dict itself, and an export of a worker that read the state dict by --init.

A probability may differ by TOLERANCE: Weir computes in float32, and PyTorch computed in float64."""
# label: cluster
import os
import shutil

import golden
import harness
import weights

TOLERANCE = 1e-5
ALONE = ["--intra_op_threads=1", "--seed=5"]
# A training step that changes nothing.
STILL = ["--optimizer=sgd", "--learning_rate=1e-30", "--train_steps=1", "--batch_size=10"]


class Predictions(harness.Test):
    def flags(self, folder, kind):
        """Returns the flags that read the state dict, with its map if there is one."""
        names = os.path.join(folder, "map")
        return [*ALONE, "--%s=%s" % (kind, os.path.join(folder, "state.safetensors")),
                *(["--init_map=" + names] if os.path.exists(names) else [])]

    def predict(self, folder, flags, model=None):
        out = self.path("out.csv")
        self.run_worker(*flags, "--output=" + out, data=folder,
                        model=model or os.path.join(folder, "model.json"))
        return weights.predicted(out)

    def export(self, folder):
        """Returns the export of one training step with --init that changes nothing."""
        data = self.new_folder("train")
        for name in os.listdir(folder):
            if name.startswith("test-"):
                for part in ("test", "train"):
                    shutil.copy(os.path.join(folder, name),
                                os.path.join(data, name.replace("test", part)))
        model = os.path.join(folder, "model.json")
        norms = "batch_norm" in harness.read_text(model)
        self.run_worker(*self.flags(folder, "init"), *STILL, "--export=" + self.path("export"),
                        *(["--freeze=*/moving_*"] if norms else []), data=data, model=model)
        shutil.rmtree(data)
        return self.path("export")

    def check(self, name, folder):
        want = harness.read_json(os.path.join(folder, "predictions.json"))
        self.assertGreaterEqual(int(want["torch"].split(".")[0]), 2)
        self.assertGreaterEqual(len(want["probabilities"]), 40)
        for how, flags in (("--predict", self.flags(folder, "predict")),
                           ("--init", [*ALONE, "--predict=" + self.export(folder)])):
            far = weights.furthest(self.predict(folder, flags), want["probabilities"])
            print("%s, %s: furthest from PyTorch %s: %.2g" % (name, how, want["torch"], far))
            self.assertLess(far, TOLERANCE, (name, how))
        _, figures = self.train_alone(*self.flags(folder, "evaluate"), data=folder,
                                      model=os.path.join(folder, "model.json"))
        self.assertAlmostEqual(figures["test_loss"], want["loss"], delta=TOLERANCE)

    def test_networks_match_pytorch(self):
        names = sorted(os.listdir(golden.PREDICTIONS))
        self.assertGreaterEqual(len(names), 3)
        for name in names:
            with self.subTest(network=name):
                self.check(name, os.path.join(golden.PREDICTIONS, name))

    def test_other_epsilon_differs(self):
        """Proves that the comparison can fail."""
        folder = os.path.join(golden.PREDICTIONS, "colour")
        text = harness.read_text(os.path.join(folder, "model.json"))
        self.assertIn('"epsilon": 0.01', text)
        with open(self.path("other.json"), "w", encoding="utf-8") as f:
            f.write(text.replace('"epsilon": 0.01', '"epsilon": 0.011'))
        want = harness.read_json(os.path.join(folder, "predictions.json"))["probabilities"]
        got = self.predict(folder, self.flags(folder, "predict"), model=self.path("other.json"))
        self.assertGreater(weights.furthest(got, want), TOLERANCE)


harness.main(__name__)
