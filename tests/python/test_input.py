#!/usr/bin/python3
"""The worker normalises and augments samples before the model reads them. Samples normalised by
given or measured numbers train to the same bits as samples that were normalised beforehand. The
seed determines the augmentation, so a killed process changes no bit. All workers, --evaluate,
--predict and a resumed job treat samples alike."""
# label: cluster
import array
import os
import shutil
import struct
import sys

import harness

FLAGS = ["--batch_size=20", "--train_steps=30", "--learning_rate=0.01", "--seed=3",
         "--intra_op_threads=1", "--log_every=1"]
NORMAL = ["--mean=0.25", "--std=0.5"]
AUGMENT = "--augment=flip,shift:2,crop:3,cutout:8"


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


class InputTest(harness.Test):
    def train(self, *flags, **kwargs):
        """Returns the collected worker and its figures."""
        return self.train_alone(*FLAGS, *flags, **kwargs)

    def settle(self, first, second, refused):
        """Starts a job of two workers with these flags, after worker 1 was refused with each of
        `refused`: (flags, words). Returns a worker that has joined without flags, and weirctl's
        view of the job: its text, and the `job` of its JSON."""
        job = self.job(n_workers=2, flags=["--batch_size=20", "--train_steps=100000000",
                                           "--seed=3", "--fault_push_delay_ms=2"])
        job.start_ps(0)
        job.start_worker(0, *first)
        job.ps[0].wait_line("worker 0 joined")
        for flags, said in refused:
            job.start_worker(1, *flags).ends(1, "refused this worker: another job: " + said)
        job.start_worker(1, *second)
        job.workers[0].wait_line("training step")
        joiner = job.join_worker("joiner", "--data_dir=" + self.data(), "--progress=lines")
        joiner.wait_line("joined as worker 2 of 3")
        self.at_end(lambda: self.kill(*job.workers, joiner, job.ps[0]))
        return joiner, job.ctl("status"), job.report()["job"]

    def numbers(self, worker):
        """Returns mean and deviation from the worker's line."""
        match = worker.wait_line(r"samples are normalised: mean (\S+), standard deviation (\S+)")
        return match.group(1), match.group(2)

    def floats(self, mean, std, name="floats"):
        """Makes a folder with the data set as normalised floats."""
        value = [f32(f32(f32(v / 255) - mean) / std) for v in range(256)]
        folder = self.new_folder(name)
        for part in ("train", "t10k"):
            shutil.copy(os.path.join(self.data(), part + "-labels-idx1-ubyte"), folder)
            with open(os.path.join(self.data(), part + "-images-idx3-ubyte"), "rb") as f:
                head, pixels = f.read(16), f.read()
            numbers = array.array("f", map(value.__getitem__, pixels))
            if sys.byteorder == "little":
                numbers.byteswap()
            with open(os.path.join(folder, part + "-images-idx3-ubyte"), "wb") as f:
                f.write(head[:2] + b"\x0d" + head[3:] + numbers.tobytes())
        return folder

    def assert_same(self, a, b, *keys):
        super().assert_same(a, b, "parameters_sha256", "test_loss", "test_accuracy", *keys)

    def check_bad(self, rows, **kwargs):
        """Checks that the flags of each row end the worker with one line of error and this
        status."""
        for flags, status, said in rows:
            worker = self.run_worker(*FLAGS, *flags, status=status, **kwargs)
            errors = [line for line in worker.lines if line.startswith("E ")]
            self.assertEqual(len(errors), 1, worker.output())
            self.assertRegex(errors[0], said)


class Normal(InputTest):
    def test_normalisation_same_bits_as_beforehand(self):
        """A worker that normalises computes (x - mean) / std in float, also for the test set. Its
        figures equal those for normalised samples to the last bit."""
        worker, got = self.train(*NORMAL, "--validation_split=0.1", "--eval_every=10")
        self.assertEqual(self.numbers(worker), ("0.25", "0.5"))
        _, want = self.train("--validation_split=0.1", "--eval_every=10",
                             data=self.floats(0.25, 0.5))
        self.assert_same(got, want, "validation_loss")
        _, plain = self.train()
        self.assertNotEqual(plain["parameters_sha256"], got["parameters_sha256"])

    def test_measured_numbers_same_bits_as_given(self):
        """The worker measures over the training set, without validation samples. A run with these
        numbers as flags ends with the same bits. So does a job with servers in which some workers
        measure and others have flags."""
        worker, want = self.train("--mean=measured", "--std=measured")
        self.assertIn("(measured over 2400 training samples)", worker.output())
        mean, std = self.numbers(worker)
        pixels = harness.read_bytes(os.path.join(self.data(), "train-images-idx3-ubyte"))[16:]
        counts = [pixels.count(v) for v in range(256)]
        m = sum(v * n for v, n in enumerate(counts)) / len(pixels)
        s = (sum((v - m) ** 2 * n for v, n in enumerate(counts)) / len(pixels)) ** 0.5
        self.assertAlmostEqual(float(mean), m / 255, delta=1e-7)
        self.assertAlmostEqual(float(std), s / 255, delta=1e-7)
        _, got = self.train("--mean=" + mean, "--std=" + std)
        self.assert_same(got, want)
        worker, _ = self.train("--mean=measured", "--validation_split=0.25")
        self.assertIn("(measured over 1800 training samples)", worker.output())
        self.assertNotEqual(self.numbers(worker)[0], mean)
        self.assertEqual(self.numbers(worker)[1], "1")
        job = self.job(n_ps=2, flags=FLAGS)
        job.start_servers()
        job.start_worker(0, "--mean=measured", "--std=measured")
        job.start_worker(1, "--mean=" + mean, "--std=measured")
        first, second = job.finish()
        self.assert_same(first, second)
        self.assertEqual(self.numbers(job.workers[1]), (mean, std))

    def test_inference_normalises_as_training(self):
        """Without a flag the numbers are those of training; other numbers are refused."""
        _, want = self.train(*NORMAL, "--checkpoint_dir=" + self.path("ckpt"),
                             "--export=" + self.path("m.safetensors"))
        meta = harness.safetensors_metadata(self.path("m.safetensors"))
        self.assertEqual((meta["mean"], meta["std"]), ("0.25", "0.5"))
        outputs = set()
        for file in (self.path("m.safetensors"), self.path("ckpt")):
            for more in ([], NORMAL, ["--predict=" + file, "--output=" + self.path("out.csv")]):
                flags = [] if len(more) and "predict" in more[0] else ["--evaluate=" + file]
                worker = self.run_worker("--summary_json=" + self.path("evaluated.json"), *flags,
                                         "--intra_op_threads=1", *more)
                self.assertIn("standard deviation 0.5, as in training", worker.output())
                self.assert_same(self.figures("evaluated.json"), want)
            outputs.add(harness.read_bytes(self.path("out.csv")))
            for flag, said in ((["--mean=0.5", "--std=0.5"], "--mean: %s was trained with 0.25, "
                                "but this job has 0.5; remove --mean and --std" % file),
                               (["--mean=0.25"], "--std: %s was trained with 0.5, but this job "
                                "has 1" % file)):
                worker = self.run_worker("--evaluate=" + file, *flag, status=1)
                self.assertIn(said, worker.output())
            self.assertIn("remove the flags", self.run_worker(
                "--evaluate=" + file, "--mean=measured", status=2).output())
        self.assertEqual(len(outputs), 1)
        self.train("--export=" + self.path("plain.safetensors"))
        worker = self.run_worker("--evaluate=" + self.path("plain.safetensors"), *NORMAL, status=1)
        self.assertIn("was trained with none, but this job has 0.25", worker.output())

    def test_normalisation_kept_by_checkpoint(self):
        """A job that resumes, alone or with servers, uses the numbers in its checkpoint and ends
        with the same bits. It refuses other numbers."""
        folder = "--checkpoint_dir=" + self.path("ckpt")
        _, want = self.train("--mean=measured", "--std=measured")
        worker, _ = self.train("--mean=measured", "--std=measured", folder, "--train_steps=10")
        mean, std = self.numbers(worker)
        for flags, said in (([], r"--mean: the checkpoint has %s, the worker has none" % mean),
                            (["--mean=" + mean], "--std: the checkpoint has %s, the worker has 1" %
                             std)):
            worker = self.run_worker(*FLAGS, folder, *flags, status=1)
            self.assert_has(worker.output(), said, "another --checkpoint_dir")
        job = self.job(n_workers=1, flags=[*FLAGS, "--mean=" + mean, "--std=measured"])
        job.start([folder])
        summary, = job.finish()
        self.assert_same(summary, want)
        self.assertEqual(summary["local_steps"], 20)

    def test_normalisation_settled_by_job(self):
        """A worker with another number is refused. A worker that joins without flags adopts the
        job's numbers."""
        joiner, text, doc = self.settle(NORMAL, NORMAL, (
            ([], "--mean: the servers have 0.25, the worker has none"),
            (["--mean=0.25"], "--std: the servers have 0.5, the worker has 1")))
        self.assertEqual(self.numbers(joiner), ("0.25", "0.5"))
        self.assertIn("\nsamples are normalised: mean 0.25, standard deviation 0.5\n", text)
        self.assertNotIn("augmented", text)
        self.assertEqual((doc["mean"], doc["std"], doc["augment"]), ([0.25], [0.5], None))

    def test_bad_normalisation_flags_refused(self):
        self.check_bad((
                (["--mean=0,1"], 1, "--mean has 2 numbers, but samples of .* have 1 channel; set"),
                (["--std=0"], 2, "--std: '0' is neither a list of at most 64 numbers above 0, "
                                 "such as"),
                (["--std=-1"], 2, "--std: '-1' is neither a list"),
                (["--mean=x"], 2, "--mean: 'x' is neither a list of at most 64 numbers, such as"),
                (["--mean="], 2, "--mean: '' is neither a list"),
                (["--mean=0,nan"], 2, "--mean: '0,nan' is neither a list"),
                (["--mean=1,2", "--std=1,2,3"], 2,
                 "--mean and --std have different counts of numbers"),
                (["--mean=measured", "--data_shard=own", "--ps_hosts=localhost:1"], 2,
                 "each worker would measure its own part; set numbers"),
                (["--mean=1e30", "--std=1e-30"], 1, "not finite after --mean and --std; set")))
        folder = self.new_folder("black")
        for part in ("train", "t10k"):
            harness.write_samples(os.path.join(folder, part), (40, 28, 28), bytes(40 * 28 * 28),
                                  bytes(range(10)) * 4)
        worker = self.run_worker(*FLAGS, "--std=measured", data=folder, status=1)
        self.assert_has(worker.output(), "channel 1 of", "deviation is 0; set --std to numbers")


class Scale(InputTest):
    """Bytes are divided by 255, and floats are used unchanged. The worker warns if one set has
    bytes and the other one floats."""

    def lines(self, *flags, data=None, **kwargs):
        """Returns the warnings about samples of different scales."""
        worker = self.run_worker(*flags, "--intra_op_threads=1", data=data, **kwargs)
        return [line.split(" ", 3)[3] for line in worker.lines if "their scales differ" in line]

    def mix(self, name, train, test):
        """Makes a folder with the training set of the folder `train` and the test set of `test`."""
        folder = self.new_folder(name)
        for source, part in ((train, "train"), (test, "t10k")):
            for end in ("-images-idx3-ubyte", "-labels-idx1-ubyte"):
                shutil.copy(os.path.join(source, part + end), folder)
        return folder

    def test_sets_of_two_scales_warned(self):
        of_bytes, floats = self.data(), self.floats(0, 1 / 256)
        for train, test, here, there in (
                (of_bytes, floats, "floats, from 0 to 256",
                 "whole numbers divided by 255, from 0 to 1"),
                (floats, of_bytes, "whole numbers divided by 255, from 0 to 1",
                 "floats, from 0 to 256")):
            folder = self.mix("mix" + there[0], train, test)
            said, = self.lines(*FLAGS, data=folder)
            self.assertIn("t10k-images-idx3-ubyte: its samples are %s, but those of the training "
                          "set, %s/train-images-idx3-ubyte, are %s: their scales differ; "
                          "save both as the same type, or divide the floats by 255, too" %
                          (here, folder, there), said)
            said, = self.lines(*FLAGS, "--validation_dir=" + test, data=train)
            self.assertIn("its samples are " + here, said)
            self.assertEqual(self.lines(*FLAGS, data=train), [])
        shutil.rmtree(floats)
        folder = self.mix("fits", of_bytes, self.floats(0, 1))
        self.assertEqual(self.lines(*FLAGS, data=folder), [])

    def test_file_and_set_of_two_scales_warned(self):
        of_bytes, floats, model = self.data(), self.floats(0, 1 / 256), self.path("m")
        out = "--output=" + self.path("out.csv")
        for train, other, there, here in (
                (of_bytes, floats, "whole numbers divided by 255, from 0 to 1",
                 "floats, from 0 to 256"),
                (floats, of_bytes, "floats, from 0 to 256",
                 "whole numbers divided by 255, from 0 to 1")):
            self.assertEqual(self.lines(*FLAGS, "--export=" + model, data=train), [])
            for flags in (["--evaluate=" + model], ["--predict=" + model, out]):
                said, = self.lines(*flags, data=other)
                self.assertIn("%s: %s was trained on samples that are %s, but those of "
                              "%s/t10k-images-idx3-ubyte are %s: their scales differ" %
                              (flags[0].split("=")[0], model, there, other, here), said)
                self.assertEqual(self.lines(*flags, data=train), [])

    def test_floats_of_two_scales_warned(self):
        low, high = self.floats(0, 1), self.floats(0, 1 / 256, "high")
        model = self.path("m")
        for train, test, here, there in ((low, high, "from 0 to 256", "from 0 to 1"),
                                         (high, low, "from 0 to 1", "from 0 to 256")):
            folder = self.mix("two" + here.replace(" ", ""), train, test)
            said, = self.lines(*FLAGS, "--export=" + model, data=folder)
            self.assertIn("its samples are floats, %s, but those of the training set" % here, said)
            self.assertIn("are floats, %s: their scales differ; use the same unit in both; "
                          "whole numbers are divided by 255, floats are not" % there, said)
            said, = self.lines("--evaluate=" + model, data=folder)
            self.assertIn("m was trained on samples that are floats, %s, but those of" % there,
                          said)

    def test_mean_and_deviation_above_1_for_bytes_warned(self):
        """For bytes they apply after the division by 255; floats are not divided."""
        def said(*flags, **kwargs):
            worker = self.run_worker(*FLAGS, *flags, **kwargs)
            return [line for line in worker.lines if "is above 1, but samples" in line], worker

        lines, worker = said("--mean=120", "--std=60")
        self.assertIn("samples are normalised: mean 120, standard deviation 60", worker.output())
        for line, words in zip(lines, ("--mean: 120", "--std: 60"), strict=True):
            self.assertIn("%s is above 1, but samples of %s/train-images-idx3-ubyte are whole "
                          "numbers divided by 255, from 0 to 1, and the flag is in the unit after "
                          "the division; for bytes this would be 0." % (words, self.data()), line)
        self.assertEqual(said("--mean=1", "--std=0.5")[0], [])
        self.assertEqual(said("--mean=120", "--std=60", data=self.floats(0, 1 / 256))[0], [])


class Augment(InputTest):
    """The data set has 2400 samples, so 300 steps of 20 samples are two and a half passes."""
    FLAGS = ["--train_steps=300", AUGMENT]

    def test_augmented_bytes_and_floats_same_bits(self):
        """Bytes, and the same numbers as floats, train to the same bits. Samples of the test set
        are unchanged; another --seed draws other samples."""
        _, plain = self.train()
        _, got = self.train(AUGMENT, "--export=" + self.path("m.safetensors"))
        self.assertNotEqual(got["parameters_sha256"], plain["parameters_sha256"])
        _, want = self.train(AUGMENT, data=self.floats(0, 1))
        self.assert_same(got, want)
        self.run_worker("--evaluate=" + self.path("m.safetensors"), "--intra_op_threads=1",
                        "--summary_json=" + self.path("evaluated.json"))
        self.assert_same(got, self.figures("evaluated.json"))
        _, normal = self.train(AUGMENT, "--mean=0", "--std=1")  # zeros fill before normalisation
        self.assert_same(normal, want)
        _, other = self.train(AUGMENT, "--seed=4")
        self.assertNotEqual(other["parameters_sha256"], got["parameters_sha256"])

    def test_augmentation_same_bits_after_kill(self):
        """A worker alone that is killed and started again has the undisturbed run's bits."""
        _, want = self.train(*self.FLAGS)
        keep = [*self.FLAGS, "--checkpoint_dir=" + self.path("ckpt"), "--save_steps=10"]
        gate = harness.Gate(self, 150)
        worker = self.start_alone(*FLAGS, *keep, "--fault_push_delay_ms=2",
                                  "--record_samples=" + gate.path)
        worker.wait_line("checkpoint at step [0-9]+: /")
        worker.kill()
        _, got = self.train(*keep)
        self.assert_same(got, want)
        self.assertLess(got["local_steps"], 300)
        self.assertIn("--augment: the checkpoint has flip,shift:2,crop:3,cutout:8, the worker has "
                      "flip; set the same flags, or another --checkpoint_dir, together with --init",
                      self.run_worker(*FLAGS, "--train_steps=310", "--augment=flip",
                                      "--checkpoint_dir=" + self.path("ckpt"), status=1).output())

    def test_augmentation_same_bits_with_servers(self):
        """The bits are the same with one server or two, with answers in any order, and after a
        worker was killed and returned (I2, I8)."""
        flags = [*FLAGS, *self.FLAGS, "--train_steps=150", "--chunk_bytes=4096", *NORMAL]
        sums = []
        for n_ps, killed in ((1, False), (2, False), (2, True)):
            job = self.job(n_ps=n_ps, flags=[*flags, "--fault_push_delay_ms=%d" % (2 * n_ps - 2)])
            if killed:
                job.hold(70)
            job.start()
            if killed:
                job.workers[1].wait_line("training step 50 done")
                job.restart_worker(1)
            first, second = job.finish()
            self.assert_same(first, second)
            sums.append(first["parameters_sha256"])
        self.assertEqual(len(set(sums)), 1, sums)

    def test_augmentation_settled_by_job(self):
        """A worker with another list is refused. A worker that joins without a list adopts the
        job's."""
        differs = "--augment: the servers have flip,crop:2, the worker has "
        _, text, doc = self.settle(["--augment=crop:2,flip"], ["--augment=flip,crop:2"], (
            ([], differs + "none"), (["--augment=flip,crop:3"], differs + "flip,crop:3")))
        self.assertIn("\ntraining samples are augmented: flip,crop:2\n", text)
        self.assertNotIn("normalised", text)
        self.assertEqual((doc["mean"], doc["std"], doc["augment"]), (None, None, "flip,crop:2"))

    def test_bad_augmentation_flags_refused(self):
        self.check_bad((
                (["--augment="], 2, "--augment: '' is not a list of flip, shift:N, crop:N and"),
                (["--augment=flip,turn"], 2, "--augment: 'flip,turn' is not a list of flip"),
                (["--augment=crop:0"], 2, "each once at most, with N from 1 to 65535"),
                (["--augment=flip", "--evaluate=x"], 2, "--augment changes training samples"),
                (["--augment=flip,crop:28"], 1,
                 "--augment=crop:28: samples of .* have 28x28 pixels; N must be below the "
                 "shorter")))
        folder = self.new_folder("rows")
        for part in ("train", "test"):
            with open(os.path.join(folder, part + ".csv"), "w", encoding="ascii") as f:
                f.writelines("%d,%d,%d\n" % (i, -i, i % 3) for i in range(60))
        self.check_bad(((["--augment=flip"], 1, "samples of .*train.csv are rows of 2 features, "
                         "without height and width; remove the flag"),), data=folder)


harness.main(__name__)
