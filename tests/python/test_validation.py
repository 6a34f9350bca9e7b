#!/usr/bin/python3
"""Validation data: no step reads these samples. The worker computes their figures, keeps the best
checkpoint, and ends training when no later evaluation is better."""
# label: cluster
import json
import os
import re

import ckpt_folder
import harness

FLAGS = ["--batch_size=20", "--seed=3", "--intra_op_threads=1", "--log_every=1"]
SPLIT = ["--validation_split=0.25", "--eval_every=5"]
# After its first steps the training learns nothing more at this rate: the loss goes up and down.
STOP = [*SPLIT, "--train_steps=400", "--learning_rate=0.3", "--early_stopping=3"]


class Validation(harness.Test):
    def train(self, *more, status=0):
        return self.train_alone(*FLAGS, *more, status=status)

    def losses(self, worker):
        """Returns the losses by step from the log lines."""
        found = re.findall(r"global step (\d+): validation accuracy: \S+, validation loss: (\S+)",
                           worker.output())
        return {int(step): float(loss) for step, loss in found}

    def best(self):
        return harness.read_json(self.path("ckpt/best"))

    def test_validation_split_evaluated(self):
        """The worker evaluates at regular steps and at the end. A training pass has only the
        samples that are not held out."""
        worker, figures = self.train(*SPLIT, "--epochs=1")
        self.assertEqual(figures["global_step"], 1800 / 20)  # 600 of 2400 are held out
        self.assertEqual(sorted(self.losses(worker)), list(range(5, 91, 5)))
        losses = self.losses(worker)
        self.assertAlmostEqual(figures["validation_loss"], losses[90], places=4)
        self.assertEqual(round(figures["best_validation_loss"], 4), min(losses.values()))
        self.assertFalse(figures["stopped_early"])
        again, same = self.train(*SPLIT, "--epochs=1")
        self.assertEqual(same["parameters_sha256"], figures["parameters_sha256"])
        self.assertEqual(self.losses(again), losses)

    def test_held_out_samples_never_read(self):
        """The content of held-out samples does not change the parameters."""
        folder = self.new_folder("data")
        harness.make_data(folder, n_train=300)
        _, want = self.train("--validation_split=0.2", "--epochs=2", "--data_dir=" + folder)
        n_same = 0
        for i in range(0, 300, 60):  # a changed sample changes the parameters unless it is held out
            path = os.path.join(folder, "train-labels-idx1-ubyte")
            with open(path, "r+b") as f:
                f.seek(8 + i)
                label = f.read(1)[0]
                f.seek(8 + i)
                f.write(bytes([(label + 1) % 10]))
            _, got = self.train("--validation_split=0.2", "--epochs=2", "--data_dir=" + folder)
            with open(path, "r+b") as f:
                f.seek(8 + i)
                f.write(bytes([label]))
            n_same += got["parameters_sha256"] == want["parameters_sha256"]
            self.assertNotEqual(got["validation_loss"], want["validation_loss"])
        self.assertEqual(n_same, 2)  # two of the five changed samples are held out with this seed

    def test_validation_dir_evaluated(self):
        """The samples are those of another folder; here the test set's, so the figures agree."""
        _, figures = self.train("--validation_dir=" + self.data(), "--train_steps=30")
        self.assertEqual(figures["validation_loss"], figures["test_loss"])
        self.assertEqual(figures["validation_accuracy"], figures["test_accuracy"])
        self.assertEqual(figures["best_step"], 30)

    def test_early_stopping_ends_training(self):
        """Training ends three evaluations after the best one, whose checkpoint is kept. A worker
        that is killed before and started again ends at the same step, with the same bits. A worker
        that is started after the end exits at once."""
        keep = ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=1",
                "--keep_checkpoint_max=2"]
        worker, want = self.train(*STOP)
        losses = self.losses(worker)
        best = min(losses, key=losses.get)
        self.assertTrue(want["stopped_early"], worker.output())
        self.assertEqual((want["best_step"], want["global_step"]), (best, best + 15))
        self.assertIn("--early_stopping: no better validation loss in 3 evaluations since step %d"
                      % best, worker.output())
        worker, exact = self.train(*STOP, "--train_steps=%d" % (best + 15))
        self.assertEqual((exact["parameters_sha256"], exact["stopped_early"]),
                         (want["parameters_sha256"], False))  # this run has made all its steps
        self.assertNotIn("--early_stopping: no better", worker.output())
        first = self.start_alone(*FLAGS, *STOP, *keep, "--fault_push_delay_ms=10")
        first.wait_line("global step %d: validation" % (best + 5))
        first.kill()
        for _ in range(2):
            worker, got = self.train(*STOP, *keep)
            self.assert_same(got, want, "parameters_sha256", "global_step", "best_step",
                             "best_validation_loss", "stopped_early")
        self.assertIn("best so far: step %d, " % best, worker.output())
        self.assertEqual(self.best()["step"], best)
        self.assertEqual(self.best()["validation_loss"], want["best_validation_loss"])
        steps = ckpt_folder.steps(self.path("ckpt"))
        self.assertIn(best, steps)
        self.assertEqual(steps[-1], best + 15)
        self.assertLessEqual(len(steps), 3)
        self.use_best(os.path.join(self.path("ckpt"), self.best()["manifest"]), best)

    def use_best(self, manifest, step):
        """Checks that --evaluate reads the manifest that the file `best` names, if its argument is
        the path of `best`. The export has the parameters of the last step instead."""
        found = {}
        for path in (manifest, self.path("ckpt/best")):
            worker = self.run_worker("--evaluate=" + path,
                                     "--summary_json=" + self.path("best.json"))
            found[path] = self.figures("best.json")
            self.assertEqual(found[path].pop("evaluate"), path)
            self.assertEqual(found[path]["global_step"], step)
        self.assertEqual(*found.values())
        self.run_worker("--predict=" + self.path("ckpt/best"), "--output=" + self.path("out.csv"))
        worker, _ = self.train("--init=" + self.path("ckpt/best"), "--train_steps=1")
        self.assertIn("first values of 2 of 2 parameters from", worker.output())
        _, figures = self.train(*STOP, "--checkpoint_dir=" + self.path("new"),
                                "--restore=" + self.path("ckpt/best"), "--train_steps=%d" % step,
                                "--export=" + self.path("best.safetensors"))
        self.assertEqual(figures["parameters_sha256"], found[manifest]["parameters_sha256"])
        self.assertEqual(figures["local_steps"], 0)
        self.run_worker("--evaluate=" + self.path("best.safetensors"))
        os.rename(self.path("best.safetensors"), self.path("best"))
        self.run_worker("--evaluate=" + self.path("best"))
        for text, said in (('{"manifest":"weir-9.9-9.json","validation_loss":1,'
                            '"validation_accuracy":1}', "there is no checkpoint"),
                           ('{"manifest":', "names no checkpoint")):
            harness.write_file(self.path("ckpt/best"), text)
            worker = self.run_worker("--evaluate=" + self.path("ckpt/best"), status=1)
            self.assertRegex(worker.output(), self.path("ckpt/best") + ": .*" + said)

    def test_evaluations_after_best_at_last_step_count(self):
        """If the best evaluation was at the last step of a job that resumes with more steps, all
        evaluations after it count for --early_stopping."""
        folder = ["--checkpoint_dir=" + self.path("ckpt")]
        self.train(*SPLIT, *folder, "--train_steps=12")
        manifest = os.path.basename(ckpt_folder.path(self.path("ckpt"), 12))
        best = harness.read_json(self.path("ckpt/best"))
        best.update(manifest=manifest, step=12, validation_loss=0.0)
        harness.write_file(self.path("ckpt/best"), json.dumps(best))
        _, figures = self.train(*SPLIT, *folder, "--train_steps=400", "--early_stopping=2")
        self.assertEqual((figures["best_step"], figures["global_step"]), (12, 20))

    def test_other_validation_data_not_compared(self):
        """The best value on other samples is not compared, however low its loss."""
        keep = ["--checkpoint_dir=" + self.path("ckpt"), "--eval_every=5"]
        self.train(*keep, "--validation_dir=" + self.data(), "--train_steps=20")
        folder = self.new_folder("data")
        harness.make_data(folder, n_test=60, seed=8)  # other classes: the model is bad there
        before = self.best()
        worker, figures = self.train(*keep, "--validation_dir=" + folder, "--train_steps=30")
        self.assertIn("with other validation data (500 samples; now there are 60)", worker.output())
        self.assertGreater(self.best()["validation_loss"], before["validation_loss"])
        self.assertEqual((self.best()["validation_samples"], before["validation_samples"]),
                         (60, 500))
        self.assertEqual(self.best()["step"], figures["best_step"])

    def test_unwritten_best_does_not_count(self):
        """If the best checkpoint cannot be written, its evaluation counts neither in the figures
        nor for --early_stopping."""
        worker, _ = self.train_alone(
            *FLAGS, *SPLIT, "--train_steps=30", "--early_stopping=1",
            "--checkpoint_dir=" + self.path("ckpt"),
            prefix=harness.FULL_DISK, status=138)  # the last checkpoint is missing, too
        figures = self.figures()
        self.assertEqual((figures["global_step"], figures["stopped_early"]), (30, False))
        self.assertNotIn("best_step", figures)
        self.assertIn("step 30 does not count as the best: its checkpoint could not be kept",
                      worker.output())
        self.assertFalse(os.path.exists(self.path("ckpt/best")))

    def test_unreadable_best_refused(self):
        """Training does not begin, alone or with servers: another best checkpoint would replace the
        unreadable one."""
        self.train(*SPLIT, "--train_steps=10", "--checkpoint_dir=" + self.path("ckpt"))
        steps = ckpt_folder.steps(self.path("ckpt"))
        os.rename(self.path("ckpt/best"), self.path("best"))
        os.symlink("best", self.path("ckpt/best"))  # a loop: unreadable, also for root
        worker, _ = self.train(*SPLIT, "--train_steps=40", "--checkpoint_dir=" + self.path("ckpt"),
                               status=138)
        self.assertIn("best: this file cannot be read, and the next evaluation", worker.output())
        job = self.job(n_workers=1, flags=[*FLAGS, *SPLIT, "--train_steps=40"])
        ps = job.start_ps(0, "--checkpoint_dir=" + self.path("ckpt"), wait=False)
        ps.wait(30, status=138)
        self.assertIn("best: this file cannot be read, and the next evaluation", ps.output())
        self.assertEqual(ckpt_folder.steps(self.path("ckpt")), steps)
        os.rename(self.path("best"), self.path("ckpt/best"))
        self.assertIn(self.best()["step"], steps)

    def test_best_kept_by_servers(self):
        """A job continues with servers. They compare evaluations with the best one so far, and do
        not delete its checkpoint."""
        alone, _ = self.train(*SPLIT, "--train_steps=5", "--checkpoint_dir=" + self.path("ckpt"))
        job = self.job(n_workers=1, flags=[*FLAGS, *SPLIT, "--train_steps=40"])
        job.start(["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=10",
                   "--keep_checkpoint_max=1"])
        job.finish(60)
        losses = {**self.losses(alone), **self.losses(job.workers[0])}
        best = min(losses, key=losses.get)
        self.assertEqual(self.best()["step"], best)
        self.assertEqual(set(ckpt_folder.steps(self.path("ckpt"))), {best, 40})
        self.assertEqual(len(losses), 8)
        job = self.job(n_workers=1, flags=[*FLAGS, *SPLIT, "--train_steps=40"])
        job.start(["--checkpoint_dir=" + self.path("new"),
                   "--restore=" + self.path("ckpt/best")])
        job.finish(60)
        self.assertIn("found a checkpoint at step %d" % best, job.ps[0].output())

    def test_validation_split_of_a_job(self):
        """All workers have the same held-out samples, and worker 0 evaluates. Each remaining sample
        is read once."""
        record = self.path("samples")
        job = self.job(n_ps=2, flags=[*FLAGS, *SPLIT, "--epochs=1", "--record_samples=" + record])
        job.start()
        first, second = job.finish(60)
        self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])
        self.assertEqual(first["global_step"], 1800 / 40)
        self.assertIn("validation_loss", first)
        self.assertNotIn("validation_loss", second)
        self.assertEqual(len(self.losses(job.workers[0])), 9)
        self.assertNotIn("validation", job.workers[1].output())
        with open(record, encoding="ascii") as f:
            parts = sorted((int(at), int(n)) for _, _, at, n in map(str.split, f))
        self.assertEqual([at for at, _ in parts], list(range(0, 1800, 20)))
        job = self.job(n_workers=2, flags=FLAGS)
        job.start_ps(0)
        job.start_worker(0, *SPLIT)
        job.workers[0].wait_line("Worker 0|waiting|training step|joined|vector loops")
        job.start_worker(1, "--validation_split=0.5").wait(30, 1)
        self.assertIn("--validation_split: ", job.workers[1].output())
        self.kill(job.workers[0], job.ps[0])

    def test_bad_validation_flags_refused(self):
        for flags, said in (
                (["--validation_split=0.1", "--validation_dir=x"], "set one of them"),
                (["--early_stopping=2"], "set --eval_every"),
                (["--validation_split=0.95"], "--validation_split"),
                (["--ps_hosts=localhost:1", "--worker_hosts=localhost:2", "--sync_mode=async",
                  *STOP],
                 "with servers the flag is for --sync_mode=sync")):
            worker, _ = self.train(*flags, status=2)
            self.assertIn(said, worker.output())
        worker, _ = self.train("--validation_split=0.0001", status=1)
        self.assertIn("at least one must be held out", worker.output())
        for folder in ("/nowhere", "/" + "x" * 4090):
            worker, _ = self.train("--validation_dir=" + folder, status=1)
            self.assertIn("--validation_dir", worker.output())
            self.assertNotIn("--data_dir", worker.output())


harness.main(__name__)
