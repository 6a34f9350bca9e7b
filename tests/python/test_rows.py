#!/usr/bin/python3
"""weir.rows: a full export and patches lead to the rows of later full exports in every bit. Patches
in another order, of another job, twice, or damaged ones are refused. A key without a row has the
bits of the servers."""
# label: cluster
import array
import itertools
import json
import random
import struct
import unittest

import harness

harness.use_package()
import weir  # noqa: E402
import weir.checkpoint  # noqa: E402
from weir import rows as weir_rows  # noqa: E402

DIM, BUCKETS, SEED = 3, 4, 5
KEYS = [0, 2**64 - 1, 2**63] + [i * (2**64 // 97) for i in range(1, 40)]
TABLES = [{"name": "words", "dim": DIM, "buckets": BUCKETS, "init": "normal", "init_scale": 0.5}]


def bucket_of(key):
    return weir_rows._mix(key) % BUCKETS


def write(path, step, tables, since=None, about=(), removed=(), change=None):
    """Writes an export. tables: {key: (step, row)} of `words`; a patch has changed rows only.
    since: step of the patch's base. change: a function that damages the tensors, [name, dtype,
    shape, values] each, before they are written."""
    about = {"format": "weir tables", "step": str(step), "id": "1.1-%d" % step,
             "manifest_crc32c": "%08x" % step, "seed": str(SEED), "tables": json.dumps(TABLES),
             "count words": str(len(tables)), **dict(about)}
    if since is not None:
        about = {"since_id": "1.1-%d" % since, "since_manifest_crc32c": "%08x" % since, **about}
    parts = [["bias", "F32", [2], struct.pack("2f", step, 1)]]
    for i in range(BUCKETS):
        mine = sorted(key for key in tables if bucket_of(key) == i)
        gone = sorted(key for key in removed if bucket_of(key) == i)
        parts += [
            ["words keys [%d/%d]" % (i, BUCKETS), "I64", [len(mine)], array.array("Q", mine)],
            ["words steps [%d/%d]" % (i, BUCKETS), "I64", [len(mine)], array.array("Q", [
                tables[key][0] for key in mine])],
            ["words rows [%d/%d]" % (i, BUCKETS), "F32", [len(mine), DIM], array.array("f", [
                x for key in mine for x in tables[key][1]])]]
        if since is not None:
            parts.append(["words removed [%d/%d]" % (i, BUCKETS), "I64", [len(gone)],
                          array.array("Q", gone)])
    if change:
        change(parts)
    header, content = {"__metadata__": about}, b""
    for name, dtype, shape, values in parts:
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(content), len(content) + len(bytes(values))]}
        content += bytes(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    harness.write_file(path, struct.pack("<Q", len(text)) + text + content)
    return path


class Patches(harness.Test):
    def setUp(self):
        super().setUp()
        rng = random.Random(4)
        self.states, self.patches = [{}], []
        for step in range(1, 6):
            before, after = self.states[-1], dict(self.states[-1])
            for key in rng.sample(KEYS, 12):
                after[key] = (step, [rng.uniform(-1, 1) for _ in range(DIM)])
            for key in rng.sample(sorted(after), 5):
                del after[key]
            self.states.append(after)
            self.patches.append(self.patch(step, before))
        self.full = [write(self.path("full%d" % i), i, s) for i, s in enumerate(self.states)]

    def patch(self, step, before, name="patch", **about):
        after = self.states[step]
        changed = {k: v for k, v in after.items() if v[0] == step}
        return write(self.path("%s%d" % (name, step)), step, changed, step - 1, {
            "count words": str(len(after)), **about}, before.keys() - after.keys())

    def same(self, rows, step):
        """Compares rows with the full export of a step, and with the rows that it was made of."""
        want, state = weir.rows.read(self.full[step]), self.states[step]
        keys = array.array("Q", KEYS)
        for a, b in zip(rows.lookup("words", keys), want.lookup("words", keys)):
            self.assertEqual(a.tobytes(), b.tobytes())
        found, steps = rows.lookup("words", keys)
        for key, row, last in zip(KEYS, found.tolist(), steps):
            if key in state:
                self.assertEqual((last, array.array("f", row)),
                                 (state[key][0], array.array("f", state[key][1])))
            self.assertEqual(last > 0, key in state)
        self.assertEqual(sorted(rows.keys("words")), sorted(state))
        self.assertEqual((rows.count("words"), rows.step, rows.id),
                         (len(state), step, "1.1-%d" % step))
        self.assertEqual(rows.tensors["bias"].tolist(), [step, 1])

    def test_patches_lead_to_the_full_exports(self):
        for first in range(5):
            rows = weir.rows.read(self.full[first])
            self.same(rows, first)
            for step in range(first + 1, 6):
                before, rows = rows, rows.apply(self.patches[step - 1])
                self.same(rows, step)
                self.same(before, step - 1)  # apply() has not changed it

    def test_patches_that_do_not_continue_are_refused(self):
        rows = weir.rows.read(self.full[2])
        for at, path in enumerate(self.patches):
            if at != 2:
                with self.assertRaisesRegex(weir.rows.Rebase, "continues 1.1-%d .*these rows are "
                                            "of 1.1-2 .*begin again with a full export" % at):
                    rows.apply(path)
        after = rows.apply(self.patches[2])
        with self.assertRaisesRegex(weir.rows.Rebase, "was applied before: it continues 1.1-2 "):
            after.apply(self.patches[2])
        before = self.states[2]
        other = self.patch(3, before, "other", since_manifest_crc32c="0000beef")
        with self.assertRaisesRegex(weir.rows.Rebase, "0000beef"):
            rows.apply(other)
        with self.assertRaises(weir.rows.Rebase):
            rows.apply(self.patch(3, before, "seed", seed="6"))
        raised = dict(TABLES[0], max_rows=7)
        with self.assertRaisesRegex(weir.rows.Rebase, "another seed or other tables"):
            rows.apply(self.patch(3, before, "tables", tables=json.dumps([raised])))
        with self.assertRaisesRegex(weir.rows.Rebase, "full3 is a full export; read it with "
                                    "weir.rows.read$"):
            rows.apply(self.full[3])
        self.same(rows, 2)

    def test_damaged_files_are_refused(self):
        rows, before = weir.rows.read(self.full[2]), self.states[2]
        with self.assertRaisesRegex(weir.rows.Rebase, "'words' has %d rows instead of 7" % len(
                self.states[3])):
            rows.apply(self.patch(3, before, "count", **{"count words": "7"}))
        absent = next(key for key in KEYS if key not in before and key not in self.states[3])
        with self.assertRaisesRegex(weir.rows.Rebase, "key %d is removed, but has no row" % absent):
            rows.apply(self.patch(3, {**before, absent: None}, "removed"))
        whole = harness.read_bytes(self.patches[2])
        for size in 0, 5, 100, len(whole) - 1:
            harness.write_file(self.path("cut"), whole[:size])
            with self.assertRaisesRegex(weir.rows.Rebase, "cut is damaged: " if size > 8 else
                                        "cut is no file of weirctl export$"):
                rows.apply(self.path("cut"))
        for path, why in ((self.patches[2], "is a patch; read a full export, then apply the patch"),
                          (self.path("cut"), "is damaged"),
                          (self.path("none"), "No such file")):
            with self.assertRaisesRegex(weir.Error, why):
                weir.rows.read(path)
        with self.assertRaisesRegex(weir.Error, "No such file"):
            rows.apply(self.path("none"))
        with self.assertRaisesRegex(weir.Invalid, "int64 or uint64, row-major"):
            rows.lookup("words", array.array("i", [1]))
        self.assertEqual(rows.lookup("words", array.array("q"))[1].tolist(), [])
        self.same(rows, 2)

    def test_rows_in_bf16_are_read_as_float32(self):
        def half(parts):
            """Keeps the upper half of each number."""
            for part in parts:
                if part[0].startswith("words rows"):
                    bits = array.array("I", bytes(part[3]))
                    part[1], part[3] = "BF16", array.array("H", [x >> 16 for x in bits])

        def mixed(parts):
            half(parts)
            rows = [p for p in parts if p[0].startswith("words rows")][1]
            rows[1], rows[3] = "F32", array.array("f", [0] * len(rows[3]))

        def upper(row):
            bits = array.array("I", array.array("f", row).tobytes())
            return array.array("I", [x & 0xffff0000 for x in bits]).tobytes()
        before, after = self.states[2], self.states[3]
        changed = {k: v for k, v in after.items() if v[0] == 3}
        full = write(self.path("half2"), 2, before, change=half)
        patch = write(self.path("half3"), 3, changed, 2, {"count words": str(len(after))},
                      before.keys() - after.keys(), half)
        rows, keys = weir.rows.read(full), array.array("Q", KEYS)
        for found, state in (rows, before), (rows.apply(patch), after):
            got, steps = found.lookup("words", keys)
            self.assertEqual(got.format, "f")
            for i, key in enumerate(KEYS):
                if key in state:
                    self.assertEqual(got.tobytes()[4 * DIM * i:4 * DIM * (i + 1)],
                                     upper(state[key][1]))
        for wrong, of in (self.patches[2], rows), (patch, weir.rows.read(self.full[2])):
            with self.assertRaisesRegex(weir.rows.Rebase, "rows in another format than these"):
                of.apply(wrong)
        with self.assertRaisesRegex(weir.Error, "is damaged: the rows of 'words' are BF16 and F32"):
            weir.rows.read(write(self.path("mixed"), 2, before, change=mixed))

    def test_wrong_lengths_and_orders_are_refused(self):
        rows, before = weir.rows.read(self.full[2]), self.states[2]

        def longest(parts, kind):
            return max((p for p in parts if p[0].startswith("words " + kind)),
                       key=lambda p: len(p[3]))

        def resize(kind, by):
            def change(parts):
                part = longest(parts, kind)
                part[2][0] += by
                each = DIM if kind == "rows" else 1
                part[3] = part[3][:by * each] if by < 0 else part[3] + part[3][:by * each]
            return change

        def order(kind, move):
            def change(parts):
                keys = longest(parts, kind)[3]
                self.assertGreater(len(keys), 1)
                keys[0], keys[1] = move(keys[0], keys[1])
            return change

        def move(kind):
            def change(parts):
                part = longest(parts, kind)
                part[3][-1] = next(key for key in range(part[3][-2] + 1, 2**64)
                                   if bucket_of(key) != bucket_of(part[3][-1]))
            return change

        def turn(kind, shape):
            def change(parts):
                part = longest(parts, kind)
                part[2] = shape(part[2])
            return change

        def retype(parts):
            longest(parts, "keys")[1] = "F32"

        def reshape(parts):
            parts[0][2] = [3]

        def without(kind):
            return lambda parts: parts.remove(longest(parts, kind))

        def more(parts):
            parts.append(["words keys [4/8]", "I64", [0], b""])

        def both(parts):
            """Lists a key as changed and as removed."""
            gone = longest(parts, "removed")
            number = gone[0].split()[2]
            keys = next(p[3] for p in parts if p[0] == "words keys " + number)
            gone[2], gone[3] = [1], keys[:1]

        changes = [(resize(kind, by), "has [0-9]+ keys, [0-9]+ steps and rows of [0-9]+ numbers")
                   for kind in ("keys", "steps", "rows") for by in (-1, 1)]
        changes += [(order("keys", lambda a, b: (b, a)), "not in ascending order"),
                    (order("keys", lambda a, b: (a, a)), "not in ascending order"),
                    (retype, "bytes of F32 for the shape"),
                    (reshape, "bias has 8 bytes of F32 for the shape .3."),
                    (more, r"words keys \[4/8\] belongs to no table"),
                    (move("keys"), "bucket [0-3] of 'words' has a key of another bucket"),
                    (turn("rows", lambda s: s[::-1]), "words rows .* has the shape"),
                    (turn("keys", lambda s: [*s, 1]), "words keys .* has the shape"),
                    (turn("steps", lambda s: [1, *s]), "words steps .* has the shape"),
                    (lambda parts: parts[0].__setitem__(2, [-1, -2]), "bias has the shape"),
                    (lambda parts: parts[0].__setitem__(2, [2.0]), "bias has the shape")]
        changes += [(without(kind), "KeyError.*words " + kind)
                    for kind in ("keys", "steps", "rows")]
        patches = [(order("removed", lambda a, b: (b, a)), "not in ascending order"),
                   (move("removed"), "has a key of another bucket"),
                   (turn("removed", lambda s: [*s, 1]), "words removed .* has the shape"),
                   (both, "has a key that is also removed"),
                   (without("removed"), "KeyError.*words removed")]
        # In a bucket with many keys above 2**63, an order of signed numbers is another one.
        state, gone = {key: (3, [0.0] * DIM) for key in KEYS}, [key ^ 1 for key in KEYS]
        weir.rows.read(write(self.path("right"), 3, state))
        for i, (change, why) in enumerate(changes + patches):
            path = write(self.path("wrong"), 3, state, 2, removed=gone, change=change)
            with self.subTest(i), self.assertRaisesRegex(weir.rows.Rebase, "is damaged: .*" + why):
                rows.apply(path)
        for i, (change, why) in enumerate(changes):
            path = write(self.path("wrong"), 3, state, change=change)
            with self.subTest(i), self.assertRaisesRegex(weir.Error, "is damaged: .*" + why):
                weir.rows.read(path)
        path = write(self.path("wrong"), 3, state, change=lambda parts: parts.append(
            ["words removed [0/%d]" % BUCKETS, "I64", [0], b""]))
        with self.assertRaisesRegex(weir.Error, r"words removed \[0/4\] belongs to no table"):
            weir.rows.read(path)
        self.assertEqual(len(before), rows.count("words"))

    def test_one_foreign_key_is_found_among_many(self):
        """The keys of a bucket are mixed in several pieces."""
        n = 2 * weir_rows.PIECE + 7
        keys = array.array("Q", itertools.islice(
            (key for key in itertools.count(2**64 - 16 * n) if bucket_of(key) == 3), n))
        self.assertTrue(weir_rows._are_in_bucket(memoryview(keys), 3, BUCKETS))
        self.assertFalse(weir_rows._are_in_bucket(memoryview(keys), 2, BUCKETS))
        for at in 0, weir_rows.PIECE - 1, weir_rows.PIECE, n - 1:
            wrong = keys[:]
            wrong[at] = next(key for key in itertools.count() if bucket_of(key) != 3)
            self.assertFalse(weir_rows._are_in_bucket(memoryview(wrong), 3, BUCKETS))

    def test_misplaced_tensors_are_refused(self):
        """Tensors that overlap or leave a gap, and bytes after the last one."""
        whole = harness.read_bytes(self.full[2])
        n = 8 + int.from_bytes(whole[:8], "little")
        for at in 0, 1, 5:
            header = json.loads(whole[8:n])
            begin, end = list(header.values())[1 + at]["data_offsets"]
            list(header.values())[1 + at]["data_offsets"][:] = [begin + 8, end + 8]
            text = json.dumps(header).encode()
            harness.write_file(self.path("gap"),
                               struct.pack("<Q", len(text)) + text + whole[n:] + bytes(8))
            with self.assertRaisesRegex(weir.Error, "is damaged: .* does not follow the tensor "
                                        "before it"):
                weir.rows.read(self.path("gap"))
        harness.write_file(self.path("more"), whole + b"more")
        with self.assertRaisesRegex(weir.Error, "is damaged: 4 bytes follow its last tensor"):
            weir.rows.read(self.path("more"))

    def test_patch_with_other_parameters_is_refused(self):
        rows, before = weir.rows.read(self.full[2]), self.states[2]
        for change in (lambda parts: parts[0].__setitem__(2, [1, 2]),
                       lambda parts: parts[0].__setitem__(0, "bias2"),
                       lambda parts: parts.pop(0)):
            path = write(self.path("other"), 3, before, 2, change=change)
            with self.assertRaisesRegex(weir.rows.Rebase, "parameters of other names or shapes"):
                rows.apply(path)

    def test_other_files_and_tables_are_named(self):
        rows, other = weir.rows.read(self.full[2]), self.path("other")

        def safetensors(about):
            text = json.dumps({"__metadata__": about}).encode()
            return struct.pack("<Q", len(text)) + text
        for content, why in ((b"", "$"), (b"PK\3\4", "$"), (b'{"steps": 1, "more": {}}', "$"),
                             (safetensors({}), "$"), (safetensors({"format": "other"}), "$"),
                             (safetensors({"format": "weir checkpoint"}),
                              ", but of a checkpoint; run weirctl export$")):
            harness.write_file(other, content)
            for call, kind in (weir.rows.read, weir.Error), (rows.apply, weir.rows.Rebase):
                with self.assertRaisesRegex(kind, "other is no file of weirctl export" + why):
                    call(other)
        for wrong in None, b"bytes", 5:
            for call in weir.rows.read, rows.apply:
                with self.assertRaisesRegex(weir.Invalid, "^the path of a file is needed, not %s$" %
                                            type(wrong).__name__):
                    call(wrong)
        with self.assertRaisesRegex(weir.Error,
                                    "full2 is no manifest; weir.rows.read reads exports$"):
            weir.checkpoint.read(self.full[2])
        with self.assertRaisesRegex(weir.Error, "/dev/null is no file of weirctl export$"):
            weir.rows.read("/dev/null")
        keys = array.array("Q", [1])
        none = weir.rows.read(write(self.path("none"), 0, {}, about={"tables": "[]"},
                                    change=lambda parts: parts.__delitem__(slice(1, None))))
        for rows_of, has in (rows, ": words"), (none, " no tables"):
            for call in (rows_of.count, rows_of.keys, lambda t, r=rows_of: r.lookup(t, keys)):
                with self.assertRaisesRegex(weir.Error, "^no table 'x'; the export has%s$" % has):
                    call("x")


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Initial(harness.Test):
    def test_keys_without_a_row_have_the_bits_of_the_servers(self):
        kinds = list(itertools.product(("normal", "uniform", "zeros"), (0.05, 0.5, 1 / 3)))
        tables = [{"name": "t%d" % i, "dim": DIM, "buckets": BUCKETS, "init": kind,
                   "init_scale": scale, "row_dtype": dtype}
                  for i, ((kind, scale), dtype) in enumerate(itertools.product(
                      kinds, ("fp32", "bf16")))]
        keys = array.array("Q", KEYS)
        with weir.Cluster(command=None) as cluster:
            m = weir.Member(**cluster.settings(), train_steps=1, optimizer="sgd",
                            learning_rate=1, batch_size=1, seed=SEED)
            self.addCleanup(m.close)
            m.param("w", (1,))
            for t in tables:
                m.table(t["name"], DIM, 100, buckets=BUCKETS, init=t["init"],
                        row_dtype=t["row_dtype"],
                        init_scale=None if t["init"] == "zeros" else t["init_scale"])
            m.next()
            for i, t in enumerate(tables):
                made = weir_rows._Table(t, SEED, [])
                self.assertEqual(b"".join(bytes(made.first_row(key)) for key in keys),
                                 m.lookup(i, keys).tobytes(), t)
            m.stop_job()


harness.main(__name__)
