#!/usr/bin/python3
"""Servers with the same checkpoint folder that run as different users. A server that cannot read
the file of another server reports that at once, with the remedy, and no process waits for a file
that will never be readable. A program that its user's rights stop exits with 1 and names the
remedy."""
# label: cluster
import os
import shutil
import unittest

import harness

LEAST_PORT = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
USERS = "start all servers that share the folder as one user, or with a common group and umask 027"


@unittest.skipIf(os.geteuid() != 0, "only root can start programs as other users")
class FolderUsers(harness.Test):
    def start_as(self, job, task, user, mask):
        """Starts that server of the job as this user, with this umask. All users may write in the
        checkpoint folder."""
        folder = self.path("ckpt")
        os.chmod(self.dir(), 0o755)
        if not os.path.isdir(folder):
            os.mkdir(folder)
            os.chmod(folder, 0o777)
        job.ps[task] = self.start("ps:%d" % task, ["sh", "-c", 'umask %s; exec "$@"' % mask, "sh",
                                                   "setpriv", "--reuid", user, "--regid", user,
                                                   "--clear-groups", harness.program("ps"),
                                                   *job.hosts(), "--job_name=ps",
                                                   "--task_index=%d" % task,
                                                   "--checkpoint_dir=" + folder, "--save_steps=4"])
        job.ps[task].wait_line("listening|cannot be read")
        return job.ps[task]

    def job_of_two(self):
        return self.job(n_ps=2, n_workers=1, model="small",
                        flags=["--train_steps=12", "--batch_size=12", "--chunk_bytes=4096"])

    def test_unreadable_folder_of_another_user_ends_server(self):
        job = self.job_of_two()
        first = self.start_as(job, 0, "4001", "077")
        second = self.start_as(job, 1, "4002", "077")
        second.ends(1, "folder-id: cannot be read: Permission denied; " + USERS)
        first.stop()

    def test_unreadable_files_of_another_user_end_job(self):
        job = self.job_of_two()
        first = self.start_as(job, 0, "4001", "022")
        second = self.start_as(job, 1, "4002", "077")
        job.start_worker(0).wait(60)
        first.wait(60, 138)  # the job is done, and no checkpoint has its last step
        second.wait(60)
        first.wait_line("checkpoint at step 12: .*-1-of-2[.]safetensors: this user may not read "
                        "this path; " + USERS)
        first.wait_line("lacks the checkpoint of the job's last step")


@unittest.skipIf(os.geteuid() != 0, "only root can start programs as other users")
class Rights(harness.Test):
    def refused(self, program, *flags):
        """Starts the program as a user without rights. Returns its line of error."""
        os.chmod(self.dir(), 0o755)
        process = self.start(program, ["setpriv", "--reuid", "4001", "--regid", "4001",
                                       "--clear-groups", harness.program(program), *flags])
        process.wait(60, 1)
        return [line for line in process.lines if line.startswith("E ")][0]

    def test_unreadable_weights_refused(self):
        path, data = self.path("weights"), self.path("data")
        shutil.copytree(self.data(), data)
        os.chmod(data, 0o755)
        harness.write_file(path, b"")
        os.chmod(path, 0)
        self.assertIn("--init=%s: cannot be opened: Permission denied; let the user of this "
                      "program read it" % path,
                      self.refused("worker", "--model=softmax", "--models_dir=" + harness.MODELS,
                                   "--data_dir=" + data, "--init=" + path))

    def test_unreadable_folder_refused(self):
        port = harness.free_ports(1)[0]
        os.mkdir(self.path("ckpt"), 0)
        self.assertIn("ckpt: cannot be read: Permission denied; let the user of this program "
                      "read it",
                      self.refused("ps", "--ps_hosts=%s:%d" % (harness.LOOPBACK, port),
                                   "--task_index=0", "--checkpoint_dir=" + self.path("ckpt")))

    @unittest.skipIf(int(harness.read_text(LEAST_PORT)) < 2, "all users may listen on every port")
    def test_port_of_root_refused(self):
        port = "only root may listen on a port below 1024, so choose a higher port"
        self.assertIn(port, self.refused("ps", "--ps_hosts=%s:1" % harness.LOOPBACK,
                                         "--task_index=0"))
        self.assertIn(port, self.refused("worker", "--metrics_port=1"))


harness.main(__name__)
