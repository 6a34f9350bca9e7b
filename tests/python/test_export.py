#!/usr/bin/python3
"""weirctl export: full exports and patches of the checkpoints of a job with a sparse table. A full
export and the patch to a later checkpoint equal the full export of that checkpoint in every bit.
After a restore of an older checkpoint, an abandoned one is no base."""
# label: cluster
import array
import json
import os
import shutil
import sys
import unittest

import harness

harness.use_package()
import ckpt_folder  # noqa: E402
import table_job  # noqa: E402

REBASE = 3
WITHOUT_TABLES = """
import array, weir
settings, _ = weir.flags()
with weir.Member(train_steps=3, batch_size=1, **settings) as m:
    w = m.param("w", (3,))
    for step in m:
        m.push(w, array.array("f", [1, 2, 3]), samples=1)
"""
WITH_A_LARGE_ROW = """
import array, weir
settings, _ = weir.flags()
with weir.Member(train_steps=1, batch_size=1, optimizer="sgd", learning_rate=1, **settings) as m:
    w, t = m.param("w", (1,)), m.table("words", 2, 100, init="zeros")
    for step in m:
        m.push(w, array.array("f", [0]), samples=1)
        m.push_rows(t, array.array("Q", [5, 7]), array.array("f", [0, 1, 2, -3.4e38]), samples=1)
"""


def apply(full, patch):
    """Returns the tensors and the metadata of a full export, to which a patch was applied."""
    tensors, metadata = full
    changes, after = patch
    if (after["since_id"], after["since_manifest_crc32c"]) != \
            (metadata["id"], metadata["manifest_crc32c"]):
        raise AssertionError("the patch does not begin at this export")
    out = {name: value for name, value in changes.items() if " [" not in name}
    for name in changes:
        if " removed [" not in name:
            continue
        at = {kind: name.replace(" removed [", " %s [" % kind)
              for kind in ("keys", "steps", "rows")}
        rows = {}
        for source in (tensors, changes):
            keys, steps, (shape, values) = source[at["keys"]][1], source[at["steps"]][1], \
                source[at["rows"]]
            for key in changes[name][1] if source is changes else ():
                rows.pop(key)
            for i, key in enumerate(keys):
                rows[key] = steps[i], values[i * shape[1]:(i + 1) * shape[1]].tobytes()
        out[at["keys"]] = list(sorted(rows))
        out[at["steps"]] = [rows[key][0] for key in sorted(rows)]
        out[at["rows"]] = b"".join(rows[key][1] for key in sorted(rows))
    return out


def plain(full):
    """Returns the tensors of a full export in the form of apply()."""
    out = {}
    for name, (shape, values) in full[0].items():
        rows = " rows [" in name
        out[name] = values.tobytes() if rows else list(values) if " [" in name else (shape, values)
    return out


def damage_keys(path):
    """Changes a byte of the first key in the file."""
    content = bytearray(harness.read_bytes(path))
    n = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + n])
    places = [e["data_offsets"][0] for name, e in header.items()
              if " keys [" in name and e["shape"][0]]
    content[8 + n + min(places)] ^= 1
    harness.write_file(path, bytes(content))


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Export(table_job.TableJob):
    def setUp(self):
        super().setUp()
        self.flags.append("--keep_checkpoint_max=0")
        self.n_exports = 0

    def weirctl(self, *words, folder=None, user=()):
        folder = ["--checkpoint_dir=" + (folder or self.folder)]
        return self.start("weirctl", [*user, harness.program("weirctl"), *folder, *words, "export"])

    def export(self, *words, folder=None, has_table=True):
        """Returns the tensors and the metadata of an export."""
        self.n_exports += 1
        path = self.path("export-%d" % self.n_exports)
        found = self.weirctl("--output=" + path, "--json", *words, folder=folder)
        found.wait(60, 0)
        report = json.loads(found.output()[found.output().index("{"):])
        metadata = harness.safetensors_metadata(path)
        self.assertEqual((report["id"], report["output"]), (metadata["id"], path))
        self.assertEqual(report["rows"], int(metadata["count words"]) if has_table else 0)
        self.assertEqual(report.get("since_id"), metadata.get("since_id"))
        self.assertEqual(report["passed_over"], None)
        return harness.read_safetensors(path), metadata

    def await_checkpoints(self, n):
        """Waits for n checkpoints. Members at a gate may not reach the step of the periodic one, so
        a missing checkpoint is requested."""
        if len(ckpt_folder.steps(self.folder)) < n:
            ask = [harness.program("weirctl"), "--ps_hosts=" + self.hosts[0], "checkpoint"]
            self.start("weirctl", ask).wait(60, 0)
        harness.until(lambda: len(ckpt_folder.steps(self.folder)) >= n, "a checkpoint", 60)

    def start_members_that_wait(self, *gates):
        """Starts the members, which wait at each gate for one more checkpoint."""
        self.start_members(2, *gates)
        for n, gate in enumerate(gates, 1):
            self.await_gate(gate)
            self.await_checkpoints(n)
            self.open_gate(gate)

    def until(self, step):
        """Returns a copy of the checkpoints up to this step."""
        folder = self.new_folder("until-%d" % step)
        for name in os.listdir(self.folder):
            if not name.startswith("weir-"):
                shutil.copy(os.path.join(self.folder, name), folder)
        for found, _, _, path in ckpt_folder.find(self.folder):
            if found <= step:
                os.link(path, os.path.join(folder, os.path.basename(path)))
        return folder

    def check_all_pairs(self):
        """Compares, for each two checkpoints, the patch with the full exports. Returns the number
        of removed keys in all patches."""
        steps, n_removed = ckpt_folder.steps(self.folder), 0
        full = {b: self.export(folder=self.until(b)) for b in steps}
        for b in steps:
            for a in [s for s in steps if s < b]:
                patch = self.export("--since=%d" % a, folder=self.path("until-%d" % b))
                self.assertEqual(int(full[b][1]["step"]), b)
                self.assertEqual(apply(full[a], patch), plain(full[b]))
                n_removed += sum(len(v[1]) for n, v in patch[0].items() if " removed [" in n)
        a, b = steps[0], steps[-1]
        half = {s: self.export("--row_dtype=bf16", folder=self.path("until-%d" % s))
                for s in (a, b)}
        patch = self.export("--since=%d" % a, "--row_dtype=bf16", folder=self.path("until-%d" % b))
        self.assertEqual(apply(half[a], patch), plain(half[b]))
        self.check_rounding(full[b][0], half[b][0])
        return n_removed

    def check_rounding(self, full, half):
        """Compares an export in bf16 with that in fp32: rows are rounded to the nearest, ties to
        even, and all other tensors are equal."""
        n = 0
        for name, (shape, values) in full.items():
            if " rows [" in name:
                bits = array.array("I", values.tobytes())
                values = array.array("H", [(x + 0x7fff + (x >> 16 & 1)) >> 16 for x in bits])
                n += len(values)
            self.assertEqual(half[name], (shape, values))
        self.assertEqual((full.keys(), n > 0), (half.keys(), True))

    def test_patches_lead_from_each_checkpoint_to_each_later_one(self):
        """A third server joins in the middle of the job, and rows that were idle for 6 steps are
        evicted."""
        self.settings = ["table.evict_after=6", "table.admit_after=2"]
        self.start_servers(2)
        self.start_members(2, 14, 26)
        self.await_gate(14)
        self.await_checkpoints(1)
        self.servers["join"] = self.join_server()
        self.servers[0].wait_line(r"joins at step \d+: .* move to it")
        self.open_gate(14)
        self.await_gate(26)
        self.await_checkpoints(2)
        self.open_gate(26)
        self.wait_all([*self.members.values(), *self.servers.values()])
        self.assertGreater(len(ckpt_folder.steps(self.folder)), 2)
        self.assertGreater(self.check_all_pairs(), 0)

    def check_mode(self, *settings):
        """In async and ssp each bucket has its own version."""
        self.settings = [*settings, "table.evict_after=9"]
        self.start_servers(2)
        self.start_members(2)
        self.wait_all([*self.members.values(), *self.servers.values()])
        self.check_all_pairs()

    def test_patches_in_async(self):
        self.check_mode("--sync_mode=async")

    def test_patches_in_ssp(self):
        self.check_mode("--sync_mode=ssp", "--staleness=1")

    def test_patches_of_rows_in_bf16(self):
        """Exports have the rows as they are in the servers, and in fp32 the same numbers."""
        self.settings = ["table.row_dtype=bf16"]
        self.start_servers(2)
        self.start_members(2)
        self.finish()
        steps = ckpt_folder.steps(self.folder)
        a, b = steps[0], steps[-1]
        full = {s: self.export(folder=self.until(s)) for s in (a, b)}
        patch = self.export("--since=%d" % a)
        self.assertEqual(apply(full[a], patch), plain(full[b]))
        wide = self.export("--row_dtype=fp32")
        self.check_rounding(wide[0], full[b][0])
        self.assertTrue(all(x & 0xffff == 0 for name, (_, values) in wide[0].items()
                            if " rows [" in name for x in array.array("I", values.tobytes())))

    def test_patches_of_a_full_table(self):
        """The table evicts rows because it is full."""
        self.settings = ["table.when_full=evict", "table.buckets=2", "table.max_rows=12",
                         "table.step_rows=12"]
        self.start_servers(2)
        self.start_members_that_wait(14, 26)
        self.wait_all([*self.members.values(), *self.servers.values()])
        self.assertGreater(self.check_all_pairs(), 0)

    def train_and_kill(self, *gates):
        """Starts all programs, waits for one more checkpoint at each gate, and kills all programs
        at the last gate. Returns the ids of all checkpoints."""
        n = len(ckpt_folder.steps(self.folder))
        self.start_servers(2)
        self.start_members(2, *gates)
        for gate in gates:
            self.await_gate(gate)
            n += 1
            self.await_checkpoints(n)
            if gate != gates[-1]:
                self.open_gate(gate)
        self.kill(*self.members.values(), *self.servers.values())
        return ["%d.%d-%d" % (*term, step)
                for step, what, term, _ in ckpt_folder.find(self.folder) if what == ".json"]

    def test_abandoned_checkpoint_is_no_base(self):
        """All processes are killed, and the job resumes from an older checkpoint by --restore; then
        they are killed once more, and the job resumes from the newest one."""
        old = self.train_and_kill(14, 24)
        self.assertEqual(self.export()[1]["id"], old[-1])
        self.flags.append("--restore=%s/weir-%s.json" % (self.folder, old[0]))
        new = self.train_and_kill(24, 34)[len(old):]
        self.assertGreater(len(new), 1)
        for _ in range(2):
            self.refuse(REBASE, "training went back to an older checkpoint afterwards; begin again "
                        "with a full export", "--output=" + self.path("no"), "--since=" + old[-1])
            self.assertFalse(os.path.exists(self.path("no")))
            for since in (old[0], new[0]):
                self.assertEqual(self.export("--since=" + since)[1]["since_id"], since)
            if self.flags[-1].startswith("--restore"):
                self.flags.pop()
                self.start_servers(2)
                self.start_members(2)
                self.finish()

    def train(self, program):
        self.start_servers(1)
        self.wait_all([self.start("member", [
            sys.executable, "-c", program, "--ps_hosts=" + self.hosts[0], "--n_workers=1"],
            env=harness.package_env()), *self.servers.values()])

    def test_row_that_does_not_fit_into_bf16(self):
        self.train(WITH_A_LARGE_ROW)
        self.export()
        self.refuse(1, "table 'words': the row of key 7 has 3.4e.38, which is too large for bf16",
                    "--output=" + self.path("half"), "--row_dtype=bf16")
        self.assertFalse(os.path.exists(self.path("half")))

    def test_higher_max_rows_needs_a_full_export(self):
        old = self.train_and_kill(14)
        self.settings = ["table.max_rows=2000"]
        self.start_servers(2)
        self.start_members(2)
        self.finish()
        self.refuse(REBASE, "--since=%s: the job had other parameters, tables, --chunk_bytes or "
                    "another --seed; begin again with a full export" % old[-1],
                    "--output=" + self.path("no"), "--since=" + old[-1])
        self.assertFalse(os.path.exists(self.path("no")))
        self.assertEqual(json.loads(self.export()[1]["tables"])[0]["max_rows"], 2000)

    def test_job_without_tables(self):
        self.train(WITHOUT_TABLES)
        tensors, metadata = self.export(has_table=False)
        self.assertEqual((list(tensors), metadata["tables"]), (["w"], "[]"))

    def refuse(self, code, pattern, *words, **kwargs):
        self.weirctl(*words, **kwargs).ends(code, pattern)

    def test_bad_folders_and_flags_refused(self):
        out = "--output=" + self.path("out")
        self.refuse(1, "no-folder: No such file or directory", out, folder=self.path("no-folder"))
        self.refuse(138, "has no checkpoint yet", out, folder=self.new_folder("empty"))
        self.start_servers(2)
        self.start_members_that_wait(14, 26)
        self.finish()
        first, before, newest = [ckpt_folder.steps(self.folder)[i] for i in (0, -2, -1)]
        self.refuse(2, "--output is missing")
        self.refuse(2, "--output: a value is missing; write --output=VALUE", "--output",
                    "--since=%d" % first)
        self.refuse(2, "--output=-: an export cannot be written to a pipe", "--output=-")
        self.refuse(1, "it is not a folder; write the folder of the job's checkpoints", out,
                    folder=ckpt_folder.path(self.folder, newest))
        self.start("weirctl", [harness.program("weirctl"), out]).ends(
            2, "a command is missing; write weirctl --checkpoint_dir=DIR --output=FILE export")
        self.refuse(2, "row_dtype", out, "--row_dtype=fp16")
        self.refuse(2, "--since=1.2 is neither a step nor the id", out, "--since=1.2")
        self.refuse(2, "--since= is neither a step nor the id", out, "--since=")
        self.refuse(2, "--since=-3 is neither a step nor the id", out, "--since=-3")
        self.refuse(2, "export asks no server; remove --ps_hosts", out,
                    "--ps_hosts=" + self.hosts[0])
        self.refuse(2, "output", "--output=" + self.folder)
        manifest = ckpt_folder.path(self.folder, newest)
        os.symlink(manifest, self.path("link"))
        for taken in (manifest, os.path.join(self.folder, "new"), self.path("link")):
            self.refuse(2, "whose files belong to the job", "--output=" + taken)
        self.refuse(2, "is a device or a FIFO", "--output=/dev/null")
        self.refuse(2, "export asks no server; remove --wait", out, "--wait")
        self.refuse(REBASE, "has no such checkpoint .the newest one is ", out, "--since=3")
        self.refuse(REBASE, "has no such checkpoint .the newest one is ", out, "--since=9.9-8")
        self.refuse(138, "is the newest checkpoint; try again", out, "--since=%d" % newest)
        for flag in out, "--row_dtype=bf16":
            self.start("weirctl", [harness.program("weirctl"), "--ps_hosts=" + self.hosts[0], flag,
                                   "status"]).ends(2, "are only for the command export")
        self.assertLess(first, before)
        damage_keys(ckpt_folder.path(self.folder, first, "-0-of-2.safetensors"))
        self.export("--since=%d" % before)
        self.refuse(REBASE, "does not match its checksum", out, "--since=%d" % first)
        damage_keys(ckpt_folder.path(self.folder, newest, "-0-of-2.safetensors"))
        self.refuse(1, "does not match its checksum", out)
        self.refuse(138, "the newest checkpoint is damaged; try again", out, "--since=%d" % before)
        os.remove(ckpt_folder.path(self.folder, newest, "-0-of-2.safetensors"))
        self.refuse(138, "is newer than the newest complete checkpoint", out, "--since=%d" % newest)
        self.assertFalse(os.path.exists(self.path("out")))
        self.check_passed_over(out, newest)

    def check_passed_over(self, out, newest):
        """The newest checkpoint lacks a file."""
        found = self.weirctl(out)
        found.wait(60, 0)
        self.assertRegex(found.output(), r"-%d[.]json: not exported: weir-\S*-0-of-2.safetensors "
                         "cannot be opened: No such file or directory; trying the previous "
                         "checkpoint\n" % newest)
        self.assertRegex(found.output(), r"full export of 1.1-\d+: \d+ rows; passed over 1.1-%d$"
                         % newest)
        found = self.weirctl(out, "--quiet", "--log_level=error", "--json")
        found.wait(60, 0)
        report = json.loads(found.output())
        self.assertEqual(report["passed_over"], "1.1-%d" % newest)
        self.assertLess(report["step"], newest)

    def test_unreadable_files_refused(self):
        """No retry helps a user who may not read a file, and no older checkpoint is exported."""
        self.start_servers(2)
        self.start_members_that_wait(14)
        self.finish()
        other, out = self.new_folder("other"), "--output=" + self.path("other/out")
        user = ["setpriv", "--reuid", "4001", "--regid", "4001", "--clear-groups"]
        if os.geteuid() != 0:  # modes bind this user, but not root
            user = []
        os.chmod(self.dir(), 0o755)
        os.chmod(other, 0o777)
        newest = ckpt_folder.steps(self.folder)[-1]
        self.assertGreater(newest, ckpt_folder.steps(self.folder)[0])
        manifest, part = (ckpt_folder.path(self.folder, newest, what)
                          for what in (".json", "-1-of-2.safetensors"))
        barred = "cannot be opened: Permission denied; let the user of this program read it"
        for path, mode, why in (
                (part, 0, "%s: not exported: %s %s" % (manifest, os.path.basename(part), barred)),
                (manifest, 0, "%s: not exported: %s" % (manifest, barred)),
                (self.folder, 0o300, "%s: cannot be read: Permission denied" % self.folder)):
            before = os.stat(path).st_mode
            os.chmod(path, mode)
            found = self.weirctl(out, user=user)
            found.ends(1, why)
            os.chmod(path, before)
            self.assertEqual(len(found.output().splitlines()), 1)
        base = ckpt_folder.steps(self.folder)[0]
        manifest, part = (ckpt_folder.path(self.folder, base, what)
                          for what in (".json", "-1-of-2.safetensors"))
        for path, why in ((part, os.path.basename(part) + " " + barred), (manifest, barred)):
            os.chmod(path, 0)
            self.weirctl(out, "--since=%d" % base, user=user).ends(
                1, "%s: not exported: %s" % (manifest, why))
            os.chmod(path, 0o644)
        self.assertEqual(os.listdir(other), [])


harness.main(__name__)
