#!/usr/bin/python3
"""weir.torch: several PyTorch optimizers in one exchange, as of a GAN: each step is that of one of
them, and the other parameters, their moments and Adam's counts stay, as in PyTorch."""
# label: cluster
import tempfile

import harness
import torch_case

import weir

STEPS = 15


class Several(torch_case.Torch):
    def networks(self):
        nn = self.torch.nn
        return nn.ModuleDict({"critic": self.net(), "generator": nn.Sequential(
            nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8))})

    def rules(self):
        """Yields functions that return the optimizer of each of two networks."""
        o = self.torch.optim
        yield lambda n: o.Adam(n.parameters(), 0.002 * n[0].in_features,
                               betas=(0.5, 0.99))
        yield lambda n: o.AdamW(n.parameters(), 0.01, weight_decay=0.1 * (1 + n[0].in_features))
        yield lambda n: o.SGD([{"params": list(n.parameters())[:1], "lr": 0.02},
                               {"params": list(n.parameters())[1:]}], 0.05, momentum=0.9)

    def turn(self, step):
        """Returns the network whose turn it is; the critic's has two steps of three."""
        return "generator" if step % 3 == 2 else "critic"

    def gan_loss(self, nets, items, step):
        """Returns the loss of a network. That of the generator leaves gradients in the critic,
        too."""
        fake = nets["generator"](self.x[items][:, :4])
        if self.turn(step) == "critic":
            return (nets["critic"](fake.detach()) ** 2).mean() + self.loss(nets["critic"], items)
        return -nets["critic"](fake).mean()

    def train(self, nets, make, seen, settings, **more):
        rules = {name: make(net) for name, net in nets.items()}
        exchange = self.exchange(nets, optimizer=tuple(rules.values()), train_steps=STEPS,
                                 **{**settings, **more})
        for step in exchange:
            rule = rules[self.turn(step.step)]
            seen.append(exchange.samples(64))
            rule.zero_grad()
            self.gan_loss(nets, seen[-1], step.step).backward()
            rule.step()

    def plain_gan(self, nets, make, seen, factor=lambda step: 1):
        """Trains by PyTorch alone, by the mean of the members' losses."""
        rules = {name: make(net) for name, net in nets.items()}
        rates = {name: [g["lr"] for g in rule.param_groups] for name, rule in rules.items()}
        for step, items in enumerate(zip(*seen)):
            name = self.turn(step)
            for group, rate in zip(rules[name].param_groups, rates[name]):
                group["lr"] = rate * factor(step)
            rules[name].zero_grad()
            for mine in items:
                (self.gan_loss(nets, mine, step) / len(items)).backward()
            rules[name].step()

    def test_gan_matches_pytorch(self):
        for i, make in enumerate(self.rules()):
            with self.subTest(i):
                nets, seen = [self.networks() for _ in range(2)], [[], []]
                self.job(lambda k, settings: self.train(nets[k], make, seen[k], settings))
                want = self.networks()
                self.plain_gan(want, make, seen)
                for net in nets:
                    self.close(net.state_dict(), want.state_dict())

    def test_schedule_is_for_all_optimizers(self):
        make, nets, seen = next(self.rules()), self.networks(), []
        self.train(nets, make, seen, {"batch_size": 8}, scheduler=lambda step: 0.9 ** step)
        want = self.networks()
        self.plain_gan(want, make, [seen], lambda step: 0.9 ** step)
        self.close(nets.state_dict(), want.state_dict())

    def test_unfit_optimizers_refused(self):
        o, nets = self.torch.optim, self.networks()
        first, second = (list(nets[n].parameters()) for n in ("critic", "generator"))
        linear = o.lr_scheduler.LinearLR(o.SGD(first, 1))
        for rules, more, why in (
                ([], {}, "empty list"),
                ([o.SGD(first, 1), o.Adam(second)], {}, "different classes, SGD and Adam"),
                ([o.SGD(first, 1), o.NAdam(second)], {}, "no optimizer NAdam"),
                ([o.Adam(first), o.Adam(second, betas=(0.5, 0.9))], {},
                 r"optimizers' groups have different betas \(\(0.9, 0.999\) and \(0.5, 0.9\)\)"),
                ([linear.optimizer, o.SGD(second, 1)], {"scheduler": linear},
                 "with several optimizers scheduler= must be a function"),
                ([o.SGD(first, 1), o.SGD(second, 1)], {"local_steps": 2}, "a single optimizer")):
            with self.assertRaisesRegex(weir.Invalid, why):
                self.exchange(nets, optimizer=rules, **more)
        with self.assertRaisesRegex(weir.Invalid, "'critic.0.weight' is in two of the optimizers"):
            next(self.exchange(nets, optimizer=[o.SGD(first, 1), o.SGD(first + second, 1)]))

    def test_second_step_refused(self):
        """Both optimizers make a step after one backward. One optimizer with groups is the way."""
        nets = self.networks()
        rules = [self.torch.optim.SGD(n.parameters(), 0.1) for n in nets.values()]
        exchange = self.exchange(nets, optimizer=rules, train_steps=2)
        for step in exchange:
            self.gan_loss(nets, [0], step.step).backward()
            rules[0].step()
            with self.assertRaisesRegex(weir.Invalid, "twice in step 0, of two optimizers; "):
                rules[1].step()
            break
        exchange.close()

    def test_regions_refused(self):
        nets = self.networks()
        rules = [self.torch.optim.SGD(n.parameters(), 0.1) for n in nets.values()]
        with tempfile.TemporaryDirectory() as folder, weir.Cluster(
                regions=1, checkpoint_dir=folder) as cluster:
            exchange = self.exchange(nets, optimizer=rules, train_steps=2, **cluster.settings())
            with self.assertRaisesRegex(weir.Invalid, "several optimizers do not fit regions"):
                next(exchange)
            exchange.close()


harness.main(__name__)
