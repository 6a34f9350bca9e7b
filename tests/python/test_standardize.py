#!/usr/bin/python3
"""--standardize: each column of a table is scaled to mean 0 and deviation 1, by numbers of the
training set that the export keeps."""
# label: cluster
import glob
import json
import os
import random
import struct

import harness

FLAGS = ["--models_dir=" + harness.MODELS, "--model=softmax", "--progress=lines",
         "--intra_op_threads=1"]
TRAIN = ["--train_steps=60", "--batch_size=20", "--seed=3"]
SCALES = (1000, 1, 0.01)


def table(rows, seed, scales=SCALES, constant=False):
    """Returns rows of three features of very different sizes, and a class. constant: a fourth
    feature is the same in all rows."""
    rng = random.Random(seed)
    return [[round(s * (7 + rng.gauss(2 * ((i + k) % 3), 1)), 6) for k, s in enumerate(scales)]
            + ([4.25] if constant else []) + [i % 3] for i in range(rows)]


def standardized(rows, by):
    """Returns the same rows, scaled by the mean and the deviation of each column in `by`."""
    out = [list(r) for r in rows]
    for k in range(len(rows[0]) - 1):
        column = [r[k] for r in by]
        mean = sum(column) / len(column)
        std = (sum((x - mean) ** 2 for x in column) / len(column)) ** 0.5
        for r in out:
            r[k] = (r[k] - mean) / std
    return out


class Standardize(harness.Test):
    def write(self, name, rows, head="a,b,c,label"):
        with open(self.path(name), "w", encoding="ascii") as f:
            f.write(head + "\n" + "".join(",".join(map(repr, r)) + "\n" for r in rows))
        return self.path(name)

    def worker(self, *flags, status=0):
        return self.start_program("worker", *FLAGS, *flags).wait_output(60, status)

    def train(self, *flags, status=0):
        """Returns the output of a worker that trains with --standardize, and exports to
        m.safetensors."""
        self.write("train.csv", table(120, 1))
        self.write("test.csv", table(60, 2))
        return self.worker(*TRAIN, "--train_data=" + self.path("train.csv"),
                           "--test_data=" + self.path("test.csv"), "--standardize",
                           "--export=" + self.path("m.safetensors"), *flags, status=status)

    def metadata(self):
        return harness.safetensors_metadata(self.path("m.safetensors"))

    def predict(self, data, *flags):
        self.worker("--predict=" + self.path("m.safetensors"), "--test_data=" + data,
                    "--output=" + self.path("p.csv"), *flags)
        with open(self.path("p.csv"), encoding="ascii") as f:
            return [[float(x) for x in line.split(",")] for line in f.readlines()[1:]]

    @staticmethod
    def figures(output):
        return [line.split("test accuracy: ")[1] for line in output.splitlines()
                if "test accuracy: " in line]

    def assert_close(self, got, want):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            for x, y in zip(a, b):
                self.assertAlmostEqual(x, y, delta=1e-4)

    def test_columns_equal_a_table_standardized_before(self):
        out = self.train()
        self.assertNotIn("outweighs", out)
        self.assertIn("--standardize scales 3 columns", out)
        told = self.metadata()
        column = [r[0] for r in table(120, 1)]
        mean = sum(column) / 120
        self.assertAlmostEqual(float(told["column_mean"].split(",")[0]), mean, delta=mean * 1e-6)
        got = self.predict(self.path("test.csv"))
        by = table(120, 1)
        self.write("train.csv", standardized(by, by))
        plain = self.write("plain.csv", standardized(table(60, 2), by))
        self.worker(*TRAIN, "--train_data=" + self.path("train.csv"),
                    "--export=" + self.path("m.safetensors"))
        self.assertNotIn("column_mean", self.metadata())
        self.assert_close(got, self.predict(plain))

    def test_export_evaluates_like_training(self):
        out = self.train("--eval_every=0")
        again = self.worker("--evaluate=" + self.path("m.safetensors"),
                            "--test_data=" + self.path("test.csv"))
        self.assertEqual(self.figures(out), self.figures(again))
        self.assertEqual(len(self.figures(out)), 1)
        self.write("new.csv", [[r[2], r[0], r[1]] for r in table(60, 2)], "c,a,b")
        self.assertEqual(self.predict(self.path("new.csv")), self.predict(self.path("test.csv")))

    def test_constant_column_has_deviation_1(self):
        self.write("train.csv", table(120, 1, constant=True), "a,b,c,same,label")
        out = self.worker(*TRAIN, "--train_data=" + self.path("train.csv"), "--standardize",
                          "--export=" + self.path("m.safetensors"))
        self.assertIn("feature 4 ('same') is the same number in all 120 samples", out)
        told = self.metadata()
        self.assertEqual(told["column_mean"].split(",")[3], "4.25")
        self.assertEqual(told["column_std"].split(",")[3], "1")

    def test_checkpoint_evaluates_like_training(self):
        """A checkpoint keeps the numbers like an export; a resumed job needs the flag."""
        folder = "--checkpoint_dir=" + self.path("ck")
        out = self.train(folder, "--eval_every=0")
        again = self.worker("--evaluate=" + self.path("ck"), "--test_data=" + self.path("test.csv"))
        self.assertEqual(self.figures(out), self.figures(again))
        said = self.worker(*TRAIN, "--train_data=" + self.path("train.csv"),
                           "--test_data=" + self.path("test.csv"), folder, status=1)
        self.assertIn("--standardize: ", said)

    def test_checkpoint_without_numbers_refused(self):
        """Checkpoints of earlier versions lack the numbers."""
        self.train("--checkpoint_dir=" + self.path("ck"))
        for manifest in glob.glob(self.path("ck/*.json")):
            of = harness.read_json(manifest)
            if "crc32c" not in of:
                continue
            del of["crc32c"], of["trained_on"]
            text = json.dumps(of, separators=(",", ":"))[:-1]
            harness.write_file(manifest, '%s,"crc32c":"%08x"}\n' %
                               (text, harness.crc32c(text.encode())))
        for flags in (["--evaluate=" + self.path("ck")],
                      ["--predict=" + self.path("ck"), "--output=" + self.path("p.csv")]):
            said = self.worker(*flags, "--test_data=" + self.path("test.csv"), status=1)
            self.assertIn("evaluate the file of --export", said)

    def test_checkpoint_of_servers_evaluates_like_training(self):
        os.mkdir(self.path("set"))
        self.write("set/train.csv", table(120, 1))
        test = "--test_data=" + self.write("set/test.csv", table(60, 2))
        job = self.job(data=self.path("set"), n_workers=1, flags=[
            "--batch_size=20", "--train_steps=5"])
        job.start_ps(0, "--checkpoint_dir=" + self.path("ck"))
        worker = job.start_worker(0, "--standardize")
        job.finish()
        again = self.worker("--evaluate=" + self.path("ck"), test)
        self.assertEqual(self.figures(worker.output())[-1:], self.figures(again))

    def test_incompatible_flags_and_data_refused(self):
        train = "--train_data=" + self.write("train.csv", table(60, 1))
        export = "--evaluate=" + self.path("m.safetensors")
        for flags, status, text in (
                ([train, "--mean=measured"], 2, "--standardize excludes --mean"),
                ([train, "--std=0.5"], 2, "--standardize excludes --mean"),
                ([train, "--data_shard=own", "--ps_hosts=localhost:1"], 2,
                 "each worker would measure its own part"),
                ([export, "--test_data=" + self.path("train.csv")], 2,
                 "--standardize: --evaluate and --predict"),
                (["--data_dir=" + self.data()], 1, "--standardize is for tables")):
            self.assertIn(text, self.worker("--standardize", *flags, status=status))

    def test_rows_of_npy_files_standardized(self):
        """The worker reads rows of whole numbers from the file when a step needs them, and then
        standardizes them."""
        rows = [[int(x) for x in r[:3]] + [r[3]] for r in table(120, 1, (10, 1, 3))]
        numbers = [[min(max(x, 0), 255) for x in r[:3]] for r in rows]
        for name, kind, of in (("x", "|u1", bytes(x for r in numbers for x in r)),
                               ("y", "<i4", struct.pack("<120i", *(r[3] for r in rows)))):
            harness.write_file(self.path(name + ".npy"), harness.npy(
                kind, (120, 3) if name == "x" else (120,), of))
        both = [self.path("x.npy"), self.path("y.npy")]
        out = self.worker(*TRAIN, "--train_data=" + both[0], "--train_labels=" + both[1],
                          "--test_data=" + both[0], "--test_labels=" + both[1], "--standardize",
                          "--validation_split=0.2", "--export=" + self.path("m.safetensors"))
        mean = sum(r[0] for r in numbers) / 120 / 255
        self.assertAlmostEqual(float(self.metadata()["column_mean"].split(",")[0]), mean,
                               delta=1e-6)
        again = self.worker("--evaluate=" + self.path("m.safetensors"), "--test_data=" + both[0],
                            "--test_labels=" + both[1])
        self.assertEqual(self.figures(out)[-1], self.figures(again)[0])

    def test_damaged_numbers_of_export_refused(self):
        self.train()
        whole = harness.read_bytes(self.path("m.safetensors"))
        at = whole.index(b'"column_std":"') + len(b'"column_std":"')
        for damaged in (b"x", b"-"):
            harness.write_file(self.path("m.safetensors"), whole[:at] + damaged + whole[at + 1:])
            said = self.worker("--evaluate=" + self.path("m.safetensors"),
                               "--test_data=" + self.path("test.csv"), status=1)
            self.assertIn("column_mean and column_std", said)

    def test_first_values_of_standardized_export_warned(self):
        self.train()
        flags = [*TRAIN, "--train_data=" + self.path("train.csv"),
                 "--init=" + self.path("m.safetensors")]
        self.assertIn("with --standardize, but this job runs without it", self.worker(*flags))
        self.assertNotIn("was trained with", self.worker(*flags, "--standardize"))
        self.write("train.csv", table(120, 5))
        self.assertIn("whose columns have other means", self.worker(*flags, "--standardize"))

    def test_worker_without_flag_refused_and_joiner_adopts_it(self):
        os.mkdir(self.path("set"))
        self.write("set/train.csv", table(120, 1))
        job = self.job(data=self.path("set"), flags=[
            "--batch_size=20", "--train_steps=100000000", "--fault_push_delay_ms=2"])
        ps = job.start_ps(0)
        job.start_worker(0, "--standardize")
        ps.wait_line("worker 0 joined")
        job.start_worker(1).ends(1, "another data set: --standardize: the servers' job has it, ")
        job.start_worker(1, "--standardize")
        job.workers[0].wait_line("training step")
        joiner = job.join_worker("joiner", "--data_dir=" + self.path("set"))
        joiner.wait_line("joined as worker 2")
        self.assertIn("--standardize scales 3 columns", joiner.output())
        self.kill(joiner, *job.workers, ps)


harness.main(__name__)
