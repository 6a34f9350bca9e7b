#!/usr/bin/python3
"""weir.checkpoint reads the rows of sparse tables, which checkpoint_tables_test has written with
two servers: each key has its numbers, and a checkpoint without a part of a table is refused."""
# label: cluster
import array
import json
import os
import subprocess
import tempfile
import unittest

import harness

harness.use_package()
import weir  # noqa: E402
from weir import checkpoint  # noqa: E402

BIN = os.environ.get("WEIR_BIN") or os.path.join(os.path.dirname(__file__), "../../build/bin")
WRITER = os.path.join(BIN, "../tests/checkpoint_tables_test")
STEP = 7


def mix(x):
    """Returns rng_mix of base/rng.h."""
    x = (x + 0x9e3779b97f4a7c15) % 2**64
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    x = (x ^ x >> 27) * 0x94d049bb133111eb % 2**64
    return x ^ x >> 31


def expected(n, n_buckets, dim, n_slots, is_half):
    """Returns a table as the writer makes it, with its first n keys: the keys, rows and slots.
    is_half: its rows are bf16, the upper halves of floats."""
    all_keys = [3 * i + (2**63 if i % 3 == 0 else 0) for i in range(n)]
    out = [], [], [[] for _ in range(n_slots)]
    for b in range(n_buckets):
        keys = sorted(key for key in all_keys if mix(key) % n_buckets == b)
        values = array.array("f", (float(keys[i // dim]) + i for i in range(len(keys) * dim)))
        if is_half:
            values = array.array("f", array.array("I", [
                x & 0xffff0000 for x in array.array("I", values.tobytes())]).tobytes())
        rows = [list(values[i:i + dim]) for i in range(0, len(values), dim)]
        out[0].extend(keys)
        out[1].extend(rows)
        for k in range(n_slots):
            first = -len(values) * k
            out[2][k] += [[first - dim * i - j for j in range(dim)] for i in range(len(keys))]
    return out


def expected_pending(n_buckets):
    """Returns the pending keys of a table as the writer makes them."""
    all_keys = [3 * i + 1 + (2**63 if i % 4 == 0 else 0) for i in range(80)]
    return [key for b in range(n_buckets)
            for key in sorted(key for key in all_keys if mix(key) % n_buckets == b)]


class CheckpointTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir_ct_")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        subprocess.run([WRITER, "--write", self.folder], check=True, timeout=60)

    def test_rows_are_read(self):
        found = checkpoint.read(self.folder)
        self.assertEqual(found.step, STEP)
        self.assertEqual(found.tensors["w"].tolist(), list(range(3000)))
        self.assertEqual(set(found.tables), {"ads", "w", "a/b[1/2]"})
        for name, n, n_buckets, dim, n_slots in (("ads", 150, 8, 3, 2), ("a/b[1/2]", 7, 1, 1, 0)):
            is_half = name == "ads"
            table = found.tables[name]
            keys, rows, slots = expected(n, n_buckets, dim, n_slots, is_half)
            self.assertEqual(table.keys.tolist(), keys)
            self.assertEqual(table.steps.tolist(), [key % STEP for key in keys])
            self.assertEqual(table.rows.tolist(), rows)
            self.assertEqual([slot.tolist() for slot in table.slots], slots)

    def test_pending_keys_are_read(self):
        found = checkpoint.read(self.folder)
        for name, n_buckets, admit_after in (("ads", 8, 3), ("w", 2, 2), ("a/b[1/2]", 1, 1)):
            table = found.tables[name]
            keys = expected_pending(n_buckets) if admit_after > 1 else []
            self.assertEqual(table.pending_keys.tolist(), keys)
            self.assertEqual(table.pending_steps.tolist(), [key % STEP for key in keys])
            self.assertEqual(table.pending_counts.tolist(),
                             [1 + key % (admit_after - 1) for key in keys])

    def test_missing_part_is_refused(self):
        manifest = checkpoint.newest(self.folder)
        with open(manifest, encoding="utf-8") as f:
            content = json.load(f)
        content["tables"][0]["buckets"] = 16
        with open(manifest, "w", encoding="utf-8") as f:
            json.dump(content, f)
        with self.assertRaisesRegex(weir.Error, "damaged.*ads"):
            checkpoint.read(self.folder)

    def test_wrong_kinds_of_values_are_refused(self):
        manifest = checkpoint.newest(self.folder)
        with open(manifest, encoding="utf-8") as f:
            good = f.read()
        for field, value, i in (("buckets", 0, 0), ("buckets", "8", 0), ("name", None, 0),
                                ("admit_after", None, 0), ("admit_after", 3, 2)):
            content = json.loads(good)
            content["tables"][i][field] = value
            with open(manifest, "w", encoding="utf-8") as f:
                json.dump(content, f)
            with self.subTest(field=field, value=value, table=i), \
                    self.assertRaisesRegex(weir.Error, "is damaged"):
                checkpoint.read(self.folder)


harness.main(__name__)
