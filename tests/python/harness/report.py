"""The end of a test program: results, reasons of skips, and the exit status."""
import sys
import unittest

from .settings import SKIPPED
from .wire import leave


class Result(unittest.TextTestResult):
    """Prints the output of the processes of a failed test."""

    def _processes(self, test):
        for process in getattr(test, "processes", []):
            self.stream.writeln("----- %s: %s" % (process.name, " ".join(process.argv)))
            self.stream.writeln(process.output())
            self.stream.writeln("----- %s: status %s" % (process.name, process.popen.poll()))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._processes(test)

    def addError(self, test, err):
        super().addError(test, err)
        self._processes(test)


def main(name="__main__"):
    """Runs the tests of the program and exits. name: __name__ of the caller; if it is not
    "__main__", the module is imported, and main() does nothing."""
    if name != "__main__":
        return
    runner = unittest.TextTestRunner(verbosity=2, resultclass=Result)
    program = unittest.main(module="__main__", testRunner=runner, exit=False)
    result = program.result
    for test, why in result.skipped:
        print("SKIP: %s: %s" % (test.id().replace("__main__.", ""), why), file=sys.stderr)
    if result.testsRun == 0:
        print("no test ran", file=sys.stderr)
    good = result.wasSuccessful() and result.testsRun > 0
    leave(1 if not good else SKIPPED if result.skipped else 0)


def run_one(test):
    """Runs a test case outside of a test program, and exits with 0 if it passed, otherwise with
    1."""
    runner = unittest.TextTestRunner(verbosity=0, resultclass=Result)
    sys.exit(0 if runner.run(unittest.TestSuite([test])).wasSuccessful() else 1)
