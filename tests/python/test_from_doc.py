#!/usr/bin/python3
"""docs/start/from-torchrun.md and from-flower.md: both programs of each page, with the commands of
the page except for free ports. Weir's program ends with the results that the page promises."""
# label: cluster
import os
import re
import shlex
import sys
import unittest

import harness
import weights
from test_start_doc import commands, page

ROUNDS = 20


def programs(text):
    """Returns {name: source} of the page's programs. The first line of each is a comment with its
    name."""
    blocks = re.findall(r"^```python\n# (\S+\.py)\b(.*?)^```", text, re.M | re.S)
    return {name: "#" + source for name, source in blocks}


@unittest.skipIf(harness.SANITIZE, "Python's libraries are compiled without a sanitizer")
class FromDoc(harness.Test):
    def setUp(self):
        super().setUp()
        try:
            import numpy  # noqa: F401
        except ImportError as e:
            self.skipTest("numpy is not installed: %s" % e)

    def write_programs(self, text):
        for name, source in programs(text).items():
            compile(source, name, "exec")
            self.write(name, source)

    def run_weir(self, text, script):
        """Runs the page's server and workers. Returns the workers' outputs."""
        port = str(harness.free_ports(1)[0])
        text = text.replace("localhost:2221", "localhost:" + port)
        server, *workers = [shlex.split(c.rstrip("& "))
                            for c in commands(text, "weir-ps", "python3")]
        self.assertEqual([w[1] for w in workers], [script] * 2)
        ps = self.start("ps", [harness.program("ps"), *server[1:]], cwd=self.dir())
        started = [self.start("worker %d" % i, [sys.executable, *w[1:]], cwd=self.dir(),
                              env=harness.package_env()) for i, w in enumerate(workers)]
        self.wait_all([*started, ps], 90, None)
        self.assertEqual([p.status for p in (*started, ps)], [0, 0, 0],
                         [p.output() for p in started])
        return [p.output() for p in started]

    def test_flower_page_reaches_weights(self):
        """Both clients end with the weights of the line, as they are without noise."""
        text = page("docs/start/from-flower.md")
        self.write_programs(text)
        for output in self.run_weir(text, "client.py"):
            self.assertRegex(output, r"weights \[1\. +2\. +3\. +4\. *\]")

    def test_torchrun_page_trains_both_programs(self):
        """Each program prints the loss of ten epochs. The last losses are alike, but the programs
        read the samples in another order."""
        weights.torch2(self)
        text = page("docs/start/from-torchrun.md")
        self.write_programs(text)
        (before,) = [c for c in commands(text, "torchrun")]
        said = self.start("torchrun", [sys.executable, "-m", "torch.distributed.run",
                                       *shlex.split(before)[1:]], cwd=self.dir())
        self.wait_all([said], 90)
        outputs = [said.output(), *self.run_weir(text, "train_weir.py")]
        for output in outputs:
            said = re.findall(r"epoch (\d+) loss (\d+\.\d{4})", output)
            losses = {int(e): float(l) for e, l in said}
            self.assertEqual(sorted(losses), list(range(10)))
            self.assertLess(losses[9], losses[0])
        self.assertTrue(os.path.exists(self.path("snapshot.pt")))


harness.main(__name__)
