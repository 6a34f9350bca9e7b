"""scripts/launch with OpenSSH's sshd on two hosts, which are network namespaces. One job runs to
its end. In another job the host of a worker is cut off: the host ends its task by itself, the
launcher starts the task again, and then Ctrl-C ends the job. No process is left on the hosts."""
# label: net waits
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest

import ckpt_folder
import harness
import namespaces

TRAINS = r"worker:1\| .*training step \d+ done"
SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin")
CONFIG = """Port 22
HostKey %(dir)s/host
AuthorizedKeysFile %(dir)s/user.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin yes
"""
FLAGS = ["--models_dir=" + harness.source("tests/python/models"), "--model=small",
         "--batch_size=12", "--intra_op_threads=1", "--progress=lines", "--log_every=1",
         "--gpus=none"]


def why_not():
    if not SSHD or not shutil.which("ssh"):
        return "needs sshd and ssh (openssh-server; scripts/setup --sshd)"
    return namespaces.why_not(bridge=True)


@unittest.skipIf(why_not(), why_not())
class LaunchSsh(harness.Test):
    def setUp(self):
        super().setUp()
        self.net = namespaces.Network(3, test=self)
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # required by sshd
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.path(name)],
                           check=True)
        harness.write_file(self.path("sshd_config"), CONFIG % {"dir": self.dir()})
        for host in self.net.hosts[1:]:
            self.daemon(host)
        with open(self.path("hosts"), "w", encoding="utf-8") as f:
            f.write("%s ps=1\n%s workers=2\n" % (self.net.address(1), self.net.address(2)))

    def daemon(self, host):
        daemon = subprocess.Popen([*harness.AS_CHILD, *host.enter, SSHD, "-D", "-f",
                                   self.dir() + "/sshd_config"])

        def end():
            daemon.terminate()
            daemon.wait()
        self.addCleanup(end)
        harness.until(lambda: ":0016 " in host.read("/proc/net/tcp"), "sshd listens")  # port 22

    def launch(self, *flags):
        d = self.dir()
        ssh = ("ssh -i %s/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=%s/known "
               "-o IdentitiesOnly=yes -F none" % (d, d))
        argv = [*self.net.hosts[0].enter, sys.executable, harness.source("scripts/launch"),
                d + "/hosts", "--ssh", ssh, "--program", harness.program("weir-task"), "--logs",
                d + "/logs", "--silence=8", "--", "--data_dir=" + self.data(), *FLAGS, *flags]
        return self.start("launch", argv)

    def tasks(self, host=None):
        """Returns ps and worker, and their shells, that run on the host, or on all hosts."""
        spaces = {os.readlink("/proc/%d/ns/net" % h.pid)
                  for h in ([host] if host else self.net.hosts)}
        found = []
        for pid in filter(str.isdecimal, os.listdir("/proc")):
            try:
                name = harness.read_text("/proc/%s/comm" % pid).strip()
                if name in ("ps", "worker", "bash") and \
                        os.readlink("/proc/%s/ns/net" % pid) in spaces:
                    found.append(name)
            except OSError:
                pass  # the process has ended
        return found

    def test_job_over_ssh_ends(self):
        out = self.path("out-{task}.json")
        launch = self.launch("--train_steps=20", "--worker_timeout=5", "--summary_json=" + out)
        launch.ends(0, r"worker:1\| .*\(global step: 20\)")
        launch.wait_line(r"launch: ps:0 +on .*: exit status 0")
        self.assertTrue(os.path.exists(out.format(task=1)))
        self.assertEqual(self.tasks(), [])

    def test_task_of_cut_off_host_restarts(self):
        folder = self.path("checkpoints")
        launch = self.launch("--train_steps=1000000", "--fault_push_delay_ms=100",
                             "--worker_timeout=5", "--checkpoint_dir=" + folder)
        launch.wait_line(r"worker:1\| .*global step: 2\)")
        self.net.link(2, False)
        launch.wait_line(r"host %s is lost, and worker:\d with it: Timeout, server %s not resp" %
                         ((self.net.address(2),) * 2))
        harness.until(lambda: not self.tasks(self.net.hosts[2]), "no task is left")
        self.net.link(2, True)
        steps = len(re.findall(TRAINS, launch.output()))
        harness.until(lambda: len(re.findall(TRAINS, launch.output())) > steps, "a restart", 90)
        launch.popen.send_signal(signal.SIGINT)
        launch.wait(status=130)
        for line in ("worker:1 on .*: exit status 0, . starts", "ps:0 +on .*: exit status 143"):
            launch.wait_line("launch: " + line)
        self.assertTrue(ckpt_folder.steps(folder))
        self.assertEqual(self.tasks(), [])


harness.main(__name__)
