#!/usr/bin/python3
"""Servers with a checkpoint folder each, on disks of their own: each server keeps, cleans up and
restores its own files. A missing file is named, and the job resumes from the last whole
checkpoint."""
# label: cluster address long
import glob
import os
import shutil

import ckpt_folder
import harness

FLAGS = ["--batch_size=12", "--train_steps=40", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
SLOW = [*FLAGS, "--fault_push_delay_ms=4"]


class OwnFolders(harness.Test):
    def folder(self, task):
        return self.path("disk%d" % task)

    def files(self, task, what="-of-*.safetensors"):
        return sorted(glob.glob(self.folder(task) + "/weir-*" + what))

    def manifests(self):
        return ckpt_folder.steps(self.folder(0))

    def start_ps(self, job, task, *more, folder=None, **kwargs):
        flags = ["--checkpoint_dir=" + (folder or self.folder(task)), *more]
        return job.start_ps(task, *flags, **kwargs)

    def begin(self, n_ps=2, *more, flags=SLOW, n_workers=2, brake=None):
        """Begins a job whose servers have a folder each."""
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small", flags=flags)
        if brake:
            job.brake_from(brake)
        self.start_ps(job, 0, *(more or ["--save_steps=8"]))
        for i in range(1, n_ps):
            self.start_ps(job, i)
        job.start_workers()
        return job

    def stopped_at(self, step, n_ps=2):
        """Returns a killed job with the checkpoints up to that step, or later ones."""
        job = self.begin(n_ps, "--save_steps=8", brake=step + 14)
        harness.until(lambda: len(self.manifests()) >= step // 8, "enough checkpoints")
        job.release()
        self.kill(*job.workers, *job.ps)
        return job

    def finish(self, job):
        job.finish(120, self.undisturbed_digest(n_ps=1, model="small", flags=FLAGS))

    def lose_folder(self):
        """Moves the folder of ps 1 away; returns its path."""
        aside = self.folder(1) + "-aside"
        os.rename(self.folder(1), aside)
        return aside

    def finish_with(self, job, aside):
        """Restarts ps 1 with the folder that it had lost; the job must end as if undisturbed."""
        self.kill(job.ps[1])
        shutil.rmtree(self.folder(1))
        os.rename(aside, self.folder(1))
        self.start_ps(job, 1)
        self.finish(job)

    def test_own_folders_keep_same_checkpoints(self):
        """Each server has its own files of the same checkpoints, and logs whether its folder is
        shared."""
        job = self.begin(2, "--save_steps=5", "--keep_checkpoint_max=2")
        self.finish(job)
        steps = self.manifests()
        self.assertEqual(len(steps), 2)
        self.assertEqual(steps[-1], 40)
        for task in (0, 1):
            self.assertEqual({os.path.basename(f) for f in self.files(task)},
                             {os.path.basename(ckpt_folder.path(self.folder(task), s, "-%d-of-2."
                                                                "safetensors" % task))
                              for s in steps})
        self.assertEqual(self.files(1, ".json"), [])
        self.assertIn("disk1 is not the folder of ps:0", job.ps[1].output())
        self.assertIn("keeps its parts in a folder of its own", job.ps[0].output())
        self.assertNotIn("given up", job.ps[0].output())

    def test_shared_folder_logged(self):
        """If two servers have the same folder, the second one logs that it is shared."""
        job = self.job(n_ps=2, model="softmax", flags=FLAGS)
        for i in (0, 1):
            self.start_ps(job, i, folder=self.folder(0))
        job.start_workers()
        job.finish(60)
        self.assertIn("disk0 is shared with ps:0", job.ps[1].output())
        self.assertNotIn("of its own", job.ps[0].output())

    def test_two_servers_share_other_folder_than_ps_0(self):
        """ps 1 and ps 2 have one folder, and ps 0 another one. The next job has one server in each
        folder, with another address, and resumes from the newest checkpoint."""
        job = self.job(n_ps=3, model="small", flags=SLOW)
        for i in range(3):
            self.start_ps(job, i, *([] if i else ["--save_steps=8"]), folder=self.folder(i > 0))
        job.start_workers()
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(*job.workers, *job.ps)
        newest = self.manifests()[-1]
        self.assertEqual(len(self.files(1, "-%d-*.safetensors" % newest)), 2)
        job = self.job(n_ps=2, model="small", flags=FLAGS)
        self.start_ps(job, 0, "--save_steps=8", "--keep_checkpoint_max=1")
        self.start_ps(job, 1)
        job.start_workers()
        self.finish(job)
        self.assertIn("resumes from step %d," % newest, job.ps[1].output())
        self.assertEqual(len(self.files(1)), 1)

    def test_killed_server_rolls_back_to_newest_checkpoint(self):
        """Either server is killed and started again: all members roll back to the newest
        checkpoint."""
        job = self.begin()
        for task, step in ((1, r"\d+"), (0, r"[1-9]\d")):
            job.ps[0].wait_line("checkpoint at step %s: " % step)
            self.kill(job.ps[task])
            self.start_ps(job, task, *([] if task else ["--save_steps=8"]))
            job.workers[0].wait_line(r"generation %s from step ([1-9]\d*):" %
                                     (r"1\.[2-9]" if task else r"2\.\d"))
        self.finish(job)

    def test_killed_job_resumes_from_newest_checkpoint(self):
        """All processes are killed. The next job resumes from the newest checkpoint, whatever ports
        its servers have, and removes old files of the previous job."""
        self.stopped_at(16)
        newest = self.manifests()[-1]
        job = self.begin(2, "--save_steps=8", "--keep_checkpoint_max=1", flags=FLAGS)
        self.finish(job)
        for ps in job.ps:
            self.assertIn("resumes from step %d," % newest, ps.output())
        for task in (0, 1):
            self.assertEqual(len(self.files(task)), 1, self.files(task))

    def test_server_killed_after_last_step_exits_on_restart(self):
        """ps 1 is killed when the job is done, and started again. It exits, because ps 0 has exited
        and the job has made all its steps."""
        job = self.begin(2, "--save_steps=40", flags=FLAGS)
        self.finish(job)
        up = os.path.join(self.folder(1), "up-" + job.ps_hosts[1])
        with open(up, "wb"):
            pass  # the file that a killed process leaves
        self.start_ps(job, 1, "--worker_timeout=1").wait(60, 0)
        self.assertIn("has completed its steps, and ps:0", job.ps[1].output())

    def test_damaged_file_of_ps_1_resumes_from_older_checkpoint(self):
        """A bit of ps 1's newest file is inverted: ps 1 reports it, and the job resumes from the
        checkpoint before."""
        self.stopped_at(16)
        before, newest = self.manifests()[-2:]
        path = ckpt_folder.path(self.folder(1), newest, "-1-of-2.safetensors")
        harness.damage(path)
        job = self.begin(flags=FLAGS)
        self.finish(job)
        self.assertRegex(job.ps[1].output(),
                         "%d-1-of-2.safetensors: skipped: .*checksum" % newest)
        self.assertRegex(job.ps[0].output(),
                         "%d.json: not restored: .*%d-1-of-2.safetensors is in no server's "
                         "folder; ps:1 .* trying the previous checkpoint" % (newest, newest))
        self.assertIn("resumes from step %d," % before, job.ps[1].output())

    def test_lost_folder_makes_training_wait(self):
        """ps 1 returns without its folder: training waits, and a line names the cause; with the
        folder training resumes."""
        job = self.begin()
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(job.ps[1])
        aside = self.lose_folder()
        self.start_ps(job, 1)
        job.ps[0].wait_line("-1-of-2.safetensors is in no server's folder; ps:1 .* wrote it to "
                            "its own folder: restart that server with that folder")
        job.ps[0].wait_line("none of its checkpoints is complete")
        self.finish_with(job, aside)

    def test_lost_folder_at_start_makes_training_wait(self):
        """Training waits for a lost folder also if all programs are restarted."""
        self.stopped_at(16)
        aside = self.lose_folder()
        job = self.begin(flags=FLAGS)
        job.ps[0].wait_line("training waits to resume from step .*is in no server's folder; ps:1 ")
        self.finish_with(job, aside)

    def test_own_folders_need_the_same_servers(self):
        """One server alone lacks files, and reports that. A third server, without files, does not
        stop the two others. Any number of servers resumes from copies in one folder."""
        self.stopped_at(16)
        newest = self.manifests()[-1]
        job = self.begin(1, flags=FLAGS)
        job.ps[0].wait_line("training waits to resume from step %d: weir-.*-1-of-2.safetensors is "
                            "in no server's folder; ps:1 " % newest)
        self.kill(*job.workers, *job.ps)
        for task in (0, 1):
            shutil.copytree(self.folder(task), self.folder(7), dirs_exist_ok=True)
        job = self.begin(3, flags=FLAGS)
        self.finish(job)
        self.assertIn("resumes from step %d," % newest, job.ps[2].output())
        for name in glob.glob(self.folder(7) + "/folder-id"):
            os.unlink(name)
        shutil.rmtree(self.folder(0))
        os.rename(self.folder(7), self.folder(0))
        self.finish(self.begin(1, flags=FLAGS))

    def test_files_of_failed_attempts_removed(self):
        """ps 0 cannot write its file: ps 1 removes its own file of each attempt."""
        job = self.job(n_ps=2, model="small", flags=[*SLOW, "--train_steps=100000"])
        self.start_ps(job, 0, "--save_steps=2", prefix=harness.FULL_DISK)
        self.start_ps(job, 1)
        job.start_workers()
        harness.until(lambda: job.ps[0].output().count("given up; training") >= 3, "attempts")
        with harness.paused(*job.workers):
            harness.until(lambda: not self.files(1), "nothing of the failed attempts is left")
        self.kill(*job.workers, *job.ps)


harness.main(__name__)
