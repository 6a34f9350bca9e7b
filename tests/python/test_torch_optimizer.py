#!/usr/bin/python3
"""weir.torch with the program's own optimizer: step() is the end of a step. The results are those
of PyTorch, for each optimizer, with accumulation, a GradScaler and averages of the weights."""
# label: cluster
import harness
import torch_case

import weir  # noqa: E402

STEPS = 12


class Optimizer(torch_case.Torch):
    def optimizers(self):
        """Returns {name: function of parameters that makes an optimizer}."""
        o = self.torch.optim
        return {
            "sgd": lambda p: o.SGD(p, 0.05, weight_decay=0.01),
            "momentum": lambda p: o.SGD(p, 0.05, momentum=0.8),
            "nesterov": lambda p: o.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.02),
            "adagrad": lambda p: o.Adagrad(p, 0.05, eps=1e-9),
            "rmsprop": lambda p: o.RMSprop(p, 0.005, alpha=0.95, momentum=0.5),
            "adam": lambda p: o.Adam(p, 0.01, betas=(0.8, 0.98), weight_decay=0.1),
            "adam decoupled": lambda p: o.Adam(p, 0.01, weight_decay=0.1,
                                               decoupled_weight_decay=True),
            "adamw": lambda p: o.AdamW(p, 0.01, eps=1e-6, weight_decay=0.2)}

    def test_each_optimizer_matches_pytorch(self):
        for name, make in self.optimizers().items():
            with self.subTest(name):
                net, want = self.net(), self.net()
                rule, other = make(net.parameters()), make(want.parameters())
                exchange = self.exchange(net, optimizer=rule, train_steps=20, batch_size=8)
                for _ in exchange:
                    items = exchange.samples(64)
                    rule.zero_grad()
                    self.loss(net, items).backward()
                    other.zero_grad()
                    self.loss(want, items).backward()
                    gradient = net[0].weight.grad
                    rule.step()
                    self.assertIs(net[0].weight.grad, gradient)
                    other.step()
                    self.close(net.state_dict(), want.state_dict())
                rule.zero_grad()
                self.loss(net, [0]).backward()
                rule.step()  # after the exchange it is PyTorch's own again
                other.zero_grad()
                self.loss(want, [0]).backward()
                self.assertFalse(self.torch.equal(net[0].weight, want[0].weight))

    def test_accumulation_and_averages_match_pytorch(self):
        """Two members, each with two backward() calls in a step, and an average of the weights."""
        swa = self.torch.optim.swa_utils
        nets = [self.net() for _ in range(2)]

        def member(i, settings):
            net, seen = nets[i], []
            rule = self.torch.optim.AdamW(net.parameters(), lr=0.01)
            ema = swa.AveragedModel(net, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
            exchange = self.exchange(net, optimizer=rule, train_steps=STEPS, **settings)
            for _ in exchange:
                seen.append(exchange.samples(64))
                for half in range(2):
                    (self.loss(net, seen[-1][half::2]) / 2).backward()
                rule.step()
                rule.zero_grad()
                ema.update_parameters(net)
            return seen, ema.state_dict()
        found = self.job(member)
        want = self.net()
        ema = swa.AveragedModel(want, multi_avg_fn=swa.get_ema_multi_avg_fn(0.9))
        self.plain(want, self.torch.optim.AdamW(want.parameters(), lr=0.01),
                   [f[0] for f in found], after=lambda _: ema.update_parameters(want))
        for net, (_, mine) in zip(nets, found):
            self.close(net.state_dict(), want.state_dict())
            self.close(mine, ema.state_dict())

    def test_grad_scaler_matches_pytorch(self):
        """A GradScaler unscales the gradients of a member before they are sent. A step that it
        leaves out adds nothing, also if the other member contributes to this step."""
        nets = [self.net() for _ in range(2)]

        def member(i, settings):
            net, seen = nets[i], []
            rule = self.torch.optim.SGD(net.parameters(), lr=0.1, fused=True)
            scaler = self.torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=3)
            exchange = self.exchange(net, optimizer=rule, train_steps=STEPS, **settings)
            for step in exchange:
                seen.append(exchange.samples(64))
                loss = self.loss(net, seen[-1])
                if i == 1 and step.step in (2, 7):
                    loss = loss * float("inf")
                rule.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(rule)
                scaler.update()
                if step.step == 7:
                    rule.zero_grad()
            return seen, scaler.get_scale()
        found = self.job(member)
        self.assertGreater(found[0][1], found[1][1])
        want, step = self.net(), iter(range(2 * STEPS))
        rule = self.torch.optim.SGD(want.parameters(), lr=0.1)

        def loss(net, items):
            n, who = divmod(next(step), 2)
            skipped = n in (2, 7)
            return self.loss(net, items) * (0 if skipped and who else 2 if skipped else 1)
        self.plain(want, rule, [f[0] for f in found], loss)
        for net in nets:
            self.close(net.state_dict(), want.state_dict())

    def test_overflow_without_step_is_skipped(self):
        """A step without optimizer.step() adds nothing if its gradients are not finite, and is an
        error otherwise."""
        net = self.net()
        rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
        exchange = self.exchange(net, optimizer=rule, train_steps=9)
        next(exchange)
        with self.assertRaisesRegex(weir.Invalid, "step.. was not called in step 0"):
            next(exchange)
        (self.loss(net, [0]) * float("inf")).backward()
        before = net[0].weight.detach().clone()
        next(exchange)
        self.assertTrue(self.torch.equal(net[0].weight, before))
        rule.zero_grad()
        self.loss(net, [0]).backward()
        rule.step()
        self.assertFalse(self.torch.equal(net[0].weight, before))
        with self.assertRaisesRegex(weir.Invalid, "step.. was called twice in step 1"):
            rule.step()

    def test_skipped_step_changes_nothing(self):
        """exchange.skip() before step() makes the step add nothing; the next step counts again."""
        net, want = self.net(), self.net()
        rule, other = (self.torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9)
                       for n in (net, want))
        exchange = self.exchange(net, optimizer=rule, train_steps=6)
        for step in exchange:
            rule.zero_grad()
            self.loss(net, [step.step]).backward()
            if step.step % 3 == 1:
                net[0].weight.grad.fill_(float("nan"))
                exchange.skip()
            else:
                other.zero_grad()
                self.loss(want, [step.step]).backward()
                other.step()
            rule.step()
            self.close(net.state_dict(), want.state_dict())

    def test_closure_is_called_once(self):
        net, want, calls = self.net(), self.net(), []
        rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
        other = self.torch.optim.SGD(want.parameters(), lr=0.1)
        for step in self.exchange(net, optimizer=rule, train_steps=4):
            def closure(of=net, by=rule, at=step.step):
                calls.append(of is net)
                by.zero_grad()
                loss = self.loss(of, [at])
                loss.backward()
                return loss
            loss = rule.step(closure)
            self.torch.testing.assert_close(loss, other.step(lambda: closure(want, other)))
        self.close(net.state_dict(), want.state_dict())
        self.assertEqual(sum(calls), 4)

    def test_unknown_options_refused(self):
        """Optimizers, options and settings that the servers do not have are refused by name."""
        net, optim = self.net(), self.torch.optim
        p = list(net.parameters())

        class Own(optim.SGD):
            pass
        for make, why in (
                (lambda: optim.Adam(p, amsgrad=True), "Adam has no option amsgrad=True"),
                (lambda: optim.SGD(p, 1, maximize=True), "maximize"),
                (lambda: optim.SGD(p, 1, momentum=0.9, dampening=0.1), "dampening=0.1"),
                (lambda: optim.RMSprop(p, centered=True), "centered"),
                (lambda: optim.Adagrad(p, lr_decay=0.1), "lr_decay"),
                (lambda: optim.NAdam(p), "no optimizer NAdam; they have torch.optim.SGD, Adam"),
                (lambda: Own(p, 1), "no optimizer Own"),
                (lambda: optim.SGD([{"params": p[:1], "momentum": 0.9}, {"params": p[1:]}], 1),
                 "different momentum .0.9 and 0"),
                (lambda: optim.SGD(p, 0.0), "learning rate is 0")):
            with self.assertRaisesRegex(weir.Invalid, why):
                self.exchange(net, optimizer=make())
        rule = optim.SGD(p, 0.1)
        for settings, why in (({"learning_rate": 1}, "learning_rate belongs to the optimizer"),
                              ({"early": True}, "early=True needs the name"),
                              ({"backwards": 2}, "backwards=2 needs the name"),
                              ({"scheduler": 3}, "scheduler= needs a scheduler of torch.optim")):
            with self.assertRaisesRegex(weir.Invalid, why):
                self.exchange(net, optimizer=rule, **settings)
        with self.assertRaisesRegex(weir.Invalid, "1 parameters that the model does not have"):
            next(self.exchange(self.torch.nn.Sequential(net[0]), optimizer=optim.SGD(p[:3], 1)))

    def test_changed_options_refused(self):
        for name, value, why in (("lr", 0.2, "rate of the optimizer is 0.2 in step 1, but the "
                                  "servers have 0.1; pass the scheduler"),
                                 ("momentum", 0.5, "momentum from 0.9 to 0.5")):
            net = self.net()
            rule = self.torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            exchange = self.exchange(net, optimizer=rule, train_steps=9)
            with self.assertRaisesRegex(weir.Invalid, why):
                for step in exchange:
                    rule.param_groups[0][name] = value if step.step else rule.defaults[name]
                    self.loss(net, [0]).backward()
                    rule.step()
            exchange.close()


harness.main(__name__)
