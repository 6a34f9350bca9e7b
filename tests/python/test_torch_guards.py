#!/usr/bin/python3
"""weir.torch: calls of a PyTorch script that would do nothing with servers raise an error with the
replacement, and do not change for parameters that no exchange trains."""
# label: cluster
import contextlib
import io
import warnings

from torch_case import Torch

import harness
import weir  # noqa: E402


class Guards(Torch):
    def began(self, net, optimizer="sgd", **settings):
        exchange = self.exchange(net, optimizer=optimizer, train_steps=9, **settings)
        next(exchange)
        return exchange

    def test_step_of_other_optimizer_refused(self):
        net, free = self.net(), self.net()
        left, own = (self.torch.optim.SGD(n.parameters(), lr=0.1) for n in (net, free))
        with self.began(net) as exchange:
            with self.assertRaisesRegex(weir.Invalid, "a SGD whose parameters an exchange trains; "
                                        ".*optimizer=optimizer"):
                left.step()
            self.loss(free, [0]).backward()
            own.step()
            exchange.close()
        left.step()

    def test_second_optimizer_of_the_model_refused(self):
        """A GAN's second optimizer, which was not passed, would train each member's own network."""
        both = self.torch.nn.ModuleDict({"g": self.net(), "d": self.net()})
        rules = [self.torch.optim.SGD(both[n].parameters(), lr=0.1) for n in ("g", "d")]
        with self.began(both, rules[0]) as exchange:
            with self.assertRaisesRegex(weir.Invalid, r"a SGD that has parameter 'd\..* of the "
                                        "exchange's model.*optimizer=.first, second"):
                rules[1].step()
            exchange.close()

    def test_optimizer_outside_of_the_job_warned_of(self):
        free = self.net()
        own = self.torch.optim.SGD(free.parameters(), lr=0.1)
        with weir.Cluster() as cluster, self.began(self.net(), **cluster.settings()) as exchange:
            with self.assertWarnsRegex(UserWarning, "each member of the job trains them by itself"):
                own.step()
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                own.step()
            exchange.close()

    def test_late_change_by_data_refused_in_the_last_step(self):
        net = self.net()
        exchange = self.exchange(net, optimizer="sgd", train_steps=9)
        with self.assertRaisesRegex(weir.Invalid, "has changed parameter"):
            for step in exchange:
                self.loss(net, [0]).backward()
                if step.step > 4:
                    next(net.parameters()).data.clamp_(-0.001, 0.001)
        self.assertEqual(step.step, 8)

    def test_step_of_local_optimizer_refused(self):
        net = self.net()
        rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
        with weir.Cluster() as cluster:
            exchange = self.exchange(net, rule, local_steps=2, batch_size=8, train_steps=2,
                                     **cluster.settings())
            scheduler = self.torch.optim.lr_scheduler.ExponentialLR(rule, 0.5)
            for _ in exchange:
                self.loss(net, [0]).backward()
                self.torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
                with self.assertRaisesRegex(weir.Invalid, "calls step.. of this optimizer itself"):
                    rule.step()
                scheduler.step()
            cluster.wait(20 * harness.PATIENCE)

    def test_scheduler_without_effect_refused(self):
        schedulers = self.torch.optim.lr_scheduler
        for optimizer in (False, True):
            for kind, more in ((schedulers.ExponentialLR, (0.5,)),
                               (schedulers.ReduceLROnPlateau, ())):
                net = self.net()
                rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
                scheduler = kind(rule, *more)
                exchange = self.began(net, **({"optimizer": rule} if optimizer else {}))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with self.assertRaisesRegex(weir.Invalid, "does not reach the servers.*"
                                                "scheduler=scheduler"):
                        scheduler.step(*(() if more else (1.0,)))
                exchange.close()

    def test_clipping_refused_or_left_to_servers(self):
        """Gradients of one member are not clipped, also by a function that was imported before. If
        the servers clip with the same bound, the call returns the norm of the member's gradients.
        """
        from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # before the first exchange
        utils, free = self.torch.nn.utils, self.net()

        def refused(exchange, net):
            for call, why in (
                    (lambda n: clip_grad_norm_(n.parameters(), 0.1), "clip_norm=0.1"),
                    (lambda n: utils.clip_grad_norm_(n.parameters(), 0.5, float("inf")), "2-norm"),
                    (lambda n: clip_grad_value_(n.parameters(), 0.01), "clip_value=0.01"),
                    (lambda n: utils.clip_grads_with_norm_(
                        n.parameters(), 0.1, self.torch.tensor(1.)), "clip_norm=0.1")):
                with self.assertRaisesRegex(weir.Invalid, why):
                    call(net)
                self.loss(free, [0]).backward()
                before = free[2].bias.grad.clone()
                call(free)
                self.assertFalse(self.torch.equal(before, free[2].bias.grad))
                free.zero_grad()
            del exchange

        def member(own):
            def run(_i, settings):
                net, want = self.net(), self.net()
                rule, other = (self.torch.optim.SGD(n.parameters(), lr=0.1) for n in (net, want))
                more = {"optimizer": rule} if own else {"optimizer": "sgd", "learning_rate": 0.1}
                exchange = self.exchange(net, clip_norm=0.5, train_steps=3, **more, **settings)
                for _ in exchange:
                    items = exchange.samples(64)
                    refused(exchange, net)
                    rule.zero_grad()
                    (10 * self.loss(net, items)).backward()
                    norm = clip_grad_norm_(net.parameters(), 0.5)
                    other.zero_grad()
                    (10 * self.loss(want, items)).backward()
                    length = utils.clip_grad_norm_(want.parameters(), 0.5)
                    other.step()
                    if own:
                        self.torch.testing.assert_close(norm, length)
                        rule.step()
                self.close(net.state_dict(), want.state_dict())
            return run
        for own in (False, True):
            self.job(member(own), 1)

    def test_clipping_without_servers_is_that_of_pytorch(self):
        net, want = self.net(), self.net()
        rules = [self.torch.optim.SGD(n.parameters(), lr=0.1) for n in (net, want)]
        for _ in self.exchange(net, optimizer=rules[0], train_steps=3):
            for n, rule in zip((net, want), rules):
                rule.zero_grad()
                self.loss(n, range(8)).backward()
                self.torch.nn.utils.clip_grad_norm_(n.parameters(), 0.1)
                rule.step()
        self.close(net.state_dict(), want.state_dict())

    def test_scaled_loss_refused_by_name(self):
        net, free = self.net(), self.net()
        scaler = self.torch.amp.GradScaler("cpu")
        exchange = self.began(net)
        scaler.scale(self.loss(free, [0])).backward()
        with self.assertRaisesRegex(weir.Invalid, "scaled gradients to the servers.*optimizer="):
            self.torch.amp.GradScaler("cpu").scale(self.loss(net, [0]))
        off = self.torch.amp.GradScaler("cpu", enabled=False)
        off.scale(self.loss(net, [0])).backward()
        next(exchange)


class Ends(Torch):
    def test_end_without_all_steps_is_explained(self):
        """A member that leaves prints why its steps end, or sends the line to weir.log()."""
        def member(i, settings):
            net = self.net()
            exchange = self.exchange(net, optimizer="sgd", train_steps=2000, **settings)
            for step in exchange:
                self.loss(net, exchange.samples(64)).backward()
                if i == 1 and step.step == 3:
                    exchange.leave_soon()
                elif i == 0 and step.n_members == 1 and exchange.counts:
                    exchange.stop_job()
            return exchange.result

        def run():
            self.assertEqual(self.job(member), ["done", "left"])
        printed, lines = io.StringIO(), []
        with contextlib.redirect_stderr(printed):
            run()
        self.assertIn("weir: this member left the job after", printed.getvalue())
        weir.log(lambda _level, text: lines.append(text))
        try:
            with contextlib.redirect_stderr(printed):
                run()
                weir.log(None)
                run()
        finally:
            weir.log(None)
        self.assertEqual(len([text for text in lines if "this member left the job" in text]), 1)
        self.assertEqual(printed.getvalue().count("this member left"), 1)

    def test_loop_after_the_last_step_is_named(self):
        """A loop over epochs around a loop over the exchange, here by Sampler."""
        import weir.torch  # pylint: disable=redefined-outer-name
        net, lines = self.net(), []
        data = self.torch.utils.data.TensorDataset(self.x, self.y)
        exchange = self.exchange(net, optimizer="sgd", train_steps=4, batch_size=8)
        loader = self.torch.utils.data.DataLoader(data, batch_sampler=weir.torch.Sampler(exchange,
                                                                                         data))
        weir.log(lambda _level, text: lines.append(text))
        try:
            for _epoch in range(2):
                self.assertNotIn("makes no step", " ".join(lines))
                for x, y in loader:
                    self.torch.nn.functional.mse_loss(net(x), y).backward()
        finally:
            weir.log(None)
        self.assertEqual(" ".join(lines).count("this loop makes no step"), 1)


harness.main(__name__)
