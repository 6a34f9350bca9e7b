#!/usr/bin/python3
"""Columns of text in CSV files are keys of tables: which columns, in which files, and the flags
that a model refuses. Arrays of keys have the names of the model's inputs."""
# label: cluster
import json
import os
import random
import struct

import harness

LAYERS = [
    {"type": "embedding_bag", "name": "wide", "input": "fields", "units": 1, "max_rows": 1000,
     "settings": {"optimizer": "adagrad", "learning_rate": 0.5}},
    {"type": "sum", "name": "rows"},
    {"type": "flatten", "name": "numbers", "input": "dense"},
    {"type": "dense", "name": "line", "units": 1},
    {"type": "add", "inputs": ["rows", "line"]},
    {"type": "sigmoid_cross_entropy"}]
DENSE = {"type": "dense", "shape": "auto"}
TOWNS = ["Oslo", "Rom", "Bonn", "Lima", "Kiel", "Bern"]
FLAGS = ["--batch_size=20", "--intra_op_threads=1", "--label_column=liked"]


def table(rows, seed):
    """Returns rows of a town, a number, up to two kinds, and a label that follows from the
    town."""
    rng = random.Random(seed)
    return [[town, "%.3f" % rng.gauss(0, 1), "|".join(rng.sample("abc", rng.randint(0, 2))),
             int(town < "L")] for town in (rng.choice(TOWNS) for _ in range(rows))]


def text(rows, head="town,age,kinds,liked", order=(0, 1, 2, 3)):
    names = head.split(",")
    lines = [names] + rows
    return "\n".join(",".join(str(line[k]) for k in order) for line in lines) + "\n"


class KeyColumns(harness.Test):
    def model(self, columns="auto", dense=True, **keys):
        inputs = {"fields": {"type": "keys", "columns": columns, **keys}}
        layers = LAYERS
        if dense:
            inputs["dense"] = DENSE
        else:
            layers = [*LAYERS[:1], {"type": "flatten"}, {"type": "dense", "units": 1}, LAYERS[-1]]
        return self.write("m.json", json.dumps({"name": "m", "classes": 1, "inputs": inputs,
                                                "layers": layers}))

    def folder(self, train, test=None):
        os.makedirs(self.path("data"), exist_ok=True)
        self.write("data/train.csv", train)
        if test:
            self.write("data/test.csv", test)
        return self.path("data")

    def train(self, *flags, model, train, test=None):
        """Trains by two workers; returns the lines of worker 0 and its summary."""
        job = self.started_job(data=self.folder(train, test), model=model,
                               flags=[*FLAGS, "--train_steps=40", *flags],
                               ps_flags=["--checkpoint_dir=" + self.path("ck")])
        summary = job.finish_alike()[0]
        return job.workers[0].output(), summary

    def refuse(self, said, *flags, model, train=None, data=True, status=1):
        """Runs a worker that ends before it asks the server."""
        hosts = ["--ps_hosts=%s:9" % harness.LOOPBACK, "--worker_hosts=%s:10" % harness.LOOPBACK,
                 "--task_index=0"]
        folder = data and self.folder(train or text(table(60, 1)))
        self.assertIn(said, self.run_worker(*hosts, *FLAGS, *flags, model=model, data=folder,
                                            status=status).output())

    def evaluated(self, content, *flags):
        path = self.write("later.csv", content)
        out = self.run_worker("--evaluate=" + self.path("ck"), "--test_data=" + path,
                              "--intra_op_threads=1", *flags, data=False, model=None).output()
        return out[out.index("test accuracy"):].split("\n")[0], out

    def test_text_columns_train_and_evaluate(self):
        test = table(100, 2)
        out, summary = self.train("--key_separator=|", model=self.model(),
                                  train=text(table(400, 1)), test=text(test))
        self.assert_has(out, "column 1 'town' is keys of input 'fields': no cell is a number (line "
                        "2: '", "column 3 'kinds' is keys of input 'fields'",
                        "400 rows, 1 feature; label: column 4 'liked'")
        self.assertGreater(summary["test_auc"], 0.95)
        self.assertNotIn("ps:0 has no --checkpoint_dir", out)
        line, later = self.evaluated(text(test))
        self.assertIn("column 1 'town' is keys of input 'fields': the model lists it", later)
        self.assertEqual(line, self.evaluated(text(test, order=(3, 2, 0, 1)))[0])
        self.assertIn(line, out)
        other = self.write("later.csv", text(test, "place,age,kinds,liked"))
        self.assertIn("has no column 'town', which has keys of input 'fields' in the training file",
                      self.run_worker("--evaluate=" + self.path("ck"), "--test_data=" + other,
                                      data=False, model=None, status=1).output())
        self.assertIn("leaves its columns to the training data; remove --model",
                      self.run_worker("--evaluate=" + self.path("ck"), "--label_column=liked",
                                      "--test_data=" + self.write("later.csv", text(test)),
                                      data=False, model=self.model(), status=1).output())

    def test_listed_numbers_are_names_in_other_files(self):
        test = table(100, 2)
        out, _ = self.train("--key_columns=3,1", "--key_separator=|", model=self.model(),
                            train=text(table(400, 1)), test=text(test, order=(2, 0, 1, 3)))
        self.assertIn("column 1 'town' is keys of input 'fields': --key_columns lists it", out)
        line, _ = self.evaluated(text(test))
        self.assertIn(line, out)

    def test_joining_worker_has_the_columns_of_the_job(self):
        job = self.started_job(data=self.folder(text(table(400, 1))), model=self.model(),
                               n_workers=1, flags=[
            *FLAGS, "--train_steps=100000000", "--key_columns=1", "--ignore_columns=kinds",
            "--fault_push_delay_ms=2"])
        job.workers[0].wait_line("is keys of input 'fields': --key_columns lists it")
        job.workers[0].wait_line("^W .*ps:0 has no --checkpoint_dir: when the job ends, the rows")
        joined = job.join_worker("joined", "--data_dir=" + self.path("data"), *FLAGS[1:],
                                 "--ignore_columns=kinds", "--key_columns=2")
        joined.wait_line("--key_columns is not used, because the model of the job lists")
        joined.wait_line("column 1 'town' is keys of input 'fields': the model lists it")
        joined.wait_line("joined as worker 1 of 2")
        self.new_folder("numbers")
        self.write("numbers/train.csv", text([[*r[:2], 7, r[3]] for r in table(60, 1)]))
        for name, said in (("data", "column 3 'kinds'"), ("numbers", "needs samples of 1x1x1")):
            lacks = job.join_worker("lacks", "--data_dir=" + self.path(name), "--label_column=4")
            lacks.ends(1, said)
            self.assertIn("--join: the new worker needs the flags with which the job's workers "
                          "read their data, such as --label_column, --ignore_columns and "
                          "--key_separator; the first worker has read " + self.path("data"),
                          lacks.output())
        self.kill(joined, *job.workers, *job.ps)

    def test_only_keys(self):
        rows = table(400, 1)
        out, summary = self.train("--ignore_columns=age", "--key_separator=|",
                                  model=self.model(dense=False), train=text(rows),
                                  test=text(table(100, 2)))
        self.assertIn("400 rows, 0 features", out)
        self.assertGreater(summary["test_auc"], 0.95)
        line, _ = self.evaluated(text(table(100, 2), order=(3, 2, 1, 0)), "--ignore_columns=age")
        self.assertIn(line, out)
        self.refuse("no input of the model reads column 2 'age'", model=self.model(dense=False))
        for flag in ("--standardize", "--mean=1", "--std=2"):
            self.refuse("the model has no input of type dense; remove the flag", flag,
                        model=self.model(dense=False))

    def test_missing_values_warned_and_mixed_columns_refused(self):
        rows = [["NA" if i % 9 == 0 else r[0], *r[1:]] for i, r in enumerate(table(60, 1))]
        out, _ = self.train(model=self.model(), train=text(rows), test=text(rows))
        self.assertIn("column 1 'town': 'NA' (first in line 2) is a key of its own, but often "
                      "stands for a missing value, as do 7 keys of this column", out)
        rows[4][1] = "4x"
        self.refuse("column 2 'age' has numbers (first in line 2: '", model=self.model(),
                    train=text(rows))
        self.refuse("column 1 is named in --key_columns and in --label_column",
                    "--key_columns=1", "--label_column=town", model=self.model())
        self.refuse("no column has only text; name its columns with --key_columns",
                    "--ignore_columns=town,kinds", model=self.model())

    def test_columns_of_own_data_must_be_listed(self):
        """Each worker could find other columns in its part."""
        self.refuse("--data_shard=own: each worker would look for columns of keys in its own part",
                    "--data_shard=own", "--train_data=" + self.write("own.csv", text(table(60, 1))),
                    "--key_separator=|", model=self.model(), data=False)

    def own_job(self, *flags, shard="own"):
        """Starts a job's server and worker 0, which joins."""
        job = self.job(data=self.folder(text(table(60, 1))), model=self.model(), flags=[
            *FLAGS, "--train_steps=4", "--data_shard=" + shard, *flags])
        job.start_ps(0)
        job.start_worker(0)
        job.ps[0].wait_line("worker 0 joined")
        return job

    def test_own_data_need_the_same_columns_and_separator(self):
        """Servers cannot compare the samples of the parts, only how their workers read them."""
        job = self.own_job("--key_columns=town,kinds", "--key_separator=|")
        other = self.new_folder("other")
        self.write("other/train.csv", text(table(60, 2)))
        for flag, said in (
                ("--key_columns=kinds,town", "another data set: --key_columns: input 'fields': the "
                 "servers have town,kinds, the worker has kinds,town; list the same columns"),
                ("--key_separator=;", "another data set: --key_separator: the servers have '[|]', "
                 "the worker has ';'; set the same --key_separator at all workers")):
            job.start_worker(1, "--data_dir=" + other, flag).ends(1, said)
        self.write("other/train.csv", text(table(60, 2), "town,years,kinds,liked"))
        job.start_worker(1, "--data_dir=" + other).ends(
            1, "another data set: feature 1 is the column 'years', but on the servers it is 'age'")
        self.write("other/train.csv", text(table(60, 2), order=(2, 1, 0, 3)))
        job.start_worker(1, "--data_dir=" + other)
        job.finish()

    def test_other_model_with_the_same_parameters_is_refused(self):
        job = self.own_job("--key_separator=|", shard="same")
        with open(self.model(), encoding="ascii") as f:
            mean = json.load(f)
        mean["layers"][0] = {**mean["layers"][0], "mode": "mean"}
        job.start_worker(1, "--model=" + self.write("mean.json", json.dumps(mean))).ends(
            1, 'another model: --model: "mode" of layer 1: the servers have none, the worker has '
            '"mean"; start all workers with the same model file')
        self.kill(job.workers[0], *job.ps)

    def test_refusal_of_same_data_names_the_separator(self):
        job = self.own_job("--key_separator=|", shard="same")
        job.start_worker(1, "--key_separator=;").ends(
            1, "another data set: --key_separator: the servers have '[|]', the worker has ';'")
        self.kill(job.workers[0], *job.ps)

    def test_columns_and_arrays_are_not_mixed(self):
        """The texts of a training file and the numbers of an array are different keys."""
        tensors = {"fields": ("I64", [2], struct.pack("<2q", 1, 2)),
                   "dense": ("F32", [2, 1], struct.pack("<2f", 1, 2)),
                   "labels": ("U8", [2], bytes(2))}
        head, body = {}, b""
        for name, (dtype, shape, content) in tensors.items():
            head[name] = {"dtype": dtype, "shape": shape,
                          "data_offsets": [len(body), len(body) + len(content)]}
            body += content
        packed = json.dumps(head).encode()
        harness.write_file(self.path("t.safetensors"),
                           struct.pack("<Q", len(packed)) + packed + body)
        said = "t.safetensors has keys in arrays, but the training set"
        self.train("--key_columns=town", "--ignore_columns=kinds", model=self.model(),
                   train=text(table(400, 1)))
        self.assertIn(said, self.run_worker(
            "--evaluate=" + self.path("ck"), "--test_data=" + self.path("t.safetensors"),
            "--intra_op_threads=1", data=False, model=None, status=1).output())
        self.refuse(said, "--key_columns=town",
                    "--ignore_columns=kinds", "--test_data=" + self.path("t.safetensors"),
                    "--train_data=" + self.write("own.csv", text(table(60, 1))),
                    model=self.model(), data=False)

    def test_unused_flags_refused(self):
        rows = text([[1, *r[1:2], 2, r[3]] for r in table(60, 1)])
        for flag in ("--key_columns=town", "--key_separator=;"):
            out = self.run_worker(*FLAGS, flag, data=self.folder(rows), status=1).output()
            self.assertIn("the model has no input of keys; remove the flag", out)
        out = self.run_worker(*FLAGS, "--input_names=a=b", data=self.folder(rows), status=1)
        self.assertIn('the model has "input" instead of "inputs" with names', out.output())
        listed = self.model(columns=["town"])
        self.refuse("--key_columns: the model lists the columns of its keys", "--key_columns=kinds",
                    model=listed)
        self.refuse("--input_names is for npz and safetensors files", "--input_names=fields=x",
                    "--ignore_columns=kinds", model=listed)
        self.refuse("--input_names: the model has no input 'town'", "--input_names=town=x",
                    model=listed)
        self.refuse("'fields' is not INPUT=ARRAY", "--input_names=fields", model=listed)
        self.refuse("the array of input 'fields' is named twice", "--input_names=fields=a,fields=b",
                    model=listed)
        for names in ("fields=dense", "fields=x,dense=x"):
            self.refuse("inputs 'fields' and 'dense' would both read the array", model=listed,
                        *["--input_names=" + names])
        for separator in ("", "ab", '"', "1", "\N{MIDDLE DOT}"):
            self.refuse("--key_separator must be one ASCII character", model=listed,
                        *["--key_separator=" + separator], status=2)

    def test_arrays_have_names_of_inputs(self):
        def make(*flags):
            harness.check_output(["/usr/bin/python3", "-B", harness.source("scripts/make_data"),
                                  "--clicks", *flags])

        make("--train=400", "--test=100", "--out=" + self.path("c"))
        flags = ["--batch_size=20", "--train_steps=3", "--intra_op_threads=1"]
        job = self.started_job(data=self.path("c"), model=self.model(), flags=[
            *flags, "--input_names=fields=keys,dense=dense"], ps_flags=[
                "--checkpoint_dir=" + self.path("ck")])
        job.finish_alike()
        make("--format=csv", "--train=1", "--test=9", "--out=" + self.path("c"))
        self.assertIn("test.csv has keys in columns, but the training set, " + self.path("c"),
                      self.run_worker("--evaluate=" + self.path("ck"), "--intra_op_threads=1",
                                      "--test_data=" + self.path("c/test.csv"), data=False,
                                      model=None, status=1).output())
        hosts = ["--ps_hosts=%s:9" % harness.LOOPBACK, "--worker_hosts=%s:10" % harness.LOOPBACK,
                 "--task_index=0"]
        for flag, said in (("--intra_op_threads=1", "set --input_names=fields=ARRAY"),
                           ("--key_columns=a", "--key_columns is for CSV files")):
            out = self.run_worker(*hosts, *flags, flag, data=self.path("c"), model=self.model(),
                                  status=1).output()
            self.assertIn(said, out)
            flags.append("--input_names=fields=keys")


harness.main()
