"""The three command lines of TensorFlow's guides, letter for letter, in two network namespaces with
the addresses 192.168.1.6 and 192.168.1.7. In one test the ps starts first, in the other one
last."""
# label: net waits
import os
import re
import unittest

import harness
from namespaces import Namespace, run
import namespaces

HOSTS = "--ps_hosts=192.168.1.6:2221 --worker_hosts=192.168.1.6:2223,192.168.1.7:2223"
PS = "GRPC_POLL_STRATEGY=poll ps     %s --job_name=ps     --task_index=0" % HOSTS
WORKER_0 = "GRPC_POLL_STRATEGY=poll worker %s --job_name=worker --task_index=0" % HOSTS
WORKER_1 = "GRPC_POLL_STRATEGY=poll worker %s --job_name=worker --task_index=1" % HOSTS


WHY_NOT = namespaces.why_not()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Netns(harness.Test):
    def setUp(self):
        super().setUp()
        self.six, self.seven = Namespace(test=self), Namespace(test=self)
        self.six.ip("link add weir6 type veth peer name weir7 netns %d" % self.seven.pid)
        for space, device, address in ((self.six, "weir6", "192.168.1.6/24"),
                                       (self.seven, "weir7", "192.168.1.7/24")):
            space.ip("address add %s dev %s" % (address, device), "link set %s up" % device,
                     "link set lo up")

    def launch(self, name, space, command, *flags):
        env = dict(os.environ, PATH=harness.BIN + ":" + os.environ["PATH"])
        return self.start(name, [*space.enter, "bash", "-c", " ".join([command, *flags])], env=env)

    def worker(self, name, space, command):
        # Flags that the guides omit: short training, on data that is here.
        return self.launch(name, space, command, "--train_steps=40", "--batch_size=20",
                           "--progress=lines", "--data_dir=" + self.data(),
                           "--models_dir=" + harness.MODELS)

    def finish(self, ps, workers):
        for worker in workers:
            self.assertRegex(worker.wait_output(), "Training elapsed time")
        ps.wait()

    def test_ps_starts_first(self):
        ps = self.launch("ps", self.six, PS)
        ps.wait_line(r"192\.168\.1\.6:2221")
        self.finish(ps, [self.worker("worker:0", self.six, WORKER_0),
                         self.worker("worker:1", self.seven, WORKER_1)])

    def test_ps_starts_last(self):
        workers = [self.worker("worker:0", self.six, WORKER_0),
                   self.worker("worker:1", self.seven, WORKER_1)]
        self.wait_lines(workers, r"192\.168\.1\.6:2221")
        self.finish(self.launch("ps", self.six, PS), workers)

    def algorithms(self, space):
        """Returns the congestion controls of the namespace's connections, as sorted names:
        {(own address, peer's address): names}. The ps' address has its port."""
        found = {}
        for line in harness.check_output([*space.enter, "ss", "-HOtni", "state",
                                          "established"]).splitlines():
            words = line.split()
            ends = tuple(re.sub(r".*?([0-9.]+)]?(:2221)?(:.*)?$", r"\1\2", w) for w in words[2:4])
            found.setdefault(ends, set()).update({"bbr", "reno", "cubic"}.intersection(words[4:]))
        return {ends: sorted(names) for ends, names in found.items()}

    def test_only_connections_within_a_host_leave_bbr(self):
        try:
            for space in (self.six, self.seven):
                space.sysctl("net/ipv4/tcp_congestion_control", "bbr")
        except harness.Failure as e:
            self.skipTest("namespaces cannot use BBR here: %s" % e)
        ps = self.launch("ps", self.six, PS)
        workers = [self.launch("worker:%d" % i, space, command, "--train_steps=1000000",
                               "--batch_size=20", "--progress=lines",
                               "--data_dir=" + self.data(), "--models_dir=" + harness.MODELS)
                   for i, space, command in ((0, self.six, WORKER_0), (1, self.seven, WORKER_1))]
        self.wait_lines(workers, "global step")
        six, seven = self.algorithms(self.six), self.algorithms(self.seven)
        self.assertEqual(six["192.168.1.6:2221", "192.168.1.6"], ["reno"])
        self.assertIn("reno", six["192.168.1.6", "192.168.1.6:2221"])
        self.assertEqual(six["192.168.1.6:2221", "192.168.1.7"], ["bbr"])
        self.assertEqual(seven["192.168.1.7", "192.168.1.6:2221"], ["bbr"])
        self.kill(ps, *workers)

    def test_ps_listens_only_on_its_own_address(self):
        ps = self.launch("ps", self.six, PS, "--serve")
        ps.wait_line(r"192\.168\.1\.6:2221")
        connect = "import socket; socket.create_connection((%r, 2221), 5)"
        run(*self.seven.enter, "python3", "-c", connect % "192.168.1.6")
        with self.assertRaises(harness.Failure):
            run(*self.six.enter, "python3", "-c", connect % "127.0.0.1")
        # bash executes its last command in its own process, so the signal reaches the ps.
        ps.stop()


harness.main(__name__)
