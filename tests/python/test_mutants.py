"""tests/emulation/mutants finds what it is to take out of kernels/cuda by its form; that each call
there has one, and that what it lists by name is still there, is looked at without running one."""
# label: unit
import os
import subprocess
import sys
import tempfile
import unittest

import harness

FOLDER = os.path.join(harness.SOURCE, "kernels/cuda")
SCRIPT = os.path.join(harness.SOURCE, "tests/emulation/mutants")


class Mutants(harness.Test):
    def list(self, script=SCRIPT, status=0):
        done = subprocess.run([sys.executable, "-B", script, "--list"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def changed(self, name, old, new):
        """What the script says of a tree in which this is changed."""
        with tempfile.TemporaryDirectory(prefix="weir-mutants-") as root:
            os.makedirs(os.path.join(root, "tests/emulation"))
            os.makedirs(os.path.join(root, "kernels/cuda"))
            for file in os.listdir(FOLDER):
                os.symlink(os.path.join(FOLDER, file), os.path.join(root, "kernels/cuda", file))
            script = os.path.join(root, "tests/emulation/mutants")
            with open(SCRIPT, encoding="utf-8") as f, open(script, "w", encoding="utf-8") as out:
                out.write(f.read())
            path = os.path.join(root, "kernels/cuda", name)
            with open(path, encoding="utf-8") as f:
                text = f.read()
            os.unlink(path)
            self.assertEqual(text.count(old), 1)
            with open(path, "w", encoding="utf-8") as f:
                f.write(text.replace(old, new))
            return self.list(script, 1)

    def test_all_is_understood(self):
        lines = self.list().splitlines()
        for kind in ("check", "answer", "bound", "wait", "barrier", "guard"):
            self.assertGreater(len([l for l in lines if l.startswith(kind + " ")]), 10)
        self.assertEqual(lines[-1], "%d mutants" % (len(lines) - 1))

    def test_a_call_that_nobody_checks(self):
        line = "    static const float one = 1.0f"
        said = self.changed("dense.c", line, "    cudaMemsetAsync(0, 0, 0, 0);\n" + line)
        self.assertRegex(said, r"^mutants: dense.c:\d+: cudaMemsetAsync: nobody looks at its ")

    def test_a_known_one_that_is_gone(self):
        said = self.changed("edges.c", "enum status read_out(", "enum status get_out(")
        self.assertIn("mutants: KNOWN: 'wait edges.c:read_out:cudaStreamSynchronize' is not there",
                      said)


if __name__ == "__main__":
    harness.main()
