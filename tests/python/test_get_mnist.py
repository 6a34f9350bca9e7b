#!/usr/bin/python3
"""scripts/get_mnist without a network: verifying, and fetching from a folder on this disk."""
# label: cluster
import gzip
import hashlib
import os
import shutil
import tempfile
import unittest

import harness

SOURCE = os.environ.get("WEIR_SOURCE") or os.path.join(os.path.dirname(__file__), "../..")
SCRIPT = os.path.join(SOURCE, "scripts/get_mnist")
CONTENT = {"one-images": bytes(range(256)) * 40, "one-labels": b"\x00\x01\x02" * 7}


class GetMnist(unittest.TestCase):
    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="weir_get_")
        self.addCleanup(shutil.rmtree, self.top)
        self.folder = os.path.join(self.top, "data")
        self.mirror = os.path.join(self.top, "mirror")
        self.manifest = os.path.join(self.top, "manifest")
        os.mkdir(self.folder)
        os.mkdir(self.mirror)
        with open(self.manifest, "w", encoding="utf-8") as f:
            for name, data in CONTENT.items():
                f.write("%s %d %s\n" % (name, len(data), hashlib.sha256(data).hexdigest()))

    def put(self, folder, name, data):
        harness.write_file(os.path.join(folder, name), data)

    def fill(self, folder):
        for name, data in CONTENT.items():
            self.put(folder, name + ".gz", gzip.compress(data))

    def run_script(self, *arguments):
        done = harness.run([SCRIPT, "--manifest", self.manifest, *arguments, self.folder],
                           timeout=60)
        return done.returncode, done.stdout

    def fetch(self, *mirrors):
        if not shutil.which("curl"):
            self.skipTest("fetching from file:// needs curl")
        arguments = []
        for mirror in mirrors or (self.mirror,):
            arguments += ["--mirror", "file://" + mirror]
        return self.run_script(*arguments)

    def test_good_files_pass_packed_or_plain(self):
        self.fill(self.folder)
        code, out = self.run_script("--check")
        self.assertEqual(code, 0, out)
        self.assertIn("all 2 files are good: use --data_dir=" + self.folder, out)
        os.remove(os.path.join(self.folder, "one-images.gz"))
        self.put(self.folder, "one-images", CONTENT["one-images"])
        self.assertEqual(self.run_script("--check")[0], 0)

    def test_good_files_need_no_mirror(self):
        self.fill(self.folder)
        code, out = self.run_script("--mirror", "file:///none")
        self.assertEqual(code, 0, out)

    def test_wrong_files_named(self):
        packed = gzip.compress(CONTENT["one-images"])
        damaged = bytearray(CONTENT["one-images"])
        damaged[99] ^= 1
        for data, word in ((None, "one-images.gz is missing"),
                           (packed[:-1], "is not whole gzip data"),
                           (packed[:40] + b"\xff" + packed[41:], "one-images.gz "),
                           (gzip.compress(b"short"), "has 5 bytes unpacked, not 10240"),
                           (gzip.compress(CONTENT["one-images"] * 2), "more than 10240"),
                           (gzip.compress(bytes(damaged)), "has the SHA-256"),
                           (b"", "has 0 bytes unpacked")):
            self.fill(self.folder)
            if data is None:
                os.remove(os.path.join(self.folder, "one-images.gz"))
            else:
                self.put(self.folder, "one-images.gz", data)
            code, out = self.run_script("--check")
            self.assertEqual(code, 1, out)
            self.assertIn(word, out)
            self.assertIn("1 of 2 files", out)

    def test_bad_plain_file_named_beside_good_packed_one(self):
        self.fill(self.folder)
        self.put(self.folder, "one-labels", b"junk")
        code, out = self.run_script("--check")
        self.assertEqual(code, 1)
        self.assertIn("one-labels has 4 bytes unpacked, not 21: remove it", out)

    def test_fetch_resumes_and_replaces(self):
        self.fill(self.mirror)
        whole = gzip.compress(CONTENT["one-images"])
        for had in (None, whole[:50], b"not what the mirror has, and longer" * 99):
            shutil.rmtree(self.folder)
            os.mkdir(self.folder)
            if had:
                self.put(self.folder, "one-images.gz.part", had)
            self.put(self.folder, "one-labels.gz", b"damaged")
            code, out = self.fetch()
            self.assertEqual(code, 0, out)
            self.assertEqual(sorted(os.listdir(self.folder)), ["one-images.gz", "one-labels.gz"])
            self.assertEqual(self.run_script("--check")[0], 0)

    def test_mirror_with_wrong_files_skipped(self):
        liar = os.path.join(self.top, "liar")
        os.mkdir(liar)
        for name in CONTENT:
            self.put(liar, name + ".gz", gzip.compress(b"an advertisement"))
        self.fill(self.mirror)
        code, out = self.fetch(liar, self.mirror)
        self.assertEqual(code, 0, out)
        self.assertIn("deleting it", out)

    def test_missing_mirror_fails(self):
        code, out = self.fetch(os.path.join(self.top, "nowhere"))
        self.assertEqual(code, 1)
        self.assertIn("cannot be fetched", out)
        self.assertIn("2 of 2 files are missing", out)

    def test_wrong_arguments_refused(self):
        self.assertEqual(self.run_script("--chek")[0], 2)
        self.put(self.top, "manifest", b"../evil 3 abc\n")
        code, out = self.run_script("--check")
        self.assertEqual(code, 2)
        self.assertIn("is not 'name bytes sha256'", out)


harness.main(__name__)
