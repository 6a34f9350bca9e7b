#!/usr/bin/python3
"""docs/guide/tensorflow.md against the programs: each flag in its table behaves as its row
describes, and the table has all flags that the programs recognize."""
# label: unit address
import re
import subprocess
import unittest

import harness

# Values that the flag accepts, if 1 is invalid.
VALUES = {"gpu_memory_fraction": "0.5", "trace": "file"}


def run(program, *flags):
    argv = [harness.program(program), *flags]
    done = harness.run(argv, stdin=subprocess.DEVNULL, timeout=60 * harness.PATIENCE)
    return done.returncode, done.stdout


class Table(unittest.TestCase):
    DOC = harness.read_source("docs/guide/tensorflow.md")
    ROWS = dict(re.findall(r"^\| `--(\w+)` \| (.*) \|$", DOC, re.MULTILINE))

    def help(self, program):
        return set(re.findall(r"^ +--(\w+)", run(program, "--help")[1], re.MULTILINE))

    def test_table_is_complete(self):
        known = re.findall(r'^    \{"(\w+)",', harness.read_source("base/flags_tensorflow.c"),
                           re.MULTILINE)
        self.assertGreater(len(known), 20)
        self.assertEqual(sorted(self.ROWS), sorted(known))

    def test_flags_of_equal_name_exist(self):
        text = re.search(r"These flags have the same name and meaning:\n\n((?:    .*\n)+)",
                         self.DOC).group(1)
        names = re.findall(r"--(\w+)", text)
        self.assertGreater(len(names), 10)
        self.assertEqual(set(names) - self.help("worker"), set())

    def test_accepted_flags_set_weirs(self):
        """The program logs which flag it set, at log level debug. It only lists devices, or lacks
        its servers, so no job runs."""
        for name, row in self.ROWS.items():
            m = re.match(r"same as `--(\w+)`", row)
            if not m:
                continue
            with self.subTest(flag=name):
                value = VALUES.get(m.group(1), "3" if m.group(1) not in (
                    "sync_replicas", "gpu_allow_growth") else "false")
                program, end = ("worker", 0) if m.group(1) in self.help("worker") else ("ps", 2)
                flags = ["--list_devices"] if program == "worker" else []
                status, said = run(program, "--%s=%s" % (name, value), "--log_level=debug", *flags)
                self.assertEqual(status, end, said)
                self.assertIn("--%s=%s\n" % (m.group(1), value), said)

    def test_refused_flags_explained(self):
        """A program that lacks the flag prints its name, followed by the text of the table."""
        own = {program: self.help(program) for program in ("worker", "ps")}
        n = 0
        for name, row in self.ROWS.items():
            said_of_it = re.sub("^same as [^;]*(; by the other program: |$)", "", row)
            takes = re.findall(r"^same as `--(\w+)`", row) + [name]
            for program in own if said_of_it else ():
                if own[program].intersection(takes):
                    continue
                with self.subTest(flag=name, program=program):
                    status, said = run(program, "--%s=1" % name)
                    self.assertEqual(status, 2, said)
                    self.assertIn("unknown flag --%s: %s\n" % (name, said_of_it.replace("`", "")),
                                  said)
                    n += 1
        self.assertGreater(n, 15)


harness.main(__name__)
