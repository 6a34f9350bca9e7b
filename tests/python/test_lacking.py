#!/usr/bin/python3
"""Members without a gradient for a parameter (weir_push with NULL): their push counts as zeros
beside the gradients of other members. If no member has a gradient, the parameter, its slots and
Adam's count of steps stay, as in torch.optim; also with rounded numbers, local steps, killed and
new servers."""
# label: cluster
import array
import copy
import random
import tempfile
import threading
import unittest

import harness
import weights

harness.use_package()
import weir  # noqa: E402
from weir import checkpoint  # noqa: E402

STEPS = 24
FORMATS = {  # of contributions and of versions, by mode
    "sync": ("fp32", "bf16", "fp16", "int8", "int4", "topk", "int4,fp32", "fp32,topk"),
    "async": ("fp32", "int4,fp32", "topk,bf16"),
}
RULES = {  # settings, and the class and arguments of PyTorch
    "momentum": ({"momentum": 0.9, "weight_decay": 0.01}, "SGD"),
    "adam": ({"weight_decay": 0.01}, "Adam"),
    "adamw": ({"weight_decay": 0.1}, "AdamW"),
}


def has_branch(step, member):
    """Whether the member's samples of the step use the second branch: none, one or both do."""
    return random.Random(10 * step + member).random() < 0.5


def numbers(seed, n):
    draw = random.Random(seed)
    return array.array("f", [draw.uniform(-1, 1) for _ in range(n)])


def together(*calls):
    """Runs the calls at the same time, and raises the first error."""
    errors = []

    def run(call):
        try:
            call()
        except BaseException as e:  # pylint: disable=broad-except
            errors.append(e)
    threads = [threading.Thread(target=run, args=(c,)) for c in calls]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]


@unittest.skipIf(harness.SANITIZE, "PyTorch is compiled without a sanitizer")
class UnusedBranch(harness.Test):
    def setUp(self):
        super().setUp()
        self.torch = weights.torch2(self)
        self.torch.manual_seed(5)
        nn = self.torch.nn
        self.first = nn.ModuleDict({"trunk": nn.Linear(4, 3), "a": nn.Linear(3, 2),
                                    "b": nn.Linear(3, 2)})

    def gradients(self, net, step, member):
        """Returns the member's gradients of the step, with None where one is missing."""
        draw = self.torch.Generator().manual_seed(1000 * step + member)
        h = net["trunk"](self.torch.randn(8, 4, generator=draw))
        out = net["a"](h) + (net["b"](h) if has_branch(step, member) else 0)
        return self.torch.autograd.grad(out.square().mean(), list(net.parameters()),
                                        allow_unused=True)

    def expected(self, rule, n_members):
        """Trains with torch.optim; the gradient is the mean of the members', as in DDP. Returns the
        parameters before each step, and at the end."""
        settings, name = RULES[rule]
        net, seen = copy.deepcopy(self.first), []
        optimizer = getattr(self.torch.optim, name)(net.parameters(), lr=0.01, **settings)
        for step in range(STEPS):
            seen.append([p.detach().clone() for p in net.parameters()])
            of = [self.gradients(net, step, m) for m in range(n_members)]
            for i, p in enumerate(net.parameters()):
                have = [g[i] for g in of if g[i] is not None]
                p.grad = sum(have) / n_members if have else None
            optimizer.step()
        return seen + [[p.detach().clone() for p in net.parameters()]]

    def train(self, rule, settings, task, want):
        net = copy.deepcopy(self.first)
        with weir.Member(**settings, **RULES[rule][0], optimizer=rule, learning_rate=0.01,
                         train_steps=STEPS, batch_size=8, task_index=task) as m:
            for name, p in net.named_parameters():
                m.param(name, p.shape, p.detach().numpy())

            def check(step):
                for i, p in enumerate(net.parameters()):
                    p.data.copy_(self.torch.frombuffer(bytearray(m.values(i)), dtype=p.dtype)
                                 .reshape(p.shape))
                    self.torch.testing.assert_close(p.data, want[step][i], rtol=0, atol=1e-6,
                                                    msg="%s, step %d" % (rule, step))
            for step in m:
                check(step.step)
                for i, g in enumerate(self.gradients(net, step.step, task)):
                    m.push(i, g if g is None else g.numpy(), samples=8)
            check(STEPS)

    def test_unused_branch_matches_torch_optim(self):
        used = [sum(has_branch(s, m) for m in range(2)) for s in range(STEPS)]
        self.assertEqual({0, 1, 2}, set(used))
        for rule in RULES:
            want = self.expected(rule, 2)
            with weir.Cluster(n_ps=2, n_workers=2) as cluster:
                hosts = {"ps_hosts": cluster.settings()["ps_hosts"], "n_workers": 2}
                together(*(lambda t=t: self.train(rule, hosts, t, want) for t in range(2)))
                cluster.wait(20 * harness.PATIENCE)
            self.train(rule, {}, 0, self.expected(rule, 1))  # a member without servers


@unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
class Lacking(harness.Test):
    N = (256, 512, 40000)  # two parameters share a chunk; blocks of 256 values share a scale

    def train(self, settings, lacks, n_steps, wait=None):
        """Trains a member whose parameter i has no gradient in the steps that lacks(step, i) names;
        the j-th gradient of a parameter depends on i and j alone. Returns the final values."""
        with weir.Member(**{"batch_size": 8, "learning_rate": 0.01, **settings},
                         train_steps=n_steps) as m:
            for i, n in enumerate(self.N):
                m.param("p%d" % i, (n,), numbers(i, n))
            for step in m:
                if wait:
                    wait(step.step)
                for i, n in enumerate(self.N):
                    j = sum(not lacks(s, i) for s in range(step.step))
                    g = None if lacks(step.step, i) else numbers(100 * i + j, n)
                    m.push(i, g, samples=8)
            return [bytes(m.values(i)) for i in range(len(self.N))]

    def test_steps_without_a_gradient_leave_no_trace(self):
        """A parameter that has no gradient in some steps has the bits of a job without these steps.
        So its value, its slots, Adam's count and the residuals of rounding stay."""
        for mode, formats in FORMATS.items():
            for wire in formats:
                for rule in ("adam", "momentum") if mode == "sync" else ("adamw",):
                    settings = {"wire_dtype": wire, "optimizer": rule, "weight_decay": 0.01,
                                "sync_mode": mode, "learning_rate": 0.01}
                    with weir.Cluster() as cluster:
                        got = self.train({**cluster.settings(), **settings},
                                         lambda step, i: i > 0 and step % 3 == i - 1, 12)
                    with weir.Cluster() as cluster:
                        want = self.train({**cluster.settings(), **settings},
                                          lambda step, i: False, 8)
                    self.assertEqual(got[1:], want[1:], "%s, %s, %s" % (mode, wire, rule))
                    self.assertNotEqual(got[0], want[0])

    def members(self, cluster, disturb=None, at=8):
        """Runs two members; calls `disturb` at a step. Returns the values that both end with."""
        out, reached = {}, threading.Event()
        hosts = {"ps_hosts": cluster.settings()["ps_hosts"], "n_workers": 2, "optimizer": "adamw"}

        def lacks(step, i, task):
            return has_branch(step, 7 * i + task)

        def wait(step):
            if step == at and disturb and not reached.is_set():
                reached.set()
                disturb()

        def run(task):
            out[task] = self.train({**hosts, "task_index": task},
                                   lambda step, i: lacks(step, i, task), STEPS,
                                   wait if task == 0 else None)
        together(*(lambda t=t: run(t) for t in range(2)))
        self.assertEqual(out[0], out[1])
        return out[0]

    def test_counts_survive_killed_and_new_servers(self):
        def restart(name):
            cluster.kill(name)
            cluster.start(name)

        want = None
        for disturb in (None, lambda: restart("ps:0"), lambda: restart("ps:1"),
                        lambda: cluster.add_ps()):  # pylint: disable=unnecessary-lambda
            with tempfile.TemporaryDirectory() as folder, weir.Cluster(
                    n_ps=2, n_workers=2, checkpoint_dir=folder,
                    ps_flags=["--save_steps=3"]) as cluster:
                got = self.members(cluster, disturb)
                cluster.wait(40 * harness.PATIENCE)
                updates = checkpoint.read(folder).updates
            want = want or got
            self.assertEqual(got, want)
            self.assertEqual(updates, {"p%d" % i: sum(
                not all(has_branch(step, 7 * i + task) for task in range(2))
                for step in range(STEPS)) for i in range(len(self.N))})
            self.assertLess(updates["p0"], STEPS)

    def test_parameter_stays_in_rounds_without_a_gradient(self):
        """A parameter without a gradient in all local steps of a round has no change, and the outer
        momentum does not move it."""
        for own in (False, True):
            seen, begin = [], 2 if own else 4  # own steps: each step of next() is a round
            settings = {"outer_optimizer": "nesterov", "outer_learning_rate": 0.7,
                        "outer_momentum": 0.9, "local_steps": 2}
            settings.update({"own_local_steps": True} if own else {"optimizer": "adam"})
            with weir.Cluster() as cluster, weir.Member(
                    **cluster.settings(), **settings, train_steps=8, batch_size=8) as m:
                for i in range(2):
                    m.param("p%d" % i, (3,), numbers(i, 3))
                for step in m:
                    seen.append(bytes(m.values(1)))
                    now = [numbers(step.step + 1, 3),
                           numbers(9, 3) if step.step < begin else None]
                    for i in range(2):
                        (m.push_values if own else m.push)(i, now[i], samples=8)
                seen.append(bytes(m.values(1)))
            self.assertNotEqual(seen[begin - 1], seen[begin])
            self.assertEqual(len(set(seen[begin:])), 1)
            self.assertEqual(len(seen), 2 * begin + 1)

    def test_statistic_and_region_need_numbers(self):
        with weir.Member(train_steps=1) as m:
            mean = m.param("mean", (2,), keep=0.9)
            frozen = m.param("frozen", (2,), array.array("f", [1, 2]), keep=1)
            for _ in m:
                with self.assertRaisesRegex(weir.Invalid, "'mean' is a statistic, which has no"):
                    m.push(mean, None, samples=1)
                m.push(mean, array.array("f", [1, 2]), samples=1)
                m.push(frozen, None, samples=1)
            self.assertEqual(m.values(frozen).tolist(), [1, 2])
        with tempfile.TemporaryDirectory() as folder, weir.Cluster(
                regions=1, checkpoint_dir=folder, region_flags=["--region_steps=1"]) as cluster:
            with weir.Member(**cluster.settings(), train_steps=1, batch_size=1) as m:
                w = m.param("w", (2,))
                for _ in m:
                    with self.assertRaisesRegex(weir.Invalid, "region need one: push zeros"):
                        m.push(w, None, samples=1)
                    m.push(w, samples=1)


harness.main(__name__)
