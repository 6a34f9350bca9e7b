#!/usr/bin/python3
"""Factors of the learning rate and the weight decay, of a parameter and of a step: jobs of two
members against a reference in plain Python; what the servers refuse; restarts."""
# label: cluster
import array
import contextlib
import math
import os
import re
import sys
import threading
import unittest

import ckpt_folder
import harness

harness.use_package()
import weir  # noqa: E402

STEPS = 6
RATE, DECAY, EPSILON = 0.05, 0.1, 1e-3
# Parameters: name, and the factors of learning rate and weight decay.
FACTORS = {"weights": (1.0, 1.0), "biases": (1.0, 0.0), "head": (0.25, 3.0), "still": (0.0, 1.0)}
SETTINGS = {"train_steps": STEPS, "batch_size": 4, "learning_rate": RATE, "weight_decay": DECAY}
RATES = (1.0, 0.5, 0.0, 2.0, 1.0, 0.125)  # factors of the steps
FIRST = (1.0, -2.0, 0.5)
# A program whose gradients depend on its values and samples.
WORKER = """
import array, hashlib, sys, weir
settings, (gate,) = weir.flags()
with weir.Member(train_steps=200, batch_size=4, optimizer="adamw", learning_rate=0.01,
                 weight_decay=0.1, **settings) as m:
    m.param("w", (40,), array.array("f", [0.5] * 40))
    m.param("b", (8,), rate=0.5, decay=0)
    for step in m:
        m.step_rate((1, 0.5, 2)[step.step % 3])
        for param, n in ((0, 40), (1, 8)):
            shift = sum(step.positions) % 17
            m.push(param, array.array("f", [x - shift / 10 for x in m.values(param)]), samples=4)
        print("step", step.step, flush=True)
        if step.step == 20:  # the test waits for this step
            open(gate).read()
    print("bits", hashlib.sha256(bytes(m.values(0)) + bytes(m.values(1))).hexdigest())
"""


def gradient(member, step, param, i):
    return math.sin(1 + member * 7 + step * 3 + param * 5 + i)


class Rule:
    """One element's optimizer, in double precision, by the documentation of torch.optim."""

    def __init__(self, optimizer):
        self.optimizer, self.a, self.b, self.step = optimizer, 0.0, 0.0, 0

    def update(self, p, g, rate, decay):
        self.step += 1
        if self.optimizer == "adamw":
            p -= rate * decay * p
        else:
            g += decay * p
        if self.optimizer in ("momentum", "nesterov"):
            self.a = 0.9 * self.a + g
            return p - rate * (self.a if self.optimizer == "momentum" else g + 0.9 * self.a)
        if self.optimizer == "adagrad":
            self.a += g * g
            return p - rate * g / (math.sqrt(self.a) + EPSILON)
        if self.optimizer == "rmsprop":
            self.a = 0.99 * self.a + 0.01 * g * g
            return p - rate * g / (math.sqrt(self.a) + EPSILON)
        if self.optimizer in ("adam", "adamw"):
            self.a = 0.9 * self.a + 0.1 * g
            self.b = 0.999 * self.b + 0.001 * g * g
            root = math.sqrt(self.b / (1 - 0.999 ** self.step)) + EPSILON
            return p - rate * self.a / (1 - 0.9 ** self.step) / root
        return p - rate * g


def reference(optimizer, rates=RATES, local_steps=1):
    """Returns the values of all parameters after the last step."""
    values = [list(FIRST) for _ in FACTORS]
    for k, (rate, decay) in enumerate(FACTORS.values()):
        for i in range(len(FIRST)):
            p = values[k][i]
            if local_steps == 1:
                rule = Rule(optimizer)
                for step in range(STEPS):
                    g = (gradient(0, step, k, i) + gradient(1, step, k, i)) / 2
                    p = rule.update(p, g, RATE * rate * rates[step], DECAY * decay)
            else:
                for first in range(0, STEPS, local_steps):
                    ends = []
                    for member in range(2):
                        rule, own = Rule(optimizer), p
                        for step in range(first, first + local_steps):
                            own = rule.update(own, gradient(member, step, k, i), RATE * rate,
                                              DECAY * decay)
                        ends.append(own)
                    p = sum(ends) / 2
            values[k][i] = p
    return values


@unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
class Rates(harness.Test):
    def run_member(self, cluster, i, out, rates, settings, factors=None):
        """Trains as member i; sets out[i] to the values, or to the error."""
        try:
            with weir.Member(**cluster.settings(i), **{**SETTINGS, **settings}) as m:
                self.members[i] = m
                for name, (rate, decay) in (factors or FACTORS).items():
                    m.param(name, (3,), array.array("f", FIRST), rate=rate, decay=decay)
                for step in m:
                    if rates:
                        m.step_rate(rates[step.step])
                    for k in range(len(FACTORS)):
                        m.push(k, array.array("f", [gradient(i, step.step, k, e)
                                                    for e in range(3)]), samples=4)
                out[i] = [m.values(k).tolist() for k in range(len(FACTORS))]
        except weir.Error as e:
            out[i] = e

    def train(self, *rates, settings=None, others=None, **kwargs):
        """Returns the results of two members with these factors of the steps. others: factors of
        the second member's parameters, if they differ. kwargs: arguments of weir.Cluster."""
        out, self.members = {}, {}
        with weir.Cluster(**{"n_workers": 2, **kwargs}) as cluster:
            threads = [threading.Thread(target=self.run_member, args=(
                cluster, i, out, rates[i], settings or {}, others if i else None))
                for i in range(2)]
            for thread in threads:
                thread.start()
            harness.until(lambda: len(self.members) == 2 and (len(out) == 2 or any(
                isinstance(e, weir.Error) for e in list(out.values()))), "a member ends", 60)
            for i in self.members.keys() - out.keys():  # it waits for the refused member
                with contextlib.suppress(weir.Invalid):  # it has just ended by itself
                    self.members[i].cancel()
            for thread in threads:
                thread.join()
        return out

    def assert_near(self, got, want, what):
        for k, name in enumerate(FACTORS):
            for a, b in zip(got[k], want[k]):
                self.assertAlmostEqual(a, b, delta=2e-6 * (1 + abs(b)),
                                       msg="%s, parameter %s" % (what, name))

    def assert_refused(self, out, reason):
        """Checks that servers refused one member or both, for this reason."""
        refused = [str(e) for e in out.values() if isinstance(e, weir.Refused)]
        self.assertTrue(refused, out)
        for error in refused:
            self.assertRegex(error, reason)

    def test_two_members_train_as_the_reference(self):
        for optimizer in optimizers():
            more = {} if optimizer in ("sgd", "momentum", "nesterov") else {"epsilon": EPSILON}
            settings = {"optimizer": optimizer, **more}
            out = self.train(RATES, RATES, settings=settings, n_ps=2)
            self.assertEqual(out[0], out[1], optimizer)
            self.assert_near(out[0], reference(optimizer), optimizer)

    def test_local_steps_use_factors_of_parameters(self):
        for optimizer in "sgd", "adamw":
            settings = {"optimizer": optimizer, "local_steps": 3, "outer_optimizer": "sgd",
                        "outer_learning_rate": 1,
                        **({"epsilon": EPSILON} if optimizer == "adamw" else {})}
            out = self.train(None, None, settings=settings)
            self.assertEqual(out[0], out[1], optimizer)
            self.assert_near(out[0], reference(optimizer, local_steps=3), optimizer)
        out = self.train(RATES[1:] + (1,), None, settings=settings)
        self.assertIsInstance(out[0], weir.Unsupported)
        self.assertIn("cannot be used with local_steps", str(out[0]))

    def regions(self, steps, *rates):
        """Trains in two regions of one member each, which exchange after `steps` steps."""
        flags = ["--region_steps=%d" % steps, "--outer_optimizer=sgd", "--outer_learning_rate=1"]
        return self.train(*rates, settings={"optimizer": "sgd"}, n_workers=1, regions=2,
                          region_flags=flags)

    def test_region_uses_factors_of_parameters(self):
        """A region's servers use the factors; the parent's servers average the changes."""
        out = self.regions(2, None, None)
        self.assertEqual(out[0], out[1])
        self.assert_near(out[0], reference("sgd", local_steps=2), "regions")
        out = self.regions(2, RATES[1:] + (1,), None)
        self.assertIsInstance(out[0], weir.Unsupported)
        self.assertIn("cannot be used in a region", str(out[0]))
        self.assert_refused(self.regions(1, None, None),
                            r"\(weir_param_factors\) need --region_steps above 1")

    def test_another_factor_of_a_step_is_refused(self):
        settings = {"optimizer": "sgd"}
        out = self.train(RATES, RATES[:3] + (0.75,) + RATES[4:], settings=settings)
        self.assert_refused(out, r"worker \d has factor (2|0.75) of the learning rate at step 3"
                            r", but worker \d has factor (2|0.75); all members must set the same")

    def test_backup_workers_refuse_a_factor(self):
        settings = {"optimizer": "sgd", "replicas_to_aggregate": 1}
        out = self.train((0.5,) * 99, None, settings=settings)
        self.assertIsInstance(out[0], weir.Unsupported)
        self.assertIn("cannot be used with backup workers", str(out[0]))

    def test_other_factors_of_a_parameter_are_refused(self):
        out = self.train(None, None, settings={"optimizer": "sgd"},
                         others={**FACTORS, "head": (0.5, 3.0)})
        self.assert_refused(out, r"parameter 2 'head': factor (0.25|0.5) of the learning rate on "
                            "the servers, (0.25|0.5) on the worker")

    def member(self, cluster, factors):
        """Returns an open member with these parameters."""
        m = weir.Member(**cluster.settings(), **{**SETTINGS, "train_steps": 100000},
                        optimizer="sgd")
        for name, (rate, decay) in factors.items():
            m.param(name, (3,), array.array("f", FIRST), rate=rate, decay=decay)
        return m

    def test_job_resumes_only_with_equal_factors(self):
        """The checkpoint records the factors, and a job with others is refused by name."""
        folder = self.path("kept")
        with weir.Cluster(checkpoint_dir=folder, ps_flags=["--save_steps=2"]) as cluster:
            with self.member(cluster, FACTORS) as m:
                while not ckpt_folder.steps(folder):
                    m.next(60 * harness.PATIENCE)
                    for k in range(len(FACTORS)):
                        m.push(k, array.array("f", FIRST), samples=4)
                cluster.kill("ps:0")
        for factors, problem in (({**FACTORS, "biases": (1.0, 0.5)},
                                  "checkpoint at step .* parameter 1 'biases': factor 0 of the "
                                  "weight decay in the checkpoint, 0.5 on the worker"),
                                 (FACTORS, None)):
            with weir.Cluster(checkpoint_dir=folder) as cluster, \
                    self.member(cluster, factors) as m:
                if problem:
                    with self.assertRaisesRegex(weir.Refused, problem):
                        m.next(60 * harness.PATIENCE)
                else:
                    self.assertGreater(m.next(60 * harness.PATIENCE).step, 0)
                cluster.kill("ps:0")

    def ended(self, workers, gate):
        """Opens the gate for workers that wait at it. Returns True if no worker runs any more."""
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass  # no worker waits there
        return not any(p.runs() for p in workers)

    def run_killed(self, name, disturb):
        """Returns the digests of the values that the workers of a job end with."""
        gate = self.path(name)
        os.mkfifo(gate)
        with weir.Cluster(n_workers=2, command=[sys.executable, "-c", WORKER, gate],
                          checkpoint_dir=gate + "-kept", ps_flags=["--save_steps=7"]) as cluster:
            for i in range(2):
                cluster.wait_line("worker:%d" % i, "step 20", 20 * harness.PATIENCE)
            if disturb:
                for process in ("worker:1", "ps:0"):
                    cluster.kill(process)
                cluster.start_ps()
                cluster.start("worker:1")
            workers = [cluster.processes["worker:%d" % i] for i in range(2)]
            harness.until(lambda: self.ended(workers, gate), "all workers have exited", 60)
            return {bits for i in range(2)
                    for bits in re.findall(r"bits (\w+)", cluster.output("worker:%d" % i))}

    def test_killed_processes_change_no_bit(self):
        """Steps that are made again have the same factors, because they follow from the step."""
        left = self.run_killed("left", False)
        self.assertEqual(len(left), 1)
        self.assertEqual(left, self.run_killed("killed", True))


def optimizers():
    return re.search(r'OPTIM_NAMES "(.*)"',
                     harness.read_source("kernels/vector/optim.h")).group(1).split("|")


harness.main(__name__)
