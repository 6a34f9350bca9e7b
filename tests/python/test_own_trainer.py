#!/usr/bin/python3
"""The installed libweir: its exported symbols, and examples/own_trainer.c, compiled as users do. A
job of this program whose processes are killed ends with the bits of an undisturbed job."""
# label: cluster
import glob
import os
import re
import shutil
import signal
import struct
import subprocess
import unittest

import ckpt_folder
import harness

BUILD = os.path.dirname(harness.BIN)
DATA = "/usr/share/datasets/fashion-mnist"
STEPS, TRIES = 400, 10  # a busy machine may miss the job's middle
# The values of weir.h's constants with which existing programs were compiled.
CONSTANTS = {"OK": 0, "DONE": 1, "LEFT": 2, "AGAIN": 3, "REBASED": 4, "OVER": 5, "E_INVALID": -1,
             "E_REFUSED": -2, "E_UNAVAILABLE": -3, "E_CANCELLED": -4, "E_NOMEM": -5,
             "E_UNSUPPORTED": -6, "E_PROTOCOL": -7, "E_IO": -8, "E_INTERNAL": -9, "FLOAT32": 0,
             "LOG_DEBUG": 0, "LOG_INFO": 1, "LOG_WARN": 2, "LOG_ERROR": 3, "EVENT_BEGAN": 1,
             "EVENT_READY": 2, "EVENT_REBASED": 3, "EVENT_STOPPED": 4}
SETTINGS = ["optimizer", "momentum", "learning_rate", "0.05", "train_steps", str(STEPS)]


def declared():
    """Returns the functions of the public headers."""
    text = "".join(re.sub(r"/\*.*?\*/", "", harness.read_source("libweir/" + header), flags=re.S)
                   for header in ("weir.h", "weir_tables.h"))
    return sorted(re.findall(r"\b(weir_\w+)\((?!\*)[^;{}]*\);", text))


class Constants(unittest.TestCase):
    def test_constants_keep_their_numbers(self):
        """Compiled programs contain these numbers."""
        header = re.sub(r"/\*.*?\*/", "", harness.read_source("libweir/weir.h"), flags=re.S)
        found = {}
        for names in re.findall(r"^enum[^{;]*\{(.*?)\}", header, re.S | re.M):
            last = -1
            for name, value in re.findall(r"WEIR_(\w+)(?: = (-?\d+))?", names):
                last = found[name] = int(value) if value else last + 1
        self.assertLessEqual(CONSTANTS.items(), found.items(), "constants of weir.h stay")
        self.assertEqual(sorted(found), sorted(CONSTANTS), "name new ones here, too")


@unittest.skipIf(harness.SANITIZE, "the library is compiled into programs without a sanitizer")
@unittest.skipUnless(os.path.exists(os.path.join(BUILD, "cmake_install.cmake")),
                     "%s is no build folder of CMake" % BUILD)
class OwnTrainer(harness.Test):
    def setUp(self):
        super().setUp()
        self.keep_notes(BUILD)

    def install(self):
        """Installs everything and moves it; returns the folder, and an environment with it."""
        first, moved = (self.path(d) for d in ("first", "moved"))
        subprocess.run(["cmake", "--install", BUILD, "--prefix", first], check=True,
                       stdout=subprocess.DEVNULL, timeout=120 * harness.PATIENCE)
        os.rename(first, moved)
        pc, = glob.glob(moved + "/lib*/**/pkgconfig", recursive=True)
        return moved, dict(os.environ, PKG_CONFIG_PATH=pc, LD_LIBRARY_PATH=os.path.dirname(pc))

    def compile(self, env):
        program = self.path("own_trainer")
        source = harness.source("examples/own_trainer.c")
        subprocess.run("cc -Wall -Wextra -Werror -O2 %s -o %s "
                       "$(pkg-config --cflags --libs weir)" % (source, program), shell=True,
                       check=True, env=env)
        return program

    def test_exports_match_header_and_list(self):
        """The exported symbols, in their version, are the header's functions and those of the
        list."""
        _, env = self.install()
        library, = glob.glob(env["LD_LIBRARY_PATH"] + "/libweir.so.0.*")
        said = harness.check_output(["nm", "-D", "--defined-only", library])
        found = re.findall(r" T (\w+)@@(\w+)$", said, re.M)
        self.assertEqual([f for f, _ in found], declared())
        listed = harness.read_source("libweir/symbols.txt").split()
        self.assertEqual(["%s@%s" % f for f in found], listed)
        versions = {v for _, v in found}  # versions are symbols, too
        self.assertEqual(len(re.findall(r" [A-Z] ", said)), len(found) + len(versions))
        needs = harness.check_output(["readelf", "-d", library])
        self.assertIn("soname: [libweir.so.0]", needs)
        for other in ("dnnl", "gomp", "cuda", "cudnn", "cublas"):
            self.assertNotIn(other, needs)
        self.assertLess(len(harness.read_source("examples/own_trainer.c").splitlines()), 80)

    @unittest.skipUnless(shutil.which("abidiff"), "needs Debian's abigail-tools")
    def test_abi_is_compatible(self):
        """Compiled programs contain these functions and structures."""
        said = harness.run([harness.source("scripts/abi"), os.path.join(BUILD, "lib/libweir.so.0")])
        self.assertEqual((said.stdout, said.returncode), ("", 0))

    def trainer(self, program, env, hosts, task, *more):
        return self.start("trainer:%d" % task,
                          [program, "ps_hosts", hosts, "n_workers", "2", "task_index", str(task),
                           *SETTINGS, *more], env=env)

    def values(self, folder):
        """Returns the bytes after the header of the server's file of the last step."""
        data = harness.read_bytes(ckpt_folder.path(folder, STEPS, "-0-of-1.safetensors"))
        return data[8 + struct.unpack("<Q", data[:8])[0]:]

    def ps(self, where, hosts, folder):
        ps = self.start("ps", [os.path.join(where, "bin/weir-ps"), "--ps_hosts=" + hosts,
                               "--checkpoint_dir=" + folder, "--save_steps=40"], ready=True)
        ps.wait_ready()
        return ps

    def run_job(self, where, program, env, name, disturb=False):
        """Returns the values of the last checkpoint, and the lines of the last step, or None if the
        job ended before the disturbance."""
        hosts = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        folder = self.path(name)
        ps = self.ps(where, hosts, folder)
        trainers = [self.trainer(program, env, hosts, i) for i in range(2)]
        if disturb:
            trainers[1].wait_line("^step 20 of")
            trainers[1].stop(signal.SIGKILL, status=None)
            if trainers[1].status != -signal.SIGKILL:
                return None
            trainers[1] = self.trainer(program, env, hosts, 1)
            trainers[1].wait_line("^step")
            ps.stop(signal.SIGKILL, status=None)
            if ps.status != -signal.SIGKILL:
                return None
            ps = self.ps(where, hosts, folder)
        self.wait_all((*trainers, ps), 60)
        return (self.values(folder),
                [t.wait_line(r"^step %d of %d: .*" % (STEPS - 1, STEPS)).group(0)
                 for t in trainers])

    @unittest.skipUnless(os.path.exists(DATA), "needs Debian's dataset-fashion-mnist")
    def test_killed_processes_change_no_bit(self):
        where, env = self.install()
        program = self.compile(env)
        want = self.run_job(where, program, env, "alone")
        self.assertEqual(len(want[0]), 2 * 7850 * 4)  # parameters and momentum
        for i in range(TRIES):
            got = self.run_job(where, program, env, "killed-%d" % i, disturb=True)
            if got:
                break
        self.assertEqual(got, want)
        self.assertLess(float(want[1][0].split()[-1]), 0.9)


harness.main(__name__)
