#!/usr/bin/python3
"""The wheel that scripts/make_wheel makes of this build: its name, its commands and licences. It
contains all libraries that it needs except glibc, libstdc++ and zlib, and a job of its programs
runs. `scripts/try wheel` tests the same in a new Debian 12. If parts are missing, the package names
them."""
# label: unit computes
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import harness

BUILD = os.path.dirname(harness.BIN)
PACKAGE = harness.source("python")
sys.path.insert(0, PACKAGE)
from weir import _loading  # noqa: E402

ABSENT = 77
COMMANDS = ["weir-ps", "weir-task", "weir-worker", "weirctl"]
# Libraries of every glibc system with a Python (PEP 600), which the wheel does not contain.
OF_THE_SYSTEM = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
                 "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libgcc_s.so.1",
                 "libstdc++.so.6", "libz.so.1"}
JOB = """
import array, os, re, sys, weir
with weir.Cluster(ps_flags=["--metrics_port=" + sys.argv[1]]) as c, \\
        weir.Member(**c.settings(), train_steps=1) as m:
    m.param("w", (1,))
    m.next()
    for pid in (os.getpid(), c.processes["ps:0"].popen.pid):
        with open("/proc/%d/maps" % pid) as f:
            print("maps", *set(re.findall(r"/\\S*/lib\\S+[.]so\\S*", f.read())))
    m.push(0, array.array("f", [1]), samples=1)
    m.next()
    print(m.result, weir.__version__, c.status()["state"] != "")
"""


def env(site):
    """Returns an environment in which no other Weir is found."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
    return {**kept, "PYTHONPATH": site}


class Wheel(harness.Test):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not os.path.exists(os.path.join(BUILD, "cmake_install.cmake")):
            raise unittest.SkipTest("%s is no build folder of CMake" % BUILD)
        cls.folder = tempfile.TemporaryDirectory(prefix="weir-wheel-")
        cls.addClassCleanup(cls.folder.cleanup)
        made = subprocess.run([harness.source("scripts/make_wheel"), BUILD, "--fast",
                               "--out=" + cls.folder.name], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60 * harness.PATIENCE)
        if made.returncode == ABSENT:
            raise unittest.SkipTest(made.stderr.strip().splitlines()[-1])
        if made.returncode:
            raise harness.Failure(made.stderr)
        cls.wheel = made.stdout.split()[-1]
        cls.site = os.path.join(cls.folder.name, "site")
        subprocess.run([sys.executable, "-m", "pip", "-q", "install", "--no-index", "--no-deps",
                        "--no-compile", "--target", cls.site, cls.wheel], check=True,
                       timeout=60 * harness.PATIENCE)
        cls.info, = glob.glob(cls.site + "/*.dist-info")

    def read(self, *path):
        return harness.read_text(os.path.join(self.info, *path))

    def test_name_commands_and_licences_are_complete(self):
        machine = os.uname().machine
        tag = re.search(r"^Tag: (.*)$", self.read("WHEEL"), re.M).group(1)
        self.assertRegex(tag, r"^py3-none-manylinux_2_\d\d_%s$" % machine)
        self.assertEqual(os.path.basename(self.wheel), "weir-0.1.0-%s.whl" % tag)
        self.assertEqual(sorted(os.listdir(self.site + "/bin")), COMMANDS)
        self.assertIn("Apache License", self.read("licenses/LICENSE"))
        packages = dict(line.split() for line in self.read("licenses/README").split("\n\n")[1]
                        .splitlines())
        for name in ("libgrpc29", "libdnnl2", "libmicrohttpd12", "libgnutls30", "libssl3"):
            self.assertIn(name, packages)
        for name in packages:
            self.assertTrue(self.read("licenses", name, "copyright"))
        with open(os.path.join(self.info, "sboms/auditwheel.cdx.json"), encoding="utf-8") as f:
            owned = [p for p in json.load(f)["components"] if p["purl"].startswith("pkg:deb/")]
        self.assertEqual(len(owned), len(os.listdir(self.site + "/weir.libs")))
        self.assertTrue({p["name"] for p in owned} <= set(packages))
        self.assertIn("MPL-1.1", os.listdir(os.path.join(self.info, "licenses/common-licenses")))

    def binaries(self):
        for folder, _, names in os.walk(self.site):
            for path in (os.path.join(folder, n) for n in names):
                with open(path, "rb") as f:
                    if f.read(4) == b"\x7fELF":
                        yield path

    def test_libraries_find_each_other(self):
        """The RPATH of each library lies within the wheel. A library finds there all that it needs,
        except for libraries of the system."""
        found = list(self.binaries())
        self.assertGreater(len(found), 50)
        for path in found:
            said = harness.check_output(["readelf", "-d", path])
            folders = re.search(r"\(RPATH\).*\[(.*)\]", said)
            folders = folders.group(1).split(":") if folders else []
            for folder in folders:
                self.assertRegex(folder, r"^\$ORIGIN(/|$)", path)
            folders = [os.path.realpath(f.replace("$ORIGIN", os.path.dirname(path)))
                       for f in folders]
            self.assertTrue(all(f.startswith(os.path.realpath(self.site)) for f in folders), path)
            for name in re.findall(r"\(NEEDED\).*\[(.*)\]", said):
                self.assertTrue(name in OF_THE_SYSTEM or any(
                    os.path.exists(os.path.join(f, name)) for f in folders), (path, name))

    def test_job_of_the_wheel_runs(self):
        """A job runs with files of the wheel only: the libraries of a member and of a server, and
        the pages of ps 0."""
        said = harness.check_output([sys.executable, "-c", JOB, str(harness.free_ports(1)[0])],
                                    env=env(self.site), cwd=self.folder.name,
                                    timeout=60 * harness.PATIENCE)
        *maps, end = said.splitlines()
        self.assertEqual(end, "done 0.1.0 True")
        self.assertEqual(len(maps), 2)
        for line, wanted in zip(maps, ({"libgrpc"}, {"libgrpc", "libmicrohttpd"})):
            of = {path for path in line.split() if re.search("grpc|microhttpd", path)}
            self.assertTrue(all(path.startswith(self.site) for path in of), of)
            self.assertEqual({re.split("[-.]", os.path.basename(p))[0] for p in of}, wanted)

    def test_commands_become_their_programs(self):
        """A closed pipe ends the program as if there were no Python."""
        for name in COMMANDS:
            said = harness.check_output([os.path.join(self.site, "bin", name), "--version"],
                                        env=env(self.site))
            self.assertEqual(said, "%s (Weir) 0.1.0\n" % name)
        renamed = self.path("server")
        os.symlink(os.path.join(self.site, "bin/weir-ps"), renamed)
        subprocess.run([renamed, "--version"], check=True, env=env(self.site))
        ignored = harness.check_output(
            [sys.executable, "-c", "from unittest import mock\nimport weir.programs\n"
             "with mock.patch('os.execv', lambda *_: print(open('/proc/self/status').read())):\n"
             "    weir.programs.weir_ps()"], env=env(self.site))
        mask = int(re.search(r"SigIgn:\s*(\w+)", ignored).group(1), 16)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            self.assertFalse(mask >> (number - 1) & 1, number)
        told = harness.check_output([sys.executable, "-m", "weir", "--help"], env=env(self.site))
        self.assertIn("python3 -m weir examples", told)
        where = harness.check_output([sys.executable, "-m", "weir", "examples"],
                                     env=env(self.site)).strip()
        self.assertIn("char_gpt_weir.py", os.listdir(where))
        said = harness.check_output([sys.executable, "-m", "weir"], env=env(self.site))
        self.assertEqual(said.count(self.site + "/weir/installed/"), 6, said)


@unittest.skipIf(harness.SANITIZE, "texts")
class Missing(harness.Test):
    def test_loader_errors_explained(self):
        lines = {"/lib/libc.so.6: version `GLIBC_2.99' not found (required by x)":
                 "needs glibc 2.99 or later, and this system has 2",
                 "libstdc++.so.6: version `GLIBCXX_3.4.99' not found": "libstdc\\+\\+ is older",
                 "/x/libweir.so.0: wrong ELF class: ELFCLASS32": "another kind of machine",
                 "/x/libweir.so.0: failed to map segment from shared object": "mounted noexec",
                 "Permission denied": "mounted noexec",
                 "libgrpc.so.29: cannot open shared object file: x": "libgrpc.so.29, or .*wheel",
                 "libz.so.1: cannot open shared object file: No such file": "has libz.so.1$"}
        for why, fix in lines.items():
            self.assertRegex(_loading.advice(why, "else"), re.escape(why) + "; .*" + fix)
        self.assertEqual(_loading.advice("why", "else"), "why; else")
        with mock.patch("os.confstr", side_effect=ValueError):
            self.assertIn("Alpine", _loading.advice("why", "else"))

    def test_missing_parts_named(self):
        """The library is missing, damaged or old."""
        damaged = self.write("libweir.so.0", "x" * 1000)
        for library, why in (("", "install Weir, or set WEIR_LIBRARY"),
                             (damaged, "WEIR_LIBRARY names, .* ELF header; the file is damaged"),
                             ("libc.so.6", "older Weir .*weir_version")):
            named = {"WEIR_LIBRARY": library} if library else {}
            done = harness.run([sys.executable, "-B", "-m", "weir"],
                               env={**env(PACKAGE), "WEIR_PROGRAMS": harness.BIN, **named})
            if library:
                self.assertEqual(done.returncode, 1)
            if done.returncode:  # otherwise this system has Weir
                self.assertRegex(done.stdout, why)
                self.assertNotIn("Traceback", done.stdout)

    def test_source_package_has_python_files(self):
        """The source package has all Python files. Its build leaves no file in their folder."""
        before = sorted(os.listdir(PACKAGE))
        subprocess.run([sys.executable, "-B", "setup.py", "-q", "sdist", "-d", self.dir()],
                       check=True, cwd=PACKAGE, stderr=subprocess.DEVNULL, env=env(""),
                       timeout=60 * harness.PATIENCE)
        self.assertEqual(sorted(os.listdir(PACKAGE)), before)
        made, = glob.glob(self.dir() + "/*.tar.gz")
        names = harness.check_output(["tar", "-tf", made]).split()
        for name in os.listdir(os.path.join(PACKAGE, "weir")):
            self.assertTrue(not name.endswith((".py", ".typed")) or
                            "weir-0.1.0/weir/" + name in names, name)
        self.assertIn("weir-0.1.0/pyproject.toml", names)


harness.main(__name__)
