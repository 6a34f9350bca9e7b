"""A worker that is started again after its job's end. It exits with 0 if the servers' checkpoint
folder or restarted servers show the end, and if all files exist that the worker should have
written. Otherwise it waits. A server that was added too late ends by the same folder."""
# label: cluster waits
import os
import shutil
import signal

import harness

STEPS = 12
FLAGS = ["--batch_size=12", "--train_steps=%d" % STEPS, "--seed=5", "--intra_op_threads=1"]


class JobOver(harness.Test):
    def again(self, *flags, folder=None, name="worker"):
        """Starts a worker of the ended job again."""
        own = [*self.job_.hosts(), "--job_name=worker", "--task_index=0", *self.job_.flags]
        if "--join" in flags:
            own = ["--ps_hosts=" + self.job_.ps_hosts[0]]
        argv = [harness.program("worker"), *own, "--checkpoint_dir=" + (folder or self.folder),
                *flags]
        return self.start(name, argv)

    def copy(self, name):
        return shutil.copytree(self.folder, self.path(name))

    def test_worker_started_after_the_end_exits_or_waits(self):
        self.folder = self.path("checkpoints")
        self.job_ = job = self.job(n_workers=1, model="small", flags=FLAGS)
        export = self.path("export.safetensors")
        kept = ["--checkpoint_dir=" + self.folder, "--save_steps=1000"]
        job.start_ps(0, *kept)
        job.start_worker(0, "--export=" + export)
        job.finish()

        killed, moved = self.copy("killed"), self.copy("moved")
        with open(os.path.join(killed, "up-" + job.ps_hosts[0]), "wb"):
            pass  # the file that marks ps 0 as running, or that a killed ps 0 leaves
        with open(os.path.join(moved, "lease-1"), "r+", encoding="utf-8") as f:
            text = f.read().replace(job.ps_hosts[0], "other:2222")
            f.seek(0)
            f.write(text)
            f.truncate()
        done = [self.again("--export=" + export, "--summary_json=" + job.summary_path(0)),
                self.again("--wire_dtype=auto")]
        waits = [self.again("--train_steps=%d" % (2 * STEPS), name="more steps"),
                 self.again("--seed=6", name="another job"),
                 self.again("--batch_size=24", name="another batch"),
                 self.again("--restore=" + self.folder, name="begins anew"),
                 self.again("--join", name="of whatever job"),
                 self.again(folder=killed, name="ps 0 killed"),
                 self.again(folder=moved, name="another ps 0"),
                 self.again(folder=self.path("none"), name="no folder"),
                 self.again("--checkpoint_dir=", name="without the flag")]
        remedy = {"no folder": ", and .*none does not show that the job has ended: start the "
                               "servers, or end this worker",
                  "without the flag": ": start the servers or, if the job has ended, end this "
                                      "worker .*; a worker that is started with the servers' "
                                      "--checkpoint_dir"}
        shutil.copy(export, export + "-2")
        os.utime(export + "-2", (1, 1))  # older than the job, like the export of an earlier job
        late = self.again("--export=%s-2" % export, name="without its export")
        for worker in done:
            worker.wait_line("the job is done: the last checkpoint in .* has all its 12 steps")
            worker.wait()
        late.wait_line("the job is done, .* but the file of this worker's --export is missing")
        for worker in waits:
            worker.wait_line(r"waiting for ps:0 .*, 1[1-9] s so far", 40)
            self.assertNotIn("the job is done", worker.output(), worker.name)
            if worker.name in remedy:
                worker.wait_line("ps:0 .* has not answered since this worker was started" +
                                 remedy[worker.name], 60)
            worker.stop(signal.SIGINT, status=130)
        joined = job.join_ps("--checkpoint_dir=" + self.folder)  # after ps 0's end
        waits = job.join_ps("--checkpoint_dir=" + killed)
        joined.wait_line("the job in .* has completed its steps, and ps:0 .* does not return", 60)
        joined.wait()
        waits.wait_line("waiting for ps:0")
        waits.stop(signal.SIGINT, status=130)
        job.start_ps(0, *kept)
        self.wait_all((late, job.ps[0]))
        self.assertGreater(os.path.getmtime(export + "-2"), 1)

    def test_restarted_servers_without_steps_exit(self):
        """Restarted servers do not wait for ever for worker 0, or for other workers, if no step is
        left."""
        folder = self.path("back")
        kept = ["--checkpoint_dir=" + folder, "--save_steps=1000", "--worker_timeout=2"]
        job = self.job(n_ps=2, n_workers=2, model="small", flags=[*FLAGS, "--chunk_bytes=5120"])
        job.start(kept)
        job.finish()
        for killed in (False, True):
            if killed:
                with open(os.path.join(folder, "up-" + job.ps_hosts[0]), "wb"):
                    pass  # the file that a killed ps 0 leaves
            for i in (0, 1):
                job.start_ps(i, *kept, *(["--worker_timeout=12"] if killed else []))
            again = job.start_worker(1)
            if not killed:
                again.wait_line("worker 0 decides the job's settings, and has not joined yet")
            again.wait_line("nothing is left to train: the job is at step 12 of 12")
            self.wait_all((again, *job.ps))


harness.main(__name__)
