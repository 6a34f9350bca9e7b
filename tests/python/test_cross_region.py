"""docs/guide/cross-region.md: the test runs the commands of the page literally and in their order,
in the network namespaces of two regions. It omits commands that last long (two passes), that only
one machine needs (its memory, copies between hosts), and the daemon that encrypts, which not every
kernel supports."""
# label: net waits
import os
import re
import shlex
import shutil
import signal
import sys
import unittest

import harness
sys.path.insert(0, harness.source("tests/wan"))
import wan  # noqa: E402

WHY_NOT = wan.why_not(ipsec=True)
REGIONS = {"eu": 0, "us": 1}
INSTALLED = "/etc/weir-ipsec"
LITTLE = ["--shared_memory=off", "--models_dir=" + harness.MODELS]


@unittest.skipIf(WHY_NOT, WHY_NOT)
class CrossRegion(harness.Test):
    def setUp(self):
        super().setUp()
        page = harness.source("docs/guide/cross-region.md")
        self.text = harness.read_text(page)
        self.net = wan.Wan(n_hosts=[2, 1], rtt_ms=20, clear=False)
        self.addCleanup(self.net.close)

    def commands(self):
        """Returns [(host, command)]."""
        return re.findall(r"^    (\S+)[#$] (.*)$", self.text, re.M)

    def describe(self):
        block = re.search(r"^    \[network\]\n(?:    .*\n|\n)+", self.text, re.M).group(0)
        with open(self.path("regions.ini"), "w", encoding="utf-8") as f:
            f.write(re.sub("^    ", "", block, flags=re.M).replace("esp = kernel",
                                                                   "esp = userspace"))

    def on_admin(self, command):
        words = shlex.split(command)
        if words[0] == "scp":
            source, to = words[-2], words[-1].split(":")[0].split("@")[1]
            shutil.copytree(self.path(source), self.path(to))
        else:
            words[0] = harness.source(words[0])
            wan.run(*words, cwd=self.dir())

    def on_gateway(self, name, command):
        gateway = self.net.regions[REGIONS[name.split("-")[0]]].gateway
        argv = [*gateway.enter, *shlex.split(command.replace(INSTALLED,
                                                             self.path(name)).rstrip(" &"))]
        if command.endswith("&"):
            self.server = self.start(name, argv)
            self.server.wait_line("listens")
            return ""
        done = harness.run(argv)
        self.assertEqual(done.returncode, 0, done.stdout + gateway.log())
        return done.stdout

    def on_host(self, name, command):
        region, _, number = name.split("-")
        space = self.net.regions[REGIONS[region]].hosts[int(number)]
        words = shlex.split(command.replace("--epochs=2", "--train_steps=4 --batch_size=20"))
        more = ["--data_dir=" + self.data(), "--progress=lines"] if words[0] == "worker" else []
        return self.start(name, [*space.enter, harness.program(words[0]), *words[1:], *LITTLE,
                                 *more])

    def test_commands_of_the_page_work(self):
        self.describe()
        jobs, checked, last = [], "", []
        for host, command in self.commands():
            if host == "admin":
                self.on_admin(command)
            elif "-host-" in host:
                jobs.append(self.on_host(host, command))
            elif command.endswith("down"):
                last.append((host, command))
            else:
                checked += self.on_gateway(host, command)
        self.assertEqual((len(jobs), len(last)), (3, 1))
        self.wait_all(reversed(jobs))
        for host, command in last:
            self.on_gateway(host, command)
        os.killpg(self.server.popen.pid, signal.SIGTERM)  # nsenter, too
        self.server.wait(status=None)
        # The page's output of check, except for its figures.
        shown = re.findall(r"^    (check: ok .*)$", self.text, re.M)
        # The capture may or may not contain a packet of IKE itself.
        self.assertEqual([re.sub(r"[\d.]+", "#", line) for line in shown],
                         [re.sub(r"[\d.]+", "#", re.sub(", ike [0-9]+$", "", line))
                          for line in checked.splitlines() if line.startswith("check: ")])


harness.main(__name__)
