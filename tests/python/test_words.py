"""Embeddings with more than 256 entries. Words are whole numbers: any type and format of them
trains to the same bits, and numbers that fit a byte may also be bytes. A number beyond the
vocabulary, or a negative one, ends training with a line."""
# label: cluster
import json
import os
import random
import struct
import zipfile

import harness
import weights

VOCABULARY, LENGTH, N_TRAIN, N_TEST = 30000, 6, 300, 40
TRAIN = ["--optimizer=adam", "--learning_rate=0.05", "--batch_size=20", "--train_steps=150",
         "--seed=3", "--intra_op_threads=1"]
NPY = {"npy_i8": ("<i8", "<%dq"), "npy_i4": (">i4", ">%di"), "npy_u2": ("<u2", "<%dH")}
FORMS = [*NPY, "npz", "idx_int", "idx_short", "safetensors"]


def made(n, seed):
    """Returns sentences of few words from a large vocabulary; the first word determines the
    class."""
    words = random.Random(9).sample(range(256, VOCABULARY), 9) + [VOCABULARY - 1, 0, 255]
    rng = random.Random(seed)
    rows = [[rng.choice(words) for _ in range(LENGTH)] for _ in range(n)]
    rows[0][0] = VOCABULARY - 1
    return rows, [words.index(row[0]) % 3 for row in rows]


def npy(rows, descr, form):
    flat = [v for row in rows for v in row]
    return harness.npy(descr, (len(rows), len(rows[0])), struct.pack(form % len(flat), *flat))


def npy_labels(labels):
    return harness.npy("|u1", (len(labels),), bytes(labels))


def save(folder, part, rows, labels, form):
    path = os.path.join(folder, part)
    os.makedirs(folder, exist_ok=True)
    if form == "npz":
        with zipfile.ZipFile(path + ".npz", "w") as z:
            z.writestr("images.npy", npy(rows, "<i8", "<%dq"))
            z.writestr("labels.npy", npy_labels(labels))
    elif form.startswith("idx"):
        kind, code = (0x0c, ">%di") if form == "idx_int" else (0x0b, ">%dh")
        flat = [v for row in rows for v in row]
        harness.write_file(path + "-images.idx",
                           struct.pack(">HBBII", 0, kind, 2, len(rows), len(rows[0])) +
                           struct.pack(code % len(flat), *flat))
        harness.write_idx(path + "-labels.idx", (len(labels),), bytes(labels))
    elif form == "safetensors":
        weights.write(path + ".safetensors", {
            "images": ("I64", (len(rows), len(rows[0])), [v for row in rows for v in row]),
            "labels": ("I64", (len(labels),), labels)})
    else:
        descr, code = NPY.get(form, ("|u1", "%dB"))
        harness.write_file(path + "-images.npy", npy(rows, descr, code))
        harness.write_file(path + "-labels.npy", npy_labels(labels))


class Words(harness.Test):
    def model(self, vocabulary):
        with open(self.path("words.json"), "w", encoding="utf-8") as f:
            json.dump({"name": "words", "input": "auto", "classes": "auto", "layers": [
                {"type": "embedding", "name": "table", "vocabulary": vocabulary, "units": 4,
                 "init": {"type": "normal", "stddev": 0.5}},
                {"type": "flatten"},
                {"type": "dense", "units": "classes"},
                {"type": "softmax_cross_entropy"}]}, f)
        return self.path("words.json")

    def train(self, form, sets, vocabulary, status=0):
        for part, (rows, labels) in sets.items():
            save(self.path(form), part, rows, labels, form)
        worker = self.run_worker(*TRAIN, "--summary_json=" + self.path("summary.json"),
                                 data=self.path(form), model=self.model(vocabulary), status=status)
        if status:
            return worker.output()
        return self.figures()

    def test_words_same_bits_in_all_formats(self):
        sets = {"train": made(N_TRAIN, 1), "test": made(N_TEST, 2)}
        sums = {}
        for form in FORMS:
            s = self.train(form, sets, VOCABULARY)
            self.assertGreater(s["test_accuracy"], 0.6, form)
            self.assertEqual(s["parameters"], 4 * VOCABULARY + 4 * LENGTH * 3 + 3)
            sums[form] = s["parameters_sha256"], s["test_loss"]
        self.assertEqual(len(set(sums.values())), 1, sums)

    def test_small_numbers_same_bits_as_bytes(self):
        sets = {part: ([[v % 251 for v in row] for row in rows], labels)
                for part, (rows, labels) in (("train", made(N_TRAIN, 1)),
                                             ("test", made(N_TEST, 2)))}
        sums = {self.train(form, sets, 251)["parameters_sha256"]
                for form in ("npy_u1", "npy_i8", "safetensors")}
        self.assertEqual(len(sums), 1)

    def test_numbers_outside_vocabulary_named(self):
        train, test = made(N_TRAIN, 1), made(N_TEST, 2)
        said = self.train("npy_i8", {"train": train, "test": test}, VOCABULARY - 1, status=1)
        self.assertIn("layer 'table': the data contain the number %d, but the layer's "
                      "vocabulary has %d entries" % (VOCABULARY - 1, VOCABULARY - 1), said)
        for row in train[0]:
            row[2] = -5
        said = self.train("npy_i4", {"train": train, "test": test}, VOCABULARY, status=1)
        self.assertIn("not scaled, but one number is -5", said)


harness.main(__name__)
