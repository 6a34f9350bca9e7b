#!/usr/bin/python3
"""weir.torch: the groups and the scheduler of a PyTorch optimizer set the servers' rate and weight
decay of each parameter in each step, as in PyTorch."""
# label: cluster
import math
import re
import sys
import warnings

import harness
import torch_case

import weir  # noqa: E402

STEPS = 16


def warm_cosine(step):
    """Returns the factor of a warm-up and a cosine."""
    if step < 4:
        return (step + 1) / 4
    return 0.5 * (1 + math.cos(math.pi * (step - 4) / (STEPS - 4)))


class Groups(torch_case.Torch):
    def groups(self, net):
        """Returns three groups: with decay, without, and one with its own rate."""
        return [{"params": [net[0].weight], "weight_decay": 0.2},
                {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0},
                {"params": [net[2].weight], "lr": 0.002, "weight_decay": 0.05}]

    def schedulers(self):
        """Returns {name: function of an optimizer that makes a scheduler}."""
        s = self.torch.optim.lr_scheduler
        return {
            "lambda": lambda o: s.LambdaLR(o, warm_cosine),
            "multiplicative": lambda o: s.MultiplicativeLR(o, lambda step: 0.9),
            "step": lambda o: s.StepLR(o, 5, 0.3),
            "steps": lambda o: s.MultiStepLR(o, [3, 9], 0.3),
            "constant": lambda o: s.ConstantLR(o, 0.2, 4),
            "linear": lambda o: s.LinearLR(o, 0.1, 1.0, 6),
            "exponential": lambda o: s.ExponentialLR(o, 0.8),
            "polynomial": lambda o: s.PolynomialLR(o, 12, 2.0),
            "cosine": lambda o: s.CosineAnnealingLR(o, 12),
            "restarts": lambda o: s.CosineAnnealingWarmRestarts(o, 5),
            "sequence": lambda o: s.SequentialLR(o, [
                s.LinearLR(o, 0.1, 1.0, 4), s.CosineAnnealingLR(o, STEPS - 4)], [4]),
            "chain": lambda o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3),
                                                   s.ExponentialLR(o, 0.9)])}

    def test_groups_and_schedule_match_pytorch(self):
        """AdamW with three groups, a warm-up and a cosine, on two members."""
        nets = [self.net() for _ in range(2)]

        def made(net):
            rule = self.torch.optim.AdamW(self.groups(net), lr=0.01)
            return rule, self.torch.optim.lr_scheduler.LambdaLR(rule, warm_cosine)

        def member(i, settings):
            rule, scheduler = made(nets[i])
            exchange = self.exchange(nets[i], optimizer=rule, scheduler=scheduler,
                                     train_steps=STEPS, **settings)
            seen, rates = [], []
            for _ in exchange:
                seen.append(exchange.samples(64))
                self.loss(nets[i], seen[-1]).backward()
                rates.append([g["lr"] for g in rule.param_groups])
                rule.step()
                scheduler.step()
                rule.zero_grad()
            return seen, rates
        found = self.job(member)
        want = self.net()
        rule, scheduler = made(want)
        rates = [[g["lr"] for g in rule.param_groups]]

        def after(_step):
            scheduler.step()
            rates.append([g["lr"] for g in rule.param_groups])
        self.plain(want, rule, [f[0] for f in found], after=after)
        for net, (_, mine) in zip(nets, found):
            self.close(net.state_dict(), want.state_dict())
            for a, b in zip(mine, rates):
                self.torch.testing.assert_close(a, b)

    def test_each_scheduler_matches_pytorch(self):
        for name, make in self.schedulers().items():
            with self.subTest(name):
                net, want = self.net(), self.net()
                rule, other = (self.torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9)
                               for n in (net, want))
                scheduler, same = make(rule), make(other)
                exchange = self.exchange(net, optimizer=rule, scheduler=scheduler, batch_size=8,
                                         train_steps=STEPS)
                for _ in exchange:
                    items = exchange.samples(64)
                    for n, by, then in ((net, rule, scheduler), (want, other, same)):
                        by.zero_grad()
                        self.loss(n, items).backward()
                        by.step()
                        then.step()
                    self.close(net.state_dict(), want.state_dict())

    def test_function_is_a_schedule(self):
        """A function of the step's number sets the rate, for example to find a good one."""
        net, want = self.net(), self.net()
        rule, other = (self.torch.optim.SGD(n.parameters(), lr=1e-4) for n in (net, want))
        for step in self.exchange(net, optimizer=rule, scheduler=lambda step: 1.5 ** step,
                                  train_steps=STEPS):
            other.param_groups[0]["lr"] = 1e-4 * 1.5 ** step.step
            for n, by in ((net, rule), (want, other)):
                by.zero_grad()
                self.loss(n, [step.step]).backward()
                by.step()
        self.close(net.state_dict(), want.state_dict())

    def test_scheduler_of_epochs_matches_pytorch(self):
        """The scheduler's step() is called once in four steps."""
        net, want = self.net(), self.net()
        rule, other = (self.torch.optim.SGD(n.parameters(), lr=0.1) for n in (net, want))
        scheduler, same = (self.torch.optim.lr_scheduler.ExponentialLR(r, 0.5)
                           for r in (rule, other))
        for step in self.exchange(net, optimizer=rule, scheduler=scheduler, scheduler_steps=4,
                                  train_steps=STEPS):
            for n, by, then in ((net, rule, scheduler), (want, other, same)):
                by.zero_grad()
                self.loss(n, [step.step]).backward()
                by.step()
                if step.step % 4 == 3:
                    then.step()
        self.close(net.state_dict(), want.state_dict())

    def test_wrong_pace_refused(self):
        """A scheduler that is called too rarely, or not at all, is an error in the second step."""
        for every in (2, 99):
            net = self.net()
            rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
            scheduler = self.torch.optim.lr_scheduler.ExponentialLR(rule, 0.5)
            exchange = self.exchange(net, optimizer=rule, scheduler=scheduler, train_steps=9)
            with self.assertRaisesRegex(weir.Invalid, "scheduler.step.. 0 times in 1 steps.*"
                                        "scheduler_steps=N"):
                for step in exchange:
                    self.loss(net, [0]).backward()
                    rule.step()
                    if step.step % every == every - 1:
                        scheduler.step()
            self.assertEqual(exchange.step.step, 1)
            exchange.close()

    def test_unknown_schedules_refused(self):
        schedulers, net = self.torch.optim.lr_scheduler, self.net()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for make, why in (
                    (lambda o: schedulers.ReduceLROnPlateau(o), "depends on the losses of one"),
                    (lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=20),
                     "OneCycleLR also changes other options.*cycle_momentum=False"),
                    (lambda o: schedulers.LambdaLR(o, [lambda n: 1.0, lambda n: 0.5 ** n]),
                     "by different factors"),
                    (lambda o: schedulers.StepLR(self.torch.optim.SGD(net.parameters(), 1), 2),
                     "belongs to another optimizer")):
                rule = self.torch.optim.SGD([{"params": list(net[0].parameters())},
                                             {"params": list(net[2].parameters())}], 0.1,
                                            momentum=0.9)
                with self.assertRaisesRegex(weir.Invalid, why):
                    exchange = self.exchange(net, optimizer=rule, scheduler=make(rule),
                                             train_steps=9)
                    for _ in range(9):
                        exchange._way.schedule.factor(_, 9)

    def test_repeated_step_has_its_rate(self):
        rule = self.torch.optim.SGD(self.net().parameters(), lr=0.1)
        scheduler = self.torch.optim.lr_scheduler.ExponentialLR(rule, 0.5)
        from weir.torch._schedule import Schedule
        schedule = Schedule(scheduler, rule, [0.1], 1)
        self.assertEqual([schedule.factor(i, 9) for i in (5, 2, 3, 0)], [1 / 32, 1 / 4, 1 / 8, 1])
        self.assertEqual(rule.param_groups[0]["lr"], 0.1)

    def test_length_of_a_schedule_is_compared(self):
        """A schedule for the steps of one process has another length than the job."""
        from weir.torch._schedule import Schedule
        schedulers = self.torch.optim.lr_scheduler
        for make, every, steps, said in (
                (lambda o: schedulers.CosineAnnealingLR(o, 40), 1, 20,
                 "CosineAnnealingLR has T_max=40, but the job calls its step() 20 times: the job "
                 "ends before"),
                (lambda o: schedulers.OneCycleLR(o, 0.1, total_steps=10, cycle_momentum=False), 1,
                 20, "total_steps=10, but the job calls its step() 20 times: the schedule ends"),
                (lambda o: schedulers.CosineAnnealingLR(o, 10), 2, 20, None),
                (lambda o: schedulers.StepLR(o, 40), 1, 20, None)):
            rule = self.torch.optim.SGD(self.net().parameters(), lr=0.1)
            schedule, lines = Schedule(make(rule), rule, [0.1], every), []
            weir.log(lambda _level, text, to=lines: to.append(text))
            try:
                for step in range(3):
                    schedule.factor(step, steps)
            finally:
                weir.log(None)
            self.assertEqual(len(lines), said is not None)
            self.assertIn(said or "", " ".join(lines))

    def test_kills_change_no_bit(self):
        """A worker and the server are killed and started again. The steps that are repeated have
        the rates of the first time, so the weights have the same bits."""
        command = [sys.executable, harness.source("tests/python/torch_rates.py")]

        def bits(*kills):
            folder = "%s/%d" % (self.dir(), len(kills))
            with weir.Cluster(n_workers=2, command=command, checkpoint_dir=folder,
                              ps_flags=["--save_steps=10"]) as cluster:
                for n, name in enumerate(kills):
                    at = "step %d " % (15 + 20 * n)
                    harness.until(lambda a=at: a in cluster.output("worker:0"), at)
                    cluster.kill(name)
                    kind, task = name.split(":")
                    (cluster.start_ps if kind == "ps" else cluster.start_worker)(int(task))
                cluster.wait(60 * harness.PATIENCE)
                return {re.search(r"SHA-256 of the weights: (\w+)",
                                  cluster.output("worker:%d" % i)).group(1) for i in range(2)}
        undisturbed = bits()
        self.assertEqual(len(undisturbed), 1)
        self.assertEqual(bits("worker:1", "ps:0"), undisturbed)


harness.main(__name__)
