#!/usr/bin/python3
"""The data set belongs to the job: a worker with another data set is refused, and the message names
the difference, unless each worker has data of its own. A resumed job continues with the data of its
checkpoint."""
# label: cluster
import os
import random
import re
import tempfile

import harness

FLAGS = ["--batch_size=20", "--train_steps=100000000", "--seed=3", "--fault_push_delay_ms=2"]
OWN = ["--batch_size=5", "--seed=3", "--data_shard=own"]
ROUNDS = [*OWN, "--local_steps=10", "--optimizer=adam"]


class DataSet(harness.Test):
    @classmethod
    def setUpClass(cls):
        """Makes data with the counts and shapes of data(): only the pixels and labels differ."""
        cls.other = tempfile.TemporaryDirectory(prefix="weir-other-")
        harness.make_data(cls.other.name, seed=8)

    @classmethod
    def tearDownClass(cls):
        cls.other.cleanup()

    def status(self, job):
        """Returns the data of the job in weirctl status: as a table and as JSON."""
        return job.ctl("status"), job.report()["job"]["data"]

    def begin(self, flags, *of_worker, **kwargs):
        """Starts a job's server and worker 0, which joins. kwargs: arguments of Job."""
        job = self.job(flags=flags, **kwargs)
        job.start_ps(0)
        job.start_worker(0, *of_worker)
        job.ps[0].wait_line("worker 0 joined")
        return job

    def test_other_data_set_refused(self):
        job = self.begin(FLAGS)
        text = (r"another data set: CRC-32C of the training labels: the servers have "
                r"[0-9a-f]{8} in %s, the worker has [0-9a-f]{8} in %s "
                % (self.data(), self.other.name))
        job.start_worker(1, "--data_dir=" + self.other.name).ends(1, "refused this worker: " + text)
        job.ps[0].wait_line("worker 1 from .* refused: " + text)
        job.start_worker(1)
        job.workers[0].wait_line("training step")
        joiner = job.join_worker("joiner", "--data_dir=" + self.other.name)
        joiner.ends(1, "refused this worker: " + text)
        table, data = self.status(job)
        self.assertIn("data: %s; 2400 training and 500 test samples of 1x28x28 in 10 classes" %
                      self.data(), table)
        self.assertEqual((data["training_samples"], data["own_shards"]), (2400, False))
        job.kill()

    def test_own_shards_may_differ(self):
        job = self.begin([*FLAGS, "--data_shard=own"])
        job.start_worker(1, "--data_dir=" + self.other.name)
        job.workers[0].wait_line("training step")
        table, data = self.status(job)
        self.assertIn("each worker has its own part (--data_shard=own)", table)
        self.assertTrue(data["own_shards"])
        self.kill(job.workers[1])
        wrong = job.start_worker(1, "--data_shard=same")
        wrong.ends(1, "another data set: --data_shard: the servers have own, the worker has same")
        self.kill(job.workers[0], job.ps[0])

    def test_own_shards_need_a_named_folder(self):
        """The default folder cannot be a worker's own part: neither with --data_shard=own, nor for
        a worker that joins such a job."""
        job = self.started_job(flags=[*FLAGS, "--data_shard=own"])
        job.workers[0].wait_line("training step")
        for flag, status, text in (("--join", 1, "--join"),
                                   ("--data_shard=own", 2, "--data_shard=own")):
            worker = self.start_program("worker", flag, "--ps_hosts=" + job.ps_hosts[0],
                                        name="nothing named")
            worker.wait(60, status)
            worker.wait_line("^E .*%s: each worker of this job has data of its own; set --data_dir"
                             % text)
        joiner = job.join_worker("joiner", "--data_dir=" + self.other.name)
        joiner.wait_line("joined as worker 2")
        self.kill(joiner, *job.workers, job.ps[0])

    def pictures(self, name, classes):
        """Makes a folder of pictures of these classes."""
        folder = self.make_samples("png", name, "--made=1x4x4", "--classes=%d" % len(classes),
                                   "--train=40", "--test=20")
        for part in ("train", "test"):
            for i, label in enumerate(classes):
                os.rename(os.path.join(folder, part, "%05d" % i), os.path.join(folder, part, label))
        return folder

    def test_own_shards_need_equal_class_folders(self):
        """A label is the place of a folder in sorted order: parts that lack a folder would be mixed
        up."""
        first, second = (self.pictures(*p) for p in (("a", ["ant", "bee"]), ("b", ["bee", "cat"])))
        job = self.begin(["--batch_size=10", "--train_steps=4", "--seed=3", "--data_shard=own"],
                         data=first)
        wrong = job.start_worker(1, "--data_dir=" + second)
        wrong.ends(1, r"another data set: names of the classes \(all workers need the same; "
                   r"an empty folder is a class, too, and a CSV file can have numbers instead "
                   r"of words\): the servers have [0-9a-f]{8} in %s, the worker has "
                   r"[0-9a-f]{8} in %s" % (first, second))
        job.start_worker(1, "--data_dir=" + self.pictures("c", ["ant", "bee"]))
        job.finish()

    def csv(self, name, labels):
        """Makes a folder with a CSV file of samples with these labels."""
        self.new_folder(name)
        self.write(name + "/train.csv", "width,height,label\n" + "".join(
            "%d,%d,%s\n" % (i % 5, i % 3, label) for i, label in enumerate(labels)))
        return self.path(name)

    def part(self, name, n):
        """Makes a folder with a CSV file of n samples."""
        return self.csv(name, [i % 2 for i in range(n)])

    def test_own_shards_train_the_steps_of_worker_0(self):
        """--epochs counts worker 0's part; each other worker logs the passes over its own part."""
        for first, other, n, of_other in ((40, 20, 20, 2), (20, 40, 40, 0.5)):
            steps = first // 10
            job = self.job(data=self.part("first%d" % first, first), flags=[*OWN, "--epochs=1"])
            job.start_ps(0)
            own = job.start_worker(1, "--data_dir=" + self.part("other%d" % other, other))
            job.start_worker(0)
            own.wait_line("the job runs %d steps, which follow from --epochs=1 and worker 0's part"
                          "; this worker's part has %d samples, so these steps are %g epochs$"
                          % (steps, n, of_other))
            self.assertEqual({w["global_step"] for w in job.finish()}, {steps})
            for worker in job.workers:
                self.assertNotIn("the job has ended", worker.output())

    def test_own_shards_decay_over_the_steps_of_worker_0(self):
        """Local steps at a falling rate end with the bits of a job in which all workers have the
        steps as a flag."""
        flags = [*OWN, "--local_steps=2", "--lr_schedule=linear"]
        first, other, ends = self.part("first", 240), self.part("other", 120), []
        for steps in ("--epochs=1", "--train_steps=24"):
            job = self.job(data=first, flags=flags + [steps])
            job.start_ps(0)
            job.start_worker(0)
            job.start_worker(1, "--data_dir=" + other)
            ends.append(job.finish())
        for epochs, typed in zip(*ends):
            self.assertEqual(epochs["global_step"], 24)
            self.assert_same(epochs, typed, "parameters_sha256")

    def test_own_shards_share_the_default_outer_optimizer(self):
        """The default depends on the steps: sgd after adam below five rounds, otherwise
        nesterov."""
        for first, other, kind in ((600, 300, "nesterov"), (300, 600, "sgd")):
            steps, ends = first // 10, []
            parts = [self.part("%s%d" % part, part[1])
                     for part in (("first", first), ("other", other))]
            for given in ("--epochs=1", "--train_steps=%d" % steps):
                job = self.job(data=parts[0], flags=[*ROUNDS, given])
                ps = job.start_ps(0)
                job.start_worker(0)
                job.start_worker(1, "--data_dir=" + parts[1])
                ps.wait_line("2 workers, sync, %s, %d steps" % (kind, steps // 10))
                ends.append(job.finish())
                for worker in job.workers:
                    said = worker.output()
                    self.assertIn("%d rounds: in each, a worker makes 10 steps with adam, then the "
                                  "servers make one step with %s" % (steps // 10, kind), said)
                    self.assertEqual(said.count(" rounds: in each, "), 1)
                    self.assertEqual("exchanges its parameters only" in said, kind == "sgd")
            for epochs, typed in zip(*ends):
                self.assertEqual(epochs["global_step"], steps)
                self.assertEqual(epochs["parameters_sha256"], typed["parameters_sha256"])

    def test_own_shards_refuse_another_outer_optimizer_flag(self):
        """Only a worker without the flag adopts the job's optimizer."""
        job = self.begin([*ROUNDS, "--epochs=1"], data=self.part("first", 600))
        other = "--data_dir=" + self.part("other", 300)
        for typed, said in (("--outer_optimizer=sgd",
                             "--outer_optimizer: the servers have nesterov, the worker has sgd"),
                            ("--outer_momentum=0.25",
                             "--outer_momentum: the servers have 0.5, the worker has 0.25")):
            job.start_worker(1, other, typed).ends(1, said)
        job.start_worker(1, other)
        job.finish()

    def test_own_shards_accept_equal_outer_momentum_0(self):
        """Workers with the flag --outer_momentum=0 belong to one job, though the default of one of
        them is sgd, which has no momentum."""
        parts = {n: self.part("of%d" % n, n) for n in (600, 300)}
        typed = "--outer_momentum=0"
        for first, other, kind, said in (
                (600, 300, "nesterov", "--outer_momentum: the servers have 0, the worker has 0.25"),
                (300, 600, "sgd", "--outer_optimizer: the servers have sgd, the worker has "
                                  "nesterov")):
            part = "--data_dir=" + parts[other]
            job = self.begin([*ROUNDS, "--epochs=1"], typed, data=parts[first])
            job.ps[0].wait_line("2 workers, sync, %s, %d steps" % (kind, first // 100))
            job.start_worker(1, part, "--outer_momentum=0.25").ends(1, said)
            job.start_worker(1, part, typed).wait_line(
                "%d rounds: in each, a worker makes 10 steps with adam, then the servers make one "
                "step with %s"
                % (first // 100, kind))
            job.finish()

    def test_own_shards_restore_outer_optimizer_at_new_servers(self):
        """A ps 0 without a checkpoint, which replaces a dead one, adopts the job of any worker."""
        job = self.begin([*ROUNDS, "--epochs=1"], "--fault_push_delay_ms=5000",
                         data=self.part("first", 600))
        job.start_worker(1, "--data_dir=" + self.part("other", 300)).wait_line("6 rounds: in each")
        self.kill(job.workers[0], job.ps[0])
        job.start_ps(0).wait_line("2 workers, sync, nesterov, 6 steps")
        job.start_worker(0)
        job.finish()

    def test_own_shards_keep_steps_after_part_of_worker_0_grew(self):
        """Worker 0 is restarted with a larger part: the job keeps its original number of steps."""
        job = self.begin([*OWN, "--epochs=1"], data=self.part("first", 40))
        job.restart_worker(0, "--data_dir=" + self.part("grown", 80))
        job.start_worker(1)
        self.assertEqual({w["global_step"] for w in job.finish()}, {4})
        self.assertIn("the job runs 4 steps, which followed from --epochs=1 at its start; "
                      "worker 0's part now has 80 samples, so these steps are 0.5 epochs\n",
                      job.workers[0].output())
        self.assertNotIn("the job runs", job.workers[1].output())

    def test_own_shards_resume_with_outer_optimizer_of_checkpoint(self):
        """More --epochs make more rounds, but the checkpoint has the slots of its optimizer."""
        job = self.job(data=self.part("first", 300), flags=ROUNDS)
        other = "--data_dir=" + self.part("other", 600)
        saves = "--checkpoint_dir=" + self.path("saved")
        for epochs, rounds in ((1, 3), (2, 6)):
            ps = job.start_ps(0, saves)
            job.start_worker(0, "--epochs=%d" % epochs)
            ps.wait_line("2 workers, sync, sgd, %d steps" % rounds)
            job.start_worker(1, "--epochs=%d" % epochs, other)
            job.finish()
            for worker in job.workers:
                self.assertIn("%d rounds: in each, a worker makes 10 steps with adam, then the "
                              "servers make one step with sgd" % rounds, worker.output())

    def test_own_shards_resume_with_steps_of_late_worker_0(self):
        """After a checkpoint with all steps, only worker 0's part determines the new steps."""
        job = self.job(data=self.part("first", 300), flags=[*OWN, "--local_steps=10"])
        other = "--data_dir=" + self.part("other", 600)
        saves = "--checkpoint_dir=" + self.path("saved")
        job.start_ps(0, saves)
        job.start_worker(0, "--epochs=1")
        job.start_worker(1, "--epochs=1", other)
        job.finish()
        job.start_ps(0, saves)
        job.start_worker(1, "--epochs=2", other).wait_line(
            "worker 0 decides the job's settings, and has not joined yet")
        job.start_worker(0, "--epochs=2")
        self.assertEqual({w["global_step"] for w in job.finish()}, {60})

    def test_own_shards_resume_with_recorded_steps_without_worker_0(self):
        """Restored servers do not add steps for another worker's part."""
        job = self.job(data=self.part("first", 40), flags=[*OWN, "--epochs=1"])
        other = "--data_dir=" + self.part("other", 80)
        saves = "--checkpoint_dir=" + self.path("saved")
        job.start_ps(0, saves)
        job.start_worker(0)
        job.start_worker(1, other)
        job.finish()
        ps = job.start_ps(0, saves, "--worker_timeout=1", "--min_workers=1")
        job.start_worker(1, other).wait_line(
            "nothing is left to train: the job is at step 4 of 4$")
        job.workers[1].wait(60)
        ps.wait(60)

    def test_own_shards_refuse_other_steps_by_flag(self):
        """A worker with another --train_steps or --epochs is refused, and the refusal names the
        right flags."""
        job = self.begin(OWN, "--epochs=1", data=self.part("big", 40))
        small = self.part("small", 20)
        for steps, said in (("--train_steps=2",
                             "--train_steps: the servers have 4, the worker has 2; with "
                             "--data_shard=own all workers need the same --train_steps, or all "
                             "the same --epochs"),
                            ("--epochs=2", "--epochs: the servers have 1, the worker has 2")):
            job.start_worker(1, steps, "--data_dir=" + small).ends(1, said)
        job.start_worker(1, "--train_steps=4", "--data_dir=" + small)
        job.finish()

    def test_own_shards_need_equal_label_words(self):
        """The numbers of words depend on the words of a part; numeric labels do not."""
        first, second = (self.csv(name, labels * 10) for name, labels in (
            ("a", ["ant", "bee"]), ("b", ["bee", "cat/dog"])))
        job = self.begin(["--batch_size=10", "--train_steps=4", "--seed=3", "--data_shard=own"],
                         data=first)
        wrong = job.start_worker(1, "--data_dir=" + second)
        wrong.ends(1, "another data set: names of the classes .* a CSV file can have numbers "
                   "instead of words.* in %s, the worker has [0-9a-f]{8} in %s" % (first, second))
        job.start_worker(1, "--data_dir=" + self.csv("c", ["0", "1"] * 10))
        job.finish()

    def own_part(self, name, seed):
        """Makes a folder of 20 random samples; returns (samples as numbers, labels) of its training
        set."""
        rng, n, side = random.Random(seed), 20, 4
        folder = self.new_folder(name)
        for part in ("test", "train"):
            samples = rng.randbytes(n * side * side)
            labels = bytes(rng.sample(range(10), 10) + rng.sample(range(10), 10))
            harness.write_samples(os.path.join(folder, part), (n, side, side), samples, labels)
        cells = side * side
        return folder, [([p / 255 for p in samples[i * cells:(i + 1) * cells]], label)
                        for i, label in enumerate(labels)]

    def test_own_shards_all_contribute(self):
        """The batches of one step are the whole parts of both workers. All weights are 0 before, so
        the mean gradient contains each pixel of each sample, times -0.9 or 0.1."""
        rate, export = 0.5, self.path("export")
        (first, some), (second, others) = self.own_part("a", 1), self.own_part("b", 2)
        job = self.job(data=first, flags=["--batch_size=20", "--train_steps=1", "--optimizer=sgd",
                                          "--learning_rate=%g" % rate, "--data_shard=own"])
        job.start_ps(0)
        job.start_worker(0, "--export=" + export)
        job.start_worker(1, "--data_dir=" + second)
        one, other = job.finish()
        self.assertEqual(one["parameters_sha256"], other["parameters_sha256"])
        shape, values = harness.read_safetensors(export)["softmax/weights"]
        self.assertEqual(list(shape), [10, 16])
        both = some + others
        for k in range(10):
            for i in range(16):
                want = -rate * sum((0.1 - (label == k)) * x[i] for x, label in both) / len(both)
                self.assertAlmostEqual(values[k * 16 + i], want, delta=1e-6)

    def test_resumed_job_with_other_data_refused(self):
        folder = self.dir()
        flags = ["--batch_size=20", "--train_steps=5", "--seed=3"]
        self.started_job(n_workers=1, flags=flags, ps_flags=["--checkpoint_dir=" + folder]).finish()
        flags[1] = "--train_steps=10"
        job = self.job(n_workers=1, flags=flags)
        job.start_ps(0, "--checkpoint_dir=" + folder)
        wrong = job.start_worker(0, "--data_dir=" + self.other.name)
        wrong.ends(1, "the checkpoint at step 5 is of another data set: CRC-32C of the "
                   "training labels: the checkpoint has [0-9a-f]{8} in %s," % self.data())
        job.start_worker(0, "--data_dir=" + self.other.name, "--data_shard=own")
        job.finish()
        job.ps[0].wait_line("resumes from step 5")

    def test_resumed_worker_alone_with_other_data_refused(self):
        """A worker that trains alone resumes only with the data of its checkpoint."""
        folder = "--checkpoint_dir=" + self.path("alone")
        self.run_worker("--batch_size=20", "--train_steps=5", folder)
        wrong = self.run_worker("--batch_size=20", "--train_steps=10", folder, status=None,
                                data=self.other.name)
        self.assertNotEqual(wrong.status, 0)
        wrong.wait_line("is of another data set: CRC-32C of the training labels: ")
        self.run_worker("--batch_size=20", "--train_steps=10", folder)

    def test_workers_with_other_arithmetic_named(self):
        """Bits depend on instructions and threads: a worker that computes differently trains, but
        is named."""
        folder = "--checkpoint_dir=" + self.path("ckpt")
        flags = ["--batch_size=20", "--seed=3"]
        job = self.job(flags=[*flags, "--train_steps=5"])
        job.start_ps(0, folder)
        job.start_worker(0, "--intra_op_threads=1")
        job.ps[0].wait_line("worker 0 joined")
        job.start_worker(1, "--intra_op_threads=2")
        job.ps[0].wait_line("worker 1 computes with '.*, 2 threads; vector loops .*', the job's "
                            "first worker with '.*, 1 thread; vector loops .*'")
        job.finish()
        self.assertEqual(job.ps[0].output().count("computes with"), 1)
        # The workers of this second job begin with equal numbers of threads.
        job = self.job(flags=[*flags, "--train_steps=10", "--intra_op_threads=2"]).start([folder])
        job.finish()
        job.ps[0].wait_line("the checkpoint at step 5 was computed with '.*, 1 thread; .*', the "
                            "job now uses '.*, 2 threads; ")
        self.assertNotRegex(job.ps[0].output(), "worker [01] computes with")

    def test_worker_with_other_instruction_set_refused(self):
        """A worker with other instructions is refused. The log names the vector loops, but they are
        not compared: all their forms compute the same bits (kernel_forms_test)."""
        job = self.begin(["--batch_size=20", "--seed=3", "--train_steps=5", "--intra_op_threads=1"])
        own = harness.until(lambda: self.computed_with(job), "the job has its first worker")
        library = re.match(r"oneDNN v[0-9.]+(.*), 1 thread; vector loops ", own).group(1)
        if not library:
            job.kill()
            self.skipTest("this machine has no more than SSE4.1: '%s'" % own)
        isa, name = ("SSE41", "") if library == ", AVX2" else ("AVX2", ", AVX2")
        job.start_worker(1, env={**os.environ, "ONEDNN_MAX_CPU_ISA": isa})
        job.ps[0].wait_line(
            r"worker 1 computes with 'oneDNN v[0-9.]+%s, 1 thread; vector loops .*', the "
            "job's first worker with '%s'" % (name, re.escape(own)))
        job.finish()

    def computed_with(self, job):
        doc = job.report()
        return doc["job"] and doc["job"]["arithmetic"]


harness.main(__name__)
