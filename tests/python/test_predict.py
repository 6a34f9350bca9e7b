#!/usr/bin/python3
"""worker --evaluate and --predict: for a trained file and the test set, the figures equal those of
training's own evaluation. Other programs can read the files that --predict writes."""
# label: cluster
import ast
import csv
import json
import math
import os
import shutil

import ckpt_folder
import harness
import weights

TRAIN = ["--train_steps=60", "--batch_size=20", "--seed=3", "--intra_op_threads=1"]
CLASSES = 10


class Predict(harness.Test):
    def train(self):
        """Trains; returns an export, a folder of checkpoints, and training's own figures."""
        self.run_worker(*TRAIN, "--export=" + self.path("model.safetensors"),
                        "--checkpoint_dir=" + self.path("ckpt"), "--save_steps=60",
                        "--summary_json=" + self.path("trained.json"))
        return self.figures("trained.json")

    def labels(self):
        return harness.read_bytes(os.path.join(self.data(), "t10k-labels-idx1-ubyte"))[8:]

    def test_evaluate_matches_training(self):
        """The figures of --evaluate for the export, a manifest and the checkpoint folder are those
        of training, to the last digit."""
        want = self.train()
        manifest = ckpt_folder.path(self.path("ckpt"), 60)
        for file in (self.path("model.safetensors"), manifest, self.path("ckpt")):
            worker = self.run_worker("--evaluate=" + file, "--intra_op_threads=1",
                                     "--summary_json=" + self.path("summary.json"))
            got = self.figures()
            for key in ("test_accuracy", "test_loss", "parameters_sha256", "global_step"):
                self.assertEqual(got[key], want[key], (file, key))
            self.assertEqual(got["images"], 500)
            self.assertIn("test accuracy: %.4f, test loss: %.4f (500 samples)" %
                          (want["test_accuracy"], want["test_loss"]), worker.output())

    def test_names_outside_utf8_escaped(self):
        """JSON has Unicode only; a file's name may have any bytes."""
        self.train()
        file = os.fsencode(self.path("m")) + b"\xe4.safetensors"
        os.rename(self.path("model.safetensors"), file)
        out = os.fsencode(self.path("o")) + b"\xf6.csv"
        self.run_worker("--predict=" + os.fsdecode(file), "--output=" + os.fsdecode(out),
                        "--intra_op_threads=1", "--summary_json=" + self.path("summary.json"))
        got = self.figures()
        self.assertEqual(got["predict"], file.decode("latin-1"))
        self.assertEqual(got["output"], out.decode("latin-1"))

    def test_set_may_lack_last_classes(self):
        """A test set need not have the last classes of the model."""
        self.train()
        folder, few = self.path("few"), 7
        os.mkdir(folder)
        with open(os.path.join(self.data(), "t10k-images-idx3-ubyte"), "rb") as f:
            head, images = f.read(16), f.read()
        kept = [i for i, label in enumerate(self.labels()) if label < few]
        size = len(images) // len(self.labels())
        count = len(kept).to_bytes(4, "big")
        with open(os.path.join(folder, "t10k-images-idx3-ubyte"), "wb") as f:
            f.write(head[:4] + count + head[8:])
            f.write(b"".join(images[i * size:(i + 1) * size] for i in kept))
        with open(os.path.join(folder, "t10k-labels-idx1-ubyte"), "wb") as f:
            f.write(bytes([0, 0, 8, 1]) + count + bytes(self.labels()[i] for i in kept))
        for file in (self.path("model.safetensors"), self.path("ckpt")):
            worker = self.run_worker("--evaluate=" + file, "--data_dir=" + folder,
                                     "--intra_op_threads=1")
            self.assertIn("(%d samples)" % len(kept), worker.output())

    def predict(self, end):
        out = self.path("out" + end)
        self.run_worker("--predict=" + self.path("model.safetensors"), "--output=" + out,
                        "--intra_op_threads=1")
        return out

    def test_predictions_same_in_all_formats(self):
        """The three formats agree with each other and with the accuracy and the loss."""
        want, labels = self.train(), self.labels()
        with open(self.predict(".csv"), encoding="ascii", newline="") as f:
            head, *rows = csv.reader(f)
        self.assertEqual(head, ["index", "class", *("p%d" % k for k in range(CLASSES))])
        rows = [(int(r[0]), int(r[1]), [float(p) for p in r[2:]]) for r in rows]
        self.assertEqual([r[0] for r in rows], list(range(500)))
        right = sum(r[1] == label for r, label in zip(rows, labels))
        self.assertEqual(right / 500, want["test_accuracy"])
        loss = -sum(math.log(r[2][label]) for r, label in zip(rows, labels)) / 500
        self.assertAlmostEqual(loss, want["test_loss"], places=4)
        for _, best, p in rows:
            self.assertAlmostEqual(sum(p), 1, places=5)
            self.assertEqual(p[best], max(p))
        with open(self.predict(".jsonl"), encoding="ascii") as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([(o["index"], o["class"], o["probabilities"]) for o in lines], rows)
        self.check_npy(self.predict(".npy"), rows)
        self.check_each(rows)

    def check_each(self, rows):
        """Checks that each sample has its own probabilities, equal to those of plain double
        precision."""
        export = harness.read_safetensors(self.path("model.safetensors"))
        (shape, w), (_, b) = export["softmax/weights"], export["softmax/biases"]
        n, images = shape[1], weights.read_idx(
            os.path.join(self.data(), "t10k-images-idx3-ubyte"), 16)
        self.assertEqual((shape[0], len(images)), (CLASSES, len(rows) * n))
        for index, _, got in rows:
            x = [pixel / 255 for pixel in images[index * n:(index + 1) * n]]
            want = weights.softmax(weights.linear(x, w, b))
            self.assertLess(max(abs(g - p) for g, p in zip(got, want, strict=True)), 1e-5, index)

    def check_npy(self, path, rows):
        """Reads the file by the format's own description, and by NumPy if it is installed."""
        data = harness.read_bytes(path)
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        begin = 10 + int.from_bytes(data[8:10], "little")
        self.assertEqual(begin % 64, 0)
        head = ast.literal_eval(data[10:begin].decode("ascii"))
        self.assertEqual(head, {"descr": [("index", "<i8"), ("class", "<i4"),
                                          ("probabilities", "<f4", (CLASSES,))],
                                "fortran_order": False, "shape": (500,)})
        self.assertEqual(len(data) - begin, 500 * (12 + 4 * CLASSES))
        try:
            import numpy
        except ImportError:
            return
        array = numpy.load(path)
        self.assertEqual(array["class"].tolist(), [r[1] for r in rows])
        self.assertEqual(array["probabilities"].tolist(),
                         numpy.array([r[2] for r in rows], "<f4").tolist())

    def test_bad_inference_flags_refused(self):
        """The worker prints one line that names the cause; an existing output does not change."""
        self.train()
        good, out = "--predict=" + self.path("model.safetensors"), self.path("out.csv")
        harness.write_file(out, "mine")
        for flags, status, said in (
                ([good, "--output=" + self.path("x.txt")], 2,
                 "does not end like one of the formats: .*csv, .jsonl"),
                ([good], 2, "--predict needs --output=FILE"),
                (["--output=" + out], 2, "is missing; --export=FILE is for the trained parameters"),
                ([good, "--evaluate=x", "--output=" + out], 2, "set one of them"),
                ([good, "--output=" + self.path("none/x.csv")], 2,
                 "--output=.*none/x.csv: cannot create a file"),
                (["--predict=" + self.path("none"), "--output=" + out], 1, "--predict=.*none: "),
                (["--evaluate=" + self.path("ckpt/checkpoint")], 1, "--evaluate=.*checkpoint: "),
                (["--evaluate=" + ckpt_folder.path(self.path("ckpt"), 60,
                                                   "-0-of-1.safetensors")], 1,
                 "is one server's file of a checkpoint")):
            worker = self.run_worker(*flags, status=status)
            self.assertRegex(worker.output(), said)
        for flags in ([good, "--output=" + out], ["--evaluate=" + self.path("ckpt")]):
            said = self.run_worker(*flags, model="mlp", status=1).output()
            for name in ("hid/weights", "hid/biases", "sm/weights", "sm/biases"):
                self.assertIn("missing: '%s'" % name, said)
            self.assertIn("of another model. It lacks 4 of 4 parameters, and 0 have", said)
        longer = self.path("longer.safetensors")
        state = {name: ("F32", shape, list(values)) for name, (shape, values)
                 in harness.read_safetensors(self.path("model.safetensors")).items()}
        state["more/biases"] = "F32", (12,), [0.0] * 12
        weights.write(longer, state, {"global_step": "60"})
        worker = self.run_worker("--evaluate=" + longer, status=1)
        self.assertRegex(worker.output(), r"of another model\. 1 of its tensors belong to no ")
        torn = self.path("torn.safetensors")
        shutil.copy(self.path("model.safetensors"), torn)
        with open(torn, "r+b") as f:
            f.seek(-9, os.SEEK_END)
            f.write(b"x")
        worker = self.run_worker("--predict=" + torn, "--output=" + out, status=1)
        self.assertRegex(worker.output(), "torn.safetensors: .*checksum")
        self.assertEqual(harness.read_text(out), "mine")

    def test_damaged_checkpoint_is_named_once(self):
        """The worker opens a checkpoint once, for the description of the data and for the values,
        which therefore always belong together."""
        self.train()
        with open(ckpt_folder.path(self.path("ckpt"), 60, "-0-of-1.safetensors"), "r+b") as f:
            f.seek(-9, os.SEEK_END)
            f.write(b"x")
        for flags in (["--evaluate=" + self.path("ckpt")],
                      [*TRAIN, "--init=" + self.path("ckpt")]):
            said = self.run_worker(*flags, status=1).output()
            self.assertEqual(said.count("not restored: "), 1, said)
            self.assertIn("none of its checkpoints is complete", said)


harness.main(__name__)
