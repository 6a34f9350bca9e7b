#!/usr/bin/python3
"""A worker logs at start which purpose each column of a CSV file has, and warns of doubtful columns
or refuses them."""
# label: cluster
import random

import harness

FLAGS = ["--batch_size=20", "--train_steps=2", "--intra_op_threads=1"]


def table(rows=60, seed=1):
    """Returns rows of four features and a class from 0 to 2."""
    rng = random.Random(seed)
    return [[round(rng.gauss(3 * (i % 3), 1), 4) for _ in range(4)] + [i % 3] for i in range(rows)]


def text(rows, head=None):
    lines = ([head] if head is not None else []) + [",".join(map(str, r)) for r in rows]
    return "\n".join(lines) + "\n"


class CsvColumns(harness.Test):
    def train(self, content, *flags, status=0):
        """Returns the output of a worker that trains on a file of this content."""
        path = self.write("t.csv", content)
        return self.run_worker(*FLAGS, "--train_data=" + path, *flags, data=False,
                               status=status).output()

    def read(self, content, *flags, status=0):
        """Returns the output of a worker that reads a file of this content with an export."""
        path = self.write("new.csv", content)
        return self.run_worker("--intra_op_threads=1", "--test_data=" + path, *flags, data=False,
                               model=None, status=status).output()

    def warnings(self, output):
        return [line for line in output.splitlines() if line.startswith("W ")]

    def test_named_label_logged(self):
        out = self.train(text(table(), "a,b,c,d,label"))
        self.assertIn("60 rows, 4 features; label: column 5 'label'; line 1 names the columns", out)
        self.assertEqual(self.warnings(out), [])

    def test_last_column_as_label_logged(self):
        out = self.train(text([[r[4]] + r[:3] + [i % 2] for i, r in enumerate(table())],
                              "Class,acid,ash,mg,wine"))
        self.assertIn("label: column 5 'wine' (the last column; --label_column names another)", out)

    def test_targets_and_ignored_columns_logged(self):
        model = self.path("m.json")
        with open(model, "w", encoding="utf-8") as f:
            f.write('{"input": "auto", "classes": "auto", "layers": [{"type": "flatten"}, {"type": '
                    '"dense", "units": "classes"}, {"type": "mean_squared_error"}]}')
        out = self.train(text(table(), "a,b,c,d,e"), "--target_columns=d,a", "--ignore_columns=b",
                         "--model=" + model)
        self.assertIn("2 features; targets: column 1 'a', 4 'd'; line 1 names the columns; "
                      "ignored: column 2 'b'", out)

    def test_label_name_of_two_columns_refused(self):
        rows = [[r[4]] + r for r in table()]
        out = self.train(text(rows, "label,a,b,c,d,label"), status=1)
        self.assertIn("columns 1 and 6 have the same name, 'label'", out)
        out = self.train(text(rows, "x,a,b,a,d,y"), "--ignore_columns=a", status=1)
        self.assertIn("columns 2 and 4 have the same name, 'a'", out)
        self.train(text(rows, "label,a,b,c,d,label"), "--label_column=6")

    def test_names_that_count_up_need_a_flag(self):
        for first in (0, 1):
            head = ",".join(str(first + i) for i in range(5))
            out = self.train(text(table(), head), status=1)
            self.assertIn("line 1 contains only the numbers of its 5 columns", out)
            out = self.train(text(table(), head), "--csv_header=yes")
            self.assertIn("60 rows, 4 features; label: column 5 '%d'" % (first + 4), out)
            out = self.train(text(table(), head), "--csv_header=no")
            self.assertIn("61 rows, 4 features; label: column 5 (the last", out)

    def test_names_are_a_sample_with_csv_header_no(self):
        out = self.train(text(table(), "a,b,c,d,label"), "--csv_header=no", status=1)
        self.assertIn("line 1, column 1: 'a' is no finite number", out)

    def test_nameless_index_warned(self):
        out = self.train(text([[i] + r for i, r in enumerate(table())], ",a,b,c,d,label"))
        self.assertEqual(len(self.warnings(out)), 1, out)
        self.assertIn("column 1 has no name and counts up by one from row to row", out)
        self.assertIn("--ignore_columns=1", out)
        out = self.train(text([[i] + r for i, r in enumerate(table())], ",a,b,c,d,label"),
                         "--ignore_columns=1")
        self.assertEqual(self.warnings(out), [])
        self.assertIn("ignored: column 1", out)

    def test_index_by_name_warned_and_counter_not(self):
        rows = [[i] + r for i, r in enumerate(table())]
        self.assertIn("column 1 is called 'Index'", self.train(text(rows, "Index,a,b,c,d,label")))
        self.assertEqual(self.warnings(self.train(text(rows, "minutes,a,b,c,d,label"))), [])

    def test_shuffled_index_warned(self):
        rows = table()
        for first, step in ((0, 1), (1, 1), (3, 2)):
            numbers = [first + step * i for i in range(60)]
            numbers[7] += step - 1  # gaps differ in size
            random.Random(2).shuffle(numbers)
            out = self.train(text([[n] + r for n, r in zip(numbers, rows)], "seq,a,b,c,d,label"))
            self.assertEqual(len(self.warnings(out)), 1, out)
            self.assertIn("column 1 'seq' has a different whole number in each row, from %d to "
                          "%d, like an index" % (min(numbers), max(numbers)), out)
            self.assertIn("exclude it by --ignore_columns=1", out)
            numbers[4] = numbers[5]
            out = self.train(text([[n] + r for n, r in zip(numbers, rows)], "seq,a,b,c,d,label"))
            self.assertEqual(self.warnings(out), [])

    def test_index_with_gaps_warned_by_its_name(self):
        numbers = [i + i // 4 for i in range(60)]
        for head, warned in (("id", 1), ("", 1), ("minutes", 0)):
            rows = text([[n] + r for n, r in zip(numbers, table())], head + ",a,b,c,d,label")
            self.assertEqual(len(self.warnings(self.train(rows))), warned, head)

    def test_few_whole_numbers_not_warned(self):
        rows = [[n] + r for n, r in zip([3, 1, 2, 5, 4, 0, 8, 7, 6], table(9))]
        self.assertEqual(self.warnings(self.train(text(rows, "n,a,b,c,d,label"),
                                                  "--batch_size=4")), [])

    def test_index_not_warned_in_prediction(self):
        rows = [[i] + r for i, r in enumerate(table())]
        path = self.path("e.safetensors")
        out = self.train(text(rows, "id,a,b,c,d,label"), "--export=" + path)
        self.assertIn("--ignore_columns=1", out)
        for head in ("id,a,b,c,d,label", None):
            for flags in (["--evaluate=" + path],
                          ["--predict=" + path, "--output=" + path + ".csv"]):
                out = self.read(text(rows, head), *flags)
                self.assertIn("60 rows, 5 features; label: column 6", out)
                self.assertNotIn("ignore_columns", out)
        rows[3][2] = "much"
        out = self.read(text(rows, "id,a,b,c,d,label"), "--evaluate=" + path, status=1)
        self.assertIn("line 5, column 3 'b': 'much' is no finite number; fix it or remove the "
                      "line", out)

    def test_nameless_column_warned(self):
        out = self.train(text(table(), "a,,c,d,label"))
        self.assertIn("column 2 has no name in line 1 and is used as a feature", out)

    def test_far_larger_column_warned(self):
        rows = [[1000 * r[0]] + r[1:] for r in table()]
        out = self.train(text(rows, "area,b,c,d,label"))
        self.assert_has(out, "column 1, 'area', has numbers up to", "--standardize")
        batch_norm = self.path("m.json")
        with open(batch_norm, "w", encoding="utf-8") as f:
            f.write('{"input": "auto", "classes": "auto", "layers": [{"type": "flatten"}, {"type": '
                    '"batch_norm"}, {"type": "dense", "units": "classes"}, {"type": '
                    '"softmax_cross_entropy"}]}')
        for flag in ("--standardize", "--mean=measured", "--model=" + batch_norm):
            self.assertEqual(self.warnings(self.train(text(rows, "area,b,c,d,label"), flag)), [])

    def test_equal_names_of_used_columns_warned(self):
        out = self.train(text(table(), "len,b,len,d,label"))
        self.assertEqual(len(self.warnings(out)), 1, out)
        self.assertIn("columns 1 and 3 have the same name, 'len', so --evaluate and --predict "
                      "cannot distinguish them; rename them, or exclude one by "
                      "--ignore_columns=3", out)
        out = self.train(text(table(), "len,b,len,len,label"), "--ignore_columns=3")
        self.assertIn("columns 1 and 4 have the same name, 'len'", out)
        out = self.train(text([[r[4]] + r for r in table()], "label,a,b,c,d,label"),
                         "--label_column=6")
        self.assertIn("columns 1 and 6 have the same name, 'label'", out)
        self.assertIn("exclude one by --ignore_columns=1", out)
        for head, flag in (("len,b,len,d,label", "--ignore_columns=3"),
                           ("len,b,Len,d,label", "--ignore_columns=2")):
            self.assertEqual(self.warnings(self.train(text(table(), head), flag)), [])
        out = self.train(text([r[:2] + r[:2] + r[:2] + r for r in table()],
                              "a,b,a,b,c,c,a,d,e,f,label"))
        self.assertIn("columns 1, 3 and 1 more have the same name, 'a'", out)
        self.assertIn("2 more names belong to several columns", out)

    def labelled(self, words):
        """Returns the output for a table whose labels are these words in turn, 20 rows each."""
        n = len(words)
        rows = [r[:4] + [words[i % n]] for i, r in enumerate(table(20 * n))]
        return self.train(text(rows, "a,b,c,d,kind"), "--label_column=kind")

    def test_label_for_missing_values_warned(self):
        for word in ("NaN", "nan", "?", "NA", "null", "N/A", "None", "-", '" "'):
            out = self.labelled(["cat", "dog", word])
            self.assertEqual(len(self.warnings(out)), 1, out)
            self.assertIn("the label '%s' (first in line 4, 20 rows) is a class of its own, but "
                          "often stands for a missing label" % word.strip('"'), out)
        self.assertEqual(self.warnings(self.labelled(["Nancy", "nap", "none", "nada"])), [])

    def test_labels_that_differ_only_in_case_or_spaces_warned(self):
        for other in ("cat", '"Cat "', '" cat"'):
            out = self.labelled(["Cat", "dog", other])
            self.assertEqual(len(self.warnings(out)), 1, out)
            self.assertIn("'Cat' (first in line 2, 20 rows)", out)
            self.assertIn("'%s' (first in line 4, 20 rows)" % other.strip('"'), out)
            self.assertIn("are two classes, but differ only in case or in spaces around them", out)
        self.assertEqual(self.warnings(self.labelled(["cat", "cats", "c at"])), [])

    def test_empty_first_name_kept_in_export(self):
        rows = [[i] + r for i, r in enumerate(table())]
        path = self.path("e.safetensors")
        self.train(text(rows, ",a,b,c,d,label"), "--export=" + path)
        metadata = harness.safetensors_metadata(path)
        self.assertEqual(metadata["columns"].split("\n"), ["", "a", "b", "c", "d"])


harness.main(__name__)
