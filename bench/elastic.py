"""Measures how long the workers that stay stand still when others join or leave. While it trains, a
job of one server and one worker grows to three servers and four workers and shrinks back, one
change after the other, as in tests/python/test_elastic_proof.py.

Most of a step is an artificial delay of its pushes, so that programs that share two cores do not
count as a stop. Exits with 1 if a change stopped worker 0 for --most steps or more.
"""
import argparse
import os
import statistics
import sys
import unittest

from common import SOURCE, machine, step_times

sys.path.insert(0, os.path.join(SOURCE, "tests/python"))
import test_elastic_proof  # noqa: E402


class Measured(test_elastic_proof.Elastic):
    """The job of the test. longest: the longest stop so far, in steps."""
    longest = 0.0

    def stops(self, changes):
        """Returns (change, its step, median, longest, stop) for each change. longest: the longest
        step of worker 0, which stays, among the 25 after the order of the change. median: the
        median of its 20 steps before the order. stop: the difference of both, in units of the
        median."""
        times = [(second, step) for step, second in step_times(self.workers[0].lines).items()]
        out = []
        for at, what in changes:
            before = [b[0] - a[0] for a, b in zip(times, times[1:]) if at - 20 <= a[1] < at]
            near = [b[0] - a[0] for a, b in zip(times, times[1:]) if at <= a[1] < at + 25]
            median = statistics.median(before)
            out.append((what, at, median, max(near), (max(near) - median) / median))
        return out

    def test_growing_and_shrinking_job_learns_as_fixed_cluster(self):
        changes = self.grow_and_shrink()
        self.workers[0].wait(180)
        self.servers[0].wait(30)
        for what, at, median, longest, stop in self.stops(changes):
            print("%-13s at step %3d: steps of %3.0f ms, the longest after it %3.0f ms: "
                  "a stop of %.1f steps" % (what, at, 1000 * median, 1000 * longest, stop))
            Measured.longest = max(Measured.longest, stop)


def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--most", type=float, default=2, metavar="STEPS", help="(%(default)s)")
    p.add_argument("--rounds", type=int, default=1, metavar="N", help="(%(default)s)")
    o = p.parse_args()
    print(machine())
    for _ in range(o.rounds):
        result = unittest.TextTestRunner(verbosity=0).run(
            unittest.defaultTestLoader.loadTestsFromTestCase(Measured))
        if not result.wasSuccessful() or result.skipped:
            sys.exit(1)
    print("the longest stop: %.1f steps" % Measured.longest)
    sys.exit(1 if Measured.longest >= o.most else 0)


main()
