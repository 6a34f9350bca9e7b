#!/usr/bin/python3
"""Tables: a worker with an export or a checkpoint finds the columns of new data by their names, and
refuses a table with other columns."""
# label: cluster
import csv
import os
import re
import random
import signal

import harness

TRAIN = ["--train_steps=20", "--batch_size=20", "--seed=3", "--intra_op_threads=1"]


class Columns(harness.Test):
    def write(self, name, head, columns):
        """columns: names of columns of numbers; the seed of a column depends on its name."""
        rows = zip(*([self.value(column, i) for i in range(60)] for column in columns))
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(head + "\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
        return "--test_data=" + self.path(name)

    @staticmethod
    def value(column, i):
        if column in ("kind", "id"):
            return i % 3 if column == "kind" else 1000 + i * i
        return round(random.Random(column + str(i)).gauss(0, 1) + 3 * (i % 3 == ord(column) % 3), 3)

    def worker(self, *flags, status=0):
        return self.run_worker("--intra_op_threads=1", *flags, data=False, status=status)

    def train(self, *flags):
        self.write("train.csv", "id,a,b,kind,c", ["id", "a", "b", "kind", "c"])
        self.worker(*TRAIN, "--train_data=" + self.path("train.csv"), "--ignore_columns=id",
                    "--export=" + self.path("m.safetensors"), *flags)

    def predict(self, data, *flags, status=0, by="m.safetensors"):
        process = self.worker("--predict=" + self.path(by), data, *flags,
                              "--output=" + self.path("o.csv"), status=status)
        if status:
            return process.output()
        with open(self.path("o.csv"), encoding="ascii", newline="") as f:
            return list(csv.reader(f))

    def test_columns_found_by_name(self):
        self.train("--label_column=kind")
        same = self.predict(self.write("same.csv", "id,a,b,kind,c", ["id", "a", "b", "kind", "c"]))
        self.assertEqual(len(same), 61)
        for name, head in (("other order", "c,kind,b,id,a"), ("no label", "b,a,c"),
                           ("no id", "kind,c,a,b")):
            got = self.predict(self.write("new.csv", head, head.split(",")))
            self.assertEqual(got, same, name)
        shuffled = self.write("new.csv", "c,kind,b,a", ["c", "kind", "b", "a"])
        worker = self.worker("--evaluate=" + self.path("m.safetensors"), shuffled)
        self.assertRegex(worker.output(), r"test accuracy: .* \(60 samples\)")

    def test_columns_of_checkpoint_found_by_name(self):
        """A checkpoint keeps the names like an export; so does one of servers, which receive them
        from a worker."""
        self.train("--label_column=kind", "--checkpoint_dir=" + self.path("ck"))
        os.mkdir(self.path("set"))
        self.write("set/train.csv", "id,a,b,kind,c", ["id", "a", "b", "kind", "c"])
        job = self.job(data=self.path("set"), n_workers=1, flags=[
            *TRAIN, "--label_column=kind", "--ignore_columns=id"])
        job.start(["--checkpoint_dir=" + self.path("ck2")])
        job.finish()
        new = self.write("new.csv", "c,kind,b,a", ["c", "kind", "b", "a"])
        want = self.predict(new)
        self.assertEqual(self.predict(new, by="ck"), want)
        self.assertEqual(self.predict(new, by="ck2"), want)
        lacks = self.predict(self.write("new.csv", "a,b,x,kind", ["a", "b", "c", "kind"]),
                             by="ck2", status=1)
        self.assertIn("'c'", lacks)

    def test_resumed_run_with_reordered_columns_refused(self):
        """Servers that keep the checkpoint compare no checksum of the data, and refuse the run
        too."""
        wrong = r"feature 1 is the column 'b', but in the checkpoint it is 'a'; write the " \
            "columns of all CSV files in the same order"
        self.train("--label_column=kind", "--checkpoint_dir=" + self.path("ck"))
        self.write("train2.csv", "id,b,a,kind,c", ["id", "b", "a", "kind", "c"])
        worker = self.worker(*TRAIN, "--train_steps=40", "--label_column=kind",
                             "--ignore_columns=id", "--train_data=" + self.path("train2.csv"),
                             "--checkpoint_dir=" + self.path("ck"), status=1)
        self.assertRegex(worker.output(), wrong)
        for name, status in (("train.csv", 0), ("train2.csv", 1)):
            job = self.job(n_workers=1, flags=[
                *TRAIN, "--train_steps=%d" % (20 + 20 * status), "--label_column=kind",
                "--ignore_columns=id", "--data_shard=own"])
            job.flags = [f for f in job.flags if not f.startswith("--data_dir")]
            job.start_ps(0, "--checkpoint_dir=" + self.path("ck2"))
            worker = job.start_worker(0, "--train_data=" + self.path(name))
            worker.wait(60, status)
            job.ps[0].stop(signal.SIGTERM, status=None)
        self.assertRegex(worker.output(), wrong)

    def places(self, name, order, head=None):
        """Writes a file of these columns, without a line of names unless `head` is set."""
        path = self.write(name, head or "", order)
        if head is None:
            with open(self.path(name), encoding="ascii") as f:
                rows = f.readlines()[1:]
            harness.write_file(self.path(name), "".join(rows))
        return path

    def figures(self, data, *flags):
        worker = self.worker("--evaluate=" + self.path("m.safetensors"), data, *flags)
        return worker.output().rsplit("test accuracy: ", 1)[1].splitlines()[0], worker.output()

    def test_columns_without_names_found_by_place(self):
        """The label stands before the features, and a counter is ignored. The flags of training for
        that are not needed again."""
        train = self.places("train.csv", ["id", "kind", "a", "b", "c"])
        self.worker(*TRAIN, train.replace("--test", "--train"), "--label_column=2",
                    "--ignore_columns=1", "--export=" + self.path("m.safetensors"))
        want = self.figures(train, "--label_column=2", "--ignore_columns=1")[0]
        got, said = self.figures(train)
        self.assertEqual(got, want)
        self.assertNotIn("by their positions", said)
        whole = self.predict(train)
        self.assertEqual(self.predict(self.places("new.csv", ["id", "a", "b", "c"])), whole)
        lacks = self.predict(self.places("new.csv", ["a", "b"]), status=1)
        self.assertIn("the label was column 2 of 5 in training, but this file has other columns",
                      lacks)
        other = self.places("new.csv", ["kind", "a", "b", "c"])
        process = self.worker("--evaluate=" + self.path("m.safetensors"), other, status=1)
        self.assertIn("the label was column 2 of 5 in training", process.output())
        self.assertEqual(self.figures(other, "--label_column=1")[0], want)
        self.assertEqual(self.figures(self.places("new.csv", ["id", "kind", "a", "b", "c"],
                                                  "n,class,x,y,z"))[0], want)
        self.assertRegex(self.figures("--test_data=" + self.path("new.csv"))[1],
                         r"W .*new\.csv: its columns are matched by their positions, because the "
                         r"training file has no line of names")

    def test_reordered_targets_found_by_place(self):
        """The first output is that of the last column."""
        train = self.places("train.csv", ["a", "b", "id", "c"])
        self.worker(*TRAIN, train.replace("--test", "--train"), "--model=regression",
                    "--target_columns=4,1", "--export=" + self.path("m.safetensors"))
        losses = [re.search(r"test loss: (\S+)", self.worker(
            "--evaluate=" + self.path("m.safetensors"), "--model=regression", train,
            *flags).output()).group(1) for flags in (["--target_columns=4,1"], [],
                                                     ["--target_columns=1,4"])]
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])
        whole = self.predict(train, "--model=regression")
        self.assertEqual(self.predict(self.places("new.csv", ["b", "id"]), "--model=regression"),
                         whole)

    def test_nameless_ignored_column_ignored_again(self):
        """pandas writes the index as a column without a name."""
        head, columns = ",a,kind,b,c", ["id", "a", "kind", "b", "c"]
        train = self.places("train.csv", columns, head)
        self.worker(*TRAIN, train.replace("--test", "--train"), "--label_column=kind",
                    "--ignore_columns=1", "--export=" + self.path("m.safetensors"))
        want = self.figures(train, "--label_column=kind", "--ignore_columns=1")[0]
        self.assertEqual(self.figures(train)[0], want)
        bare, said = self.figures(self.places("new.csv", columns))
        self.assertEqual(bare, want)
        self.assertIn("matched by their positions, because it has no line of names", said)

    def test_equal_names_matched_in_order_with_warning(self):
        """Columns with equal names may have been swapped after training, which the file does not
        show. So the worker matches them in their order, and warns."""
        train = self.write("train.csv", "len,len,kind,noise", ["a", "b", "kind", "c"])
        process = self.worker(*TRAIN, train.replace("--test", "--train"), "--label_column=kind",
                              "--export=" + self.path("m.safetensors"))
        self.assertIn("columns 1 and 2 have the same name, 'len'", process.output())
        want, said = self.figures(train)
        warning = "W .*columns %s have the same name, 'len', and are matched by their order, " \
            "which must be that of the training file"
        self.assertRegex(said, warning % "1 and 2")
        moved = self.write("new.csv", "noise,len,kind,len", ["c", "a", "kind", "b"])
        got, said = self.figures(moved)
        self.assertEqual(got, want)
        self.assertRegex(said, warning % "2 and 4")
        self.assertRegex(self.worker("--predict=" + self.path("m.safetensors"), moved, "--output=" +
                                     self.path("o.csv")).output(), warning % "2 and 4")
        for head in ("len,wid,kind,noise", "wid,kind,noise,len"):
            said = self.predict(self.write("new.csv", head, ["a", "b", "kind", "c"]), status=1)
            self.assertIn("has 1 column 'len', but the training file had 2 of this name", said)
            self.assertNotIn("has no column", said)
        said = self.predict(self.write("new.csv", "len,len,len,noise", ["a", "b", "d", "c"]),
                            status=1)
        self.assertIn("has 3 columns 'len', but the training file had 2 of this name", said)
        self.assertIn("--ignore_columns=3", said)
        said = self.predict(self.write("new.csv", "x,y,kind,noise", ["a", "b", "kind", "c"]),
                            status=1)
        self.assertIn("has no column 'len', which is feature 1 of the training file", said)

    def test_ignored_column_of_equal_name_ignored_again(self):
        """The ignored column stands before the used one."""
        train = self.write("train.csv", "len,len,kind,noise", ["a", "b", "kind", "c"])
        process = self.worker(*TRAIN, train.replace("--test", "--train"), "--label_column=kind",
                              "--ignore_columns=1", "--export=" + self.path("m.safetensors"))
        self.assertNotIn("same name", process.output())
        alone = self.predict(self.write("new.csv", "noise,len,kind", ["c", "b", "kind"]))
        for head, columns in (("len,len,kind,noise", ["a", "b", "kind", "c"]),
                              ("noise,len,len", ["c", "a", "b"])):
            self.assertEqual(self.predict(self.write("new.csv", head, columns)), alone, head)
        said = self.worker("--predict=" + self.path("m.safetensors"),
                           self.write("new.csv", "noise,len,len", ["c", "a", "b"]),
                           "--output=" + self.path("o.csv")).output()
        self.assertIn("columns 2 and 3 have the same name, 'len', and are matched by their order",
                      said)
        said = self.worker("--predict=" + self.path("m.safetensors"),
                           self.write("new.csv", "noise,len", ["c", "b"]),
                           "--output=" + self.path("o.csv")).output()
        self.assertIn("has 1 column 'len', but the training file had 2 of this name; it is used "
                      "as a feature", said)

    def test_moved_label_without_names_reported(self):
        """The file has as many columns as that of training, but in another order."""
        train = self.write("train.csv", "a,b,kind,c", ["a", "b", "kind", "c"])
        was = "whose label was column 3 of 4"
        for words in (False, True):
            if words:
                with open(self.path("train.csv"), encoding="ascii") as f:
                    lines = [re.sub(r",([012]),", r",k\1,", line) for line in f]
                harness.write_file(self.path("train.csv"), "".join(lines))
            self.worker(*TRAIN, train.replace("--test", "--train"), "--label_column=kind",
                        "--export=" + self.path("m.safetensors"))
            for order in (["a", "b", "c", "kind"], ["kind", "a", "b", "c"]):
                new = self.places("new.csv", order)
                if words:
                    with open(self.path("new.csv"), encoding="ascii") as f:
                        lines = [re.sub(r"(^|,)([012])(,|$)", r"\1k\2\3", line) for line in f]
                    harness.write_file(self.path("new.csv"), "".join(lines))
                process = self.worker("--evaluate=" + self.path("m.safetensors"), new, status=1)
                self.assertIn(was, process.output(), order)
                self.assertIn("--label_column=N", process.output())

    def test_other_columns_refused(self):
        self.train("--label_column=kind")
        said = self.predict(self.write("new.csv", "x,a,b,c", ["id", "a", "b", "c"]), status=1)
        self.assertIn("column 1, 'x', is not a column of the training file", said)
        self.assertIn("--ignore_columns=1", said)
        self.predict("--test_data=" + self.path("new.csv"), "--ignore_columns=1")
        said = self.predict(self.write("new.csv", "a,c", ["a", "c"]), status=1)
        self.assertIn("has no column 'b', which is feature 2 of the training file", said)
        self.write("new.csv", "a,b,c", ["a", "b", "c"])
        worker = self.worker("--evaluate=" + self.path("m.safetensors"),
                             "--test_data=" + self.path("new.csv"), status=1)
        self.assertIn("has no column 'kind', which is a label or target", worker.output())


harness.main(__name__)
