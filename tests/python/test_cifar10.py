"""CIFAR-10's binary files, which the test makes. The worker reads them by --data_dir and by name,
with the same result as the same samples in npz, and reports faults in one line. scripts/get_cifar10
verifies and unpacks an archive of such files."""
# label: cluster
import hashlib
import os
import random
import re
import shutil
import tarfile

import harness

SCRIPT = harness.source("scripts/get_cifar10")
RECORD, N = 3073, 12  # bytes per record, and records per file
FILES = ["data_batch_%d.bin" % k for k in range(1, 6)] + ["test_batch.bin"]


class Cifar10(harness.Test):
    def setUp(self):
        super().setUp()
        rng = random.Random(2)
        self.folder = self.new_folder("cifar")
        self.records = {name: [bytes([rng.randrange(10)]) + rng.randbytes(RECORD - 1)
                               for _ in range(N)] for name in FILES}
        self.records["data_batch_1.bin"][:10] = [
            bytes([k]) + rng.randbytes(RECORD - 1) for k in range(10)]  # all classes
        for name in FILES:
            self.put(name, b"".join(self.records[name]))

    def put(self, name, data):
        harness.write_file(os.path.join(self.folder, name), data)

    def train(self, *data, status=0, model="softmax"):
        return self.start_program("worker", "--models_dir=" + harness.MODELS, *data,
                                  "--model=" + model, "--train_steps=3", "--batch_size=10",
                                  "--seed=4", "--intra_op_threads=1", "--progress=lines",
                                  "--summary_json=" + self.path("s.json")).wait_output(60, status)

    def figures(self):
        figures = super().figures("s.json")
        return [figures[key] for key in ("parameters", "parameters_sha256", "test_loss")]

    def as_idx(self):
        """Writes the same samples as IDX files; returns their folder."""
        folder = self.new_folder("idx")
        for part, names in (("train", FILES[:5]), ("t10k", FILES[5:])):
            records = [r for name in names for r in self.records[name]]
            harness.write_samples(os.path.join(folder, part), (len(records), 3, 32, 32),
                                  b"".join(r[1:] for r in records), bytes(r[0] for r in records))
        return folder

    def test_files_read_like_idx(self):
        said = self.train("--data_dir=" + self.as_idx())
        self.assertIn("(12 samples)", said)
        want = self.figures()
        self.assertEqual(want[0], 3072 * 10 + 10)
        said = self.train("--data_dir=" + self.folder)
        self.assertEqual(self.figures(), want)
        self.assertNotIn("batches", said)

    def test_resnet18_cifar_trains(self):
        with open(harness.source("docs/guide/models.md"), encoding="utf-8") as f:
            flags = re.search("worker --model=resnet18_cifar --data_dir=cifar10 (.*)", f.read())
        said = self.train("--data_dir=" + self.folder, *flags.group(1).split(),
                          model="resnet18_cifar")
        self.assertIn("(12 samples)", said)

    def test_missing_batches_reported(self):
        os.remove(os.path.join(self.folder, "data_batch_3.bin"))
        said = self.train("--data_dir=" + self.folder)
        self.assertRegex(said, r"W .*CIFAR-10 has 5 batches, but \S+/data_batch_3.bin is missing: "
                               r"the worker trains on the first 2")

    def test_file_by_name_read(self):
        said = self.train("--train_data=" + os.path.join(self.folder, "data_batch_1.bin"),
                          "--test_data=" + os.path.join(self.folder, "test_batch.bin"))
        self.assertIn("(12 samples)", said)
        self.assertNotIn("batches", said)

    def test_bad_files_named(self):
        self.put("data_batch_2.bin", b"".join(self.records["data_batch_2.bin"])[:-1])
        said = self.train("--data_dir=" + self.folder, status=1)
        self.assertIn("data_batch_2.bin: has %d bytes, but CIFAR-10's records have 3073 each" % (
            N * RECORD - 1), said)
        self.put("data_batch_2.bin", self.records["data_batch_2.bin"][0] + b"\x0a" + bytes(3072))
        said = self.train("--data_dir=" + self.folder, status=1)
        self.assertIn("data_batch_2.bin: record 1 (byte 3073) has the label 10, but CIFAR-10's "
                      "labels are from 0 to 9", said)
        self.put("data_batch_2.bin", b"")
        self.assertIn("data_batch_2.bin: has 0 bytes",
                      self.train("--data_dir=" + self.folder, status=1))

    def get(self, *arguments):
        done = harness.run([SCRIPT, *arguments, self.path("got")], timeout=60)
        return done.returncode, done.stdout

    def archive(self):
        """Returns the archive's path and checksum."""
        path = self.path("a.tar.gz")
        with tarfile.open(path, "w:gz") as tar:
            tar.add(self.folder, "cifar-10-batches-bin")
        return path, hashlib.sha256(harness.read_bytes(path)).hexdigest()

    def check_got(self, code, said):
        self.assertEqual(code, 0, said)
        self.assertIn("all 6 files are there: use --data_dir=" + self.path("got"), said)
        self.assertEqual(sorted(os.listdir(self.path("got"))), FILES)
        self.train("--data_dir=" + self.path("got"))

    def test_script_unpacks_an_archive(self):
        path, checksum = self.archive()
        code, said = self.get("--archive", path)
        self.assertEqual(code, 1)
        self.assertIn("has not the SHA-256 c4a38c50", said)
        self.check_got(*self.get("--archive", path, "--sha256", checksum))

    def test_script_fetches_an_archive(self):
        if not shutil.which("curl"):
            self.skipTest("fetching from file:// needs curl")
        path, checksum = self.archive()
        code, said = self.get("--url", "file://" + path)
        self.assertEqual(code, 1, said)
        self.assertIn("it is removed", said)
        code, said = self.get("--url", "file://" + path + ".none")
        self.assertEqual(code, 1, said)
        self.assertIn("cannot be fetched", said)
        self.check_got(*self.get("--url", "file://" + path, "--sha256", checksum))
        code, said = self.get("--url", "file://" + path + ".none")  # there is nothing to do
        self.assertEqual(code, 0, said)


harness.main(__name__)
