#!/usr/bin/python3
"""weir.torch: a parameter that no member has a gradient for in a step stays, with its state, as in
PyTorch; parameters are frozen and unfrozen during training."""
# label: cluster
import tempfile

import harness
import torch_case

import weir

STEPS = 16


class Absent(torch_case.Torch):
    def rules(self):
        """Returns the name, the settings and the PyTorch optimizer of several optimizers whose
        parameters move without gradients."""
        o = self.torch.optim
        return (("adamw", {"learning_rate": 0.01, "weight_decay": 0.1},
                 lambda p: o.AdamW(p, 0.01, weight_decay=0.1)),
                ("momentum", {"learning_rate": 0.05}, lambda p: o.SGD(p, 0.05, momentum=0.9)),
                ("rmsprop", {"learning_rate": 0.005, "momentum": 0.5},
                 lambda p: o.RMSprop(p, 0.005, momentum=0.5)))

    def both(self, prepare, loss, later=()):
        """Trains by each rule in both ways on two members, and by PyTorch. prepare(net, step):
        called before each step, and with -1 before the first. loss(net, items, step, member)."""
        for name, settings, make in self.rules():
            for own in (False, True):
                with self.subTest(name, own=own):
                    self.one(name, settings, make if own else None, make, prepare, loss, later)

    def one(self, name, settings, own, make, prepare, loss, later):
        nets = [self.net() for _ in range(2)]

        def member(i, cluster):
            net, seen = nets[i], []
            prepare(net, -1)
            rule = own(net.parameters()) if own else None
            how = {"optimizer": rule} if own else {"optimizer": name, "later": later, **settings}
            exchange = self.exchange(net, train_steps=STEPS, **how, **cluster)
            for step in exchange:
                prepare(net, step.step)
                seen.append(exchange.samples(64))
                loss(net, seen[-1], step.step, i).backward()
                if own:
                    rule.step()
                    rule.zero_grad()
            return seen
        seen, want, turns = self.job(member), self.net(), iter(range(2 * STEPS))
        prepare(want, -1)

        def alone(net, items):
            step, i = divmod(next(turns), 2)
            if i == 0:
                prepare(net, step)
            return loss(net, items, step, i)
        self.plain(want, make(want.parameters()), seen, alone)
        for net in nets:
            self.close(net.state_dict(), want.state_dict())

    def test_unused_branch_stays(self):
        """A branch that is used in every fourth step only, or by one of the members."""
        def loss(net, items, step, member):
            if step % 4 == 0 or step % 4 == 2 and member == 1:
                return self.loss(net, items)
            return (net[0](self.x[items]) ** 2).mean()
        self.both(lambda net, step: None, loss)

    def test_frozen_and_unfrozen_parameters(self):
        """The first layer is frozen at the start and trained from step 4 on; the last one is frozen
        from step 8 to 12."""
        def prepare(net, step):
            net[0].requires_grad_(step >= 4)
            net[2].requires_grad_(not 8 <= step < 12)
        self.both(prepare, lambda net, items, *_: self.loss(net, items),
                  ["0.weight", "0.bias"])

    def test_missing_gradient_in_a_region_counts_as_zeros(self):
        """A job with one region, and one with two: the last layer has no gradient after step 3, and
        momentum moves it further."""
        def loss(net, items, step):
            return self.loss(net, items) if step < 4 else (net[0](self.x[items]) ** 2).mean()

        def member(net, cluster):
            seen = []
            exchange = self.exchange(net, "momentum", learning_rate=0.05, train_steps=STEPS,
                                     **cluster)
            for step in exchange:
                self.assertEqual(step.n_regions, n_regions)
                seen.append(exchange.samples(64))
                loss(net, seen[-1], step.step).backward()
            return seen

        def with_zeros(net, items):
            for p in net.parameters():
                p.grad = self.torch.zeros_like(p) if p.grad is None else p.grad
            return loss(net, items, next(turns) // n_regions)
        for n_regions in (1, 2):
            nets, want = [self.net() for _ in range(n_regions)], self.net()
            with self.subTest(n_regions), tempfile.TemporaryDirectory() as folder:
                seen = self.job(lambda i, cluster: member(nets[i], cluster), 1, n_regions,
                                checkpoint_dir=folder,
                                region_flags=["--region_steps=1", "--outer_optimizer=sgd"])
                turns = iter(range(n_regions * STEPS))
                self.plain(want, self.torch.optim.SGD(want.parameters(), 0.05, momentum=0.9), seen,
                           with_zeros)
                for net in nets:
                    self.close(net.state_dict(), want.state_dict())

    def test_checkpoint_counts_only_updates(self):
        """A parameter had no gradient in some steps. From the checkpoint PyTorch's Adam continues
        as if it had made all steps."""
        def make(net):
            return self.torch.optim.Adam(net.parameters(), 0.05)

        def train(net, rule, steps):
            for step in steps:
                rule.zero_grad()
                (self.loss(net, range(8)) if step % 3 == 0 else net[0](self.x).mean()).backward()
                rule.step()
        net, want, other = self.net(), self.net(), self.net()
        with tempfile.TemporaryDirectory() as folder:
            with weir.Cluster(checkpoint_dir=folder) as cluster:
                rule = make(net)
                exchange = self.exchange(net, rule, train_steps=8, **cluster.settings())
                for step in exchange:
                    train(net, rule, [step.step])
                cluster.wait(20 * harness.PATIENCE)
            found = weir.torch.load_checkpoint(folder, other)
        rule = make(want)
        train(want, rule, range(8))
        self.assertEqual([float(s["step"]) for s in found["optimizer"]["state"].values()],
                         [float(rule.state[p]["step"]) for p in want.parameters()])
        again = make(other)
        again.load_state_dict({**again.state_dict(), **found["optimizer"]})
        train(want, rule, range(8, 12))
        train(other, again, range(8, 12))
        self.close(other.state_dict(), want.state_dict(), 1e-4)

    def test_unknown_later_parameter_refused(self):
        with self.assertRaisesRegex(weir.Invalid, "no parameter '7.weight'"):
            next(self.exchange(self.net(), later=["7.weight"]))
        net = self.net()
        with self.assertRaisesRegex(weir.Invalid, "later= needs the name"):
            self.exchange(net, self.torch.optim.SGD(net.parameters(), 1), later=["0.weight"])


harness.main(__name__)
