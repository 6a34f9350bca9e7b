#!/usr/bin/python3
"""--predict of data without labels, in any format: the outputs equal those for the same samples
with labels, and no line has figures."""
# label: cluster
import csv
import glob
import io
import json
import os
import shutil
import zipfile

import harness
import weights

FLAGS = ["--batch_size=20", "--train_steps=30", "--learning_rate=0.01", "--seed=3",
         "--intra_op_threads=1"]
N = 40


class Base(harness.Test):
    def make(self, form, *flags):
        return self.make_samples(form, form, "--train=120", "--test=%d" % N, *flags)

    def train(self, folder, *flags, model="softmax"):
        self.run_worker(*FLAGS, "--export=" + self.path("model"), *flags, data=folder, model=model)

    def predict(self, folder, *flags, status=0, model="softmax", file="model"):
        """Returns the output, the rows and the figures."""
        out = self.path("out.csv")
        worker, figures = self.train_alone(
            "--intra_op_threads=1", "--predict=" + self.path(file), "--output=" + out, *flags,
            data=folder or False, model=model, status=status)
        if status:
            return worker.output(), None, None
        with open(out, encoding="ascii", newline="") as f:
            return worker.output(), list(csv.reader(f)), figures

    def check(self, want, folder, *flags, **kwargs):
        """Checks a prediction without labels: the same rows, and no figures."""
        said, rows, figures = self.predict(folder, *flags, **kwargs)
        self.assertEqual(rows, want)
        self.assertIn("has no labels: there is no accuracy and no loss", said)
        self.assertNotIn("loss: ", said)
        self.assertEqual([key for key in figures if "loss" in key or "accuracy" in key], [])
        self.assertEqual(figures["images"], len(rows) - 1)

    def labelled(self, folder, *flags, **kwargs):
        said, rows, figures = self.predict(folder, *flags, **kwargs)
        self.assertIn("test loss: ", said)
        self.assertIn("test_loss", figures)
        return rows


class Unlabelled(Base):
    """The tests remove the labels' file, member, tensor or folders."""

    def test_arrays_without_labels_predicted(self):
        for form in ("idx", "npy"):
            folder = self.make(form, "--made=1x8x9", "--classes=5")
            self.train(folder)
            want = self.labelled(folder)
            labels, = glob.glob(folder + "/t[!r]*-labels*")
            samples, = glob.glob(folder + "/t[!r]*-images*")
            os.unlink(labels)
            self.check(want, folder)
            self.check(want, None, "--test_data=" + samples)
            worker = self.run_worker("--evaluate=" + self.path("model"), data=folder, status=1)
            self.assertIn("put the labels beside the samples", worker.output())

    def test_npz_without_labels_predicted(self):
        folder = self.make("npz", "--made=1x8x9", "--classes=5")
        self.train(folder)
        want = self.labelled(folder)
        path, few = os.path.join(folder, "test.npz"), self.path("few.npz")
        with zipfile.ZipFile(path) as z, zipfile.ZipFile(few, "w") as to:
            to.writestr("images.npy", z.read("images.npy"))
        self.check(want, None, "--test_data=" + few)
        said, _, _ = self.predict(None, "--test_data=" + few, "--labels_name=labels", status=1)
        self.assertIn("few.npz: has no member 'labels.npy' (it has: images.npy )", said)
        with open(few, "r+b") as f:
            f.seek(-10, os.SEEK_END)
            f.write(b"\xff" * 8)
        self.predict(None, "--test_data=" + few, status=1)

    def test_safetensors_without_labels_predicted(self):
        folder = self.make("safetensors", "--made=1x8x9", "--classes=5")
        self.train(folder)
        want = self.labelled(folder)
        path = os.path.join(folder, "test.safetensors")
        with open(path, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            header = json.loads(f.read(size))
            data = f.read()
        header["others"] = header.pop("labels")
        text = json.dumps(header).encode()
        harness.write_file(path, len(text).to_bytes(8, "little") + text + data)
        self.check(want, folder)

    def test_pictures_without_class_folders_predicted(self):
        """The pictures lie in the folder itself; class folders still lead to figures."""
        folder = self.make("png", "--made=3x8x9", "--classes=5", "--by_class")
        self.train(folder)
        want = self.labelled(folder)
        self.assertEqual(want[0][:4], ["index", "file", "class", "class_name"])
        self.assertEqual([row[3] for row in want[1:]], ["0000" + row[2] for row in want[1:]])
        test, flat = os.path.join(folder, "test"), self.path("flat")
        os.mkdir(flat)
        for label in sorted(os.listdir(test)):
            for name in sorted(os.listdir(os.path.join(test, label))):
                shutil.copy(os.path.join(test, label, name), os.path.join(flat, label + name))
        places = sorted(os.path.join(a, b) for a in os.listdir(test)
                        for b in os.listdir(os.path.join(test, a)))
        self.assertEqual([row[1] for row in want[1:]], places)
        for row in want[1:]:
            row[1] = row[1].replace("/", "")
        self.check(want, None, "--test_data=" + flat)
        self.run_worker("--evaluate=" + self.path("model"), "--intra_op_threads=1", data=folder)
        worker = self.run_worker("--evaluate=" + self.path("model"), status=1,
                                 data=self.path("none"))
        self.assertIn("--data_dir=%s/none: there is no such folder" % self.dir(), worker.output())
        shutil.rmtree(test)
        os.rename(flat, test)
        self.check(want, folder)
        worker = self.run_worker("--evaluate=" + self.path("model"), data=folder, status=1)
        self.assertIn("not a folder; %s must hold a folder of pictures for each class" % test,
                      worker.output())
        self.check_names(test)
        os.mkdir(os.path.join(test, "zzz"))
        said, _, _ = self.predict(folder, status=1)
        self.assertIn("test/zzz: not a regular file", said)

    def check_names(self, folder):
        """Checks that any name is kept: as a field of CSV, and as a text of JSON."""
        names = [b'a,"b".png', b"back\\slash\t.png", "s\u00e4\u4e16\U0001f408.png".encode(),
                 b"latin\xe4.png", b"line\nbreak.png"]
        some = os.path.join(folder, sorted(os.listdir(folder))[0])
        place = os.fsencode(self.path("odd"))
        os.mkdir(place)
        for name in names:
            shutil.copy(os.fsencode(some), os.path.join(place, name))
        for end in (".csv", ".jsonl", ".npy"):
            out = self.path("odd" + end)
            self.start_program("worker", "--models_dir=" + harness.MODELS, "--model=softmax",
                               "--predict=" + self.path("model"), "--output=" + out,
                               b"--test_data=" + place).wait()
            text = harness.read_bytes(out)
            if end == ".csv":
                rows = list(csv.DictReader(io.StringIO(text.decode("latin-1"), newline="")))
                self.assertEqual([row["file"].encode("latin-1") for row in rows], sorted(names))
                self.assertEqual({row["class_name"] for row in rows},
                                 {"0000" + rows[0]["class"]})
            elif end == ".jsonl":
                rows = [json.loads(line) for line in text.decode().splitlines()]
                self.assertEqual([row["file"] for row in rows],
                                 [n.decode("latin-1" if b"latin" in n else "utf-8")
                                  for n in sorted(names)])
                self.assertEqual(rows[0]["class_name"], "0000%d" % rows[0]["class"])
            else:
                self.assertNotIn(b"file", text)

    def test_pictures_of_other_classes_refused(self):
        """The worker refuses class folders that differ from those of training, also if only one is
        missing."""
        folder = self.make("png", "--made=1x8x9", "--classes=3", "--by_class")
        self.train(folder)
        shutil.rmtree(os.path.join(folder, "test/00001"))
        for flags, more in ((["--evaluate=" + self.path("model")], ""),
                            (["--predict=" + self.path("model"), "--output=" + self.path("o.csv")],
                             ", or put pictures without labels into one folder")):
            worker = self.run_worker(*flags, data=folder, status=1)
            self.assertIn("%s has the classes 00000/00001/00002, but %s/test has 00000/00002; "
                          "both need the same classes (a class's folder of pictures may be "
                          "empty)%s" % (self.path("model"), folder, more), worker.output())

    def test_pictures_of_other_classes_than_checkpoint_refused(self):
        """A checkpoint has the names of the class folders. The same numbers would mean other
        classes if the folders had other names."""
        folder = self.make("png", "--made=1x8x9", "--classes=3", "--by_class")
        ckpt = self.path("ckpt")
        test = os.path.join(folder, "test")
        self.train(folder, "--checkpoint_dir=" + ckpt)
        want = self.labelled(folder, file="ckpt")
        self.assertEqual({row[3] for row in want[1:]} - {"00000", "00001", "00002"}, set())
        os.rename(os.path.join(test, "00000"), os.path.join(test, "00009"))
        for flags, more in ((["--evaluate=" + ckpt], ""),
                            (["--predict=" + ckpt, "--output=" + self.path("o.csv")],
                             ", or put pictures without labels into one folder")):
            worker = self.run_worker(*flags, data=folder, status=1)
            self.assertIn("%s has the classes 00000/00001/00002, but %s has 00001/00002/00009; "
                          "both need the same classes (a class's folder of pictures may be "
                          "empty)%s" % (ckpt, test, more), worker.output())
        shutil.rmtree(os.path.join(test, "00009"))
        self.predict(folder, status=1, file="ckpt")


class Tables(Base):
    """CSV: the last feature is never silently read as a label."""

    def setUp(self):
        super().setUp()
        folder = self.make("csv", "--made=1x2x2", "--classes=3")
        self.lines = {}
        for part in ("train", "test"):
            with open(os.path.join(folder, part + ".csv"), encoding="ascii") as f:
                head, *lines = [line.strip().split(",") for line in f]
            self.assertEqual(head[0], "label")
            self.lines[part] = [line[1:] + line[:1] for line in lines]
        for part, lines in self.lines.items():
            self.write("data/%s.csv" % part, lines)
        self.train(self.path("data"), "--checkpoint_dir=" + self.path("ckpt"))
        self.features = [line[:-1] for line in self.lines["test"]]

    def write(self, name, lines):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        harness.write_file(path, "".join(",".join(line) + "\n" for line in lines))
        return path

    def test_tables_without_label_predicted_by_number_of_columns(self):
        names, ids = [["a", "b", "c", "d"]], [["n%d" % i] for i in range(N)]
        bare = self.write("bare/test.csv", self.features)
        named = self.write("named/test.csv", names + self.features)
        more = self.write("more/test.csv", [i + f for i, f in zip(ids, self.features)])
        with_ids = self.write("ids/test.csv", [i + x for i, x in zip(ids, self.lines["test"])])
        for file in ("model", "ckpt"):
            want = self.labelled(self.path("data"), file=file)
            self.assertEqual(self.labelled(None, "--test_data=" + with_ids, "--ignore_columns=1",
                                           file=file), want)
            for flags in ([], ["--label_column=none"], ["--label_column=5"],
                          ["--label_column=kind"]):
                self.check(want, None, "--test_data=" + bare, *flags, file=file)
            self.check(want, None, "--test_data=" + named, file=file)
            self.check(want, None, "--test_data=" + more, "--ignore_columns=1", file=file)

    def test_mismatched_table_refused(self):
        bare = self.write("bare/test.csv", self.features)
        six = self.write("six/test.csv", [["7"] + line for line in self.lines["test"]])
        fewer = self.write("fewer/test.csv", [["a", "b", "c", "label"]] + self.features)
        for path, flags, words in (
                (six, [], "has 6 columns, of which 5 would be features, but training was on "
                          "samples of 4 numbers; name the label's column with --label_column "
                          "(none: no label), and the unused columns with --ignore_columns"),
                (bare, ["--ignore_columns=1"],
                 "has 4 columns, of which 2 would be features, but training was on samples of 4 "
                 "numbers; name the label's column with --label_column (none: no label), and "
                 "exclude by --ignore_columns only the columns that training excluded"),
                (six, ["--label_column=none"], "has 6 columns, of which 6 would be features"),
                (fewer, [], "has 4 columns, of which 3 would be features, but training was on "
                            "samples of 4 numbers; name the label's column with --label_column "
                            "(none: no label), and add the missing columns")):
            said, _, _ = self.predict(None, "--test_data=" + path, *flags, status=1)
            self.assertIn("test.csv: line 1: " + words, said)
        worker = self.run_worker(*FLAGS, "--label_column=none", data=self.path("data"), status=2)
        self.assertIn("--label_column=none is for --predict", worker.output())

    def test_foreign_file_without_sample_names_refused(self):
        """The refusal of a foreign file names the label, or its absence."""
        params = harness.read_safetensors(self.path("model"))
        weights.write(self.path("other"), {n: ("F32", s, list(v)) for n, (s, v) in params.items()})
        bare = self.write("bare/test.csv", self.features)
        want = self.labelled(self.path("data"))
        said, _, _ = self.predict(None, "--test_data=" + bare, status=1, file="other")
        self.assertIn("line 1: no column is named label, and the file of the trained parameters "
                      "does not record",
                      said)
        self.check(want, None, "--test_data=" + bare, "--label_column=none", file="other")
        self.assertEqual(self.labelled(self.path("data"), "--label_column=5", file="other"), want)
        label = self.write("l/test.csv", [["a", "b", "c", "d", "label"]] + self.lines["test"])
        self.assertEqual(self.labelled(None, "--test_data=" + label, file="other"), want)

    def test_targets_predicted_without_figures(self):
        """A table without labels does not show whether its labels would be targets or classes. The
        flags of the training determine that."""
        model = self.path("linear.json")
        with open(model, "w", encoding="ascii") as f:
            json.dump({"name": "linear", "input": "auto", "classes": "auto", "layers": [
                {"type": "flatten"}, {"type": "dense", "name": "out", "units": "classes"},
                {"type": "mean_squared_error", "one_hot": True}]}, f)
        for columns, left in (("5", 4), ("5,1", 3)):
            target = ["--target_columns=" + columns]
            self.train(self.path("data"), *target, model=model)
            want = self.labelled(self.path("data"), *target, model=model)
            self.assertEqual(want[0], ["index", *("y%d" % k for k in range(5 - left))])
            bare = self.write("bare/test.csv", [f[4 - left:] for f in self.features])
            self.check(want, None, "--test_data=" + bare, model=model)
            self.check(want, None, "--test_data=" + bare, *target, model=model)
        self.train(self.path("data"), model=model)
        want = self.labelled(self.path("data"), model=model)
        self.assertEqual(want[0], ["index", "class", "s0", "s1", "s2"])
        bare = self.write("bare/test.csv", self.features)
        self.check(want, None, "--test_data=" + bare, model=model)


harness.main(__name__)
