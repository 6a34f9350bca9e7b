#!/usr/bin/python3
"""docs/start: the test runs the commands that need no other machine, literally except for free
ports, a smaller model and fewer steps. The links of all pages lead to a target."""
# label: cluster
import os
import re
import shlex
import unittest

import harness
from test_readme import NO_LOCALHOST, fixed_ports


def page(path):
    return harness.read_source(path)


def commands(text, *programs):
    """Returns whole lines of code that begin with one of these programs."""
    joined = re.sub(r"\\\n +", "", text)
    return [c for c in re.findall(r"^    (\S.*)$", joined, re.M) if c.split()[0] in programs]


def anchors(text):
    """Returns the anchors that GitHub makes of titles."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", t) for t in titles]
    return {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in plain}


class StartDoc(harness.Test):
    def little(self, command):
        return re.sub(r"--model=\w+ --\w+=\d+", "--model=mlp --train_steps=100", command)

    def run_as(self, name, command, *more, **kwargs):
        words = [os.path.expandvars(w) for w in shlex.split(self.little(command))]
        if os.path.basename(words[0]) != "ps":
            more += ("--models_dir=" + harness.MODELS, "--data_dir=" + self.data(),
                     "--progress=lines", "--intra_op_threads=1")
        return self.start(name, [harness.program(os.path.basename(words[0])), *words[1:], *more],
                          **kwargs)

    @unittest.skipIf(NO_LOCALHOST, NO_LOCALHOST)
    def test_commands_for_two_regions_run(self):
        found = commands(page("docs/start/regions.md"), "ps", "worker")
        self.assertEqual([c.split()[0] for c in found], ["ps", "ps", "ps", "worker", "worker"])
        text = "\n".join(found)
        named = sorted(set(re.findall(r"localhost:(\d+)", text)))
        for port, free in zip(named, fixed_ports(len(named))):
            text = text.replace("localhost:" + port, "localhost:%d" % free)
        started = [self.run_as(c.split()[0], c) for c in text.split("\n")]
        self.wait_all(started[::-1], 60)
        for server in started[1:3]:
            self.assertIn("round 5 of 5 exchanged", server.output())

    def test_command_for_slurm_runs(self):
        (command,) = commands(page("docs/start/slurm.md"), "srun")
        n, command = re.fullmatch(r"srun -n(\d+) (.*)", command).groups()
        port = "--slurm_port=%d" % harness.free_ports(1)[0]
        tasks = []
        for i in range(int(n)):
            step = {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": harness.LOOPBACK,
                    "SLURM_STEP_TASKS_PER_NODE": n, "SLURM_STEP_NUM_TASKS": n,
                    "SLURM_PROCID": str(i), "SLURM_LOCALID": str(i), "SLURM_NODEID": "0"}
            tasks.append(self.run_as("task %d" % i, command, port, env={**os.environ, **step}))
        self.wait_all(tasks, 60)
        tasks[1].wait_line("test accuracy")

    def test_links_lead_to_files_and_titles(self):
        """The links of each page lead to files and to titles."""
        listed = harness.check_output([harness.source("scripts/list_files"), "*.md"])
        paths = listed.split("\0")[:-1]
        n = 0
        for path in paths:
            for link in re.findall(r"\]\(([^)\s]+)\)", page(path)):
                if "://" in link:
                    continue
                n += 1
                file, _, anchor = link.partition("#")
                to = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
                self.assertTrue(os.path.exists(harness.source(to)), (path, link))
                if anchor:
                    self.assertIn(anchor, anchors(page(to)), (path, link))
        self.assertGreater(n, 100)


harness.main(__name__)
