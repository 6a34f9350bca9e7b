#!/usr/bin/python3
"""weir.torch on a GPU, without one: on a fake of torch.cuda whose copies and computations run as
late as those of a real device may (late_cuda.py), and with a library that answers late
(late_member.py). Losses and values have the same bits as those of the CPU, in many orders. If one
of the waits is removed, they have not."""
# label: cluster
import contextlib
import gc
import io
import os
import re
import sys
import threading
import types
from unittest import mock

import harness
import torch_case

import weir  # noqa: E402

STEPS = 5
SEEDS = 16  # orders in which each kind is tried
FOLDER = harness.source("python/weir/torch")
KINDS = ("name", "early", "own", "local", "bf16", "twice", "restarts")
TEXT = {name: harness.read_text(os.path.join(FOLDER, name + ".py"))
        for name in ("_device", "_exchange")}
# Each wait, and each event for one: (kind that needs it, file, text, number of the place, text
# instead of it).
MUTANTS = (
    ("local", "_device", "self.use(s)", 1, "pass"),
    ("local", "_device", "self._down.wait_event(events.used)", 1, "pass"),
    ("local", "_device", "events.copied.record(self._down)", 1, "pass"),
    ("local", "_device", "events.copied.synchronize()", 1, "pass"),
    ("local", "_device", "self._events[s.number].used.record(cuda.current_stream(self.device))", 1,
     "pass"),
    ("restarts", "_device", "self._up.wait_event(events.used)", 1, "pass"),
    ("early", "_device", "events.arrived.record(self._up)", 1, "pass"),
    ("early", "_device", "events.arrived.synchronize()", 1, "pass"),
    ("early", "_device", "cuda.current_stream(self.device).wait_stream(self._up)", 1, "pass"),
    ("restarts", "_device", "self._settled.record(self._up)", 1, "pass"),
    ("restarts", "_device", "self._settled.synchronize()", 1, "pass"),
    ("early", "_device", "stream.synchronize()", 1, "pass"),
    # The gradient is released before its copy.
    ("name", "_device", "self._pushes.add(s, events, source, push)", 1,
     "self._pushes.add(s, events, source is not None or None, push)"),
    ("restarts", "_exchange", "self._copies.use(s)", 1, "pass"),
    ("early", "_exchange", "self._copies.arrive()", 1, "pass"),
    ("early", "_exchange", "self._copies.arrive()", 2, "pass"),
    ("local", "_exchange", "self._copies.arrive()", 3, "pass"),
    ("local", "_exchange", "for _ in self._copies.pushes():", 1, "for _ in ():"),
    # All pushes are made before the first wait for values.
    ("name", "_exchange", "for made in self._copies.pushes():", 1, "for made in ():"),
    ("restarts", "_exchange", "self._copies.settle()", 1, "pass"),
    ("early", "_exchange", "self._copies.close()", 1, "pass"),
)
WAIT = re.compile(r"\.(?:wait_event|wait_stream|synchronize|record)\(|self\.use\(|"
                  r"_copies\.(?:use|arrive|settle|pushes|close)\(")


class Device(torch_case.Torch):
    def setUp(self):
        super().setUp()
        threads = self.torch.get_num_threads()
        self.torch.set_num_threads(1)
        self.addCleanup(self.torch.set_num_threads, threads)
        import late_cuda
        import late_member
        self.late_cuda, self.member = late_cuda, late_member.LateMember
        nn, torch = self.torch.nn, self.torch
        self.eval_x = torch.randn(8, 8)

        class Net(nn.Module):
            """Layers of each kind: shared, without a gradient in some steps, and one whose
            parameters are read but have no gradient."""

            def __init__(self):
                super().__init__()
                self.first, self.norm, self.tied = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8,
                                                                                                8)
                self.tied.weight = self.first.weight
                self.seen, self.spare, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

            def forward(self, x, spare=True):
                x = torch.tanh(self.norm(self.first(x)))
                with torch.no_grad():
                    shift = self.seen(x).tanh()
                x = self.tied(x) + shift
                return self.last(torch.tanh(x + self.spare(x) if spare else x))
        self.make = Net

    def net(self):
        self.torch.manual_seed(4)
        return self.make()

    def train(self, kind, cuda=None, exchange=None):
        """Trains on the CPU or on a fake device. Returns the values that the program has read."""
        torch, net = self.torch, self.net()
        dtype = torch.bfloat16 if kind == "bf16" else torch.float32
        net.to(dtype)
        x, y, eval_x = self.x.to(dtype), self.y, self.eval_x.to(dtype)
        if cuda:
            net = cuda.move(net)
            x, y, eval_x = cuda.to(x), cuda.to(y), cuda.to(eval_x)
        lost, restarts = ((2,), (4,)) if kind == "restarts" else ((), ())
        steps = STEPS if kind != "local" else 3
        member = self.member_ = self.member(cuda and cuda.seed, steps, lost, restarts)
        rule = torch.optim.SGD(net.parameters(), 0.1) if kind in ("own", "local") else None
        more = {"local_steps": 2} if kind == "local" else {"early": kind == "early"}
        more["backwards"] = 2 if kind == "twice" else 1
        kept = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch("weir.torch._exchange.Member", lambda **_: member))
            stack.enter_context(mock.patch.object(sys.modules["weir.torch._device"], "cuda", cuda))
            if cuda and cuda.seed % 2 == 0:  # a thorough check waits for the device
                stack.enter_context(mock.patch("weir.torch._checks.FIRST", 0))
            made = (exchange or self.exchange)(net, rule or "sgd", **more)
            for step in made:
                at = torch.tensor(member.samples(step, 64))
                if step.step == 1 and kind != "local":
                    made.skip()
                for part in at.split(len(at) // more["backwards"]):
                    out = net(x[part], step.step % 2 == 0).float()
                    loss = torch.nn.functional.mse_loss(out, y[part])
                    kept.append(loss.detach())
                    if step.step != 1 or not made.early:
                        loss.backward()
                if kind == "own":
                    rule.step()
                    rule.zero_grad()
                if not made.early and made.counts:  # an average of weights, and an evaluation
                    kept.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
                    net.eval()
                    with torch.no_grad():
                        kept.append(net(eval_x))
                    net.train()
            kept += [t.detach().clone() for t in net.state_dict().values()]
        return [t.to("cpu") for t in kept]

    def same(self, got, want):
        return len(got) == len(want) and all(map(self.torch.equal, got, want))

    def test_bits_are_those_of_the_cpu(self):
        for kind in KINDS:
            want = self.train(kind)
            order = self.member_.order
            self.assertTrue(all(t.isfinite().all() for t in want), kind)
            for seed in range(SEEDS):
                with self.subTest(kind=kind, seed=seed):
                    cuda = self.late_cuda.Cuda(seed)
                    self.assertTrue(self.same(self.train(kind, cuda), want))
                    self.assertEqual(self.member_.order, order)
                    self.assertEqual((cuda.runtime.n_calls, cuda.runtime.pinned), (2, {}))
                    self.assertIn("late device", self.member_.settings["arithmetic"])

    def test_memory_that_cannot_be_pinned_is_copied_at_once(self):
        cuda, err = self.late_cuda.Cuda(1, pinnable=False), io.StringIO()
        with contextlib.redirect_stderr(err):
            self.assertTrue(self.same(self.train("name", cuda), self.train("name")))
        self.assertRegex(err.getvalue(), r"weir: \d+ bytes of values cannot be pinned \(out of "
                         r"memory\), so each .*\n.*bytes of gradients cannot")

    def test_backward_does_not_wait_for_the_device(self):
        """In steps without a thorough check only the thread that pushes waits for the device."""
        cuda = self.late_cuda.Cuda(1)
        cuda.eager = 0
        for kind in ("early", "name"):
            with self.began(kind, cuda, train_steps=8) as (exchange, loss):
                for step in exchange:
                    made = loss()
                    cuda.waits.clear()
                    cuda.copies.clear()
                    made.backward()
                    if 3 <= step.step < 7:
                        self.assertNotIn(cuda.main, cuda.copies)
                        self.assertGreater(len(cuda.copies), 0)
                        self.assertNotIn("MainThread", cuda.waits)
                        self.assertEqual(kind == "early", not all(s.fresh for s in exchange.slots))

    @contextlib.contextmanager
    def began(self, kind, cuda, train_steps=STEPS, member=None):
        """Yields an exchange on the fake device, and a function that returns a loss."""
        net, x, y = cuda.move(self.net()), cuda.to(self.x), cuda.to(self.y)
        member = member or self.member(1, train_steps)
        with mock.patch("weir.torch._exchange.Member", lambda **_: member), \
                mock.patch("weir.torch._device.cuda", cuda):
            exchange = self.exchange(net, "sgd", early=kind == "early")
            yield exchange, lambda: self.torch.nn.functional.mse_loss(net(x), y)

    def test_failed_push_reaches_the_program(self):
        for kind in ("early", "name"):
            member = self.member(1, STEPS)
            member.push = mock.Mock(side_effect=weir.Unavailable("lost"))
            with self.began(kind, self.late_cuda.Cuda(1), member=member) as (exchange, loss):
                next(exchange)
                with self.assertRaisesRegex(weir.Unavailable, "lost"):
                    loss().backward()
                    next(exchange)
                self.assertEqual(member.push.call_count, 1)
                exchange.close()

    def test_dropped_exchange_releases_the_memory(self):
        cuda, n_threads = self.late_cuda.Cuda(1), threading.active_count()
        with self.began("name", cuda) as (exchange, loss):
            next(exchange)
            loss().backward()
            size = sum(t.numel() for t in (*exchange.model.parameters(),
                                           exchange.model.norm.running_mean,
                                           exchange.model.norm.running_var))
            self.assertEqual(exchange.pinned_bytes, sum(cuda.runtime.pinned.values()))
            self.assertEqual(exchange.pinned_bytes, 2 * -(-4 * size // 4096) * 4096)
            del exchange
        gc.collect()
        self.assertEqual(cuda.runtime.pinned, {})
        harness.until(lambda: threading.active_count() == n_threads, "the thread has ended")

    def test_graphs_and_several_devices_refused(self):
        cuda = self.late_cuda.Cuda(1)
        with self.began("name", cuda) as (exchange, loss):
            next(exchange)
            cuda.capturing = True
            with self.assertRaisesRegex(weir.Invalid, "CUDA graph is being captured.*outside of"):
                loss().backward()
        from weir.torch._device import device_of
        nn, places = self.torch.nn, [mock.Mock(device=self.torch.device("cuda", i % 2))
                                     for i in range(3)]
        self.assertEqual(device_of(self.net(), places[::2]), self.torch.device("cuda", 0))
        self.assertIsNone(device_of(self.net(), self.net().parameters()))
        several = nn.DataParallel(self.net())
        several.device_ids = [0, 1]
        for model, tensors in ((self.net(), places), (several, places[:1])):
            with self.assertRaisesRegex(weir.Invalid, "cuda:0 and cuda:1; .* a process for each"):
                device_of(model, tensors)

    def test_moved_parameter_reported(self):
        net = self.net().bfloat16()
        exchange = self.exchange(net, train_steps=4)
        next(exchange)
        exchange.slots[0].tensor = mock.Mock(device=self.torch.device("cuda", 0))
        with self.assertRaisesRegex(weir.Invalid, "has new memory since the first step"):
            exchange.slots[0].check()

    def test_servers_and_two_members(self):
        """A member on the fake device and one on the CPU train with the bits of two on the CPU."""
        def values(cuda):
            nets = [self.net() for _ in range(2)]

            def member(i, settings):
                net, x, y = nets[i], self.x, self.y
                if cuda and i == 0:
                    net, x, y = cuda.move(net), cuda.to(x), cuda.to(y)
                exchange = self.exchange(net, "adamw", learning_rate=0.01, train_steps=4,
                                         **settings)
                for _ in exchange:
                    at = self.torch.tensor(exchange.samples(64))
                    self.torch.nn.functional.mse_loss(net(x[at]), y[at]).backward()
                return [t.to("cpu") for t in net.state_dict().values()]
            with mock.patch("weir.torch._device.cuda", cuda):
                return self.job(member)
        for got, want in zip(values(self.late_cuda.Cuda(5)), values(None)):
            self.assertTrue(self.same(got, want))

    def mutant(self, file, text, place, by):
        """Returns the modules with another text at one place of the source."""
        texts = dict(TEXT)
        parts = texts[file].split(text)
        texts[file] = text.join(parts[:place]) + by + text.join(parts[place:])
        modules = {}
        for name in TEXT:
            modules[name] = types.ModuleType("weir.torch." + name)
            modules[name].__package__ = "weir.torch"
            with mock.patch.dict(sys.modules, {m.__name__: m for m in modules.values()}):
                exec(compile(texts[name], name, "exec"),  # pylint: disable=exec-used
                     modules[name].__dict__)
        return modules

    def finds(self, kind, modules, want):
        """Returns whether a mutant changes a value, or is an error, in one of the orders."""
        for seed in range(SEEDS):
            try:
                with mock.patch.dict(sys.modules, {m.__name__: m for m in modules.values()}):
                    got = self.train(kind, self.late_cuda.Cuda(seed), modules["_exchange"].Exchange)
            except (AssertionError, weir.Error):
                return True
            if not self.same(got, want):
                return True
        return False

    def test_each_wait_is_needed(self):
        wanted = {kind: self.train(kind) for kind in KINDS}
        for kind, *mutant in MUTANTS:
            with self.subTest(mutant):
                self.assertTrue(self.finds(kind, self.mutant(*mutant), wanted[kind]))

    def test_each_wait_has_a_mutant(self):
        for name, text in TEXT.items():
            found = [line for line in text.splitlines() if WAIT.search(line)]
            self.assertGreater(len(found), 5)
            self.assertEqual([line for line in found if not any(
                file == name and old in line for _, file, old, _, _ in MUTANTS)], [])
            for _, file, old, place, _ in MUTANTS:
                self.assertTrue(file != name or text.count(old) >= place, old)


harness.main(__name__)
