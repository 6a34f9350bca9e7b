"""bench/against on a small repository, whose programs and bench this test makes. bench/against
builds a commit beside the tree, runs both builds in turns, and reports which figures are slower."""
# label: unit
import os
import re
import shutil
import subprocess
import unittest

import harness

COPIED = ("bench/against", "bench/common.py")
# Build rules of the repository: the program is a file with a number, its speed, which the build
# copies from the tree.
CMAKE = """cmake_minimum_required(VERSION 3.16)
project(small NONE)
foreach(name ps worker)
  add_custom_target(${name}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/bin
    COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/speed ${CMAKE_BINARY_DIR}/bin/${name}
    COMMAND ${CMAKE_COMMAND} -E echo "${WEIR_KIND}" > ${CMAKE_BINARY_DIR}/bin/kind)
endforeach()
"""
# A bench that runs the programs of a folder for one round, and appends the speed of the build to
# `runs`. Its figures vary by 1 or 2 % from run to run.
BENCH = """#!/usr/bin/python3
import json, os, sys
folder = sys.argv[-1].partition("--bin=")[2]
with open(os.path.join(folder, "ps")) as f:
    speed = float(f.read())
assert sys.argv[1:-1] == ["--size=4", "--rounds=1"], sys.argv
with open("runs", "a+") as f:
    f.seek(0)
    n = len(f.readlines())
    f.write("%g\\n" % speed)
noise = 1 + 0.01 * (n % 3)
print("a table")
print(json.dumps({"figures": [["copy", "GB/s", speed * noise], ["copy", "CPU s/GB", noise / speed],
                              ["idle", "GB/s", 0]]}))
"""
WHY_NOT = None if shutil.which("git") and shutil.which("cmake") and shutil.which("ninja") else (
    "needs git, cmake and ninja")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Against(harness.Test):
    def setUp(self):
        super().setUp()
        self.tree = self.path("tree")
        os.makedirs(os.path.join(self.tree, "bench"))
        for name in COPIED:
            shutil.copy(harness.source(name), os.path.join(self.tree, name))
        self.write("CMakeLists.txt", CMAKE)
        self.write("bench/stub", BENCH)
        self.write("bench/mute", "#!/bin/sh\necho no figures\n")
        self.write("bench/fails", "#!/bin/sh\nexit 7\n")
        self.write(".gitignore", "build/\n__pycache__/\n/runs\n")
        self.git("init", "--quiet")
        self.commit(100)
        self.commit(50)
        subprocess.run(["cmake", "-S", self.tree, "-B", os.path.join(self.tree, "build"), "-G",
                        "Ninja", "-DWEIR_KIND=own"], check=True, stdout=subprocess.DEVNULL)

    def write(self, name, text):
        path = os.path.join(self.tree, name)
        harness.write_file(path, text)
        os.chmod(path, 0o755)

    def git(self, *argv):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *argv], cwd=self.tree,
                       check=True, stdout=subprocess.DEVNULL)

    def commit(self, speed):
        self.write("speed", "%d\n" % speed)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=speed: %d" % speed)

    def against(self, *argv, status):
        done = harness.capture([os.path.join(self.tree, "bench/against"), *argv])
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_half_speed_reported_slower(self):
        out = self.against("--rounds=4", "HEAD~", "stub --size=4", status=3).stdout
        self.assertRegex(out, r"(?m)^\d+ cores of .*, TCP \w+; load before the run ")
        self.assertRegex(out, r"\| copy \| GB/s \| 100\.5 \(100 to 101\) \| 50\.75 \(50 to 51\) \| "
                              r"0\.505 \(0\.495 to 0\.51\) \| -49\.6% \+- \d+\.\d% \| slower \|")
        self.assertRegex(out, r"\| copy \| CPU s/GB \| .* \| \+101\.5% \+- \d+\.\d% \| slower")
        self.assertNotIn("idle", out)  # no ratio to 0
        self.assertIn("slower beyond noise: copy; copy", out)
        with open(os.path.join(self.tree, "runs"), encoding="ascii") as f:
            self.assertEqual(f.read().split(), ["100", "50", "50", "100"] * 2)
        folder, = os.listdir(os.path.join(self.tree, "build/against"))
        kind = os.path.join(self.tree, "build/against", folder, "build/bin/kind")
        self.assertEqual(harness.read_text(kind).strip(), "own")  # the tree's configuration

    def test_double_speed_reported_better_and_same_speed_equal(self):
        self.commit(200)
        out = self.against("--rounds=4", "HEAD~", "stub --size=4", status=0).stdout
        self.assertEqual(len(re.findall(r"\| better \|", out)), 2, out)
        out = self.against("--rounds=4", "HEAD", "stub --size=4", status=0).stdout
        self.assertEqual(len(re.findall(r"\| no difference \|", out)), 2, out)

    def test_incomparable_arguments_refused(self):
        for argv, status, text in (
                (["nowhere", "stub"], 1, "'nowhere' is no commit of this repository"),
                (["HEAD", "absent --size=4"], 2, "'absent --size=4' is no script of bench/"),
                (["--rounds=3", "HEAD"], 2, "--rounds=3: it takes an even number from 4 on"),
                (["HEAD", "mute"], 1, "bench/mute cannot be compared: its last line is no JSON"),
                (["HEAD", "fails"], 1, "bench/fails of "),
                (["HEAD", "fails"], 1, "failed with status 7: ")):
            done = self.against(*argv, status=status)
            self.assertIn(text, done.stderr.strip().rsplit("\n", 1)[-1])

    def test_failed_build_named(self):
        self.write("CMakeLists.txt", CMAKE.replace("/speed", "/gone"))
        done = self.against("--rounds=4", "HEAD", "stub --size=4", status=1)
        self.assertIn("bench: building %s failed with status 1: ninja" % self.tree, done.stderr)


harness.main(__name__)
