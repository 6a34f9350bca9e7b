#!/usr/bin/python3
"""README.md's cluster by hand. The tests run its commands literally, each in a shell of its own,
but with free ports, fewer steps and less data. They also kill processes and start them again, as
README.md describes."""
# label: cluster
import os
import re
import socket
import unittest

import harness

SECTION = ("## A cluster by hand\n", "\nThe flags that most jobs need")
RANGE, LEAST = "/proc/sys/net/ipv4/ip_local_port_range", 10000
SHARE = 32  # number of ports that belong to one test process
NO_LOCALHOST = harness.why_no_localhost()


def listens(host, port):
    """Returns whether a program could listen at this port now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind((host, port))
            s.listen(1)
        except OSError:
            return False
    return True


def fixed_ports(n):
    """Returns n free ports of localhost that the system assigns to no connection: below the dynamic
    range, and in a part that belongs to this process."""
    end = int(harness.read_text(RANGE).split()[0])
    n_shares = (end - LEAST) // SHARE
    if n_shares < 1:  # all ports of this system are dynamic, so none is safer than another
        return harness.free_ports(n, "127.0.0.1")
    hosts = {a[4][0] for a in socket.getaddrinfo("localhost", 1, type=socket.SOCK_STREAM)}
    for turn in range(n_shares):
        first = LEAST + (os.getpid() + turn) % n_shares * SHARE
        found = [p for p in range(first, first + SHARE) if all(listens(h, p) for h in hosts)]
        if len(found) >= n:
            return found[:n]
    raise harness.Failure("no %d free ports below %d" % (n, end))


class Readme(harness.Test):
    def setUp(self):
        super().setUp()
        self.text = harness.read_source("README.md")
        os.symlink(os.path.dirname(harness.BIN), self.path("build"))

    def section(self):
        return self.text[self.text.index(SECTION[0]):self.text.index(SECTION[1])]

    def shell(self, name, command):
        return self.start(name, ["/bin/sh", "-c", "exec " + command], cwd=self.dir())

    def commands(self, steps):
        """Returns the commands that start the server and the workers, on free ports, with so many
        steps."""
        joined = re.sub(r"\\\n +", "", self.section())
        commands = re.findall(r"^    (build/bin/.*)$", joined, re.MULTILINE)
        self.assertEqual([c.split()[0] for c in commands],
                         ["build/bin/ps", "build/bin/worker", "build/bin/worker"])
        named = sorted(set(re.findall(r"localhost:(\d+)", "".join(commands))))
        for port, free in zip(named, fixed_ports(len(named))):
            commands = [c.replace("localhost:" + port, "localhost:%d" % free) for c in commands]
        few = [c.replace("--model=lenet5 --epochs=200",
                         "--model=lenet5 --train_steps=%d" % steps) +
               " --data_dir=" + self.data() for c in commands[1:]]
        self.assertTrue(all("--train_steps" in c for c in few), few)
        return commands[0], few

    @unittest.skipIf(NO_LOCALHOST, NO_LOCALHOST)
    def test_cluster_by_hand_trains(self):
        """The workers start first: their server is started when both wait for it."""
        command, few = self.commands(2)
        workers = [self.shell("worker %d" % i, c) for i, c in enumerate(few)]
        self.wait_lines(workers, "waiting for ps:0")
        ps = self.shell("ps", command)
        self.wait_all((*workers, ps), 120)
        self.wait_lines(workers, "test accuracy: ")

    @unittest.skipIf(NO_LOCALHOST, NO_LOCALHOST)
    def test_cluster_with_one_worker_trains(self):
        left_out = "leave out `,localhost:2224` and the last command"
        self.assertIn(left_out, self.section().replace("\n", " "))
        commands = [re.sub(r"(--worker_hosts=[^,]+),\S+", r"\1", c)
                    for c in (self.commands(2)[0], self.commands(2)[1][0])]
        ps, worker = self.shell("ps", commands[0]), self.shell("worker", commands[1])
        self.wait_all((worker, ps), 120)
        self.assertIn("its part of training step 2 done", worker.output())

    @unittest.skipIf(NO_LOCALHOST, NO_LOCALHOST)
    def test_killed_processes_resume(self):
        """Worker 1, then the server, are started again with the same commands; README.md quotes
        their lines."""
        command, few = self.commands(20000000)
        shown = re.findall(r"worker:0 (waiting for worker 1 \(no connection for |"
                           r"the wait for worker 1 is over)", self.section())
        continues = re.search(r"worker:1 (continues the job as worker 1 of 2 at step )\d",
                              self.section()).group(1)
        self.assertEqual(len(shown), 2)
        self.assertIn("--save_steps=500", command)
        command = command.replace("--save_steps=500", "--save_steps=10")
        ps = self.shell("ps", command)
        workers = [self.shell("worker %d" % i, c) for i, c in enumerate(few)]
        ps.wait_line("checkpoint at step ")
        workers[1].kill()
        workers[0].wait_line(re.escape(shown[0]))
        workers[1] = self.shell("worker 1 again", few[1])
        workers[1].wait_line(re.escape(continues) + "[1-9]")
        workers[0].wait_line(re.escape(shown[1]) + r" after \d+ s")
        self.assertNotIn(continues, workers[0].output())  # it began a new job
        ps.kill()
        ps = self.shell("ps again", command)
        ps.wait_line("resumes from step ")
        ps.wait_line("checkpoint at step ")
        self.kill(*workers, ps)

    @unittest.skipIf(NO_LOCALHOST, NO_LOCALHOST)
    def test_operating_commands_work(self):
        """The commands of "Operating a job", one after the other, on the cluster by hand."""
        section = self.text.split("\n## Operating a job\n")[1].split("\n## ")[0]
        shown = [c.split("   #")[0].strip() for c in re.findall(r"^    (build/bin/.*)$", section,
                                                               re.MULTILINE)]
        self.assertEqual(len(shown), 6)
        command, few = self.commands(20000000)
        free = re.search(r"--ps_hosts=localhost:(\d+)", command).group(1)
        other = "%d" % fixed_ports(8)[7]
        status, save, worker, server, leave, stop = (
            c.replace("=localhost:2221", "=localhost:" + free).replace(
                "=localhost:2222", "=localhost:" + other) for c in shown)
        programs = [self.shell("ps", command)]
        programs += [self.shell("worker %d" % i, c) for i, c in enumerate(few)]
        programs[1].wait_line("training step")
        self.shell("status", status).wait(60)
        self.shell("checkpoint", save).wait(60)
        programs.append(self.shell("joiner", worker + " --data_dir=" + self.data()))
        programs[-1].wait_line("joined as worker 2")
        programs.append(self.shell("server", server))
        programs[0].wait_line(r"ps:1 \(localhost:%s\) joins" % other)
        programs[1].wait_line("2 servers")
        self.shell("leave", leave).wait(60)
        programs.pop().wait(60)
        self.shell("stop", stop).wait(60)
        self.wait_all(programs, 120)

    def test_readme_does_not_change_path(self):
        self.assertNotRegex(self.text, r"PATH=\S*build/bin")


harness.main(__name__)
