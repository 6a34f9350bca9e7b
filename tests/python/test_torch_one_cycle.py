#!/usr/bin/python3
"""lr_schedule=one_cycle and one_cycle_linear: the learning rate of each step is that of PyTorch's
OneCycleLR, read from the updates themselves."""
# label: cluster
import warnings

import harness
import torch_case


class OneCycle(torch_case.Torch):
    def rates(self, n, **settings):
        """Returns the learning rates of a job of n steps: the gradient of step k is 1 for element
        k, which is 0 before, and 0 for all other elements."""
        net = self.torch.nn.Linear(n, 1, bias=False)
        with self.torch.no_grad():
            net.weight.zero_()
        exchange = self.exchange(net, optimizer="sgd", train_steps=n, batch_size=1, **settings)
        for step in exchange:
            net.weight[0, step.step].backward()
        return [-r for r in net.weight[0].tolist()]

    def pytorch(self, n, rate, **options):
        rule = self.torch.optim.SGD([self.torch.nn.Parameter(self.torch.zeros(1))], lr=1)
        scheduler = self.torch.optim.lr_scheduler.OneCycleLR(
            rule, max_lr=rate, total_steps=n, cycle_momentum=False, **options)
        rates = []
        for _ in range(n):
            rates.append(scheduler.get_last_lr()[0])
            with warnings.catch_warnings():  # rule.step() is not called
                warnings.simplefilter("ignore")
                scheduler.step()
        return rates

    def test_rates_are_those_of_pytorch(self):
        for name, strategy in (("one_cycle", "cos"), ("one_cycle_linear", "linear")):
            for n, warm in ((235, 0), (100, 0), (60, 24), (3, 0), (1, 0)):
                with self.subTest(schedule=name, steps=n, warm=warm):
                    got = self.rates(n, lr_schedule=name, learning_rate=0.5, lr_warmup_steps=warm)
                    options = {"pct_start": warm / n} if warm else {}
                    want = self.pytorch(n, 0.5, anneal_strategy=strategy, **options)
                    self.assertEqual(len(got), n)
                    for a, b in zip(got, want):
                        self.assertLess(abs(a - b), 1e-6 * b)


harness.main(__name__)
