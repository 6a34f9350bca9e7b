#!/usr/bin/python3
"""Checkpoints of real servers. A job that is stopped or killed, and started again, ends with the
bits of an undisturbed job. Damage, other jobs, full and read-only disks are reported plainly."""
# label: cluster address long
import errno
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import ckpt_folder
import harness

FLAGS = ["--batch_size=12", "--train_steps=40", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
ENDLESS = ["--train_steps=100000", "--fault_push_delay_ms=4"]


class Checkpoint(harness.Test):
    mounted = None  # the folder, if it has a file system of its own

    def folder(self, name="ckpt"):
        return self.mounted or self.path(name)

    def manifests(self, folder=None):
        return ckpt_folder.steps(folder or self.folder())

    def undisturbed(self, n_workers=2, n_ps=1, flags=FLAGS, model="small"):
        return self.undisturbed_digest(n_ps=n_ps, n_workers=n_workers, model=model, flags=flags)

    def ps_flags(self, *more, folder=None):
        return ["--checkpoint_dir=" + (folder or self.folder()), *more]

    def stop_all(self, job, signum=signal.SIGTERM, ps_status=143):
        """Stops the servers first, because they need the workers for a last step."""
        for ps in job.ps:
            ps.popen.send_signal(signum)
        self.wait_all(job.ps, 60, ps_status)
        self.kill(*job.workers)

    def slow_job(self, n_ps, *more, delay=4, flags=FLAGS, n_workers=2):
        """Starts a job with slow steps. more: flags of the servers."""
        return self.started_job(n_ps=n_ps, n_workers=n_workers, model="small",
                                flags=[*flags, "--fault_push_delay_ms=%d" % delay],
                                ps_flags=self.ps_flags(*more))

    def saving_job(self, n_ps=1):
        """Returns a slow job with two checkpoints."""
        job = self.slow_job(n_ps, "--save_steps=8")
        harness.until(lambda: len(self.manifests()) >= 2, "two checkpoints")
        return job

    def start_and_stop(self, n_ps, at, *more, flags=FLAGS, n_workers=2):
        job = self.slow_job(n_ps, *more, flags=flags, n_workers=n_workers)
        job.workers[0].wait_line("training step %d done" % at)
        self.stop_all(job)
        return job

    def restart_job(self, n_ps, *more, flags=FLAGS, n_workers=2, seconds=120):
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small", flags=flags)
        job.start(self.ps_flags(*more))
        return job, job.finish(seconds)

    def test_stopped_job_restored_with_other_numbers_of_servers(self):
        """SIGTERM stops the job at any moment, and the job resumes with another number of servers.
        It ends with the same bits (I8)."""
        want = self.undisturbed()
        for before, after in ((1, 1), (2, 2), (2, 3)):
            job = self.start_and_stop(before, 8)  # step 8 is based on 7 of every chunk
            steps = self.manifests()
            self.assertEqual(len(steps), 1, steps)
            self.assertGreaterEqual(steps[0], 7)
            job, summaries = self.restart_job(after)
            self.assertIn("found a checkpoint at step %d" % steps[0], job.ps[0].output())
            for s in summaries:
                self.assertEqual(s["parameters_sha256"], want, (before, after))
                self.assertEqual(s["local_steps"], 40 - steps[0])
            self.assertEqual(self.manifests()[-1], 40)
            shutil.rmtree(self.folder())

    def test_save_steps_writes_and_retains_checkpoints(self):
        """The servers write checkpoints every --save_steps and at the end, retain the newest ones,
        and list them in TensorFlow's file `checkpoint`."""
        for n_ps in (1, 2):
            job = self.slow_job(n_ps, "--save_steps=10", "--keep_checkpoint_max=2", delay=2)
            job.finish(120)
            steps = re.findall(r"checkpoint at step (\d+): /", job.ps[0].output())
            steps = [int(s) for s in steps]
            # A checkpoint that was due while the previous one was being written follows at once.
            due = [s - s % 10 for s in steps]
            self.assertEqual(due, sorted(set(due)), job.ps[0].output())
            self.assertTrue({10, 40} <= set(steps) <= set(range(10, 41)), job.ps[0].output())
            self.assertEqual(self.manifests(), steps[-2:])
            with open(os.path.join(self.folder(), "checkpoint"), encoding="utf-8") as f:
                before, last = (os.path.basename(ckpt_folder.path(self.folder(), s))[:-5]
                                for s in (steps[-2], 40))
                self.assertEqual(f.read(), 'model_checkpoint_path: "%s"\n'
                                 'all_model_checkpoint_paths: "%s"\n'
                                 'all_model_checkpoint_paths: "%s"\n' % (last, before, last))
            self.assertEqual(len(glob.glob(self.folder() + "/*.safetensors")), 2 * n_ps)
            shutil.rmtree(self.folder())

    def test_killed_job_restored_from_last_whole_checkpoint(self):
        """kill -9 of all processes: the job resumes from the last whole checkpoint, before a
        damaged one."""
        want = self.undisturbed()
        job = self.saving_job(2)
        job.kill()
        before, newest = self.manifests()[-2:]
        self.assertGreaterEqual(newest, 16)
        path = ckpt_folder.path(self.folder(), newest, "-1-of-2.safetensors")
        harness.damage(path)
        job, summaries = self.restart_job(2)
        self.assertEqual(summaries[0]["parameters_sha256"], want)
        self.assertEqual(summaries[0]["local_steps"], 40 - before)
        self.assertRegex(job.ps[0].output(),
                         r"weir-\S*%d.json: not restored: weir-\S*%d-1-of-2.safetensors .*does not "
                         r"match its checksum; trying the previous checkpoint" % (newest, newest))

    def test_sigusr1_and_save_secs_write_checkpoints(self):
        """SIGUSR1 at any server, and --save_secs, do not disturb training."""
        want = self.undisturbed(n_ps=2)
        job = self.job(n_ps=2, model="small", flags=[*FLAGS, "--fault_push_delay_ms=12"])
        job.brake_from(30)
        job.start(self.ps_flags("--keep_checkpoint_max=0"))
        for i, task in enumerate((0, 1, 1)):
            job.workers[0].wait_line("training step %d done" % (5 + 8 * i))
            before = len(self.manifests())
            job.ps[task].popen.send_signal(signal.SIGUSR1)
            harness.until(lambda: len(self.manifests()) > before, "a checkpoint")
        job.finish(120, want)
        self.assertEqual(len(self.manifests()), 4, job.ps[0].output())
        job = self.job(model="small", flags=[*FLAGS, "--fault_push_delay_ms=40"])
        job.start(self.ps_flags("--save_secs=1", folder=self.folder("by_time")))
        job.finish(120)
        self.assertGreaterEqual(len(self.manifests(self.folder("by_time"))), 2)

    def test_restore_flag_selects_checkpoint(self):
        """--restore wins over newer checkpoints, and names a missing one."""
        job = self.started_job(model="small", flags=FLAGS,
                               ps_flags=self.ps_flags("--save_steps=10"))
        want = job.finish(120)[0]["parameters_sha256"]
        first = self.manifests()[0]
        self.assertLess(first, 40)
        job, summaries = self.restart_job(1, "--restore=" + ckpt_folder.path(self.folder(), first))
        self.assertEqual(summaries[0]["local_steps"], 40 - first)
        self.assertEqual(summaries[0]["parameters_sha256"], want)
        ps = job.start_ps(0, *self.ps_flags("--restore=" + self.folder("none")), wait=False)
        self.assertIn("--restore: there is no checkpoint in", ps.wait_output(20, 1))

    def test_removed_checkpoints_free_their_space(self):
        """ps 0 keeps no file open of a removed checkpoint that it had restored: its space would not
        be free."""
        job = self.job(n_ps=2, model="small", flags=[*FLAGS, *ENDLESS])
        flags = self.ps_flags("--save_steps=8", "--keep_checkpoint_max=2")
        job.start(flags)
        harness.until(lambda: len(self.manifests()) >= 2, "two checkpoints")
        for i in range(2):
            job.restart_ps(i, *flags)
            m = job.ps[0].wait_line(r"resumes from step (\d+)|goes back to the checkpoint at step "
                                    r"(\d+)" if i == 0 else r"goes back .* at step ((\d+))")
            step = int(m.group(1) or m.group(2))
            harness.until(lambda: step not in self.manifests(), "the checkpoint is retained")
        fds = "/proc/%d/fd" % job.ps[0].popen.pid

        def links():
            for fd in os.listdir(fds):
                try:
                    yield os.readlink(os.path.join(fds, fd))
                except OSError:
                    pass  # ps 0 has just closed this file
        harness.until(lambda: not [name for name in links() if ".safetensors" in name and
                                   name.endswith("(deleted)")], "files are kept open")
        job.kill()

    def test_checkpoint_of_another_job_refused(self):
        """The server and the worker name the difference and the remedy."""
        job = self.job(model="softmax", flags=FLAGS).start(self.ps_flags("--save_steps=40"))
        job.finish(120)
        other = [f.replace("adam", "momentum") for f in FLAGS]
        for flags, model, what in ((other, "softmax", "--optimizer: the checkpoint has adam"),
                                   (FLAGS, "mlp", "parameter 0")):
            job = self.job(n_workers=1, model=model, flags=flags)
            job.start_ps(0, *self.ps_flags())
            job.start_worker(0).wait(30, 1)
            said = "checkpoint at step 40 is of another"
            self.assert_has(job.workers[0].output(), said, what, "another --checkpoint_dir")
            job.ps[0].wait_line(said)
            job.ps[0].stop()
        longer = [f.replace("train_steps=40", "train_steps=60") for f in FLAGS]
        job = self.started_job(model="softmax", flags=longer, ps_flags=self.ps_flags())
        self.assertEqual(job.finish(60)[0]["local_steps"], 20)

    def test_folder_without_whole_checkpoint_refused(self):
        """If the folder has checkpoints, but no whole one, ps 0 does not silently start from the
        first step."""
        os.mkdir(self.folder())
        harness.write_file(os.path.join(self.folder(), "weir-7.json"), "{}")
        job = self.job()
        ps = job.start_ps(0, *self.ps_flags(), wait=False)
        self.assertRegex(ps.wait_output(20, 1), "weir-7.json: not restored: it is truncated")
        self.assertIn("none of its checkpoints is complete", ps.output())

    def turn_bit(self, step, server):
        """Inverts a bit of the server's file of that checkpoint; a second call restores it."""
        path, = glob.glob(os.path.join(self.folder(), "weir-*-%d-%d-of-*.safetensors" %
                                       (step, server)))
        harness.damage(path)

    def test_damage_found_by_a_server_rolls_back_further(self):
        """ps 0 has found the newest checkpoint whole, but a server that reads its file does not:
        the job resumes from the checkpoint before. Without one, training waits for the damaged
        one."""
        want = self.undisturbed(n_ps=2)
        job = self.saving_job(2)
        self.stop_all(job, signal.SIGKILL, -signal.SIGKILL)
        steps = self.manifests()
        shutil.copytree(self.folder(), self.folder("copy"))
        for damaged in (steps[-1:], steps):
            job = self.job(n_ps=2, model="small", flags=FLAGS)
            job.start_servers(*self.ps_flags())
            for step in damaged:
                self.turn_bit(step, 1)
            job.start_workers()
            job.ps[0].wait_line(r"ps:1 \(.*\) reports that the checkpoint at step %d is damaged" %
                                steps[-1])
            job.ps[1].wait_line("-%d.json: .* does not match its checksum" % steps[-1])
            if damaged == steps:
                job.ps[0].wait_line("no complete checkpoint is older than the damaged one, and "
                                    "training waits")
                self.turn_bit(steps[-1], 1)
            job.finish(120, want)
            self.assertIn("resumes from step %d, as generation %d.%d" %
                          ((steps[-1], 2, 1) if damaged == steps else (steps[-2], 2, 2)),
                          job.ps[1].output())
            shutil.rmtree(self.folder())
            shutil.copytree(self.folder("copy"), self.folder())

    def make_unreadable(self, step):
        """Replaces a server's file by a link to itself: it exists, and cannot be opened."""
        path, = glob.glob(os.path.join(self.folder(), "weir-*-%d-0-of-*.safetensors" % step))
        os.rename(path, path + ".away")
        os.symlink(os.path.basename(path), path)
        return path

    def test_unreadable_checkpoint_ends_start(self):
        """At its start ps 0 exits with one line, and does not resume from an older checkpoint by
        itself."""
        want = self.undisturbed()
        job = self.saving_job()
        self.stop_all(job, signal.SIGKILL, -signal.SIGKILL)
        newest = self.manifests()[-1]
        before = self.manifests()
        path = self.make_unreadable(newest)
        job = self.job()
        ps = job.start_ps(0, *self.ps_flags(), wait=False)
        ps.wait(20, 138)
        self.assertRegex(ps.output(), r"-%d.json: cannot be read now: %s cannot be opened: Too "
                         "many levels of symbolic links; the job does not resume from an older "
                         "checkpoint instead"
                         % (newest, os.path.basename(path)))
        self.assertEqual(ps.output().count("cannot be read now"), 1)
        self.assertEqual(self.manifests(), before)
        os.unlink(path)  # the remedy in the line: the file is lost for good
        job, summaries = self.restart_job(1)
        self.assertIn("trying the previous checkpoint", job.ps[0].output())
        self.assertIn("found a checkpoint at step %d" % before[-2], job.ps[0].output())
        self.assertEqual(summaries[0]["parameters_sha256"], want)

    def test_unreadable_checkpoint_makes_training_wait(self):
        """Training waits for the newest checkpoint, and resumes from it once it can be read."""
        flags = [f.replace("train_steps=40", "train_steps=60") for f in FLAGS]
        want = self.undisturbed(n_ps=2, flags=flags)
        job = self.slow_job(2, flags=flags, delay=12)
        for n in range(1, 3):
            job.workers[0].wait_line("training step %d done" % (8 * n))
            with harness.paused(job.workers[1]):  # training has passed the last checkpoint's step
                job.ps[0].popen.send_signal(signal.SIGUSR1)
                harness.until(lambda: len(self.manifests()) == n, "a checkpoint")
                if n == 1:
                    continue
                newest = self.manifests()[-1]
                path = self.make_unreadable(newest)
                job.restart_ps(1, *self.ps_flags())
                job.ps[0].wait_line("cannot be read now: %s " % os.path.basename(path))
                os.rename(path + ".away", path)
        job.finish(120, want)
        self.assertRegex(job.ps[0].output(), "goes back to the checkpoint at step %d" % newest)

    def test_unwritable_server_file_does_not_stop_training(self):
        """A folder blocks the path of the server's file: ps logs it, and training continues."""
        want = self.undisturbed(model="softmax")
        job = self.job(model="softmax", flags=FLAGS)
        job.start_ps(0, *self.ps_flags("--save_steps=10"))
        harness.until(lambda: os.path.exists(os.path.join(self.folder(), "lease-1")), "no lease")
        os.mkdir(os.path.join(self.folder(), "weir-1.1-10-0-of-1.safetensors"))
        job.start_workers()
        job.finish(60, want)
        out = job.ps[0].output()
        self.assertRegex(out, r"weir-\S*10-0-of-1.safetensors: cannot write: Is a dir")
        self.assertIn("checkpoint at step 10 given up", out)
        self.assertNotIn(10, self.manifests())
        self.assertEqual(self.manifests()[-1], 40)

    def test_blocked_cleanup_does_not_stop_job(self):
        """A folder blocks the path of `checkpoint`: ps logs the error. The files of the checkpoints
        exist nevertheless, and the job ends without a wait for the blocked file."""
        os.makedirs(os.path.join(self.folder(), "checkpoint"))
        job = self.job(model="softmax", flags=FLAGS).start(self.ps_flags("--save_steps=10"))
        job.finish(20)
        out = job.ps[0].output()
        self.assertRegex(out, "W .* checkpoint at step 40: cannot delete old files")
        self.assertNotIn("no last checkpoint", out)
        self.assertEqual(self.manifests()[-1], 40)

    def test_full_disk_does_not_stop_training(self):
        """No file may grow past a few bytes, as on a full disk."""
        want = self.undisturbed(model="softmax")
        job = self.job(model="softmax", flags=FLAGS)
        job.start_ps(0, *self.ps_flags("--save_steps=10"), prefix=harness.FULL_DISK)
        job.start_workers()
        for s in self.finish_without_last(job):
            self.assertEqual(s["parameters_sha256"], want)
        self.assertRegex(job.ps[0].output(), "cannot write: File too large.*ulimit -f")
        self.assertIn("given up; training continues", job.ps[0].output())
        self.assertEqual(sorted(os.listdir(self.folder())), ["folder-id", "lease-1", "servers"])

    def finish_without_last(self, job):
        """Checks that the workers made all steps and that ps 0 reports the missing checkpoint.
        Returns their summaries."""
        self.wait_all(job.workers, 120)
        self.assertRegex(job.ps[0].wait_output(60, 138),
                         "the job is done, but %s lacks the checkpoint of the job's last step, "
                         % self.folder())
        return [job.summary(i) for i in range(len(job.workers))]

    def disk(self, megabytes):
        """Mounts a small file system as the checkpoint folder."""
        self.mounted = self.mount("size=%dm" % megabytes)

    def test_checkpoint_before_full_disk_restored(self):
        """If the disk has no room for another checkpoint, the last good one stays, and the job
        resumes from it."""
        want = self.undisturbed()
        self.disk(8)
        job = self.slow_job(1, "--save_steps=8")
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        filler = os.path.join(self.folder(), "filler")
        with harness.paused(*job.workers), open(filler, "wb", buffering=0) as f:
            try:
                while f.write(bytes(4096)):
                    pass
            except OSError as e:
                self.assertEqual(e.errno, errno.ENOSPC)
        self.assertEqual(self.finish_without_last(job)[0]["parameters_sha256"], want)
        self.assertRegex(job.ps[0].output(), "cannot write: No space left on device")
        self.assertIn("given up; training continues", job.ps[0].output())
        good = self.manifests()[-1]
        self.assertLess(good, 40)
        os.unlink(filler)
        job, summaries = self.restart_job(1)
        self.assertIn("found a checkpoint at step %d" % good, job.ps[0].output())
        for s in summaries:
            self.assertEqual(s["parameters_sha256"], want)

    def test_failed_attempts_do_not_fill_disk(self):
        """ps:1 cannot write. ps:0 removes its own files after each attempt, on a disk with room for
        a few such files. Once ps:1 can write, checkpoints are made."""
        self.disk(2)
        job = self.job(n_ps=2, model="small", flags=[*FLAGS, *ENDLESS])
        job.start_ps(0, *self.ps_flags("--save_steps=2", "--keep_checkpoint_max=1"))
        job.start_ps(1, *self.ps_flags(), prefix=harness.FULL_DISK)
        job.start_workers()
        harness.until(lambda: job.ps[0].output().count("given up: ps:1") >= 4, "attempts")
        with harness.paused(*job.workers):
            harness.until(lambda: not glob.glob(self.folder() + "/*.safetensors"),
                          "nothing of the failed attempts is left")
        self.assertNotIn("No space left", job.ps[0].output())
        job.restart_ps(1, *self.ps_flags())
        job.ps[0].wait_line("checkpoint at step [0-9]+: ")
        self.assertNotEqual(self.manifests(), [])
        job.kill()

    def test_read_only_disk_makes_training_wait(self):
        """If ps 0 cannot record its start, training waits, with a line that names the cause, and
        later resumes from the good checkpoint."""
        want = self.undisturbed()
        self.disk(8)
        self.start_and_stop(1, 7)
        good = self.manifests()[-1]
        subprocess.run(["mount", "-o", "remount,ro", self.folder()], check=True)
        job = self.job(n_ps=1, model="small", flags=FLAGS).start(self.ps_flags("--save_steps=8"))
        job.ps[0].wait_line("training waits until ps:0 can record its start in .*: free some")
        self.assertIn("Read-only file system", job.ps[0].output())
        self.assertIn("found a checkpoint at step %d" % good, job.ps[0].output())
        subprocess.run(["mount", "-o", "remount,rw", self.folder()], check=True)
        job.finish(120, want)
        self.assertEqual(self.manifests()[-1], 40)

    def test_server_without_folder_prevents_checkpoints(self):
        """If ps:1 lacks --checkpoint_dir, both servers log it, the job writes no checkpoint, and it
        does not hang. If ps:0 lacks the flag, no server logs a line."""
        job = self.job(n_ps=2, model="small", flags=FLAGS)
        job.start_ps(0, *self.ps_flags("--save_steps=10"))
        job.start_ps(1)
        job.start_workers()
        self.finish_without_last(job)
        job.ps[1].wait(60)
        self.assertRegex(job.ps[0].output(), "checkpoint at step [0-9]+ given up: ps:1 could not "
                         "copy or write its part")
        self.assertIn("this server was started without --checkpoint_dir", job.ps[1].output())
        trained = job.ps[0].output().split(" left\n")[0]
        self.assertNotIn("servers did not answer", trained)  # no server waited
        self.assertEqual(self.manifests(), [])
        job = self.job(n_ps=2, model="softmax", flags=FLAGS)
        job.start_ps(0)
        job.start_ps(1, *self.ps_flags("--save_steps=10"))
        job.start_workers()
        job.finish(120)
        self.assertEqual(self.manifests(), [])

    def test_killed_server_rolls_job_back(self):
        """kill -9 of the only server, also before its first checkpoint: the workers roll back with
        it, and the job ends with the same bits."""
        want = self.undisturbed()
        job = self.slow_job(1, "--save_steps=8")
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        for generation in range(2, 5):
            job.restart_ps(0, *self.ps_flags("--save_steps=8"))
            self.wait_lines(job.workers, r"generation %d\.1 from step \d+: " % generation)
        for summary in job.finish(120):
            self.assertEqual(summary["parameters_sha256"], want)
            self.assertGreater(summary["local_steps"], 40)

    def test_workers_wait_for_the_last_checkpoint(self):
        """Workers receive the last version only when it is on the disk, also if --save_steps orders
        other checkpoints, or this one, too."""
        for n_ps, flags in ((1, ["--save_steps=15"]), (2, ["--save_steps=40"]), (2, [])):
            job = self.job(n_ps=n_ps, model="small", flags=FLAGS).start(self.ps_flags(*flags))
            job.finish(120)
            saved = job.ps[0].wait_line(r"I ([\d:.]+) .*checkpoint at step 40: ").group(1)
            for worker in job.workers:
                ended = worker.wait_line(r"I ([\d:.]+) .*Training elapsed time").group(1)
                self.assertLessEqual(saved, ended, (n_ps, flags))
            shutil.rmtree(self.folder())

    def test_server_killed_during_last_checkpoint_loses_nothing(self):
        """kill -9 of the server while it makes the last version or saves it. The workers wait for
        the checkpoint, so they can repeat the lost steps."""
        want, n_killed = self.undisturbed(), 0
        for n, more in enumerate([*range(6), *[1] * 30]):
            if n >= 6 and n_killed:  # otherwise all servers had exited before the signal
                break
            job = self.slow_job(1, "--save_steps=8")
            job.ps[0].wait_line(r"checkpoint at step \d+: ")
            job.workers[0].wait_line("training step 39 done" if more else "Training elapsed time")
            until = time.monotonic() + more * 0.004
            while time.monotonic() < until:
                pass
            job.ps[0].popen.send_signal(signal.SIGKILL)
            if job.ps[0].wait(60, None) != 0:
                n_killed += 1
                if more == 0:
                    self.assertEqual(self.manifests()[-1], 40)
                job.start_ps(0, *self.ps_flags("--save_steps=8"))
            for i, worker in enumerate(job.workers):
                worker.wait(120)
                self.assertEqual(job.summary(i)["parameters_sha256"], want, more)
            # If all workers had left, none would join again.
            job.ps[0].popen.send_signal(signal.SIGTERM)
            job.ps[0].wait(60, None)
            self.assertEqual(self.manifests()[-1], 40)
            shutil.rmtree(self.folder())
        self.assertGreater(n_killed, 0)

    def test_async_and_ssp_restore(self):
        """async and ssp save each chunk at its own version. The restored job trains to its end."""
        for mode in ("async", "ssp"):
            flags = [*FLAGS, "--sync_mode=" + mode]
            flags += ["--staleness=2"] if mode == "ssp" else []
            job = self.start_and_stop(2, 7, flags=flags)
            steps = self.manifests()
            self.assertEqual(len(steps), 1, job.ps[0].output())
            job, summaries = self.restart_job(1, flags=flags)
            self.assertEqual(max(s["global_step"] for s in summaries), 40)
            self.assertIn("resumes from step %d, as generation 2.1" % steps[0], job.ps[0].output())
            shutil.rmtree(self.folder())

    def test_sigterm_of_ps_1_saves_and_job_resumes(self):
        """SIGTERM to ps 1 alone makes a checkpoint, from which the job resumes."""
        job = self.job(n_ps=2, n_workers=1, model="small",
                       flags=[*FLAGS, "--train_steps=100", "--fault_push_delay_ms=4"])
        folder = self.path("of_ps1")
        flags = ["--checkpoint_dir=" + folder, "--save_secs=600"]
        job.start(flags)
        job.workers[0].wait_line("training step 5 done")
        job.ps[1].stop(signal.SIGTERM, 60, 143)
        step, = ckpt_folder.steps(folder)
        self.assertGreaterEqual(step, 5)
        job.start_ps(1, *flags)
        job.ps[1].wait_line("resumes from step %d," % step)
        self.assertEqual(job.finish(120)[0]["global_step"], 100)

    def test_servers_without_workers_stop_on_sigterm(self):
        """The servers receive SIGTERM while no step is possible: before any worker joined, and
        after all were killed."""
        job = self.job(n_ps=2, flags=FLAGS)
        job.start_servers(*self.ps_flags())
        for ps in reversed(job.ps):
            ps.stop()
            self.assertNotIn("given up", ps.output())  # there was nothing to wait for
        self.assertEqual(self.manifests(), [])
        job = self.slow_job(2, "--save_steps=5")
        # A running checkpoint postpones the next one.
        job.ps[0].wait_line(r"checkpoint at step [1-9]\d")
        self.kill(*job.workers)
        self.terminate(job.ps, 60, 143)
        self.assertGreaterEqual(self.manifests()[-1], 10)
        job, summaries = self.restart_job(2)
        self.assertEqual(summaries[0]["global_step"], 40)

    def test_checkpoint_flags_without_folder_refused(self):
        for flags in (["--save_steps=5"], ["--restore=x"], ["--serve", *self.ps_flags()]):
            job = self.job()
            job.start_ps(0, *flags, wait=False).wait(20, 2)
            self.assertIn("--checkpoint_dir", job.ps[0].output())

    def test_python_reads_all_tensors(self):
        """The tensors of all servers together are the model and Adam's two slots."""
        job = self.job(n_ps=2, model="small", flags=FLAGS)
        job.start_ps(0, *self.ps_flags("--save_steps=40"))
        job.start_ps(1, *self.ps_flags())
        export = self.path("model.safetensors")
        job.start_worker(0, "--export=" + export)
        job.start_worker(1)
        job.finish(120)
        want = {name: list(values)
                for name, (_, values) in harness.read_safetensors(export).items()}
        got = {slot: {name: [None] * len(w) for name, w in want.items()}
               for slot in ("", " slot 0", " slot 1")}
        for path in glob.glob(self.folder() + "/*.safetensors"):
            meta = harness.safetensors_metadata(path)
            self.assertEqual((meta["format"], meta["step"], meta["servers"]),
                             ("weir checkpoint", "40", "2"))
            for key, (_, values) in harness.read_safetensors(path).items():
                name, slot, begin, end = re.fullmatch(
                    r"(\S+)( slot \d)?(?: \[(\d+):(\d+)\])?", key).groups()
                to = got[slot or ""][name]
                begin, end = int(begin or 0), int(end) if end else len(to)
                self.assertEqual(to[begin:end], [None] * len(values), key)
                to[begin:end] = values
        for name, values in want.items():
            self.assertEqual(got[""][name], values, name)
            self.assertNotIn(None, got[" slot 0"][name], name)
            self.assertTrue(all(v >= 0 for v in got[" slot 1"][name]), name)  # the mean of squares
        self.assertEqual(harness.read_json(ckpt_folder.path(self.folder(), 40))["step"], 40)


harness.main(__name__)
