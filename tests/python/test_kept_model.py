"""--evaluate and --predict use the model that an export or a checkpoint contains. --model overrides
this model, and is needed if the file contains none."""
# label: cluster
import json
import os

import harness

TRAIN = ["--train_steps=20", "--batch_size=20", "--seed=3", "--intra_op_threads=1"]
KEPT = "uses the model in %s, because --model is not set"
LACKS = "%s does not contain its model; name the model of the training with --model=FILE"


class KeptModel(harness.Test):
    def bare_worker(self, *flags, status=0):
        """Starts a worker without --model, unless one of these flags is it."""
        return self.run_worker("--intra_op_threads=1", "--summary_json=" + self.path("got.json"),
                               *flags, model=None, status=status)

    def train(self, *flags, model="softmax"):
        self.run_worker(*TRAIN, "--export=" + self.path("m.safetensors"),
                        "--summary_json=" + self.path("trained.json"), *flags, model=model)

    def check(self, file):
        """Checks that both flags accept the file, with the figures of training."""
        for flags in (["--evaluate=" + file],
                      ["--predict=" + file, "--output=" + self.path("o.csv")]):
            worker = self.bare_worker(*flags)
            self.assertIn(KEPT % file, worker.output())
            got, want = self.figures("got.json"), self.figures("trained.json")
            self.assert_same(got, want, "model", "parameters_sha256", "test_accuracy", "test_loss",
                             about=file)

    def write(self, name, **metadata):
        """Writes the export with other metadata; None removes an entry."""
        harness.change_metadata(self.path("m.safetensors"), self.path(name), lambda old: {
            k: v for k, v in {**old, **metadata}.items() if v is not None})
        return self.path(name)

    def test_model_kept_by_export(self):
        """The model was a file of the user, which may be gone."""
        model = self.path("mine.json")
        with open(model, "w", encoding="utf-8") as f:
            json.dump({"name": "mine", "input": "auto", "classes": "auto", "layers": [
                {"type": "flatten"}, {"type": "dense", "units": 12}, {"type": "tanh"},
                {"type": "dense", "units": "classes"}, {"type": "softmax_cross_entropy"}]}, f)
        self.train(model=model)
        os.remove(model)
        self.check(self.path("m.safetensors"))
        kept = harness.safetensors_metadata(self.path("m.safetensors"))
        self.assertEqual(json.loads(kept["model_json"])["classes"], 10)

    def test_hidden_units_kept_by_export(self):
        self.train("--hidden_units=9", model="mlp")
        self.check(self.path("m.safetensors"))

    def test_model_kept_by_checkpoint(self):
        self.train("--checkpoint_dir=" + self.path("ck"), "--hidden_units=9", model="mlp")
        self.check(self.path("ck"))
        job = self.job(n_workers=1, model="mlp", flags=["--hidden_units=7", *TRAIN])
        job.start(["--checkpoint_dir=" + self.path("ck2")])
        job.finish()
        os.rename(job.summary_path(0), self.path("trained.json"))
        self.check(self.path("ck2"))

    def test_model_flag_overrides_kept_model(self):
        self.train()
        flag, models = "--evaluate=" + self.path("m.safetensors"), "--models_dir=" + harness.MODELS
        worker = self.bare_worker(flag, models, "--model=softmax")
        self.assertNotIn("keeps", worker.output())
        worker = self.bare_worker(flag, models, "--model=lenet5", status=1)
        self.assertIn("c1/weights", worker.output())

    def test_file_without_model_needs_model_flag(self):
        self.train()
        long = json.dumps({"comment": "x" * (256 << 10)})
        for lacking in ({"model_json": None}, {"model_json": long}, {"global_step": None}):
            file = self.write("other.safetensors", **lacking)
            worker = self.bare_worker("--evaluate=" + file, status=1)
            self.assertIn(LACKS % file, worker.output())
            self.bare_worker("--evaluate=" + file, "--models_dir=" + harness.MODELS,
                             "--model=softmax")

    def test_damaged_kept_model_named(self):
        self.train()
        for text, says in (("{", "model %s, line 1, column 1: not valid JSON"),
                           ("[]", "model %s, line 1")):
            file = self.write("damaged.safetensors", model_json=text)
            worker = self.bare_worker("--evaluate=" + file, status=1)
            self.assertIn(says % file, worker.output())
        file = self.write("units.safetensors", model_json=json.dumps({
            "input": [1, 28, 28], "classes": 10, "layers": [
                {"type": "flatten"}, {"type": "dense", "name": "other", "units": 10},
                {"type": "softmax_cross_entropy"}]}))
        worker = self.bare_worker("--evaluate=" + file, status=1)
        self.assertIn("other/weights", worker.output())

    def test_missing_file_named(self):
        worker = self.bare_worker("--evaluate=" + self.path("none"), status=1)
        self.assertIn("--evaluate=%s: " % self.path("none"), worker.output())
        self.assertNotIn("does not contain its model", worker.output())


harness.main(__name__)
