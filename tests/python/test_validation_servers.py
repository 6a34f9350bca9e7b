#!/usr/bin/python3
"""Validation data with servers. They keep the best checkpoint and name it in a file. If evaluations
do not improve, all workers end at the same step. A restart of ps 0 changes none of that."""
# label: cluster
import os
import re

import ckpt_folder
import harness

# Flags with which the loss of two workers goes up and down after the first steps.
FLAGS = ["--batch_size=10", "--seed=3", "--intra_op_threads=1", "--log_every=1",
         "--validation_split=0.25", "--eval_every=5", "--learning_rate=0.3"]
STOP = [*FLAGS, "--train_steps=400", "--early_stopping=3"]


class ValidationServers(harness.Test):
    def keep(self, name="ckpt", *more):
        return ["--checkpoint_dir=" + self.path(name), "--save_steps=1000",
                "--keep_checkpoint_max=2", *more]

    def losses(self, *workers):
        """Returns the losses by step from the log lines."""
        said = r"global step (\d+): validation accuracy: \S+, validation loss: (\S+)"
        return {int(step): float(loss) for worker in workers
                for step, loss in re.findall(said, worker.output())}

    def best(self, name="ckpt"):
        return harness.read_json(self.path(name + "/best"))

    def check_best(self, losses, name="ckpt"):
        """Checks that the file `best` names the right checkpoint, with its figures, and that this
        checkpoint is whole."""
        best = min(losses, key=losses.get)
        told = self.best(name)
        self.assertEqual((told["step"], told["validation_samples"]), (best, 600))
        self.assertEqual(round(told["validation_loss"], 4), losses[best])
        self.assertIn(best, ckpt_folder.steps(self.path(name)))
        worker = self.run_worker("--evaluate=" + os.path.join(self.path(name), told["manifest"]))
        self.assertIn("test accuracy", worker.output())
        return best

    def shown(self, job):
        """Returns the loss of the best checkpoint in the job's status, or None."""
        best = job.report()["best"]
        return best and round(best["validation_loss"], 4)

    def test_best_checkpoint_shown_and_kept(self):
        """The status of a job of two servers shows the best checkpoint. The servers keep only this
        checkpoint and the newest ones."""
        job = self.job(n_ps=2, flags=[*FLAGS, "--train_steps=60"])
        gate = job.hold(17)
        job.start(self.keep())
        job.ps[0].wait_line("best so far: step 5, validation accuracy")
        harness.until(lambda: os.path.exists(self.path("ckpt/best")), "a best checkpoint")
        # This is the last evaluation before the gate.
        job.workers[0].wait_line("global step 15: validation")
        harness.until(lambda: self.shown(job) == min(self.losses(job.workers[0]).values()),
                      "the status has the lowest loss")
        best = job.report()["best"]
        self.assertIn("best so far: step %d, validation accuracy %.4f, validation loss %.4f\n" %
                      (best["step"], best["validation_accuracy"], best["validation_loss"]),
                      job.ctl("status"))
        gate.open()
        first, second = job.finish(60)
        losses = self.losses(job.workers[0])
        self.assertEqual(sorted(losses), list(range(5, 61, 5)))
        best = self.check_best(losses)
        self.assertEqual((first["best_step"], first["global_step"]), (best, 60))
        self.assertEqual(first["parameters_sha256"], second["parameters_sha256"])
        self.assertLessEqual(len(ckpt_folder.steps(self.path("ckpt"))), 3)
        self.assertIn(60, ckpt_folder.steps(self.path("ckpt")))
        self.assertNotIn("given up", job.ps[0].output())

    def test_early_stopping_ends_all_at_one_step(self):
        """All workers end at one step, three evaluations after the best one. If ps 0 is killed
        before and restarted, they end at the same step with the same bits. If the job is started
        again with the same flags, it ends at once."""
        undisturbed = self.started_job(n_ps=2, flags=STOP, ps_flags=self.keep("one"))
        want = undisturbed.finish(90)
        losses = self.losses(undisturbed.workers[0])
        best = self.check_best(losses, "one")
        self.assertLess(best + 15, 400)
        said = re.findall("--early_stopping: no lower validation loss than that of step .*",
                          undisturbed.ps[0].output())
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], "step %d .* in 3 evaluations: the job ends at step %d$"
                         % (best, best + 15))
        for i, figures in enumerate(want):
            self.assertEqual(figures["global_step"], best + 15)
            self.assertIn("the job has ended at step %d of 400: --early_stopping ended it" %
                          (best + 15),
                          undisturbed.workers[i].output())
        self.assertTrue(want[0]["stopped_early"])
        self.assertEqual(max(ckpt_folder.steps(self.path("one"))), best + 15)
        told = harness.read_json(ckpt_folder.path(self.path("one"), best + 15))["job"]
        self.assertEqual((told["train_steps"], told["asked_steps"]), (best + 15, 400))

        job = self.started_job(n_ps=2, flags=[*STOP, "--fault_push_delay_ms=5"],
                               ps_flags=self.keep())
        job.ps[0].wait_line("best so far: step")
        job.workers[0].wait_line("global step %d: validation" % (best + 5))
        job.restart_ps(0, *self.keep())
        got = job.finish(120)
        for i in range(2):
            self.assert_same(got[i], want[i], "global_step", "parameters_sha256")
        self.assertEqual(self.check_best(losses), best)

        again = self.started_job(n_ps=2, flags=STOP, ps_flags=self.keep())
        ended = again.finish(60)
        self.assertTrue(ended[0]["stopped_early"], again.workers[0].output())
        for figures in ended:
            self.assertEqual((figures["global_step"], figures["parameters_sha256"]),
                             (best + 15, want[0]["parameters_sha256"]))

    def test_validation_shared_by_workers(self):
        """Each worker evaluates its part of the samples, here 250 of 500. The figures are those of
        a single worker that evaluates all samples."""
        flags = ["--batch_size=10", "--seed=3", "--intra_op_threads=1", "--log_every=1",
                 "--eval_every=4", "--train_steps=20", "--validation_dir=" + self.data()]
        job = self.job(n_workers=3, flags=flags)
        job.start_ps(0)
        for i in range(3):
            job.start_worker(i, "--trace=" + self.path("trace-%d" % i))
        figures = job.finish(60)
        self.assertEqual(figures[0]["validation_accuracy"], figures[0]["test_accuracy"])
        self.assertAlmostEqual(figures[0]["validation_loss"], figures[0]["test_loss"], places=12)
        self.assertEqual(sorted(self.losses(job.workers[0])), [4, 8, 12, 16, 20])
        for i, n in enumerate((6, 6, 1)):  # the third one is the test set
            self.assertEqual(harness.read_text(self.path("trace-%d" % i)).count('"evaluate"'), n, i)
        job = self.job(n_workers=2, flags=flags)
        job.start_ps(0)
        job.start_worker(0)
        job.workers[0].wait_line("Worker 0|waiting|vector loops")
        job.start_worker(1, "--eval_every=5").wait(30, 1)
        self.assertRegex(job.workers[1].output(),
                         "another job: --eval_every: the servers have 4, the worker has 5")
        self.kill(job.workers[0], job.ps[0])

    def test_killed_worker_does_not_change_validation(self):
        """A worker dies in the middle of an evaluation, while the other workers wait for its
        part."""
        flags = [*FLAGS, "--train_steps=20"]
        undisturbed = self.started_job(n_ps=2, flags=flags)
        want = undisturbed.finish(60)
        job = self.job(n_ps=2, flags=flags)
        gate = job.hold(9, task=1)
        job.start()
        harness.until(lambda: 5 in self.losses(job.workers[0]), "an evaluation")
        harness.wait_still(*job.workers)
        job.workers[1].kill()
        gate.open()
        job.start_worker(1)
        got = job.finish(60)
        self.assert_same(got[0], want[0], "parameters_sha256", "validation_loss", "best_step")
        self.assertEqual(self.losses(job.workers[0]), self.losses(undisturbed.workers[0]))

    def test_early_stopping_without_folder(self):
        """Training ends nevertheless; there is no checkpoint to keep."""
        first, second = self.started_job(n_ps=1, flags=STOP).finish(90)
        self.assertLess(first["global_step"], 400)
        self.assertEqual(first["global_step"], second["global_step"])
        self.assertEqual(first["global_step"], first["best_step"] + 15)

    def test_early_stopping_not_used_with_backup_workers(self):
        """An evaluation does not end training with backup workers, because workers are not at
        the same step."""
        job = self.job(n_workers=2, flags=[*STOP, "--replicas_to_aggregate=1"])
        ps = job.start_ps(0)
        job.start_worker(0).wait(30, 1)
        self.assertIn("--early_stopping: with servers it needs --sync_mode=sync without "
                      "--replicas_to_aggregate", job.workers[0].output())
        ps.kill()


harness.main(__name__)
