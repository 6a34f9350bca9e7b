#!/usr/bin/python3
"""weir.torch: a program may read and copy the parameters at any time, and is refused if it changes
them itself."""
# label: cluster
import copy
import io

import harness
import torch_case

import weir  # noqa: E402

STEPS = 12


class Reads(torch_case.Torch):
    def test_average_of_weights_matches_pytorch(self):
        """The values behind backward() are those of the next step: averages are the same in all
        members, and those of PyTorch."""
        swa, nets = self.torch.optim.swa_utils, [self.net() for _ in range(2)]

        def average(net):
            return swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))

        def member(i, settings):
            exchange = self.exchange(nets[i], optimizer="adam", learning_rate=0.01,
                                     train_steps=STEPS, **settings)
            ema, seen, norms = average(nets[i]), [], []
            for _ in exchange:
                seen.append(exchange.samples(64))
                before = copy.deepcopy(nets[i].state_dict())
                self.loss(nets[i], seen[-1]).backward()
                self.assertTrue(all((before[k] != t).any() for k, t in
                                    nets[i].state_dict().items()))
                ema.update_parameters(nets[i])
                norms.append(self.torch.nn.utils.parameters_to_vector(
                    nets[i].parameters()).norm().item())
            return seen, ema.state_dict(), norms
        found = self.job(member)
        want = self.net()
        ema, norms = average(want), []

        def after(_step):
            ema.update_parameters(want)
            norms.append(self.torch.nn.utils.parameters_to_vector(want.parameters()).norm().item())
        self.plain(want, self.torch.optim.Adam(want.parameters(), lr=0.01), [f[0] for f in found],
                   after=after)
        for i, (_, mine, lengths) in enumerate(found):
            self.close(nets[i].state_dict(), want.state_dict())
            self.close(mine, ema.state_dict())
            for a, b in zip(lengths, norms):
                self.assertAlmostEqual(a, b, delta=1e-5)

    def test_early_reads_wait_in_forward(self):
        """If early=True, only a module's forward waits for its parameters; equal results."""
        def member(early):
            def run(_i, settings):
                net = self.net()
                exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, early=early,
                                         train_steps=STEPS, **settings)
                fresh = []
                for _ in exchange:
                    self.loss(net, exchange.samples(64)).backward()
                    fresh.append(all(s.fresh for s in exchange.slots))
                return fresh, net.state_dict()
            return run
        (fresh, late), (stale, soon) = self.job(member(False), 1) + self.job(member(True), 1)
        self.assertEqual((fresh, stale), ([True] * STEPS, [False] * STEPS))
        self.close(late, soon, 0, 0)

    def test_reentrant_checkpoints_with_early_alone(self):
        """Values are consistent with activation checkpoints. A reentrant one around the whole model
        hides the end of backward, which is an error."""
        from torch.utils.checkpoint import checkpoint
        inner, outer = self.net(), self.torch.nn.Linear(3, 3)
        for reentrant in (False, True):
            both = copy.deepcopy(self.torch.nn.ModuleList([inner, outer]))
            exchange = self.exchange(both, train_steps=3)
            for _ in exchange:
                x = self.x.clone().requires_grad_()
                both[1](checkpoint(both[0], x, use_reentrant=reentrant)).sum().backward()
                self.assertTrue(all(s.pushed and s.fresh for s in exchange.slots))
        for early in (False, True):
            net = copy.deepcopy(inner)
            exchange = self.exchange(net, train_steps=2, early=early)
            next(exchange)
            checkpoint(net, self.x.clone().requires_grad_(), use_reentrant=True).sum().backward()
            if early:
                next(exchange)
            else:
                with self.assertRaisesRegex(weir.Invalid, r"use_reentrant=False\), or early"):
                    next(exchange)

    def test_model_copied_at_any_time(self):
        """copy.deepcopy and torch.save copy the model only, and the copies have no hooks."""
        for early, trace in ((False, None), (True, None), (False, self.path("trace"))):
            net = self.net()
            exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=3,
                                     early=early, trace=trace)
            copies = []
            for _ in exchange:
                for when in range(2):
                    file = io.BytesIO()
                    self.torch.save(net, file)
                    self.assertNotIn(b"weir.torch", file.getvalue())
                    file.seek(0)
                    loaded = self.torch.load(file, weights_only=False)
                    copies += [copy.deepcopy(net), loaded]
                    swa = self.torch.optim.swa_utils.AveragedModel(net)
                    if not early:
                        self.close(loaded.state_dict(), net.state_dict(), 0, 0)
                        self.close(swa.module.state_dict(), net.state_dict(), 0, 0)
                    if when == 0:
                        self.loss(net, range(8)).backward()
            for made in copies:
                made.load_state_dict(made.state_dict())
                self.loss(made, range(8)).backward()
                self.assertTrue(all(p.grad is not None for p in made.parameters()))



class Changes(torch_case.Torch):
    def began(self, net, **settings):
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=9, **settings)
        next(exchange)
        return exchange

    def test_changed_weights_refused(self):
        """A change of the weights by the program is refused, at the place where it was made or at
        the end of the step."""
        no_grad = self.torch.no_grad()

        def clamp(net):
            with no_grad:
                net[0].weight.clamp_(-0.01, 0.01)

        def data(net):
            net[0].weight.data.clamp_(-0.01, 0.01)

        def copied(net):
            with no_grad:
                net[0].weight.copy_(self.torch.zeros(16, 8))
        for dtype in (self.torch.float32, self.torch.bfloat16):
            for change in (clamp, data, copied):
                for before in (False, True):
                    net = self.net().to(dtype)
                    exchange = self.began(net)
                    with self.assertRaisesRegex(weir.Invalid, "changed parameter '0.weight' itself"
                                                ".*parametrize"):
                        if before:
                            change(net)
                        self.loss(net, [0]).backward()
                        change(net)
                        next(exchange)
                    exchange.close()

    def test_counted_change_found_in_any_step(self):
        net = self.net()
        exchange = self.began(net)
        for _ in range(6):
            self.loss(net, [0]).backward()
            next(exchange)
        self.loss(net, [0]).backward()
        with self.torch.no_grad():
            net[2].bias.add_(1)
        with self.assertRaisesRegex(weir.Invalid, "parameter '2.bias' itself"):
            next(exchange)

    def test_change_by_forward_refused(self):
        net = self.torch.nn.Embedding(5, 2, max_norm=0.1)
        exchange = self.began(net)
        with self.assertRaisesRegex(weir.Invalid, "max_norm of an Embedding"):
            net(self.torch.tensor([1, 1])).sum().backward()
        exchange.close()

    def test_restored_weights_train(self):
        """Averages may be swapped in and out between two steps, also if the memory is swapped."""
        def copied(net, values):
            with self.torch.no_grad():
                for p, v in zip(net.parameters(), values):
                    p.copy_(v)

        def assigned(net, values):
            for p, v in zip(net.parameters(), values):
                p.data = v
        for swap in (copied, assigned):
            net, want = self.net(), self.net()
            rule = self.torch.optim.SGD(want.parameters(), lr=0.1)
            for step in self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=9):
                self.loss(net, [step.step]).backward()
                kept = [p.data if swap is assigned else p.data.clone() for p in net.parameters()]
                swap(net, [self.torch.zeros_like(p) for p in net.parameters()])
                self.assertEqual(net(self.x[:1]).tolist(), [[0, 0, 0]])
                swap(net, kept)
                rule.zero_grad()
                self.loss(want, [step.step]).backward()
                rule.step()
            self.close(net.state_dict(), want.state_dict())

    def test_parameters_that_servers_lack_refused(self):
        """A parameter that is added or unfrozen after the first step is an error."""
        net = self.net()
        net[0].requires_grad_(False)
        exchange = self.began(net)
        self.loss(net, [0]).backward()
        net[0].requires_grad_(True)
        with self.assertRaisesRegex(weir.Invalid, r"'0.weight' required no gradient.*later=\["):
            next(exchange)
        exchange.close()
        net = self.net()
        exchange = self.began(net)
        self.loss(net, [0]).backward()
        net.append(self.torch.nn.Linear(3, 3))
        with self.assertRaisesRegex(weir.Invalid, "'3.weight' was added or replaced"):
            next(exchange)


harness.main(__name__)
