#!/usr/bin/python3
"""A limit on the size of files (ulimit -f): a write beyond the limit is an error whose message
names the limit, and does not kill the program."""
# label: cluster address
import os

import harness

LIMIT_BLOCKS = 128  # blocks of 1024 bytes: far below the model's parameters, above all other files
NAMES_LIMIT = r"ulimit -f"


class FileLimit(harness.Test):
    def limited(self, process_argv):
        return ["bash", "-c", 'ulimit -f %d; exec "$@"' % LIMIT_BLOCKS, "bash", *process_argv]

    def start(self, name, argv, **kwargs):
        return super().start(name, self.limited(argv), **kwargs)

    def test_job_continues_without_shared_memory_and_checkpoint(self):
        """Shared memory and checkpoints are impossible: the worker exits with 0 nevertheless, and
        the server reports that another start may save the checkpoint."""
        folder = self.path("ckpt")
        job = self.job(n_workers=1, model="mlp", flags=["--train_steps=12", "--batch_size=20"])
        job.start(["--checkpoint_dir=" + folder, "--save_steps=4"])
        job.workers[0].wait(60)
        job.ps[0].wait(60, 138)
        for process in (job.workers[0], job.ps[0]):
            process.wait_line(r"no shared memory: .*File too large.*" + NAMES_LIMIT)
        job.ps[0].wait_line(r"weir-\S+: cannot write: File too large.*" + NAMES_LIMIT)
        self.assertEqual(sorted(os.listdir(folder)), ["folder-id", "lease-1", "servers"])

    def test_weirctl_reports_full_output(self):
        """weirctl writes its report to a full file: it reports the error and fails."""
        job = self.job(n_workers=1)
        job.start_ps()
        path = self.write("report", bytes(1024 * LIMIT_BLOCKS))
        script = '"$@" >> %s' % path
        argv = [harness.program("weirctl"), "--ps_hosts=" + job.ps_hosts[0], "status"]
        ctl = self.start("weirctl", ["bash", "-c", script, "bash", *argv])
        ctl.ends(1, "File too large.*" + NAMES_LIMIT, 30)
        job.ps[0].stop()


harness.main(__name__)
