#!/usr/bin/python3
"""--evaluate and --predict use the data that the user named, or otherwise the data of training. The
log lines name the data."""
# label: cluster
import os

import harness

TRAIN = ["--train_steps=20", "--batch_size=20", "--seed=3", "--intra_op_threads=1"]
DEFAULT = "/usr/share/datasets/fashion-mnist"


class NamedData(harness.Test):
    def bare_worker(self, *flags, status=0):
        """Starts a worker without a flag for its data, unless one of these flags is it."""
        return self.run_worker("--intra_op_threads=1", *flags, data=False, status=status)

    def train(self):
        self.run_worker(*TRAIN, "--export=" + self.path("m.safetensors"),
                        "--checkpoint_dir=" + self.path("ckpt"))

    def flags(self, file):
        return (["--evaluate=" + file], ["--predict=" + file, "--output=" + self.path("o.csv")])

    def rename_data(self, name):
        """Returns a copy of the export that has this name of the training data."""
        harness.change_metadata(self.path("m.safetensors"), self.path("renamed.safetensors"),
                                lambda metadata: {**metadata, "data": name})
        return self.path("renamed.safetensors")

    def test_data_named_in_export(self):
        self.train()
        meta = harness.safetensors_metadata(self.path("m.safetensors"))
        samples = harness.read_bytes(os.path.join(self.data(), "train-images-idx3-ubyte"))[16:]
        self.assertEqual(meta["data"], os.path.realpath(self.data()))
        self.assertEqual(meta["sample"], "1x28x28")
        self.assertEqual(int(meta["data_samples"]), len(samples) // 784)
        self.assertEqual(meta["data_crc32c"], "%08x" % harness.crc32c(samples))

    def test_unnamed_data_refused(self):
        self.train()
        for file in (self.path("m.safetensors"), self.path("ckpt")):
            for flags in self.flags(file):
                worker = self.bare_worker(*flags, status=1)
                self.assertRegex(worker.output(),
                                 "no flag names the data; .* was trained on %s; "
                                 "name the data with --data_dir=DIR" %
                                 os.path.realpath(self.data()))
                self.assertFalse(os.path.exists(self.path("o.csv")))

    def test_missing_file_refused(self):
        for what in ("--evaluate", "--predict"):
            p = self.start_program("worker", what + "=nosuch.st",
                                   *(["--output=o.csv"] if what == "--predict" else []))
            p.ends(1, what + ": nosuch.st cannot be opened: No such file or directory")

    def test_named_data_logged(self):
        self.train()
        for flags in self.flags(self.path("m.safetensors")):
            worker = self.bare_worker(*flags, "--data_dir=" + self.data())
            self.assertRegex(worker.output(), "the data are %s/t10k-images-idx3-ubyte: 500 samples "
                             "of 1x28x28\n" % self.data())

    def test_default_data_of_training_used_again(self):
        if not os.path.isdir(DEFAULT):
            self.skipTest("dataset-fashion-mnist is not installed")
        self.train()
        worker = self.bare_worker("--evaluate=" + self.rename_data(DEFAULT))
        self.assertRegex(worker.output(), "the data are %s/t10k-.*: 10000 samples of 1x28x28; no "
                         "flag names them, so these are the data of the training" % DEFAULT)
        worker = self.bare_worker("--evaluate=" + self.rename_data("/elsewhere"), status=1)
        self.assertIn("was trained on /elsewhere; name the data", worker.output())


harness.main(__name__)
