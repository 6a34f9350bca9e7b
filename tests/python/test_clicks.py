#!/usr/bin/python3
"""scripts/make_data --clicks: samples of the shape of Criteo's, whose labels follow from their keys
and dense features, and whose keys change with time."""
# label: unit
import array
import collections
import json
import math
import os
import struct

import harness

N_TRAIN, N_TEST, KEYS, DENSE = 30001, 6000, 26, 13


def auc(scores, labels):
    """Returns the share of pairs of a click and another sample in the right order."""
    order = sorted(range(len(scores)), key=scores.__getitem__)
    places = sum(place for place, i in enumerate(order) if labels[i])
    n = sum(labels)
    return (places - n * (n - 1) / 2) / (n * (len(labels) - n))


class Clicks(harness.Test):
    def make(self, name, *flags):
        folder = self.path(name)
        harness.check_output([harness.source("scripts/make_data"), "--clicks", "--out=" + folder,
                              *flags])
        return folder

    def read(self, folder, part):
        """Returns (keys [n][26], dense [n][13], labels [n]) of a file."""
        whole = harness.read_bytes(os.path.join(folder, part + ".safetensors"))
        (size,) = struct.unpack_from("<Q", whole)
        head, body = json.loads(whole[8:8 + size]), whole[8 + size:]
        found = {}
        for name, dtype, code, width in (("keys", "I64", "q", KEYS), ("dense", "F32", "f", DENSE),
                                         ("labels", "U8", "B", 1)):
            begin, end = head[name]["data_offsets"]
            values = array.array(code, body[begin:end])
            n = len(values) // width
            self.assertEqual((head[name]["dtype"], head[name]["shape"]),
                             (dtype, [n, width] if width > 1 else [n]))
            found[name] = [tuple(values[i * width:(i + 1) * width]) for i in range(n)]
        return found["keys"], found["dense"], [label for (label,) in found["labels"]]

    def test_labels_follow_from_the_keys(self):
        """The sum of each key's log odds in the training set predicts the labels of the test."""
        folder = self.make("clicks", "--train=%d" % N_TRAIN, "--test=%d" % N_TEST)
        keys, _, labels = self.read(folder, "train")
        tests, dense, wanted = self.read(folder, "test")
        self.assertEqual((len(keys), len(tests), len(dense)), (N_TRAIN, N_TEST, N_TEST))
        self.assertTrue(0.2 < sum(labels) / N_TRAIN < 0.35, sum(labels))
        counts = collections.defaultdict(lambda: [3.0, 1.0])
        for row, label in zip(keys, labels):
            for key in row:
                counts[key][label] += 1
        odds = {key: math.log(yes / no) for key, (no, yes) in counts.items()}
        unseen = math.log(1 / 3)
        got = auc([sum(odds.get(k, unseen) for k in row) for row in tests], wanted)
        self.assertTrue(0.65 < got < 0.88, got)
        self.assertLess(abs(auc([row[0] for row in tests], wanted) - 0.5), 0.05)  # hashed keys

    def test_keys_are_spread_and_change(self):
        """Some features have few keys, others a long tail. The popular ones have most samples, and
        a part of them is replaced."""
        folder = self.make("few", "--train=4000", "--test=1000")
        keys, _, _ = self.read(folder, "train")
        columns = [collections.Counter(column) for column in zip(*keys)]
        self.assertLessEqual(len(columns[8]), 4)  # 3 ranks, one of which may get another key
        self.assertGreater(len(columns[2]), 1500)
        self.assertGreater(columns[2].most_common(1)[0][1], 100)
        again = self.make("again", "--train=4000", "--test=1000")
        for part in ("train", "test"):
            self.assertEqual(*(harness.read_bytes(os.path.join(f, part + ".safetensors"))
                               for f in (folder, again)))
        later = self.make("later", "--train=1", "--test=1")
        self.assertEqual(self.read(later, "train")[0][0], keys[0])

    def test_csv_files_have_the_same_samples(self):
        """The texts of keys stand for the keys, one to one; a worker's guess finds them."""
        keys, dense, labels = self.read(self.make("arrays", "--train=300", "--test=7"), "test")
        with open(os.path.join(self.make("table", "--format=csv", "--train=300", "--test=7"),
                               "test.csv"), encoding="ascii") as f:
            head, *lines = [line.rstrip("\n").split(",") for line in f]
        self.assertEqual(head, ["label", *("d%d" % i for i in range(1, DENSE + 1)),
                                *("c%d" % i for i in range(1, KEYS + 1))])
        self.assertEqual([int(line[0]) for line in lines], labels)
        numbers = [tuple(array.array("f", map(float, line[1:DENSE + 1]))) for line in lines]
        self.assertEqual(numbers, dense)
        texts = [line[DENSE + 1:] for line in lines]
        self.assertEqual(texts, [["x%016x" % (k % 2**64) for k in row] for row in keys])

    def test_flags_that_do_not_fit_are_refused(self):
        for flags in (["--format=npz"], ["--made=3x4x4"], ["--by_class"]):
            done = harness.run([harness.source("scripts/make_data"), "--clicks", "--out=/nowhere",
                                *flags])
            self.assertIn("--clicks has the format safetensors or csv", done.stdout)
            self.assertEqual(done.returncode, 2)


harness.main(__name__)
