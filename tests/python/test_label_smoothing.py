#!/usr/bin/python3
"""--label_smoothing in real programs: the bits of the model's own key, alone and with servers, and
an evaluation without it. Members of a job, and a checkpoint, must agree on it."""
# label: cluster
import json
import os

import harness

FLAGS = ["--batch_size=12", "--train_steps=12", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=momentum", "--log_every=1", "--intra_op_threads=1"]
SMOOTH = "--label_smoothing=0.2"


class LabelSmoothing(harness.Test):
    def smoothed_model(self):
        """Returns a file with the model `small` and the key label_smoothing."""
        with open(harness.source("tests/python/models/small.json"), encoding="utf-8") as f:
            model = json.load(f)
        model["layers"][-1]["label_smoothing"] = 0.2
        return self.write("smoothed.json", json.dumps(model))

    def test_flag_has_the_bits_of_the_models_key(self):
        plain, got = self.digest_alone(*FLAGS), self.digest_alone(*FLAGS, SMOOTH)
        self.assertNotEqual(got, plain)
        by_key = self.train_alone(*FLAGS, "--model=" + self.smoothed_model(), model=None)[1]
        self.assertEqual(by_key["parameters_sha256"], got)
        job = self.started_job(n_ps=2, n_workers=1, model="small", flags=[*FLAGS, SMOOTH])
        job.finish(60, got)

    def test_flag_replaces_the_models_key(self):
        flags = [*FLAGS, "--model=" + self.smoothed_model(), "--label_smoothing=0.4"]
        self.assertEqual(self.train_alone(*flags, model=None)[1]["parameters_sha256"],
                         self.digest_alone(*FLAGS, "--label_smoothing=0.4"))

    def test_evaluation_has_plain_loss(self):
        """Parameters that hardly change have the same loss on the test set, but not in training."""
        flags = [*FLAGS, "--optimizer=sgd", "--learning_rate=1e-37"]
        _, plain = self.train_alone(*flags, model="small")
        export = self.path("export.safetensors")
        _, smooth = self.train_alone(*flags, SMOOTH, "--export=" + export, model="small")
        self.assertEqual(smooth["test_loss"], plain["test_loss"])
        self.assertNotEqual(smooth["loss"], plain["loss"])
        _, again = self.train_alone("--evaluate=" + export, model="small")
        self.assertEqual(again["test_loss"], plain["test_loss"])

    def test_members_must_agree(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        job.start_ps()
        job.start_worker(0, SMOOTH)
        job.workers[0].wait_line("joined|waiting|Waiting")
        other = job.start_worker(1)
        self.assertIn("--label_smoothing: the servers have 0.2, the worker has 0",
                      other.wait_output(60, 1))
        job.start_worker(1, SMOOTH)
        job.finish_alike()

    def test_joining_worker_adopts_the_jobs_value(self):
        job = self.job(n_ps=1, n_workers=1, model="small", flags=[*FLAGS, SMOOTH])
        gate = job.hold(4)
        job.start()
        job.workers[0].wait_line("training step 4 done|step 4 ")
        for flag, said in (("--label_smoothing=0.3", "--label_smoothing: the servers have 0.2"),
                           (None, None)):
            flags = ["--data_dir=" + self.data(), *([flag] if flag else [])]
            joiner = job.join_worker("joiner", *flags)
            if said:
                self.assertIn(said, joiner.wait_output(60, 1))
        joiner.wait_line("joined as worker 1 of 2")
        gate.open()
        joiner.wait(60)
        job.finish()

    def test_checkpoint_keeps_it(self):
        want = self.digest_alone(*FLAGS, SMOOTH)
        folder = "--checkpoint_dir=" + self.path("ckpt")
        self.digest_alone(*FLAGS, SMOOTH, "--train_steps=6", folder)
        self.assertTrue(os.listdir(self.path("ckpt")))
        other = self.train_alone(*FLAGS, folder, model="small", status=1)[0]
        self.assertIn("--label_smoothing: the checkpoint has 0.2, the worker has 0", other.output())
        self.assertEqual(self.digest_alone(*FLAGS, SMOOTH, folder), want)

    def test_refused_where_it_means_nothing(self):
        path = harness.source("tests/golden/models/squared.json")
        said = self.run_worker(*FLAGS, SMOOTH, "--model=" + path, model=None, status=1).output()
        self.assertIn("--label_smoothing is for models that end with softmax_cross_entropy, but "
                      "the model squared ends with mean_squared_error", said)
        for value in ("1", "-0.1", "nan"):
            self.assertIn("--label_smoothing",
                          self.run_worker("--label_smoothing=" + value, status=2).output())


harness.main(__name__)
