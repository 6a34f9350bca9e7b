"""The harness itself. If a child fails, hangs or is not collected, the test program must fail and
print the child's output. If a C test or a Python test is skipped, this must appear with its reason,
in the program's exit status, and in the counts of scripts/test."""
# label: cluster
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest

import harness

SKIPPING = os.path.join(os.path.dirname(harness.BIN), "tests/skipping")


class Harness(unittest.TestCase):
    def program(self, *bodies):
        """Returns the text of a test program with these bodies of test_it_0, test_it_1 ..."""
        text = ("import sys\nsys.path.insert(0, %r)\nimport harness, unittest\n"
                "class T(harness.Test):\n" % os.path.dirname(os.path.abspath(__file__)))
        for i, body in enumerate(bodies):
            text += "    def test_it_%d(self):\n%s\n" % (
                i, textwrap.indent(textwrap.dedent(body), " " * 8))
        return text + "harness.main()\n"

    def inner(self, *bodies):
        """Runs a test program with these test bodies; returns its exit status and output."""
        text = self.program(*bodies)
        with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
            f.write(text)
            f.flush()
            done = harness.run([sys.executable, "-B", f.name], timeout=120,
                               env=dict(os.environ, WEIR_TEST_SLOWNESS="1"))
        return done.returncode, done.stdout

    def check_inner(self, status, body, *words):
        """Checks the exit status of a test program with this body, and words of its output."""
        got, text = self.inner(body)
        self.assertEqual(got, status, text)
        for part in words:
            self.assertIn(part, text)

    def test_good_child_passes(self):
        self.check_inner(0, "self.start('c', ['true']).wait(10)")

    def test_failing_child_is_reported(self):
        self.check_inner(1, "self.start('c', ['sh', '-c', 'echo last words; exit 3']).wait(10)",
                         "exit status 3, expected 0", "last words")

    def test_killed_child_is_reported(self):
        self.check_inner(1, "self.start('c', ['sh', '-c', 'kill -9 $$']).wait(10)",
                         "exit status -9")

    def test_hanging_child_is_reported_and_killed(self):
        self.check_inner(1, "self.start('c', ['sleep', '600']).wait(0.2)", "still running")

    def test_forgotten_child_is_reported(self):
        self.check_inner(1, "self.start('c', ['sh', '-c', 'echo alone; sleep 600'])"
                         ".wait_line('alone')", "did not collect")

    def test_process_with_reused_number_not_killed(self):
        self.check_inner(0, """
            import signal
            a, b = self.start('a', ['true']), self.start('b', ['sleep', '600'])
            a.wait(10)
            a.popen.pid = b.popen.pid  # as if the system had reused it
            a._end()
            b.popen.send_signal(signal.SIGTERM)
            b.wait(10, -signal.SIGTERM)
            """)

    def test_missing_line_is_reported(self):
        self.check_inner(1, """
            c = self.start('c', ['true'])
            try:
                c.wait_line('never', 5)
            finally:
                c.wait(5)
            """, "ended without a line")

    def test_silent_ready_pipe_is_reported(self):
        self.check_inner(1, """
            c = self.start('c', ['sh', '-c', 'exit 0', 'sh'], ready=True)
            try:
                c.wait_ready(5)
            finally:
                c.wait(5)
            """, "ready pipe without a line")

    def test_wait_still_needs_idle_or_paused_processes(self):
        """A process that computes or prints is not still; a process that waits or is paused is."""
        body = """
            c = self.start('c', ['sh', '-c', %r])
            with harness.%s:
                harness.wait_still(c, seconds=%s)
            c.kill()
            """
        for script, around, seconds, want in (
                ("while :; do :; done", "paused()", "0.5", 1),
                ("while sleep 0.1; do echo a line; done", "paused()", "0.5", 1),
                ("sleep 600", "paused()", "30", 0), ("while :; do :; done", "paused(c)", "30", 0)):
            status, text = self.inner(body % (script, around, seconds))
            self.assertEqual(status, want, text)
            self.assertEqual("c: stands still: not within 2 s" in text, want == 1, text)

    def test_brake_lets_a_joiner_start(self):
        """A process that starts while the job is held is not held until it has joined."""
        self.check_inner(0, """
            c = self.start('c', ['sh', '-c', 'echo "(global step: 9)"; exec sleep 600'])
            d = self.start('d', ['sh', '-c', 'while sleep 0.05; do echo a line; '
                                 'test -e %s/go && echo joined as worker 1; done' % self.dir()])
            harness.Brake.REST = 1e9
            harness.Brake(self, lambda: [c, d], 9)
            harness.until(lambda: c.is_asleep("TZ"), "the worker is held")
            n = len(d.lines)
            harness.until(lambda: len(d.lines) > n + 9, "the joiner runs")
            brake = harness.Brake(self, lambda: [d], 0)
            open(self.dir() + "/go", "w").close()
            harness.until(lambda: d.is_asleep("TZ"), "the joiner is held")
            for p in (c, d):
                p.kill()
            """)

    def test_skip_is_77(self):
        for others in ((), ("pass",)):
            status, text = self.inner("self.skipTest('because')", *others)
            self.assertEqual(status, harness.SKIPPED, text)
            self.assertIn("SKIP: T.test_it_0: because\n", text)
        status, text = self.inner("self.skipTest('because')", "self.fail()")
        self.assertEqual(status, 1, text)
        self.assertIn("SKIP: T.test_it_0: because\n", text)

    def test_all_programs_end_with_harness_main(self):
        folder = os.path.dirname(os.path.abspath(__file__))
        for name in sorted(os.listdir(folder)):
            if name.startswith("test_"):
                with open(os.path.join(folder, name), encoding="utf-8") as f:
                    self.assertRegex(f.read(), r"\n(    )?harness\.main\((__name__)?\)\n$", name)

    def test_skip_of_a_c_test_is_77(self):
        for how, want, line in (("good", 0, "PASSED"), ("none", 77, "SKIP: no moon here"),
                                ("some", 77, "SKIP: 2 moons are needed"),
                                ("groups", 77, "SKIP: 2 moons are needed"),
                                ("mute", 1, "gives no reason"), ("bad", 1, "SKIP: 2 moons"),
                                ("many", 1, "77 test(s), listed below")):
            done = harness.run([SKIPPING, how])
            self.assertEqual(done.returncode, want, done.stdout)
            self.assertIn(line, done.stdout)

    def test_skips_counted_and_named(self):
        """ctest and scripts/ctest_report count the skips of such programs."""
        with tempfile.TemporaryDirectory() as folder:
            programs = {how: [SKIPPING, how] for how in ("good", "none", "some", "groups", "bad")}
            for name, bodies in (("python", ("pass", "self.skipTest('because')")),
                                 ("plain", ("pass",))):
                path = os.path.join(folder, name + ".py")
                harness.write_file(path, self.program(*bodies))
                programs[name] = [sys.executable, "-B", path]
            programs["liar"] = ["sh", "-c", "echo SKIP: says so and ends with 0"]
            programs["absent"] = [os.path.join(folder, "nothing")]
            with open(os.path.join(folder, "CTestTestfile.cmake"), "w") as f:
                for name, argv in programs.items():
                    f.write("add_test(%s %s)\nset_tests_properties(%s PROPERTIES "
                            "SKIP_RETURN_CODE 77)\n" %
                            (name, " ".join('"%s"' % a for a in argv), name))
            report = os.path.join(folder, "report.xml")
            subprocess.run(["ctest", "--test-dir", folder, "--output-junit", report],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            done = subprocess.run([harness.source("scripts/ctest_report"), report],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  check=True)
        self.assertEqual(done.stdout, "2 2 5\n", done.stderr)
        self.assertEqual(done.stderr.splitlines(), [
            "skipped none: no moon here", "skipped some: test_skips: 2 moons are needed",
            "skipped groups: test_skips: 2 moons are needed",
            "skipped bad: test_skips: 2 moons are needed",
            "skipped python: T.test_it_1: because", "skipped liar: says so and ends with 0"])

    def test_data_depends_on_seed_only(self):
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            harness.make_data(a, 50, 20)
            harness.make_data(b, 50, 20)
            for name in sorted(os.listdir(a)):
                with open(os.path.join(a, name), "rb") as f, open(os.path.join(b, name), "rb") as g:
                    self.assertEqual(f.read(), g.read(), name)
            size = os.path.getsize(os.path.join(a, "train-images-idx3-ubyte"))
            self.assertEqual(size, 16 + 50 * 784)


class Progress(harness.Test):
    """scripts/ctest_progress between a ctest and a file or a terminal."""
    SAID = ("      Start   1: net_a_test\n      Start   2: test_b\n"
            "  1/150 Test   #2: test_b ...........***Failed    6.45 sec\nit said why\n"
            "      Start   3: test_c\n"
            "  2/150 Test   #3: test_c ...........***Skipped   0.10 sec\n"
            "  3/150 Test   #1: net_a_test .......   Passed   12.00 sec\n")
    LINES = ("  1/150 FAILED    test_b (6.45 s)", "it said why",
             "  2/150 skipped   test_c (0.10 s)", "  3/150 passed    net_a_test (12.00 s)")

    def begin(self, out, *seconds):
        return subprocess.Popen([harness.source("scripts/ctest_progress"), *seconds],
                                stdin=subprocess.PIPE, stdout=out)

    def test_file_has_lines_without_codes(self):
        with subprocess.Popen([harness.source("scripts/ctest_progress")], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            got = program.communicate(self.SAID)[0]
        self.assertEqual(got.splitlines(), list(self.LINES))

    def test_file_has_a_line_while_no_test_ends(self):
        with self.begin(subprocess.PIPE, "0") as program:
            program.stdin.write(self.SAID[:self.SAID.index("  2/150")].encode())
            program.stdin.flush()
            said = [program.stdout.readline().decode() for _ in range(3)]
            self.assertRegex(said[2], r"^\[\d+ s\] 1 of 150 tests done; failed: test_b; running: "
                                      r"net_a_test, test_c$")
            program.stdin.close()
            program.stdout.read()

    def test_terminal_rewrites_last_line(self):
        ours, its = os.openpty()
        with self.begin(its) as program:
            os.close(its)
            program.stdin.write(self.SAID.encode())
            program.stdin.close()
            got = b""
            while True:
                try:
                    part = os.read(ours, 4096)
                except OSError: # the terminal's other side is closed
                    break
                got += part
        os.close(ours)
        text = got.decode()
        self.assert_has(text, *("\r\033[K%s\r\n" % line for line in self.LINES))
        self.assertIn("3 of 150 tests done; failed: test_b", text)
        self.assertTrue(text.endswith("\r\033[K"), text[-100:])


harness.main(__name__)
