"""The harness itself: a child that fails, hangs or is forgotten must turn the test program red, and
what it printed must be seen."""
# label: cluster
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import harness


class Harness(unittest.TestCase):
    def inner(self, body):
        """Runs a test program with this one test body; its exit status and output."""
        text = ("import sys\nsys.path.insert(0, %r)\nimport harness, unittest\n"
                "class T(harness.Test):\n    def test_it(self):\n%s\nharness.main()\n" %
                (os.path.dirname(os.path.abspath(__file__)),
                 textwrap.indent(textwrap.dedent(body), " " * 8)))
        with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
            f.write(text)
            f.flush()
            done = subprocess.run([sys.executable, "-B", f.name], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=120,
                                  env=dict(os.environ, WEIR_TEST_SLOWNESS="1"))
        return done.returncode, done.stdout

    def test_good_child_passes(self):
        status, text = self.inner("self.start('c', ['true']).wait(10)")
        self.assertEqual(status, 0, text)

    def test_failing_child_is_reported(self):
        status, text = self.inner(
            "self.start('c', ['sh', '-c', 'echo last words; exit 3']).wait(10)")
        self.assertEqual(status, 1, text)
        self.assertIn("exit status 3, expected 0", text)
        self.assertIn("last words", text)

    def test_killed_child_is_reported(self):
        status, text = self.inner("self.start('c', ['sh', '-c', 'kill -9 $$']).wait(10)")
        self.assertEqual(status, 1, text)
        self.assertIn("exit status -9", text)

    def test_hanging_child_is_reported_and_killed(self):
        status, text = self.inner("self.start('c', ['sleep', '600']).wait(0.2)")
        self.assertEqual(status, 1, text)
        self.assertIn("still running", text)

    def test_forgotten_child_is_reported(self):
        status, text = self.inner("self.start('c', ['sh', '-c', 'echo alone; sleep 600'])"
                                  ".wait_line('alone')")
        self.assertEqual(status, 1, text)
        self.assertIn("did not collect", text)

    def test_missing_line_is_reported(self):
        status, text = self.inner("""
            c = self.start('c', ['true'])
            try:
                c.wait_line('never', 5)
            finally:
                c.wait(5)
            """)
        self.assertEqual(status, 1, text)
        self.assertIn("ended without a line", text)

    def test_silent_ready_pipe_is_reported(self):
        status, text = self.inner("""
            c = self.start('c', ['sh', '-c', 'exit 0', 'sh'], ready=True)
            try:
                c.wait_ready(5)
            finally:
                c.wait(5)
            """)
        self.assertEqual(status, 1, text)
        self.assertIn("ready pipe without a word", text)

    def test_skip_is_77(self):
        status, text = self.inner("self.skipTest('because')")
        self.assertEqual(status, harness.SKIPPED, text)
        self.assertIn("because", text)

    def test_data_is_what_the_seed_says(self):
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            harness.make_data(a, 50, 20)
            harness.make_data(b, 50, 20)
            for name in sorted(os.listdir(a)):
                with open(os.path.join(a, name), "rb") as f, open(os.path.join(b, name), "rb") as g:
                    self.assertEqual(f.read(), g.read(), name)
            size = os.path.getsize(os.path.join(a, "train-images-idx3-ubyte"))
            self.assertEqual(size, 16 + 50 * 784)


if __name__ == "__main__":
    harness.main()
