#!/usr/bin/python3
"""weir.torch: scripts of several kinds train on a server and two members as in PyTorch alone, on
the same samples: a CNN with batch normalization and averaged weights, a GPT, a frozen backbone,
autocast and activation checkpoints, early stopping with the best weights."""
# label: cluster
import copy
import sys

import harness
import torch_case



STEPS = 10


class Scripts(torch_case.Torch):
    def both(self, make, optimizer, loss=None, steps=STEPS, each=None, **settings):
        """Trains the network of make() by two members, which have their own optimizer, and by
        PyTorch alone. Checks that all have the same values. each(net): called after each step."""
        nets = [make() for _ in range(2)]

        def member(i, cluster):
            net, seen = nets[i], []
            rule = optimizer(net)
            exchange = self.exchange(net, optimizer=rule, train_steps=steps, **settings, **cluster)
            for _ in exchange:
                seen.append(exchange.samples(64))
                (loss or self.loss)(net, seen[-1]).backward()
                rule.step()
                rule.zero_grad()
                if each:
                    each(net)
            return seen
        seen = self.job(member)
        want = make()
        self.plain(want, optimizer(want), seen, loss, lambda _: each(want) if each else None)
        for net in nets:
            self.close(net.state_dict(), want.state_dict())
        return want

    def adamw(self, net):
        """Returns an optimizer of the parameters that require gradients."""
        return self.torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)

    def test_cnn_with_batch_normalization_matches(self):
        """The members' running statistics are averaged in each step."""
        nn, torch = self.torch.nn, self.torch
        x = torch.randn(64, 1, 6, 6)
        first, start = {}, {}  # statistics after the turn of member 0, and before the step

        def make():
            torch.manual_seed(4)
            return nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
                                 nn.Flatten(), nn.Linear(64, 3))

        def loss(net, items):
            return nn.functional.mse_loss(net(x[items]), self.y[items])

        def turn(i):
            """Each member begins a step with the same statistics."""
            (first if i else start).update({k: b.clone() for k, b in want.named_buffers()})
            for k, b in want.named_buffers():
                b.copy_(start[k])

        def after(_step):
            for k, b in want.named_buffers():
                if b.is_floating_point():
                    b.copy_((b + first[k]) / 2)
            ema.update_parameters(want)
        nets, averages = [make() for _ in range(2)], []
        swa = torch.optim.swa_utils

        def average(net):
            return swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))

        def member(i, settings):
            rule, ema, seen = self.adamw(nets[i]), average(nets[i]), []
            exchange = self.exchange(nets[i], optimizer=rule, train_steps=STEPS, **settings)
            for _ in exchange:
                seen.append(exchange.samples(64))
                rule.zero_grad()
                loss(nets[i], seen[-1]).backward()
                rule.step()
                ema.update_parameters(nets[i])
            averages.append(ema.state_dict())
            return seen
        seen, want = self.job(member), make()
        ema = average(want)
        self.plain(want, self.adamw(want), seen, loss, after, turn)
        for net, mine in zip(nets, averages):
            self.close(net.state_dict(), want.state_dict(), atol=1e-5)
            self.close({k: v for k, v in mine.items() if "running" not in k},
                       {k: v for k, v in ema.state_dict().items() if "running" not in k}, atol=1e-5)

    def test_gpt_matches(self):
        """The GPT of the examples, which has a parameter in two places."""
        sys.path.insert(0, harness.source("examples/python"))
        import char_gpt as gpt  # pylint: disable=import-error,import-outside-toplevel
        torch = self.torch
        data = torch.tensor([gpt.LETTERS.index(c) for c in gpt.TEXT[:400]])

        def make():
            torch.manual_seed(4)
            return gpt.GPT()

        def loss(net, items):
            x, y = (torch.stack([data[i + k:i + k + 16] for i in items]) for k in (0, 1))
            return torch.nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        # Adam would enlarge the rounding of gradients that are 0 (biases of keys).
        self.both(make, lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), loss)

    def test_frozen_backbone_matches(self):
        """Only the head is trained, by an optimizer over the head or over all parameters."""
        def make():
            net = self.net()
            net[0].requires_grad_(False)
            return net
        first = make()[0].weight
        for optimizer in (self.adamw, lambda net: self.torch.optim.AdamW(net[2].parameters()),
                          lambda net: self.torch.optim.AdamW(net.parameters())):
            self.assertTrue(self.torch.equal(self.both(make, optimizer)[0].weight, first))

    def test_autocast_and_checkpoints_match(self):
        from torch.utils.checkpoint import checkpoint
        torch = self.torch

        def autocast(dtype):
            def loss(net, items):
                with torch.autocast("cpu", dtype=dtype):
                    out = net(self.x[items])
                return torch.nn.functional.mse_loss(out.float(), self.y[items])
            return loss

        def checkpointed(reentrant):
            def loss(net, items):
                x = self.x[items].clone().requires_grad_()
                hidden = checkpoint(net[:2], x, use_reentrant=reentrant)
                return torch.nn.functional.mse_loss(net[2](hidden), self.y[items])
            return loss
        for loss in (autocast(torch.bfloat16), autocast(torch.float16), checkpointed(False),
                     checkpointed(True)):
            self.both(self.net, lambda net: torch.optim.SGD(net.parameters(), lr=0.1), loss)

    def test_compiled_network_matches(self):
        for backend in ("eager", "aot_eager"):
            self.both(lambda b=backend: self.torch.compile(self.net(), backend=b), self.adamw)

    def test_early_stop_keeps_best_weights(self):
        """Member 0 evaluates after each step, keeps the best weights, and stops the job. After its
        end the program loads them."""
        torch, nets = self.torch, [self.net() for _ in range(2)]

        def evaluate(net):
            net.eval()
            with torch.no_grad():
                found = self.loss(net, range(48, 64)).item()
            net.train()
            return found

        def rule(net):
            return torch.optim.SGD(net.parameters(), lr=1.2)

        def member(i, settings):
            net, seen, best, losses = nets[i], [], None, []
            by = rule(net)
            exchange = self.exchange(net, optimizer=by, train_steps=1000, **settings)
            for _ in exchange:
                seen.append(exchange.samples(48))
                by.zero_grad()
                self.loss(net, seen[-1]).backward()
                by.step()
                if not exchange.counts:
                    continue  # the job has ended in this step
                losses.append(evaluate(net))
                if losses[-1] == min(losses):
                    best = copy.deepcopy(net.state_dict())
                elif i == 0 and len(losses) == 12:
                    exchange.stop_job()
            net.load_state_dict(best)
            return seen[:len(losses)], losses, exchange.result
        found = self.job(member)
        self.assertEqual([f[2] for f in found], ["done", "done"])
        steps = min(len(f[0]) for f in found)
        self.assertLess(steps, 1000)
        want, losses, best = self.net(), [], []

        def after(_step):
            losses.append(evaluate(want))
            if losses[-1] == min(losses):
                best[:] = [copy.deepcopy(want.state_dict())]
        self.plain(want, rule(want), [f[0][:steps] for f in found], after=after)
        for mine, (_, seen_losses, _) in zip(nets, found):
            torch.testing.assert_close(torch.tensor(seen_losses[:steps]), torch.tensor(losses),
                                       rtol=1e-4, atol=1e-5)
            self.close(mine.state_dict(), best[0], rtol=1e-4, atol=1e-5)


harness.main(__name__)
