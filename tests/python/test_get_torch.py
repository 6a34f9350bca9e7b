"""scripts/get_torch in a tree of its own, where pip finds small packages with PyTorch's names."""
# label: unit
import fcntl
import os
import re
import shutil
import zipfile

import harness

SCRIPT = harness.source("scripts/get_torch")


class GetTorch(harness.Test):
    def setUp(self):
        super().setUp()
        self.script = self.path("scripts/get_torch")
        self.log = self.path("build/venv.log")
        for folder in ("scripts", "wheels", "build"):
            self.new_folder(folder)
        shutil.copy(SCRIPT, self.script)

    def make_wheels(self):
        found = re.findall(r"(\w+)==([\d.]+)", harness.read_text(SCRIPT))
        self.assertIn("torch", [name for name, _ in found])
        for name, version in found:
            info = "%s-%s.dist-info/" % (name, version)
            with zipfile.ZipFile(self.path("wheels", "%s-%s-py3-none-any.whl" %
                                           (name, version)), "w") as wheel:
                wheel.writestr(name + "_small.py", "")
                wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: %s\n"
                               "Version: %s\n" % (name, version))
                wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
                               "Tag: py3-none-any\n")
                wheel.writestr(info + "RECORD", "")

    def get(self, *flags):
        env = dict(os.environ, PIP_NO_INDEX="1", PIP_FIND_LINKS=self.path("wheels"))
        return harness.run([self.script, *flags], env=env)

    def test_installed_in_background(self):
        self.make_wheels()
        self.assertEqual(self.get("--begin").returncode, 0)
        self.assertTrue(os.path.exists(self.path("build/venv/bin/python")))
        done = self.get("--wait")
        self.assertEqual(done.returncode, 0, done.stdout)
        harness.check_output([self.path("build/venv/bin/python"), "-c", "import torch_small"])

    def test_failure_reported_once(self):
        self.assertEqual(self.get("--begin").returncode, 0)
        done = self.get("--wait")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assert_has(done.stdout, "No matching distribution", "PyTorch are skipped")
        self.assertEqual(self.get("--wait").returncode, 0)

    def test_wait_for_what_holds_the_log(self):
        with open(self.log, "w", encoding="ascii") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            waiting = self.start("get_torch", [self.script, "--wait"])
            harness.until(lambda: re.search(r"^flock\b", " ".join(commands_below(waiting)), re.M),
                          "get_torch waits")
            log.write("last message\n")
        waiting.wait()
        self.assertIn("last message", waiting.output())


def commands_below(process):
    """Returns the names of the children of a process."""
    names = []
    for pid in os.listdir("/proc"):
        try:
            stat = harness.read_text("/proc/%s/stat" % pid) if pid.isdigit() else ""
        except OSError:
            continue
        match = re.match(r"\d+ \((.*)\) \S+ (\d+) ", stat)
        if match and int(match.group(2)) == process.popen.pid:
            names.append(match.group(1))
    return names


harness.main(__name__)
