"""Data in every format that scripts/make_data writes. The same samples in any format train to the
same bits. Models adapt their sizes to the data, and a worker with other data is refused."""
# label: cluster computes
import array
import ast
import csv
import os
import random
import struct
import zipfile

import harness
import jpeg

FLAGS = ["--batch_size=20", "--train_steps=30", "--learning_rate=0.01", "--seed=3",
         "--intra_op_threads=1", "--progress=lines"]


class Data(harness.Test):
    def make(self, form, *flags):
        return self.make_samples(form, "%s-%d" % (form, len(os.listdir(self.dir()))), *flags)

    def train(self, folder, *flags, model="softmax"):
        return self.train_alone(*FLAGS, *flags, data=folder, model=model)[1]

    def check_same(self, forms, flags, model):
        sums = {}
        for form in forms:
            s = self.train(self.make(form, *flags), model=model)
            self.assertGreater(s["test_accuracy"], 0.5, form)
            sums[form] = s["parameters_sha256"], s["test_loss"]
        self.assertEqual(len(set(sums.values())), 1, sums)

    def test_grey_images_same_bits_in_all_formats(self):
        self.check_same(["idx", "npy", "npz", "npz_deflated", "safetensors", "csv"],
                        ["--from=" + self.data(), "--train=600", "--test=100"], "softmax")

    def test_colour_images_same_bits_in_all_formats(self):
        self.check_same(["idx", "npz", "safetensors"],
                        ["--made=3x12x14", "--classes=6", "--train=400", "--test=60"], "lenet5")

    def test_folders_of_png_same_bits_as_npy(self):
        for shape in ("1x12x14", "3x12x14"):
            self.check_same(["npy", "png"],
                            ["--made=" + shape, "--classes=11", "--train=200", "--test=60",
                             "--by_class"], "softmax")

    def make_jpegs(self, channels, counts):
        """Makes a folder of pictures, and one of IDX files with the same samples."""
        rng, rows, columns = random.Random(channels), 2, 3
        folders = [self.path("%s%d" % (form, channels)) for form in ("jpeg", "idx")]
        plans = [rng.choices((40, 210), k=rows * columns * channels) for _ in range(3)]
        os.mkdir(folders[1])
        for part, n in counts.items():
            samples = b""
            for i in range(n):
                label = 3 * i // n
                values = [v + rng.randrange(-40, 46) for v in plans[label]]
                path = os.path.join(folders[0], part, "class%d" % label, "%03d.jpg" % i)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                harness.write_file(path, jpeg.encode(channels, rows, columns, values))
                samples += jpeg.pixels(channels, rows, columns, values)
            dims = (n, channels, rows * jpeg.SIDE, columns * jpeg.SIDE)
            dims = dims[:1] + dims[2:] if channels == 1 else dims
            harness.write_samples(os.path.join(folders[1], part), dims, samples,
                                  bytes(3 * i // n for i in range(n)))
        return folders

    def test_folders_of_jpeg_same_bits_as_idx(self):
        """Training, evaluation and prediction read both like the same samples in IDX files."""
        with open(harness.program("worker"), "rb") as f:
            if b"this worker was built without libjpeg" in f.read():
                self.skipTest("the worker was built without libjpeg")
        for channels in (1, 3):
            got = {}
            for folder in self.make_jpegs(channels, {"train": 60, "test": 21}):
                export, out = (self.path(name) for name in ("export", "out.csv"))
                s = self.train(folder, "--export=" + export)
                self.run_worker("--predict=" + export, "--output=" + out, "--intra_op_threads=1",
                                data=folder)
                with open(out, encoding="ascii", newline="") as f:
                    rows = list(csv.DictReader(f))
                files = [row.pop("file", None) for row in rows]
                names = [row.pop("class_name", None) for row in rows]
                if "jpeg" in os.path.basename(folder):
                    self.assertEqual(files[6:8], ["class0/006.jpg", "class1/007.jpg"])
                    self.assertEqual(names, ["class" + row["class"] for row in rows])
                got[folder] = s["parameters_sha256"], s["test_loss"], rows
                self.assertGreater(s["test_accuracy"], 0.5)
            one, other = got.values()
            self.assertEqual(one, other)

    def test_folders_of_other_classes_refused(self):
        folder = self.make("png", "--made=1x4x4", "--classes=3", "--train=60", "--test=20")
        os.rename(os.path.join(folder, "test/00001"), os.path.join(folder, "test/00009"))
        worker = self.start_program("worker", "--models_dir=" + harness.MODELS, "--model=softmax",
                                    *FLAGS, "--data_dir=" + folder)
        self.assert_has(worker.wait_output(30, 1), "00000/00001/00002", "00000/00002/00009")

    def worker_output(self, flags, status, words):
        worker = self.start_program("worker", "--models_dir=" + harness.MODELS, "--model=softmax",
                                    *FLAGS, *flags)
        self.assertIn(words, worker.wait_output(30, status))
        return worker.output()

    def test_folder_above_or_below_refused(self):
        """Users name a neighbouring folder instead of the right one."""
        folder = self.make("png", "--made=1x4x4", "--classes=3", "--train=60", "--test=20")
        train, test = os.path.join(folder, "train"), os.path.join(folder, "test")
        self.worker_output(["--train_data=" + folder], 1,
                        "%s/00000: is a folder instead of a picture of a class; name the folder "
                        "that has a folder for each class, such as %s, not its parent" %
                        (test, train))
        self.worker_output(["--data_dir=" + train], 1,
                        "no train data in %s: it holds only folders; if each has the pictures of "
                        "a class, set --train_data to this folder, otherwise set --data_dir to "
                        "the folder with the data" % train)
        self.worker_output(["--data_dir=" + os.path.join(train, "00000")], 1,
                        "no train data in %s/00000: it holds pictures; put the pictures of each "
                        "class into a folder named like the class, and name the parent of these "
                        "folders with --train_data" % train)
        self.worker_output(["--train_data=" + train, "--test_data=" + test], 0,
                        "60 training samples from %s, 3 classes" % train)

    def test_classes_only_in_test_set_warned(self):
        folder = self.make("png", "--made=1x4x4", "--classes=4", "--train=60", "--test=20")
        has_none = ("%s/test: has samples of class %%s%%s, but the training set, %s/train, has "
                    "none: training cannot learn it" % (folder, folder))
        self.assertNotIn("cannot learn it", self.worker_output(["--data_dir=" + folder], 0,
                                                                "training samples from"))
        for label, words in (("00002", ("2 ('00002')", "")),
                             ("00001", ("1 ('00001')", " and 1 more"))):
            of_class = os.path.join(folder, "train", label)
            for name in os.listdir(of_class):
                os.unlink(os.path.join(of_class, name))
            self.worker_output(["--data_dir=" + folder], 0, has_none % words)
        folder = self.make("npy", "--made=1x4x4", "--classes=5", "--train=60", "--test=20")
        self.npy(folder, "train-labels.npy", "|u1", (60,), bytes([0, 1, 2, 4]) * 15)
        self.worker_output(["--data_dir=" + folder], 0,
                        "test-images.npy: has samples of class 3, but the training set, %s/"
                        "train-images.npy, has none: training cannot learn it" % folder)

    def test_lenet5_adapts_to_image_size_and_classes(self):
        folder = self.make("npy", "--made=1x20x24", "--classes=7", "--train=300", "--test=70")
        job = self.started_job(data=folder, model="lenet5", flags=FLAGS)
        sums = {s["parameters_sha256"] for s in job.finish()}
        self.assertEqual(len(sums), 1)

    def members(self, path):
        """Returns {name: (dtype, flat list)} of an npz of bytes and 16-bit numbers."""
        out = {}
        with zipfile.ZipFile(path) as z:
            for name in z.namelist():
                data = z.read(name)
                begin = 10 + int.from_bytes(data[8:10], "little")
                descr = ast.literal_eval(data[10:begin].decode("ascii"))["descr"]
                values = array.array({"|u1": "B", "<u2": "H"}[descr], data[begin:])
                out[name] = descr, list(values)
        return out

    def test_more_than_256_classes_trained(self):
        """A step over all samples, from weights that are all 0. The mean gradient contains
        1/classes of each pixel of each sample, less 1 in the row of the sample's own class."""
        n, cells, classes, rate = 600, 256, 300, 0.5
        folder = self.make("npz", "--made=1x16x16", "--classes=%d" % classes, "--train=%d" % n,
                           "--test=300")
        export = self.path("export")
        s = self.train(folder, "--batch_size=%d" % n, "--train_steps=1", "--optimizer=sgd",
                       "--learning_rate=%g" % rate, "--export=" + export)
        self.assertEqual(s["parameters"], (cells + 1) * classes)
        members = self.members(os.path.join(folder, "train.npz"))
        (_, samples), (descr, labels) = members["images.npy"], members["labels.npy"]
        self.assertEqual(descr, "<u2")
        self.assertGreater(sum(label > 255 for label in labels), 50)
        of_all = [sum(samples[i::cells]) / 255 for i in range(cells)]
        own = [[0.0] * cells for _ in range(classes)]
        for k, label in enumerate(labels):
            for i, pixel in enumerate(samples[k * cells:(k + 1) * cells]):
                own[label][i] += pixel / 255
        got = harness.read_safetensors(export)
        for k in range(classes):
            row = got["softmax/weights"][1][k * cells:(k + 1) * cells]
            for i in range(cells):
                want = -rate * (of_all[i] / classes - own[k][i]) / n
                self.assertAlmostEqual(row[i], want, delta=1e-6)
            want = -rate * (n / classes - labels.count(k)) / n
            self.assertAlmostEqual(got["softmax/biases"][1][k], want, delta=1e-6)

    def test_worker_with_other_data_refused(self):
        folders = [self.make("npy", "--made=1x16x16", "--classes=%d" % n, "--train=60", "--test=20")
                   for n in (5, 6)]
        job = self.job(data=folders[0], model="softmax", flags=FLAGS)
        job.start_ps()
        job.start_worker(0)
        job.ps[0].wait_line("orker 0")
        job.start_worker(1, "--data_dir=" + folders[1])
        self.assertIn("softmax/weights", job.workers[1].wait_output(30, 1))
        self.kill(*job.workers[:1], *job.ps)

    def test_label_column_of_csv_selected(self):
        folder = self.make("csv", "--made=1x4x4", "--classes=3", "--train=60", "--test=20")
        want = self.train(folder)["parameters_sha256"]
        for part in ("train", "test"):
            with open(os.path.join(folder, part + ".csv"), encoding="ascii") as f:
                rows = [line.strip().split(",") for line in f]
            with open(os.path.join(folder, part + ".csv"), "w", encoding="ascii") as f:
                f.writelines(";".join(row[1:3] + row[:1] + row[3:]) + "\r\n" for row in rows[1:])
        self.assertEqual(self.train(folder, "--label_column=3")["parameters_sha256"], want)
        worker = self.start_alone(*FLAGS, "--label_column=kind", data=folder)
        self.assertIn("train.csv: line 1: has no column 'kind'", worker.wait_output(30, 1))

    def test_files_of_any_name_read(self):
        folder = self.make("npy", "--made=1x16x16", "--classes=5", "--train=60", "--test=20")
        for name in os.listdir(folder):
            os.rename(os.path.join(folder, name), os.path.join(folder, "x" + name))
        at = lambda name: os.path.join(folder, "x" + name)  # noqa: E731
        argv = [harness.program("worker"), "--models_dir=" + harness.MODELS, "--model=softmax",
                *FLAGS, "--train_data=" + at("train-images.npy"),
                "--train_labels=" + at("train-labels.npy"), "--test_data=" + at("test-images.npy"),
                "--test_labels=" + at("test-labels.npy")]
        self.start("worker", argv).wait()
        for flags, words in ((argv[:-4] + argv[-2:-1], "--test_data needs --train_data"),
                             ([*argv, "--data_dir=" + folder], "exclude each other"),
                             ([*argv[:-4], argv[-3]], "are for --train_data")):
            self.assertIn(words, self.start("worker", flags).wait_output(30, 2))

    def npy(self, folder, name, descr, shape, content):
        harness.write_file(os.path.join(folder, name), harness.npy(descr, shape, content))

    def says(self, folder, *words, status=1, flags=()):
        worker = self.run_worker(*FLAGS, *flags, data=folder, status=status)
        self.assert_has(worker.output(), *words)

    def keras(self):
        """Writes a file of four arrays: 90 training samples and 30 test samples of 3 classes."""
        path = self.path("mnist.npz")
        with zipfile.ZipFile(path, "w") as z:
            for name, n in (("train", 90), ("test", 30)):
                labels = bytes(i % 3 for i in range(n))
                for letter, shape, content in (
                        ("x", (n, 4, 4), bytes(80 * y + i for y in labels for i in range(16))),
                        ("y", (n,), labels)):
                    z.writestr("%s_%s.npy" % (letter, name), harness.npy("|u1", shape, content))
        return path

    def with_file(self, *flags):
        return self.run_worker(*FLAGS, *flags, data=False).output()

    def test_npz_of_keras_read(self):
        """The worker reads both sets from the one file, with and without --test_data."""
        path = self.keras()
        for flags in ([], ["--test_data=" + path]):
            said = self.with_file("--train_data=" + path, *flags)
            self.assert_has(said, "samples are its array 'x_train', labels are 'y_train'",
                            "samples are its array 'x_test', labels are 'y_test'", "(30 samples)")
            self.assertNotIn("W ", [line[:2] for line in said.splitlines()])

    def test_same_samples_in_training_and_test_warned(self):
        path = self.keras()
        said = self.with_file("--train_data=" + path, "--test_data=" + path,
                              "--images_name=x_train", "--labels_name=y_train")
        self.assertIn(path + ": the test samples are the same as the training samples", said)

    def test_sets_of_two_sizes_refused(self):
        """The line names the set that differs, not the model or the training set."""
        folder = self.make("npy", "--made=1x16x16", "--classes=5", "--train=60", "--test=20")
        self.npy(folder, "test-images.npy", "|u1", (20, 12, 10), bytes(20 * 12 * 10))
        self.says(folder, folder + "/test-images.npy has samples of 1x12x10",
                  "training set, %s/train-images.npy, has 1x16x16" % folder)

    def test_channels_last_without_flag_warned(self):
        folder = self.make("npy", "--made=1x6x15", "--classes=5", "--train=60", "--test=20")
        said = "looks like (n, H, W, C) but is read as (n, C, H, W)"
        for part, n in (("train", 60), ("test", 20)):
            self.npy(folder, part + "-images.npy", "|u1", (n, 6, 5, 3), bytes(n * 90))
        self.says(folder, part + "-images.npy: holds an array of (20, 6, 5, 3), which " + said,
                  status=0)
        worker = self.run_worker(*FLAGS, "--data_layout=nhwc", data=folder)
        self.assertNotIn("looks like", worker.output())

    def test_other_layout_than_in_training_refused(self):
        """Samples of as many numbers in another order are refused."""
        folder = self.make("npy", "--made=3x12x12", "--classes=5", "--train=60", "--test=20")
        turned = self.make("npy", "--made=3x12x12", "--classes=5", "--train=60", "--test=20")
        file = self.path("model.safetensors")
        self.train(folder, "--export=" + file)
        self.npy(turned, "test-images.npy", "|u1", (20, 12, 12, 3), bytes(20 * 432))
        sizes = ("%s was trained on samples of %%s (channels, height, width), but those of "
                 "%%s/test-images.npy are %%s; use samples with the same number of "
                 "channels, and %%s" % file)
        for flag in ("--evaluate=" + file, "--predict=" + file):
            flags = [flag, *(["--output=" + file + ".csv"] if "predict" in flag else [])]
            for data, layout, words in (
                    (folder, [], None), (turned, ["--data_layout=nhwc"], None),
                    (turned, [], sizes % ("3x12x12", turned, "12x12x3",
                                          "add --data_layout=nhwc if the last extent is the")),
                    (folder, ["--data_layout=nhwc"],
                     sizes % ("3x12x12", folder, "12x3x12",
                              "remove --data_layout=nhwc if the first extent is the channels"))):
                worker = self.run_worker(*flags, *layout, data=data, status=words is not None)
                self.assertIn(words or "test accuracy", worker.output())

    def test_labels_of_wrong_type_refused(self):
        """The line names the type found, and the call that fixes it."""
        folder = self.make("npy", "--made=1x6x15", "--classes=5", "--train=60", "--test=20")
        name = "train-labels.npy"
        for descr, shape, content, words in (
                ("<f8", (60,), bytes(480), ("labels of floats", "astype(numpy.int64)")),
                ("<f4", (60,), bytes(240), ("labels of floats", "astype(numpy.int64)")),
                ("<i8", (60,), struct.pack("<q", -1) * 60, ("int64) is -1", "numpy.unique(")),
                ("<i4", (60, 5), bytes(1200), ("(60, 5) of int32", "labels.argmax(axis=1)"))):
            with self.subTest(descr=descr, shape=shape):
                self.npy(folder, name, descr, shape, content)
                if "f" in descr:
                    self.npy(folder, "test-labels.npy", descr, (20,), bytes(20 * int(descr[2])))
                self.says(folder, *words)

    def test_files_of_pytorch_refused(self):
        """Pickles are programs, which the worker does not read. The line names the format to
        write."""
        path = self.path("set.pt")
        with zipfile.ZipFile(path, "w") as z:
            z.writestr("set/data.pkl", b"x" * 50)
        pickled = self.write("old.pth", b"\x80\x02" + bytes(60))
        for p in (path, pickled):
            for flags in (["--train_data=" + p, "--test_data=" + p], ["--init=" + p],
                          ["--evaluate=" + p]):
                argv = [harness.program("worker"), "--models_dir=" + harness.MODELS,
                        "--model=softmax", *FLAGS, *flags]
                if "--train_data=" + p not in flags:
                    argv.append("--data_dir=" + self.data())
                worker = self.start("worker", argv)
                self.assertIn(p + ": was written by torch.save", worker.wait_output(30, 1))
                self.assertIn("safetensors.torch.save_file", worker.output())

    def test_non_finite_numbers_refused(self):
        """The worker finds them before the first step, though no step would read them."""
        folder = self.make("npy", "--made=1x2x3", "--classes=3", "--train=60", "--test=20")
        other = self.make("npy", "--made=1x2x3", "--classes=3", "--train=60", "--test=20")
        few = ["--train_steps=1", "--batch_size=1", "--intra_op_threads=1"]
        for in_folder, part, n, flags in (
                (folder, "train", 60, []),
                (folder, "train", 60, ["--checkpoint_dir=" + self.path("ckpt")]),
                (folder, "test", 20, []),
                (other, "test", 20, ["--validation_dir=" + other])):
            name = "%s-images.npy" % part
            kept = harness.read_bytes(os.path.join(in_folder, name))
            values = [0.5] * (6 * n)
            values[6 * 17 + 4] = float("-inf")
            self.npy(in_folder, name, "<f4", (n, 2, 3), struct.pack("<%df" % (6 * n), *values))
            worker = self.run_worker(*few, *flags, data=folder, status=1)
            self.assert_has(worker.output(), "%s/%s: sample 17 (from byte " % (in_folder, name),
                            "has the number -inf, which is not finite; fix it or remove the sample")
            self.assertNotIn("training samples from", worker.output())
            harness.write_file(os.path.join(in_folder, name), kept)
        self.run_worker(*few, data=folder)

    def test_truncated_safetensors_refused(self):
        """Truncated within the data, and within the header: the line has both sizes."""
        folder = self.make("safetensors", "--made=1x6x5", "--classes=5", "--train=60", "--test=20")
        path = os.path.join(folder, "train.safetensors")
        size = os.path.getsize(path)
        os.truncate(path, size - 7)
        self.says(folder, path + ": is truncated: its header states %d bytes in all, but there are "
                  "%d" % (size, size - 7))
        with open(path, "rb") as f:
            header, = struct.unpack("<Q", f.read(8))
        os.truncate(path, 40)
        self.says(folder, path + ": is truncated, or not a safetensors file: its header would end "
                  "at byte %d, the file has 40 bytes" % (8 + header))

    def test_flags_of_another_format_refused(self):
        """Such flags would have no effect, silently."""
        idx = self.data()
        for flag, said in (("--images_name=x", "is for npz and safetensors files"),
                           ("--labels_name=x", "is for npz and safetensors files"),
                           ("--label_column=1", "is for CSV files"),
                           ("--data_layout=nhwc", "is for arrays of more than three extents")):
            worker = self.run_worker(*FLAGS, flag, data=idx, status=1)
            self.assertIn("%s %s, but %s" % (flag if "nhwc" in flag else flag.split("=")[0], said,
                                             idx), worker.output())
        self.run_worker(*FLAGS, "--data_layout=nchw", "--train_steps=2", data=idx)


harness.main(__name__)
