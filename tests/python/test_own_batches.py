#!/usr/bin/python3
"""Programs that choose their own samples, and that loop over epochs: mistakes that do not end the
job have a line."""
# label: cluster
import array
import contextlib
import io
import threading
import unittest

import harness

harness.use_package()
import weir  # noqa: E402

STEPS = 5


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class OwnBatches(harness.Test):
    def train(self, gradient):
        """Trains by two members with gradient(number, step). Returns the server's output."""
        errors = []

        def member(number, settings):
            try:
                with weir.Member(train_steps=STEPS, batch_size=2, optimizer="sgd", **settings) as m:
                    w = m.param("w", (2,), array.array("f", [0, 0]))
                    for step in m:
                        m.push(w, array.array("f", [1, gradient(number, step.step)]), samples=2)
            except weir.Error as e:
                errors.append(e)
        with weir.Cluster(n_workers=2) as cluster:
            threads = [threading.Thread(target=member, args=(i, cluster.settings(i)))
                       for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(errors, [])
            cluster.wait(20 * harness.PATIENCE)
            return cluster.output("ps:0")

    def test_equal_gradients_are_named_by_the_server(self):
        found = self.train(lambda _number, step: step + 1)
        self.assertEqual(found.count("workers 0 and 1 sent the same gradients in 3 steps"), 1)

    def test_other_gradients_are_not_named(self):
        self.assertNotIn("same gradients", self.train(lambda number, step: step + number))

    def test_loop_after_the_last_step_is_named(self):
        printed = io.StringIO()
        with weir.Member(train_steps=STEPS) as m:
            w = m.param("w", (2,), array.array("f", [0, 0]))
            with contextlib.redirect_stderr(printed):
                for _epoch in range(2):
                    self.assertNotIn("makes no step", printed.getvalue())
                    for _step in m:
                        m.push(w, array.array("f", [1, 1]), samples=1)
        self.assertEqual(printed.getvalue().count("weir: this loop makes no step"), 1)


harness.main(__name__)
