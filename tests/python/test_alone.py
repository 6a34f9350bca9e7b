#!/usr/bin/python3
"""Checkpoints of a worker without servers. It is stopped or killed at any moment, and resumes to
the parameters of the undisturbed run, either alone or with servers, which read the same files."""
# label: cluster sanitize
import contextlib
import fcntl
import os
import random
import re
import signal
import time
import unittest

import ckpt_folder
import harness
import preload

STEPS = 40
FLAGS = ["--batch_size=12", "--train_steps=%d" % STEPS, "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--lr_schedule=linear", "--log_every=1", "--intra_op_threads=1"]
SLOW = ["--fault_push_delay_ms=6"]


class Alone(harness.Test):
    want = {}

    def folder(self, name="ckpt"):
        return self.path(name)

    def begin(self, *more, folder=None, flags=FLAGS, model="small", **kwargs):
        """Starts a worker alone; its summary is in self.figures()."""
        folder_flags = [] if folder is False else [
            "--checkpoint_dir=" + (folder or self.folder())]
        return self.start_alone("--summary_json=" + self.path("summary.json"), *flags,
                                *folder_flags, *more, model=model, **kwargs)

    def undisturbed(self, model="small"):
        """Returns the digest of the undisturbed run, made once for each model."""
        if model not in Alone.want:
            self.begin(folder=False, model=model).wait(120)
            Alone.want[model] = self.figures()["parameters_sha256"]
        return Alone.want[model]

    def steps(self, folder=None):
        return ckpt_folder.steps(folder or self.folder())

    def assert_ends_as(self, want, from_step):
        self.assertEqual(self.figures()["parameters_sha256"], want)
        self.assertEqual(self.figures()["local_steps"], STEPS - from_step)

    @unittest.skipIf(harness.SANITIZE, "the preloaded library precedes the sanitizer's")
    def test_slow_folder_named_while_worker_waits(self):
        hold = self.path("hold")
        with open(hold, "w", encoding="utf-8"):
            pass
        worker = self.begin(env=preload.env(self, preload.HOLDS_NAMES, HOLD=hold,
                                            HELD_NAME=".json"))
        worker.wait_line("checkpoint at step %d: still writing it to %s after 3 s; this worker "
                         "waits for it" % (STEPS, re.escape(self.folder())))
        os.unlink(hold)
        worker.wait(120)
        self.assertEqual(self.steps(), [STEPS])

    def test_sigterm_saves_checkpoint_and_restart_resumes(self):
        """The worker writes a last checkpoint and exits with 143 (130 after Ctrl-C). Started again,
        it resumes to the same parameters."""
        want = self.undisturbed()
        for signum, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            worker = self.begin(*SLOW, folder=self.folder(str(status)))
            worker.wait_line("training step 5 done")
            worker.stop(signum, 60, status)
            step, = self.steps(self.folder(str(status)))
            self.assertGreaterEqual(step, 5)
            worker = self.begin(folder=self.folder(str(status)))
            self.assertIn("found a checkpoint at step %d" % step, worker.wait_output(120))
            self.assert_ends_as(want, step)
            self.assertEqual(self.steps(self.folder(str(status)))[-1], STEPS)

    def test_save_steps_writes_and_retains_checkpoints(self):
        """The worker writes checkpoints every --save_steps and retains the newest ones. When it is
        started again after the last step, it makes no further step."""
        want = self.undisturbed()
        worker = self.begin(*SLOW, "--save_steps=10", "--keep_checkpoint_max=2", "--towers=2")
        said = [int(s) for s in re.findall(r"checkpoint at step (\d+): /", worker.wait_output(120))]
        left_out = [int(s) for s in re.findall(r"no checkpoint at step (\d+): an", worker.output())]
        self.assertEqual(sorted(said + left_out), [10, 20, 30, 40], worker.output())
        self.assertEqual(self.steps(), said[-2:])
        two_towers = self.figures()["parameters_sha256"]
        worker = self.begin("--towers=2")
        worker.wait(60)
        self.assert_ends_as(two_towers, STEPS)
        self.assertIn("nothing is left to train: the job is at step %d of %d" % (STEPS, STEPS),
                      worker.output())
        worker = self.begin("--towers=2", "--restore=" + ckpt_folder.path(self.folder(), said[-2]))
        worker.wait(60)
        self.assert_ends_as(two_towers, said[-2])
        self.assertNotIn("nothing is left", worker.output())
        self.assertEqual(self.steps()[-1], STEPS)
        self.assertTrue(want)

    def export(self, since, code):
        """Exports what changed since a checkpoint; returns the output."""
        found = self.start("weirctl", [
            harness.program("weirctl"), "--checkpoint_dir=" + self.folder(), "--since=" + since,
            "--output=" + self.path("patch"), "export"])
        return found.wait_output(60, code)

    def test_manifests_record_restores(self):
        """weirctl export makes patches between checkpoints of one line of descent only."""
        self.begin("--lr_schedule=constant", "--train_steps=20").wait(120)
        self.begin("--lr_schedule=constant").wait(120)
        self.assertIn("patch from 1.1-20 to 2.1-40: ", self.export("20", 0))
        self.begin("--lr_schedule=constant", "--restore=" + ckpt_folder.path(
            self.folder(), 20)).wait(120)
        self.assertIn("patch from 1.1-20 to 3.1-40: ", self.export("20", 0))
        self.assertIn("training went back to an older checkpoint afterwards", self.export(
            "2.1-40", 3))

    def test_save_secs_writes_checkpoints(self):
        worker = self.begin("--save_secs=1", "--fault_push_delay_ms=60")
        worker.wait_line(r"checkpoint at step \d+: /", 60)
        self.assertLess(self.steps()[0], STEPS)
        worker.stop(status=143, seconds=60)

    def test_killed_at_random_ends_with_same_bits(self):
        """Twenty times kill -9, at any moment of a run, does not change the parameters. In half of
        the runs the model has running statistics, and dropout masks that depend on the step."""
        rng = random.Random(20)
        for model in ("softmax", "small_norm"):
            with self.subTest(model):
                self.kill_at_random(model, rng, 10)

    def kill_at_random(self, model, rng, n_kills):
        want, n_found, n_lives = self.undisturbed(model), 0, 0
        flags, folder = [*FLAGS, "--save_steps=1", "--fault_push_delay_ms=2"], self.folder(model)
        while n_kills > 0 or (n_found == 0 and n_lives < 100):
            n_lives += 1
            # If saving is so slow that no worker has resumed from a checkpoint, later kills wait
            # for one.
            late = n_kills <= 0
            worker = self.begin(model=model, folder=folder, flags=[
                *flags, *(["--fault_push_delay_ms=100"] if late else [])])
            at = "saved" if late else rng.choice(
                ("set-up", "start", "training", "training", "training", "saved"))
            if at == "start":
                worker.wait_line("checkpoint at step|training step|parameters in")
            elif at == "saved":
                worker.wait_line(r"checkpoint at step \d+: /")
            elif at == "training":
                worker.wait_line("training step|training elapsed|found a checkpoint at step %d" %
                                 STEPS)
            time.sleep(rng.random() * 0.05)  # any moment will do
            if worker.popen.poll() is None:
                n_kills -= 1
                worker.popen.kill()
            worker.wait(60, None)
            self.assertIn(worker.status, (0, -signal.SIGKILL), worker.output())
            n_found += "found a checkpoint" in worker.output()
            # The job is done: start again from the first step.
            if self.steps(folder)[-1:] == [STEPS]:
                self.assert_done(want, model, flags)
                for path in os.listdir(folder):
                    os.unlink(os.path.join(folder, path))
        self.assert_done(want, model, flags)
        print("%s: %d lives went on from a checkpoint" % (model, n_found))
        self.assertGreater(n_found, 0)

    def assert_done(self, want, model, flags):
        folder = self.folder(model)
        self.begin(model=model, flags=flags, folder=folder).wait(120)
        self.assertEqual(self.figures()["parameters_sha256"], want)
        self.assertEqual([f for f in os.listdir(folder) if ".part" in f or "tmp" in f], [])

    def servers(self, n_ps, *more):
        return self.started_job(n_ps=n_ps, n_workers=1, model="small", flags=[*FLAGS, *more],
                                ps_flags=["--checkpoint_dir=" + self.folder()])

    def test_job_moves_from_worker_to_servers_and_back(self):
        """The job runs alone, with two servers, alone again, and with one server. SIGTERM ends each
        run but the last one. The job ends with the undisturbed run's bits."""
        want = self.undisturbed()
        worker = self.begin(*SLOW)
        worker.wait_line("training step 5 done")
        worker.stop(seconds=60)
        job = self.servers(2, *SLOW)
        job.workers[0].wait_line("training step 14 done")
        self.terminate(job.ps, 60, 143)
        job.workers[0].kill()
        self.assertRegex(job.ps[0].output(),
                         "claimed from worker-alone@.*[(]term 1[)]: .* has term 2")
        self.assertNotIn("epoch", job.ps[0].output())
        step = self.steps()[-1]
        self.assertGreaterEqual(step, 13)  # the base of the worker's step 14
        worker = self.begin(*SLOW)
        worker.wait_line("training step 22 done")
        worker.stop(seconds=60)
        self.assertIn("found a checkpoint at step %d" % step, worker.output())
        step = self.steps()[-1]
        summary, = self.servers(1).finish(120)
        self.assertEqual(summary["parameters_sha256"], want)
        self.assertEqual(summary["local_steps"], STEPS - step)
        job = self.servers(1)
        self.assertEqual(job.finish(120)[0]["local_steps"], 0)
        job.workers[0].wait_line("nothing is left to train: the job is at step %d of %d" %
                                 (STEPS, STEPS))

    def test_second_owner_of_folder_refused(self):
        """A second worker or ps 0 is refused while the first one lives. A second one with
        --take_over becomes the owner of the folder, and the first one exits before it writes
        again."""
        first = self.begin(*SLOW, "--train_steps=100000", "--save_steps=4")
        first.wait_line(r"checkpoint at step \d+: /")
        job = self.job(n_workers=1)
        second = self.begin()
        ps = job.start_ps(0, "--checkpoint_dir=" + self.folder(), wait=False)
        for refused in (second, ps):
            refused.wait(60, 1)  # a retry is useless while the first one lives
            self.assertRegex(refused.output(), "--checkpoint_dir: .* belongs to a running worker "
                             r"without servers \(worker-alone@.*:%d\): stop its owner first, or "
                             "use another folder; with --take_over" % first.popen.pid)
        second = self.begin("--take_over", *SLOW, "--train_steps=100000", "--save_steps=4")
        self.assertIn("has since claimed this folder", first.wait_output(60, 1))
        # The lock of the second program refuses servers like the lock of the first one.
        job.start_ps(0, "--checkpoint_dir=" + self.folder(), wait=False).wait(60, 1)
        ps = job.start_ps(0, "--checkpoint_dir=" + self.folder(), "--take_over")
        self.assertRegex(second.wait_output(60, 1),
                             job.ps_hosts[0] + " has since claimed this folder")
        ps.stop()

    def test_failed_take_over_changes_nothing(self):
        """After a failed --take_over the folder still belongs to the first worker, which continues
        to train."""
        first = self.begin(*SLOW, "--train_steps=100000", "--save_steps=4")
        first.wait_line(r"checkpoint at step \d+: /")
        self.begin("--take_over", "--seed=6").wait(60, 1)
        second = self.begin()
        self.assertIn("belongs to a running worker without servers", second.wait_output(60, 1))
        first.stop()

    def test_probe_of_the_lock_does_not_refuse_worker(self):
        """A program that checks whether the folder has an owner holds its lock for a moment. A
        worker that starts at that moment waits."""
        os.mkdir(self.folder())
        path = os.path.join(self.folder(), "worker-lock")
        with open(path, "w", encoding="utf-8") as look:
            fcntl.flock(look, fcntl.LOCK_SH)
            worker = self.begin()
            while path not in self.open_files(worker) and worker.popen.poll() is None:
                time.sleep(0.001)
        worker.wait(60)

    @staticmethod
    def open_files(process):
        """Returns the paths of the files that the process has open."""
        folder = "/proc/%d/fd" % process.popen.pid
        paths = set()
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                paths.add(os.readlink(os.path.join(folder, fd)))
        return paths

    def test_full_disk_does_not_stop_training(self):
        """No file may grow past a few bytes, as on a full disk. The worker logs the error and
        continues to train, and the last checkpoint is missing. Another start writes it."""
        want = self.undisturbed()
        worker = self.begin("--save_steps=10", prefix=harness.FULL_DISK)
        worker.wait(120, 138)
        self.assert_ends_as(want, 0)
        self.assertRegex(worker.output(), "cannot write: File too large.*ulimit -f")
        self.assertNotIn("checkpoint at step %d given up; " % STEPS, worker.output())
        self.assertIn("the last checkpoint, of step %d, could not be written to %s: " %
                      (STEPS, self.folder()), worker.output())
        self.assertEqual(sorted(os.listdir(self.folder())), ["folder-id", "lease-1", "worker-lock"])
        self.begin().wait(120)
        self.assertEqual(self.steps()[-1], STEPS)

    def test_full_disk_does_not_stop_training_before_the_end(self):
        worker = self.begin("--save_steps=10", "--train_steps=20000000", prefix=harness.FULL_DISK)
        worker.wait_line(r"checkpoint at step \d+ given up; training continues")
        worker.wait_line("training step")
        worker.kill()

    def test_bad_folder_ends_worker_with_one_line(self):
        """The worker prints one line and exits with the status of a permanent error. It does not
        start from the first step by itself."""
        path = self.write("file", "x")
        for folder, said in ((path, "is not a folder"),
                             (path + "/x", "cannot be created: Not a dir"),
                             ("/proc/nothing", "cannot be created: ")):
            worker = self.begin(folder=folder)
            worker.wait(60, 1)
            self.assertRegex(worker.output(), "--checkpoint_dir: %s.* %s" % (folder, said))
        os.mkdir(self.folder())
        harness.write_file(os.path.join(self.folder(), "weir-7.json"), "{}")
        self.assertIn("none of its checkpoints is complete", self.begin().wait_output(60, 1))

    def test_checkpoint_of_another_job_refused(self):
        """The refusal names the difference. A resumed job may have more steps than before, but not
        fewer than its checkpoint."""
        self.begin(model="softmax").wait(60)
        for more, said in ((["--optimizer=momentum"], "--optimizer: .*adam.*momentum"),
                           (["--seed=6"], "--seed: the checkpoint has 5, the worker has 6"),
                           (["--train_steps=20"], "--train_steps: the checkpoint is at step 40")):
            worker = self.begin(*more, model="softmax")
            self.assertRegex(worker.wait_output(60, 1), said)
            self.assertIn("another --checkpoint_dir", worker.output())
        self.begin("--train_steps=60", model="softmax").wait(60)
        self.assertEqual(self.figures()["local_steps"], 20)
        worker = self.begin("--restore=" + self.folder("none"), model="softmax")
        self.assertIn("--restore: there is no checkpoint in", worker.wait_output(60, 1))

    def test_refusal_of_new_settings_explains_init(self):
        """The refusal of other settings names the flags with which training continues with these
        settings, and these flags work."""
        self.begin().wait(60)
        for flag, name in (("--learning_rate=0.3", "learning_rate"),
                           ("--optimizer=sgd", "optimizer"),
                           ("--lr_schedule=cosine", "lr_schedule")):
            worker = self.begin("--train_steps=60", flag)
            worker.wait(60, 1)
            self.assertRegex(worker.output(), "of another job: --%s: .*another --checkpoint_dir, "
                             "together with --init=CHECKPOINT at the worker" % name)
        self.begin("--learning_rate=0.3", "--init=" + self.folder(),
                   folder=self.folder("new")).wait(60)

    def test_epochs_with_other_batch_size_refused(self):
        """The message names --epochs and --batch_size, which the user typed, not --train_steps."""
        flags = ["--model=small", "--hidden_units=0", "--save_secs=0"]
        self.begin("--epochs=1", "--batch_size=100", flags=flags).wait(60)
        worker = self.begin("--epochs=1", "--batch_size=400", flags=flags)
        self.assertIn("--epochs=1 makes 6 steps at --batch_size=400, and the checkpoint is at step "
                      "24, made at --batch_size=100; set more --epochs", worker.wait_output(60, 1))
        self.assertNotIn("--train_steps", worker.output())
        self.assertIn("--epochs=6 makes 36 steps at --batch_size=400, but the steps up to 24 "
                      "used --batch_size=100, so the job does not train on exactly",
                      self.begin("--epochs=6", "--batch_size=400", flags=flags).wait_output())

    def test_checkpoint_flags_without_folder_or_with_servers_refused(self):
        for folder, more, said in (
                (False, ["--save_steps=5"], "need --checkpoint_dir"),
                (False, ["--restore=x"], "need --checkpoint_dir"),
                (False, ["--keep_checkpoint_max=5"], "--restore and --take_over need"),
                (False, ["--take_over"], "--restore and --take_over need"),
                (None, ["--sync_mode=async"], "in --sync_mode=sync")):
            self.assertIn(said, self.begin(*more, folder=folder).wait_output(60, 2))
        ps = self.start_program("ps", "--ps_hosts=localhost:2221", "--task_index=0",
                                "--keep_checkpoint_max=5")
        self.assertIn("--restore and --take_over need", ps.wait_output(60, 2))
        job = self.started_job(n_workers=1, flags=[*FLAGS, "--save_steps=5",
                                                   "--checkpoint_dir=" + self.folder()])
        job.finish(60)
        self.assertIn("are for the servers of this job", job.workers[0].output())
        self.assertFalse(os.path.exists(self.folder()))

    def test_training_flags_have_no_effect_in_inference(self):
        """One line names exactly the flags that have no effect."""
        export = self.path("export")
        self.begin("--export=" + export, model="softmax", folder=False).wait(60)
        want = self.figures()["parameters_sha256"]
        for flags, said in (([], None),
                            (["--epochs=2", "--optimizer=adam", "--learning_rate=0.01"],
                             "--epochs, --optimizer, --learning_rate")):
            worker = self.begin("--evaluate=" + export, model="softmax", folder=False,
                                flags=["--batch_size=12", *flags])
            worker.wait(60)
            lines = [line for line in worker.lines if line.startswith("W ")]
            if said:
                self.assertRegex(lines.pop(), "[0-9] %s: no effect with --evaluate and --predict"
                                 % said)
            self.assertEqual(lines, [])
            self.assertEqual(self.figures()["parameters_sha256"], want)

    def test_cluster_flags_have_no_effect_without_hosts(self):
        """One line names exactly the flags that have no effect."""
        said = "no effect without --ps_hosts"
        self.assertNotIn(said, self.begin(model="softmax", folder=False).wait_output())
        want = self.figures()["parameters_sha256"]
        worker = self.begin("--sync_mode=async", "--wire_dtype=bf16", "--shared_memory=off",
                            model="softmax", folder=False)
        worker.wait(60)
        self.assertRegex(worker.output(), "W .*--sync_mode, --wire_dtype, --shared_memory: " + said)
        self.assertEqual(self.figures()["parameters_sha256"], want)
        worker = self.begin("--data_shard=own", "--address=me", model="softmax", folder=False)
        self.assertRegex(worker.wait_output(), "W .*[0-9] --data_shard, --address: " + said)
        job = self.started_job(n_workers=1, flags=[*FLAGS, "--sync_mode=sync", "--wire_dtype=bf16"])
        job.finish(60)
        self.assertNotIn(said, job.workers[0].output())


harness.main(__name__)
