"""The commit-msg hook refuses subjects that break the rules of CONTRIBUTING.md, and no others."""
# label: unit
import subprocess
import tempfile
import unittest

import harness

HOOK = harness.source("scripts/hooks/commit-msg")
ACCEPTED = (
    "net: bound frame size before allocating",
    "ps/store: sum contributions in member order\n\nThe body says why.",
    "tests, bench: bring the port in order",
    "# a comment of git's\n\nnet: send the frame\n# another",
    "Merge branch 'x'",
    'Revert "net: bound frame size before allocating"',
    "fixup! net: bound frame size before allocating",
    "net: send the frame\n# ------------------------ >8 ------------------------\ndiff",
    "x: " + "a" * 57,
)
REFUSED = {
    "bound frame size": "does not begin with 'area: '",
    "net bound: ": "does not begin with 'area: '",
    "net: Bound frame size": "lower case",
    "net: what a reader found": "'what' is no verb",
    "tests: five that a busy machine broke": "'five' is no verb",
    "net: bounded frame size": "no imperative",
    "net: bounding frame size": "no imperative",
    "net: adds a bound": "no imperative",
    "x: " + "a" * 58: "61 characters",
    "net: bound frame size.": "full stop",
    "net: bound frame size\nmore": "second line",
}


class CommitMessage(unittest.TestCase):
    def refusal(self, message):
        """Returns the hook's complaint about a message; empty if the hook accepts it."""
        with tempfile.NamedTemporaryFile("w", prefix="weir-test-", suffix=".txt") as f:
            f.write(message + "\n")
            f.flush()
            done = harness.run([HOOK, f.name])
        self.assertEqual(bool(done.returncode), bool(done.stdout), message)
        self.assertIn(done.returncode, (0, 1), message)
        return done.stdout

    def test_good_subject_accepted(self):
        for message in ACCEPTED:
            with self.subTest(message):
                self.assertEqual(self.refusal(message), "")

    def test_bad_subject_refused(self):
        for message, why in REFUSED.items():
            with self.subTest(message):
                self.assertIn(why, self.refusal(message))

    def test_missing_file_refused(self):
        done = subprocess.run([HOOK, "/nonexistent"], stderr=subprocess.DEVNULL, check=False)
        self.assertEqual(done.returncode, 2)


harness.main(__name__)
