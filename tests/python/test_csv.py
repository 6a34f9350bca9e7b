#!/usr/bin/python3
"""CSV files as users have them: some classes are words, and some columns are no features. The same
samples with numbered classes train to the same bits."""
# label: cluster
import json
import os
import random

import harness

FLAGS = ["--batch_size=20", "--train_steps=40", "--seed=3", "--intra_op_threads=1",
         "--learning_rate=0.05"]
SPECIES = ["Zebra", "ant", "bee/wasp"]  # sorted by bytes
WORDS = ["--label_column=species", "--ignore_columns=id,5"]
F = 3


def rows(n, seed, classes=(0, 1, 2)):
    """Returns [(features, class)] with classes that are easy to separate."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        label = classes[i % len(classes)]
        out.append(([rng.uniform(-0.3, 0.3) + (k == label) for k in range(F)], label))
    return out


def numbered(samples):
    return "".join("%s,%d\n" % (",".join("%.6g" % v for v in x), y) for x, y in samples)


def worded(samples, names=SPECIES):
    """Returns lines of id, two features, species, a note, the third feature."""
    lines = ["id,a,b,species,note,c"]
    for i, (x, y) in enumerate(samples):
        lines.append("no%d,%.6g,%.6g,%s,%s,%.6g" % (i, x[0], x[1], names[y], "" if i % 2 else "n/a",
                                                  x[2]))
    return "\n".join(lines) + "\n"


class Csv(harness.Test):
    def write(self, name, text):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        harness.write_file(path, text)
        return path

    def worker(self, *flags, data, status=0, model="softmax"):
        return self.train_alone(*FLAGS, *flags, data=self.path(data), status=status, model=model)

    def make(self):
        """Makes a folder of words and one of numbers; the test sets have no Zebra."""
        train, test = rows(120, 1), rows(30, 2, classes=(1, 2))
        for part, samples in (("train", train), ("test", test)):
            self.write("words/%s.csv" % part, worded(samples))
            self.write("numbers/%s.csv" % part, numbered(samples))
        return train, test

    def test_words_numbered_in_sorted_order(self):
        self.make()
        _, want = self.worker(data="numbers")
        worker, got = self.worker(*WORDS, data="words")
        self.assertIn("classes, from 0 on: Zebra/ant/bee/wasp", worker.output())
        self.assert_same(got, want, "parameters_sha256", "test_loss", "test_accuracy")
        self.assertGreater(got["test_accuracy"], 0.9)

    def test_words_of_validation_numbered_like_training(self):
        self.make()
        for form in ("words", "numbers"):
            self.write(form + "-val/test.csv", {"words": worded, "numbers": numbered}[form](
                rows(20, 5, classes=(2,))))
        _, want = self.worker("--validation_dir=" + self.path("numbers-val"), data="numbers")
        _, got = self.worker(*WORDS, "--validation_dir=" + self.path("words-val"), data="words")
        self.assertEqual(got["validation_loss"], want["validation_loss"])

    def test_words_of_export_number_test_set(self):
        """--evaluate numbers a test set as in training, although it lacks a class."""
        self.make()
        export = "--export=" + self.path("model.safetensors")
        _, want = self.worker(*WORDS, export, data="words")
        file = "--evaluate=" + self.path("model.safetensors")
        _, got = self.worker(file, *WORDS, data="words")
        self.assert_same(got, want, "test_loss", "test_accuracy")
        self.write("words/test.csv", worded([([0, 0, 0], 0)], ["Yak"]))
        worker, _ = self.worker(file, *WORDS, data="words", status=1)
        self.assertIn("test.csv: line 2, column 4 'species': the label 'Yak' is not among the "
                      "classes of the training set, Zebra/ant/bee/wasp", worker.output())
        self.make()
        self.worker(export, data="numbers")
        worker, _ = self.worker(file, *WORDS, data="words", status=1)
        self.assertIn("the label 'ant' is a word without a known number", worker.output())

    def test_metadata_of_other_programs_ignored(self):
        """Files of other programs may have that metadata for any purpose."""
        self.make()
        file = self.path("model.safetensors")
        _, want = self.worker("--export=" + file, data="numbers")
        harness.change_metadata(file, file, lambda _: {
            "format": "pt", "classes": "3", "sample": "1x1x9", "labels": "targets"})
        _, got = self.worker("--evaluate=" + file, data="numbers")
        self.assertEqual(got["test_loss"], want["test_loss"])

    def test_unknown_words_named(self):
        train, test = self.make()
        self.write("words/test.csv", worded(test, ["", "ant", "wasp"]))
        worker, _ = self.worker(*WORDS, data="words", status=1)
        self.assertIn("words/test.csv: line 3, column 4 'species': the label 'wasp' is not among "
                      "the classes",
                      worker.output())
        self.write("words/test.csv", worded(test, ["0", "1", "2"]))
        worker, _ = self.worker(*WORDS, data="words", status=1)
        self.assertIn("words/test.csv: line 2, column 4 'species': the label '1' is not among the "
                      "classes",
                      worker.output())
        self.write("words/train.csv", worded(train, ["0", "1", "2"]))
        self.write("words/test.csv", worded(test))
        worker, _ = self.worker(*WORDS, data="words", status=1)
        self.assertIn("the label 'ant' is a word without a known number: the training set's "
                      "labels are numbers", worker.output())

    def test_words_in_a_job_of_two_workers(self):
        self.make()
        job = self.started_job(data=self.path("words"), model="softmax", flags=[*FLAGS, *WORDS])
        job.finish_alike()

    def test_first_values_of_other_classes_need_skipped_layer(self):
        """The output layer of as many classes with other names is useless, unless the user leaves
        it out."""
        self.make()
        trained = self.path("model.safetensors")
        model = self.write("two.json", json.dumps({
            "name": "two", "input": "auto", "classes": "auto", "layers": [
                {"type": "flatten"}, {"type": "dense", "name": "hidden", "units": 4},
                {"type": "dense", "name": "output", "units": "classes"},
                {"type": "softmax_cross_entropy"}]}))
        self.worker(*WORDS, "--export=" + trained, "--checkpoint_dir=" + self.path("ckpt"),
                    data="words", model=model)
        for part, classes in (("train", (0, 1, 2)), ("test", (1, 2))):
            self.write("others/%s.csv" % part,
                       worded(rows(60, 1, classes), ["Zebra", "bee/wasp", "cow"]))
        map_file = self.write("map", "output = -\n")
        said = (" worker:0 --init=%s: its class 1 is 'ant', but that of %s is 'bee/wasp': the "
                "output layer has learnt other classes; exclude this layer by a line "
                "'output = -' in --init_map, or rename the classes" %
                (trained, self.path("others/train.csv")))
        for data, flags, there in (("others", [], True), ("words", [], False),
                                   ("others", ["--init_map=" + map_file], False)):
            worker, _ = self.worker(*WORDS, "--init=" + trained, *flags, data=data, model=model)
            self.assertEqual(said in worker.output(), there, worker.output())
            self.assertEqual("has learnt other classes" in worker.output(), there)
            worker, _ = self.worker(*WORDS, "--init=" + self.path("ckpt"), *flags, data=data,
                                    model=model)
            self.assertEqual(said.replace(trained, self.path("ckpt")) in worker.output(), there,
                             worker.output())
            self.assertEqual("has learnt other classes" in worker.output(), there)

    def test_reordered_columns_named(self):
        """If both files name their columns, the program names the first that differs, also in
        validation, evaluation and prediction, which use the export's metadata."""
        train = worded(rows(120, 1))
        head = "id,a,b,species,note,c\n"
        renamed = {"test/test.csv": "id,b,a,species,note,c\n", "same/test.csv": head,
                   "new/test.csv": "id,a,x,species,note,c\n"}
        for name, first in renamed.items():
            self.write(name, worded(rows(30, 2)).replace(head, first))
            self.write(os.path.dirname(name) + "/train.csv", train)
        self.write("bare/train.csv", train)
        self.write("bare/test.csv", worded(rows(30, 2)).split("\n", 1)[1])
        model = self.path("model.safetensors")
        self.worker(*WORDS, "--export=" + model, data="same")
        for data in ("same", "bare"):
            flags = WORDS if data == "same" else ["--label_column=4", "--ignore_columns=1,5"]
            for flag in ("--evaluate=" + model, "--predict=" + model):
                extra = ["--output=" + self.path("out.csv")] if "predict" in flag else []
                self.worker(flag, *extra, *flags, data=data)
        fix = ("; use the same column names in the same order, and exclude the columns "
               "of only one file by --ignore_columns")
        for folder, place, here, there in (("test", 1, "b", "a"), ("new", 2, "x", "b")):
            said = "test.csv: line 1: feature %d is the column '%s', but in %%s it is '%s'%s" % (
                place, here, there, fix)
            worker, _ = self.worker(*WORDS, data=folder, status=1)
            self.assertIn(said % self.path(folder + "/train.csv"), worker.output())
            worker, _ = self.worker(*WORDS, "--validation_dir=" + self.path(folder), data="same",
                                    status=1)
            self.assertIn(said % self.path("same/train.csv"), worker.output())
            for flag in ("--evaluate=" + model, "--predict=" + model):
                extra = ["--output=" + self.path("out.csv")] if "predict" in flag else []
                worker, _ = self.worker(flag, *extra, *WORDS, data=folder, status=1)
                self.assertIn(said % model, worker.output())

    def test_ignored_columns_refused_without_csv(self):
        worker = self.run_worker(*FLAGS, "--ignore_columns=1", status=1)
        self.assertIn("--ignore_columns is for CSV files", worker.output())


harness.main(__name__)
