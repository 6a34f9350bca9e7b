"""Targets: float32 numbers instead of class labels, one or several for each sample. Losses and
steps are those of the definitions in plain double precision, whatever file format the numbers have.
No line has an accuracy. Mismatched data and flags are refused with a reason."""
# label: cluster
import ast
import csv
import json
import math
import os
import random
import re
import struct
import zipfile

import harness
import weights

N_TRAIN, N_TEST, F = 60, 20, 4
# Each step reads all samples, so their order does not matter.
WHOLE = ["--optimizer=sgd", "--learning_rate=0.5", "--batch_size=%d" % N_TRAIN, "--train_steps=5",
         "--log_every=1", "--intra_op_threads=1"]
TRAIN = ["--optimizer=adam", "--learning_rate=0.05", "--batch_size=20", "--train_steps=200",
         "--seed=3", "--intra_op_threads=1"]
DIFFERS = "CRC-32C of the training labels"


def made(n, seed, kind):
    """Returns rows of features, and two targets of each, which a dense layer can compute."""
    rng = random.Random(seed)
    xs = [weights.random_values(rng, F, -1, 1) for _ in range(n)]
    ys = [[x[0] - 2 * x[1] + 0.5, x[2] + 0.25 * x[3]] for x in xs]
    if kind == "sigmoid_cross_entropy":
        ys = [[1 / (1 + math.exp(-v)) for v in y] for y in ys]
    return xs, [weights.rounded(y) for y in ys]


def floats(rows):
    flat = [v for row in rows for v in row]
    return struct.pack("<%df" % len(flat), *flat)


def npy(rows, one=False):
    shape = (len(rows),) if one else (len(rows), len(rows[0]))
    return harness.npy("<f4", shape, floats(rows))


def save(folder, part, xs, ys, form="npy"):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, part)
    if form == "npy":
        for name, rows in (("images", xs), ("labels", ys)):
            harness.write_file("%s-%s.npy" % (path, name), npy(rows, one=len(rows[0]) == 1))
    elif form == "npz":
        with zipfile.ZipFile(path + ".npz", "w") as z:
            z.writestr("images.npy", npy(xs))
            z.writestr("labels.npy", npy(ys))
    elif form == "safetensors":
        weights.write(path + ".safetensors", {
            "images": ("F32", (len(xs), F), [v for x in xs for v in x]),
            "labels": ("F32", (len(ys), len(ys[0])), [v for y in ys for v in y])})
    else:
        with open(path + ".csv", "w", encoding="ascii") as f:
            f.write("y0,a,b,c,d,y1\n")
            for x, y in zip(xs, ys):
                f.write(",".join("%.9g" % v for v in (y[0], *x, y[1])) + "\n")


def model_text(loss):
    return {"name": "linear", "input": "auto", "classes": "auto", "layers": [
        {"type": "flatten"},
        {"type": "dense", "name": "out", "units": "classes", "init": "zeros"},
        {"type": loss}]}


def outputs(w, b, x):
    return [b[k] + sum(w[k * F + i] * x[i] for i in range(F)) for k in range(len(b))]


def sigmoid(v):
    return 1 / (1 + math.exp(-v))


def loss_of(kind, w, b, xs, ys):
    """Returns the mean over samples and outputs."""
    total = 0
    for x, y in zip(xs, ys):
        for v, t in zip(outputs(w, b, x), y):
            if kind == "mean_squared_error":
                total += (v - t) ** 2
            else:
                p = sigmoid(v)
                total -= t * math.log(p) + (1 - t) * math.log(1 - p)
    return total / (len(ys) * len(ys[0]))


def descend(kind, xs, ys, rate, steps):
    """Descends along the plain gradient over all samples; returns weights, biases, and the loss of
    each step."""
    n_out = len(ys[0])
    w, b, losses = [0.0] * (n_out * F), [0.0] * n_out, []
    for _ in range(steps):
        losses.append(loss_of(kind, w, b, xs, ys))
        dw, db = [0.0] * len(w), [0.0] * n_out
        for x, y in zip(xs, ys):
            for k, (v, t) in enumerate(zip(outputs(w, b, x), y)):
                off = 2 * (v - t) if kind == "mean_squared_error" else sigmoid(v) - t
                off /= len(xs) * n_out
                db[k] += off
                for i in range(F):
                    dw[k * F + i] += off * x[i]
        w = [v - rate * d for v, d in zip(w, dw)]
        b = [v - rate * d for v, d in zip(b, db)]
    return w, b, losses


class Targets(harness.Test):
    def model(self, loss="mean_squared_error", **keys):
        text = model_text(loss)
        text["layers"][-1].update(keys)
        return self.write(loss + ".json", json.dumps(text))

    def data_of(self, kind="mean_squared_error", form="npy", n_targets=2):
        """Makes a folder; returns it, its training and its test set."""
        sets = []
        for part, n, seed in (("train", N_TRAIN, 1), ("test", N_TEST, 2)):
            xs, ys = made(n, seed, kind)
            ys = [y[:n_targets] for y in ys]
            save(self.path(form), part, xs, ys, form)
            sets.append((xs, ys))
        return self.path(form), sets

    def train(self, folder, *flags, loss="mean_squared_error"):
        worker, figures = self.train_alone("--export=" + self.path("export"), *flags, data=folder,
                                           model=self.model(loss))
        return figures, worker.output()

    def check_steps(self, kind, n_targets):
        folder, ((xs, ys), test) = self.data_of(kind, n_targets=n_targets)
        w, b, losses = descend(kind, xs, ys, 0.5, 5)
        s, said = self.train(folder, *WHOLE, loss=kind)
        got = harness.read_safetensors(self.path("export"))
        for name, want in (("out/weights", w), ("out/biases", b)):
            for a, c in zip(got[name][1], want, strict=True):
                self.assertAlmostEqual(a, c, delta=1e-5, msg=(kind, name))
        self.assertAlmostEqual(s["test_loss"], loss_of(kind, w, b, *test), delta=1e-5)
        self.assertAlmostEqual(s["loss"], losses[-1], delta=1e-5)
        self.assertIsNone(s["test_accuracy"])
        self.assertIn("global step: 1), loss %.4f" % losses[0], said)
        self.assertIn("test loss: %.4f (20 samples)" % s["test_loss"], said)
        self.assertNotIn("accuracy", said)

    def test_steps_match_definitions(self):
        for kind in ("mean_squared_error", "sigmoid_cross_entropy"):
            for n_targets in (1, 2):
                self.check_steps(kind, n_targets)

    def test_targets_same_bits_in_all_formats(self):
        sums = {}
        for form in ("npy", "npz", "safetensors", "csv"):
            folder, _ = self.data_of(form=form)
            flags = ["--target_columns=y0,y1"] if form == "csv" else []
            s, _ = self.train(folder, *TRAIN, *flags)
            self.assertLess(s["test_loss"], 0.01, form)
            sums[form] = s["parameters_sha256"], s["test_loss"]
        self.assertEqual(len(set(sums.values())), 1, sums)

    def test_targets_validated_evaluated_and_predicted(self):
        """The test covers validation, the best checkpoint, --evaluate, and --predict in its three
        formats."""
        folder, (_, (xs, ys)) = self.data_of()
        s, said = self.train(folder, *TRAIN, "--validation_split=0.25", "--eval_every=50",
                             "--early_stopping=4", "--checkpoint_dir=" + self.path("ckpt"))
        self.assertIn("Worker 0: global step 50: validation loss: ", said)
        self.assertNotIn("accuracy", said)
        self.assertIsNone(s["validation_accuracy"])
        self.assertIsNone(s["best_validation_accuracy"])
        self.assertGreater(s["best_step"], 0)
        self.assertIsNone(harness.read_json(self.path("ckpt/best"))["validation_accuracy"])
        again = self.run_worker(*TRAIN, "--validation_split=0.25", "--eval_every=50",
                                "--early_stopping=4", "--checkpoint_dir=" + self.path("ckpt"),
                                data=folder, model=self.model())
        self.assertRegex(again.output(), r"best so far: step \d+, validation loss: ")
        _, figures = self.train_alone("--evaluate=" + self.path("export"), "--intra_op_threads=1",
                                      data=folder, model=self.model())
        self.assertEqual(figures["test_loss"], s["test_loss"])
        self.assertIsNone(figures["test_accuracy"])
        self.check_predictions(folder, xs, ys, s["test_loss"])

    def predict(self, folder, end):
        self.run_worker("--predict=" + self.path("export"), "--output=" + self.path("out" + end),
                        "--intra_op_threads=1", data=folder, model=self.model())
        return self.path("out" + end)

    def check_predictions(self, folder, xs, ys, loss):
        with open(self.predict(folder, ".csv"), encoding="ascii", newline="") as f:
            head, *rows = csv.reader(f)
        self.assertEqual(head, ["index", "y0", "y1"])
        got = [[float(v) for v in row[1:]] for row in rows]
        self.assertEqual([int(row[0]) for row in rows], list(range(N_TEST)))
        off = sum((v - t) ** 2 for row, y in zip(got, ys) for v, t in zip(row, y)) / (2 * N_TEST)
        self.assertAlmostEqual(off, loss, delta=1e-6)
        params = harness.read_safetensors(self.path("export"))
        for x, row in zip(xs, got):
            want = outputs(params["out/weights"][1], params["out/biases"][1], x)
            for v, t in zip(row, want):
                self.assertAlmostEqual(v, t, delta=1e-5)
        with open(self.predict(folder, ".jsonl"), encoding="ascii") as f:
            self.assertEqual([json.loads(line) for line in f],
                             [{"index": i, "outputs": row} for i, row in enumerate(got)])
        data = harness.read_bytes(self.predict(folder, ".npy"))
        begin = 10 + int.from_bytes(data[8:10], "little")
        self.assertEqual(ast.literal_eval(data[10:begin].decode("ascii"))["descr"],
                         [("index", "<i8"), ("outputs", "<f4", (2,))])
        self.assertEqual(list(struct.iter_unpack("<qff", data[begin:])),
                         [(i, *weights.rounded(row)) for i, row in enumerate(got)])

    def test_regression_model_of_docs_fits_columns_of_any_scale(self):
        """Runs the command of docs/guide/data.md, with a model of examples/."""
        with open(harness.source("docs/guide/data.md"), encoding="utf-8") as f:
            (flags,) = re.findall("worker --train_data=train.csv --test_data=test.csv "
                                  "(--target_columns=price.*)", f.read())
        for part, n, seed in (("train", N_TRAIN, 1), ("test", N_TEST, 2)):
            with open(self.path(part + ".csv"), "w", encoding="ascii") as f:
                f.write("a,b,c,d,price\n")
                for x, y in zip(*made(n, seed, "mean_squared_error")):
                    f.write("%.9g,%.9g,%.9g,%.9g,%.9g\n" % (1000 * x[0] + 5000, *x[1:], y[0]))
        self.start_program("worker", *TRAIN, "--test_data=" + self.path("test.csv"),
                           "--train_data=" + self.path("train.csv"), *flags.split(),
                           "--summary_json=" + self.path("summary.json")).wait(60)
        self.assertLess(self.figures()["test_loss"], 0.2)  # the variance of the targets is 1.7
        self.assertIsNone(self.figures()["test_accuracy"])

    def test_workers_with_other_targets_refused(self):
        """Two workers have the same targets; a third with other ones is refused."""
        folder, _ = self.data_of()
        other = self.path("other")
        for part, n, seed in (("train", N_TRAIN, 1), ("test", N_TEST, 2)):
            xs, ys = made(n, seed, "mean_squared_error")
            ys[3][1] = 7.0
            save(other, part, xs, ys)
        job = self.job(data=folder, model=self.model(), flags=TRAIN)
        job.start_ps()
        job.start_worker(0)
        job.ps[0].wait_line("orker 0")
        self.assertIn(DIFFERS, job.start_worker(1, "--data_dir=" + other).wait_output(30, 1))
        job.start_worker(1)
        summaries = job.finish_alike()
        self.assertLess(summaries[0]["test_loss"], 0.01)

    def test_own_shards_may_have_other_targets(self):
        """Each worker may have other numbers in its own part, but not class labels beside
        targets."""
        folder, _ = self.data_of()
        classes = self.path("classes")
        for part, n, seed in (("train", N_TRAIN, 1), ("test", N_TEST, 2)):
            save(classes, part, *made(n, seed, "mean_squared_error"))
            harness.write_file(os.path.join(classes, part + "-labels.npy"),
                               harness.npy("|u1", (n,), bytes(i % 2 for i in range(n))))
        job = self.job(data=folder, model=self.model(one_hot=True),
                       flags=[*TRAIN, "--data_shard=own"])
        job.start_ps()
        job.start_worker(0)
        job.ps[0].wait_line("orker 0")
        wrong = job.start_worker(1, "--data_dir=" + classes)
        wrong.ends(1, "refused this worker: another data set: labels: the servers have "
                   "targets in %s.*, the worker has class labels in %s " % (folder, classes), 30)
        job.start_worker(1)
        job.finish()

    def refused(self, folder, words, *flags, loss="mean_squared_error", status=1, model=None):
        self.assertIn(words, self.run_worker(*TRAIN, *flags, data=folder, model=model or
                                             self.model(loss), status=status).output())

    def test_mismatched_targets_refused(self):
        folder, _ = self.data_of()
        self.refused(folder, "labels are floats, which are targets, but layer",
                     loss="softmax_cross_entropy")
        self.refused(folder, "needs targets from 0 to 1", loss="sigmoid_cross_entropy")
        text = model_text("mean_squared_error")
        text["classes"] = 3
        harness.write_file(self.path("three.json"), json.dumps(text))
        self.refused(folder, "has 2 targets for each sample, but the model has 3 outputs",
                     model=self.path("three.json"))
        text["classes"] = 1
        harness.write_file(self.path("one.json"), json.dumps(text))
        self.refused(self.data(), "its labels are classes, but the model has 1 output, which "
                                  "distinguishes no classes; set \"classes\": 2 or more",
                                  model=self.path("one.json"))
        self.refused(folder, "--target_columns is for CSV files, but %s/test-images.npy is not" %
                     folder, "--target_columns=2")
        harness.write_file(os.path.join(folder, "test-labels.npy"),
                           harness.npy("|u1", (N_TEST,), bytes(N_TEST)))
        self.refused(folder, "test-labels.npy has class labels")
        self.refused(folder, "--target_columns is for CSV files; the labels of",
                     "--target_columns=2")
        self.refused(folder, "--label_column and --target_columns exclude each other",
                     "--label_column=1", "--target_columns=2", status=2)


harness.main(__name__)
