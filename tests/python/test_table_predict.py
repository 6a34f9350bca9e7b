#!/usr/bin/python3
"""worker --evaluate and --predict of a model with tables: the rows are those of the servers'
checkpoint. Files without the rows are refused."""
# label: cluster
import array
import csv
import json
import math
import random

import harness

harness.use_package()
from weir import rows as weir_rows  # noqa: E402

MODEL = {
    "name": "liked", "classes": 1,
    "inputs": {"dense": {"type": "dense", "shape": "auto"},
               "fields": {"type": "keys", "columns": "auto"},
               "tags": {"type": "keys", "columns": ["tags"]}},
    "layers": [
        {"type": "embedding_bag", "name": "wide", "input": "fields", "units": 1, "max_rows": 1000},
        {"type": "sum", "name": "total"},
        {"type": "embedding_bag", "name": "words", "input": "tags", "units": 4, "max_rows": 1000,
         "mode": "mean", "settings": {"init": "uniform", "init_scale": 0.3, "buckets": 4}},
        {"type": "flatten", "name": "flat"}, {"type": "flatten", "name": "numbers",
                                              "input": "dense"},
        {"type": "concat", "inputs": ["flat", "numbers"]},
        {"type": "dense", "name": "deep", "units": 1},
        {"type": "add", "inputs": ["total", "deep"]}, {"type": "sigmoid_cross_entropy"}]}
CITIES, COLORS, TAGS = ["Oslo", "Rome", "Lima"], ["red", "blue"], ["old", "new", "big", "loud"]
COLUMNS = ["city", "age", "tags", "color", "price", "liked"]
FLAGS = ["--train_steps=60", "--batch_size=20", "--seed=3", "--intra_op_threads=1",
         "--optimizer=adagrad", "--learning_rate=0.2", "--key_separator=|", "--label_column=liked"]


def make_rows(seed, n):
    """Returns rows of a table, as dictionaries. A cell of tags has up to three keys."""
    rng = random.Random(seed)
    for _ in range(n):
        row = {"city": rng.choice(CITIES), "age": rng.random(), "color": rng.choice(COLORS),
               "tags": "|".join(rng.sample(TAGS, rng.randrange(4))), "price": rng.random()}
        score = 2 * (row["city"] == "Oslo") + ("new" in row["tags"]) - 1.5 * row["age"]
        yield {**row, "liked": int(score + rng.gauss(0, 0.5) > 0.5)}


def key_of(text):
    """weir.key() without libweir, which cannot be loaded under a sanitizer."""
    return weir_rows._number_of(text.encode())


class TablePredict(harness.Test):
    def setUp(self):
        super().setUp()
        self.folder, self.saved = self.new_folder("data"), self.new_folder("saved")
        self.samples = list(make_rows(2, 100))
        self.write_csv("data/train.csv", list(make_rows(1, 400)))
        self.write_csv("data/test.csv", self.samples)
        self.model = self.write_model("liked.json", MODEL)

    def write_csv(self, name, rows, columns=COLUMNS):
        with open(self.path(name), "w", encoding="utf-8", newline="") as f:
            writer = csv.DictWriter(f, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
        return self.path(name)

    def write_model(self, name, model):
        harness.write_file(self.path(name), json.dumps(model))
        return self.path(name)

    def new_job(self, *flags, **kwargs):
        return self.job(model=self.model, data=self.folder, flags=[*FLAGS, *flags], **kwargs)

    def train(self, n=1):
        """Trains with n servers and n workers, and saves a checkpoint of the last step. Returns the
        first worker's summary."""
        job = self.new_job(n_ps=n, n_workers=n)
        job.start(["--checkpoint_dir=" + self.saved, "--save_steps=60"])
        return job.finish()[0]

    def infer(self, *flags, status=0):
        return self.run_worker("--intra_op_threads=1", "--summary_json=" + self.path("got.json"),
                               *flags, model=None, data=False, status=status)

    def predict(self, file, *flags):
        out = self.path("out.csv")
        self.infer("--predict=" + self.saved, "--output=" + out, "--test_data=" + file, *flags)
        with open(out, encoding="utf-8", newline="") as f:
            return list(csv.DictReader(f))

    def export(self):
        """Returns the rows that a program reads with weir.rows, and the path of their file."""
        path = self.path("full.safetensors")
        harness.check_output([harness.program("weirctl"), "--checkpoint_dir=" + self.saved,
                              "--output=" + path, "export"], timeout=60 * harness.PATIENCE)
        return weir_rows.read(path), path

    @staticmethod
    def lookup(rows, table, texts):
        found, steps = rows.lookup(table, array.array("Q", map(key_of, texts)))
        return [[found[i, k] for k in range(found.shape[1])] for i in range(len(texts))], steps

    def probability(self, rows, sample):
        """Computes the model in plain Python."""
        wide, _ = self.lookup(rows, "wide", ["%s=%s" % (c, sample[c]) for c in ("city", "color")])
        tags = [t for t in sample["tags"].split("|") if t]
        words, _ = self.lookup(rows, "words", ["tags=" + t for t in tags])
        mean = [sum(w[k] for w in words) / max(len(words), 1) for k in range(4)]
        inputs = [*mean, sample["age"], sample["price"]]
        weights = rows.tensors["deep/weights"].cast("B").cast("f")
        score = sum(map(sum, wide)) + rows.tensors["deep/biases"].cast("B").cast("f")[0]
        score += sum(w * x for w, x in zip(weights, inputs))
        return 1 / (1 + math.exp(-score))

    def test_evaluate_matches_training(self):
        want = self.train(2)
        self.assertGreater(want["test_auc"], 0.8)
        worker = self.infer("--evaluate=" + self.saved, "--data_dir=" + self.folder)
        got = self.figures("got.json")
        self.assert_same(got, want, "test_accuracy", "test_loss", "test_auc", "parameters_sha256",
                         "global_step")
        self.assert_has(worker.output(),
                        "table 'wide': 5 of the 5 keys of the samples have rows in " + self.saved,
                        "table 'words': 4 of the 4 keys of the samples have rows in %s\n" %
                        self.saved)

    def test_settings_that_need_flags_of_training(self):
        """A table's momentum needs the job's optimizer, which an evaluation does not have."""
        model = json.loads(json.dumps(MODEL))
        model["layers"][0]["settings"] = {"momentum": 0.5}
        self.model = self.write_model("moving.json", model)
        job = self.new_job("--optimizer=momentum", n_workers=1)
        job.start(["--checkpoint_dir=" + self.saved, "--save_steps=60"])
        want = job.finish()[0]
        self.infer("--evaluate=" + self.saved, "--data_dir=" + self.folder)
        self.assert_same(self.figures("got.json"), want, "test_loss", "test_auc")

    def test_initial_values_in_bf16(self):
        """Keys without rows have the initial values of the servers, which round them to bf16."""
        model = json.loads(json.dumps(MODEL))
        model["layers"][2]["settings"]["row_dtype"] = "bf16"
        self.model = self.write_model("half.json", model)
        self.write_csv("data/test.csv", [{**s, "tags": "tag%d" % i}
                                         for i, s in enumerate(self.samples)])
        want = self.train()
        self.infer("--evaluate=" + self.saved, "--data_dir=" + self.folder)
        self.assert_same(self.figures("got.json"), want, "test_loss", "test_auc")

    def test_predict_computes_with_rows_of_checkpoint(self):
        """The columns of a later file have another order, and it has no labels. A text that is not
        in the training data has the initial values of its row."""
        self.train()
        samples = self.samples + [{**self.samples[0], "city": "Bern", "tags": "huge|new"}]
        file = self.write_csv("new.csv", samples, ["color", "price", "tags", "city", "age"])
        got = self.predict(file)
        rows, _ = self.export()
        _, steps = self.lookup(rows, "words", ["tags=huge", "tags=new"])
        self.assertEqual([step > 0 for step in steps], [False, True])
        self.assertEqual(len(got), len(samples))
        for line, sample in zip(got, samples):
            want = self.probability(rows, sample)
            self.assertEqual(list(line), ["index", "class", "p1"])
            self.assertAlmostEqual(float(line["p1"]), want, delta=1e-5, msg=sample)
            self.assertEqual(line["class"], "1" if float(line["p1"]) > 0.5 else "0")
        self.assertEqual({line["class"] for line in got}, {"0", "1"})

    def test_files_without_rows_refused(self):
        self.train()
        _, full = self.export()
        data = ["--data_dir=" + self.folder, "--key_separator=|", "--key_columns=city,color"]
        worker = self.infer("--evaluate=" + full, "--model=" + self.model, *data,
                            status=1)
        self.assertIn("--evaluate=%s: the rows of table 'wide' are read only from a checkpoint of "
                      "the servers" % full, worker.output())
        for change, says in (({"units": 5}, "a row of table 'words' has 4 numbers, but layer "
                                            "'words' of the model has 5 units"),
                             ({"name": "others"}, "it has 'wide', 'words', but no table 'others'")):
            other = json.loads(json.dumps(MODEL))
            other["layers"][2].update(change)
            file = self.write_model("other.json", other)
            worker = self.infer("--evaluate=" + self.saved, "--model=" + file, *data, status=1)
            self.assertIn(says, worker.output())

    def test_other_columns_than_in_training_refused(self):
        self.train()
        worker = self.infer("--evaluate=" + self.saved, "--model=" + self.model,
                            "--key_separator=|", "--data_dir=" + self.folder,
                            "--key_columns=color,city", status=1)
        self.assertIn("has keys of text in the columns color,city, but in the training of %s it "
                      "had text in city,color; remove --model" % self.saved, worker.output())

    def test_no_key_has_a_row(self):
        self.train()
        samples = [{**s, "tags": "tag%d" % i} for i, s in enumerate(self.samples)]
        file = self.write_csv("new.csv", samples)
        worker = self.infer("--evaluate=" + self.saved, "--test_data=" + file)
        self.assertIn("table 'words': none of the 100 keys of the samples has a row in",
                      worker.output())

    def test_few_keys_have_rows(self):
        """A warning names the probable causes if fewer than half of the keys have rows."""
        self.train()
        causes = "probably because of other columns, another --key_separator, or another spelling"
        for n_new, warns in ((5, True), (4, False)):
            samples = [{**s, "tags": (TAGS + ["tag%d" % k for k in range(n_new)])[i % (4 + n_new)]}
                       for i, s in enumerate(self.samples)]
            worker = self.infer("--evaluate=" + self.saved,
                                "--test_data=" + self.write_csv("new.csv", samples))
            line = next(s for s in worker.output().splitlines()
                        if "table 'words': 4 of the %d keys of the samples" % (4 + n_new) in s)
            self.assertEqual(causes in line, warns, line)

    def test_init_reads_no_rows(self):
        self.train()
        job = self.new_job("--init=" + self.saved, n_workers=1)
        job.start()
        job.finish()
        self.assert_has(job.workers[0].output(), "first values of 2 of 2 parameters from",
                        "--init=%s: reads no rows of tables, which begin with their initial values"
                        % self.saved)

    def test_export_refused(self):
        worker = self.start_alone(*FLAGS, "--export=" + self.path("m"), "--job_name=worker",
                                  "--ps_hosts=localhost:1", "--worker_hosts=localhost:2",
                                  data=self.folder, model=self.model)
        worker.wait(60, status=1)
        self.assertIn("--export=%s: the rows of the model's tables are on the servers and not in "
                      "an export; set --checkpoint_dir of the servers" % self.path("m"),
                      worker.output())


harness.main(__name__)
