#!/usr/bin/python3
"""Training without test data ends with the same parameters, no line mentions a test set, and the
last line has the validation's figures. Other tests check where --validation_dir searches for
data."""
# label: cluster
import os
import re
import shutil

import harness

FLAGS = ["--batch_size=20", "--train_steps=30", "--learning_rate=0.01", "--seed=3",
         "--intra_op_threads=1", "--eval_every=10"]


class NoTestData(harness.Test):
    def make(self, form, name, *flags):
        return self.make_samples(form, name, "--made=1x8x9", "--classes=4", "--train=120",
                                 "--test=40", "--by_class", *flags)

    def train(self, *flags, status=0):
        worker, figures = self.train_alone(*FLAGS, *flags, data=False, status=status)
        return worker.output(), figures

    def test_training_without_test_and_validation_same_bits(self):
        folder = self.make("npz", "data")
        _, want = self.train("--data_dir=" + folder)
        one = "--train_data=" + os.path.join(folder, "train.npz")
        os.rename(os.path.join(folder, "test.npz"), self.path("test.npz"))
        for flags, words in ((["--data_dir=" + folder], "no test data in %s (neither test nor t10k "
                              "under the names of docs/guide/data.md)" % folder),
                             ([one], "no --test_data: test accuracy will not be reported")):
            said, got = self.train(*flags)
            self.assert_has(said, words, "there are no test data: no accuracy and no loss are")
            self.assertNotIn("test loss", said)
            self.assertEqual((got["test_accuracy"], got["test_loss"]), (None, None))
            self.assertEqual(got["parameters_sha256"], want["parameters_sha256"])
        said, _ = self.train(one, "--test_data=" + self.path("test.npz"))
        self.assertIn("test accuracy: ", said)
        said, _ = self.train(one, "--data_dir=" + folder, status=2)
        self.assertIn("--data_dir and --train_data or --test_data exclude each other", said)
        worker = self.run_worker("--evaluate=x", data=folder, status=1)
        self.assertIn("no test data in " + folder, worker.output())

    def test_half_a_test_set_refused(self):
        folder = self.make("npy", "data")
        os.unlink(os.path.join(folder, "test-labels.npy"))
        said, _ = self.train("--data_dir=" + folder, status=1)
        self.assertIn("has test-images.npy, but no test-labels.npy", said)

    def test_validation_without_test_set_ends_log(self):
        folder = self.make("npz", "data")
        _, want = self.train("--data_dir=" + folder, "--validation_split=0.25")
        os.rename(os.path.join(folder, "test.npz"), self.path("test.npz"))
        said, got = self.train("--data_dir=" + folder, "--validation_split=0.25")
        self.assert_same(got, want, "parameters_sha256", "validation_loss", "validation_accuracy")
        self.assertIn("validation accuracy: %.4f, validation loss: %.4f (30 samples; there are no "
                      "test data)" % (got["validation_accuracy"], got["validation_loss"]), said)
        self.assertNotIn("holds out training samples to measure", said)
        self.assertEqual(len(re.findall("global step .*validation loss", said)), 3)

    def test_job_without_test_set_resumes(self):
        folder = self.make("npz", "data")
        os.unlink(os.path.join(folder, "test.npz"))
        for validates in ([], ["--validation_split=0.25"]):
            job = self.started_job(data=folder, model="softmax", flags=[*FLAGS, *validates])
            sums = job.finish()
            self.assertEqual(len({s["parameters_sha256"] for s in sums}), 1)
            self.assertEqual([s["test_loss"] for s in sums], [None, None])
            said = [w.output().count("there are no test data") for w in job.workers]
            self.assertEqual(said, [1, 1])
            self.assertEqual("there are no test data)" in job.workers[0].output(),
                             bool(validates))
        ckpt = ["--data_dir=" + folder, "--checkpoint_dir=" + self.path("ckpt")]
        _, want = self.train(*ckpt, "--train_steps=60")
        shutil.rmtree(self.path("ckpt"))
        self.train(*ckpt)
        _, got = self.train(*ckpt, "--train_steps=60")
        self.assertEqual(got["parameters_sha256"], want["parameters_sha256"])

    def test_validation_data_found(self):
        """Validation data may have any of their names, or be class folders in the folder itself. If
        val and test exist, the worker uses val."""
        data = ["--data_dir=" + self.make("png", "png")]
        other = self.make("npz", "npz", "--test=80")
        test, val = os.path.join(self.path("png"), "test"), self.path("v")
        _, want = self.train(*data, "--validation_dir=" + self.path("png"))
        self.assertEqual(want["validation_loss"], want["test_loss"])
        for name in ("", "val", "validation", "test", "t10k"):
            place = os.path.join(val, name) if name else val
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copytree(test, place)
            if name.startswith("val"):
                shutil.copy(os.path.join(other, "test.npz"), val)
            _, got = self.train(*data, "--validation_dir=" + val)
            self.assertEqual(got["validation_loss"], want["test_loss"], name)
            shutil.rmtree(val)
        shutil.copytree(test, val)
        shutil.rmtree(os.path.join(val, sorted(os.listdir(val))[0]))
        os.mkdir(os.path.join(val, sorted(os.listdir(test))[0]))  # a class without samples
        self.train(*data, "--validation_dir=" + val)
        shutil.rmtree(val)
        for name in ("val.npz", "validation.npz"):
            os.makedirs(val)
            shutil.copy(os.path.join(other, "test.npz"), os.path.join(val, name))
            _, got = self.train("--data_dir=" + other, "--validation_dir=" + val)
            self.assertEqual(got["validation_loss"], got["test_loss"], name)
            shutil.rmtree(val)

    def test_missing_validation_data_refused(self):
        data = ["--data_dir=" + self.make("png", "png")]
        none = self.path("none")
        said, _ = self.train(*data, "--validation_dir=" + none, status=1)
        self.assertIn("--validation_dir=%s: there is no such folder" % none, said)
        places = {"empty": "", "file": "x.txt", "train": "train/a"}
        for name, inside in places.items():
            place = self.path(name)
            os.makedirs(os.path.join(place, os.path.dirname(inside)))
            if inside:
                with open(os.path.join(place, inside), "w", encoding="ascii"):
                    pass
            said, _ = self.train(*data, "--validation_dir=" + place, status=1)
            self.assertIn("--validation_dir: no validation data in %s: neither val, validation, "
                          "test nor t10k under the names of docs/guide/data.md (val/, val.npz, "
                          "val.csv, val-images-idx3-ubyte, ...), nor a folder of pictures for each "
                          "class" % place, said)


harness.main(__name__)
