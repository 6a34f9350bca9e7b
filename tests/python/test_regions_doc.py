"""docs/guide/regions.md: the tests run its commands in the network namespaces of two regions. They
change the commands only to save time (a smaller model, fewer steps), and for the memory of a single
machine."""
# label: net waits
import re
import shlex
import sys
import unittest

import harness
sys.path.insert(0, harness.source("tests/wan"))
import wan  # noqa: E402

WHY_NOT = wan.why_not()
REGIONS = {"eu": 0, "us": 1}
FIRST_HOST = 10  # last number in the address of a region's first host


@unittest.skipIf(WHY_NOT, WHY_NOT)
class RegionsDoc(harness.Test):
    def setUp(self):
        super().setUp()
        self.text = harness.read_source("docs/guide/regions.md")
        self.net = wan.Wan(n_hosts=[4, 3], rtt_ms=20)
        self.addCleanup(self.net.close)

    def commands(self):
        """Returns [(host, command)]."""
        joined = re.sub(r"\\\n +", "", self.text)
        return re.findall(r"^    (\S+)\$ (.*)$", joined, re.M)

    def on_host(self, region, number, command, *more):
        space = self.net.regions[region].hosts[number]
        words = shlex.split(command)
        return self.start("%s of %d-%d" % (words[0], region, number),
                          [*space.enter, harness.program(words[0]), *words[1:],
                           "--shared_memory=off", *more])

    def workers(self, command):
        """Returns the command of a worker that the page shows, for each host in --worker_hosts of
        both regions."""
        command = command.replace("deep_mnist", "mlp").replace("=1000", "=100")
        started = []
        for region, prefix, hosts, server in ((0, "10.81.0.", (12, 13), "10.81.0.11"),
                                              (1, "10.82.0.", (11, 12), "10.82.0.10")):
            for index, host in enumerate(hosts):
                text = re.sub(r"--task_index=\d+", "--task_index=%d" % index, command)
                text = re.sub(r"--ps_hosts=[\d.]+", "--ps_hosts=" + server, text)
                text = re.sub(r"--worker_hosts=\S+", "--worker_hosts=" + ",".join(
                    "%s%d:2223" % (prefix, h) for h in hosts), text)
                if (region, index) == (0, 0):
                    self.assertEqual(text, command)  # the page shows one of them
                path = self.path("summary-%d-%d.json" % (region, index))
                started.append((self.on_host(
                    region, host - FIRST_HOST, text, "--models_dir=" + harness.MODELS,
                    "--data_dir=" + self.data(), "--progress=lines", "--intra_op_threads=1",
                    "--summary_json=" + path), path))
        return started

    def test_commands_of_the_page_work(self):
        servers, workers = [], []
        for host, command in self.commands():
            region, _, number = host.partition("-")
            if command.startswith("worker"):
                workers += self.workers(command)
            else:
                # The address in the command is this host's.
                own = re.search(r"--ps_hosts=[\d.]+\.(\d+):", command).group(1)
                self.assertEqual(int(own), FIRST_HOST + int(number))
                servers.append(self.on_host(REGIONS[region], int(number), command))
        self.assertEqual((len(servers), len(workers)), (3, 4))
        digests = set()
        for process, path in workers:
            process.wait()
            digests.add(harness.read_json(path)["parameters_sha256"])
        self.assertEqual(len(digests), 1)
        self.wait_all(servers)
        for server in servers[1:]:
            self.assertIn("round 2 of 2 exchanged", server.output())


harness.main(__name__)
