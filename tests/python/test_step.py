#!/usr/bin/python3
"""weir.Step is the number of the step, so that a training loop over range() stays as it is."""
# label: unit
import copy
import dataclasses
import json
import pickle

import harness

harness.use_package()
import weir  # noqa: E402


def step(number):
    return weir.Step(number, 9, 16, 8, 2, 1, 0, 0, 2, False, 0)


class Steps(harness.Test):
    def test_step_is_its_number(self):
        s = step(3)
        self.assertEqual(("%d %s" % (s, s), f"{s} {s:03d}", json.dumps({"step": s})),
                         ("3 3", "3 003", '{"step": 3}'))
        self.assertEqual((s % 2, s + 1, 10 - s, s == 3, s < 4, list("abcd")[s]),
                         (1, 4, 7, True, True, "d"))
        self.assertEqual({3: "c"}[s], "c")
        self.assertIn("n_samples=8", repr(s))
        self.assertEqual(list(s.positions), list(range(16, 32, 2)))

    def test_step_0_is_true(self):
        """`while step := member.next()` does not end at step 0."""
        self.assertTrue(step(0))
        self.assertEqual(step(0), 0)

    def test_copies_have_all_fields(self):
        for twin in (copy.copy(step(3)), copy.deepcopy(step(3)), pickle.loads(
                pickle.dumps(step(3)))):
            self.assertEqual((repr(twin), twin + 1), (repr(step(3)), 4))
        later = dataclasses.replace(step(3), step=5)
        self.assertEqual((later, later.step, later.n_samples), (5, 5, 8))
        with self.assertRaises(AttributeError):
            later.step = 6


harness.main(__name__)
