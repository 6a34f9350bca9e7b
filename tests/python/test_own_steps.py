#!/usr/bin/python3
"""Members with own_local_steps, whose changes lie in the arrays of the values: no call returns a
change as a value, and no pull replaces a change that is not sent yet."""
# label: cluster
import array
import threading
import unittest

import harness

harness.use_package()
import weir  # noqa: E402

FIRST = 10


def two(value):
    return array.array("f", [value] * 2)


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class OwnSteps(harness.Test):
    def member(self, cluster, number, **settings):
        """Returns a member, and its two parameters, which are sent together."""
        settings = {"local_steps": 2, "own_local_steps": True, "outer_optimizer": "sgd",
                    "outer_learning_rate": 1, "batch_size": 1, **cluster.settings(number),
                    **settings}
        member = weir.Member(**settings)
        return member, member.param("a", (2,), two(FIRST)), member.param("b", (2,), two(FIRST))

    def push(self, member, param, change):
        member.push_values(param, two(member.values(param)[0] + change), samples=1)

    def test_pull_beside_a_change_refused(self):
        with weir.Cluster() as cluster:
            member, a, b = self.member(cluster, 0, train_steps=8)
            with member:
                for _ in member:
                    self.push(member, a, 0.5)
                    with self.assertRaisesRegex(weir.Invalid, "'b' is sent together with 'a'"):
                        member.pull(b)
                    with self.assertRaisesRegex(weir.Invalid, "no values between its push and"):
                        member.values(a)
                    self.push(member, b, 0.25)
                self.assertEqual(list(member.values(a)), [FIRST + 4 * 0.5] * 2)
                self.assertEqual(list(member.values(b)), [FIRST + 4 * 0.25] * 2)

    def test_member_that_left_returns_no_change(self):
        """Whether the last push is answered depends on the time of the leave message."""
        seen, read = [], []
        with weir.Cluster(n_workers=2) as cluster:
            def train(number):
                member, a, b = self.member(cluster, number, train_steps=200)
                with member:
                    for step in member:
                        if number == 1 and step.step == 20:
                            member.leave_soon()
                        self.push(member, a, 0.001)
                        self.push(member, b, 0.001)
                    seen.append(member.result)
                    if number == 1:
                        try:
                            read.append(member.values(a)[0])
                        except weir.Invalid as e:
                            self.assertIn("no values between its push and the answer", str(e))
            threads = [threading.Thread(target=train, args=(i,)) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(sorted(seen), ["done", "left"])
        self.assertTrue(all(v > FIRST for v in read), read)


harness.main(__name__)
