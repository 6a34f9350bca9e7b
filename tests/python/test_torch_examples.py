#!/usr/bin/python3
"""The examples of a GAN, for PyTorch Lightning and for Hugging Face's Trainer train on a server and
two workers, which end with the same weights. Skips those whose packages are not installed."""
# label: cluster long
import importlib.util
import os
import re
import sys

import harness
import torch_case

import weir

EXAMPLES = harness.source("examples/python")


class Examples(torch_case.Torch):
    def trained(self, program, *needs, flags=()):
        """Runs an example with two workers. Returns the losses that worker 0 has printed."""
        for name in needs:
            if importlib.util.find_spec(name) is None:
                self.skipTest("%s is not installed" % name)
        command = [sys.executable, os.path.join(EXAMPLES, program), *flags]
        with weir.Cluster(n_workers=2, command=command) as cluster:
            cluster.wait(120 * harness.PATIENCE)
            said = [cluster.output("worker:%d" % i) for i in range(2)]
        bits = {re.search(r"SHA-256 of the weights: (\w+)", text).group(1) for text in said}
        self.assertEqual(len(bits), 1)
        return [float(v) for v in re.findall(r"step \d+ loss (\S+)", said[0])]

    def test_lightning_trains(self):
        losses = self.trained("lightning_weir.py", "lightning")
        self.assertEqual(len(losses), 100)
        self.assertLess(sum(losses[-20:]), 0.7 * sum(losses[:20]))

    def test_trainer_trains(self):
        losses = self.trained("trainer_weir.py", "transformers", "accelerate",
                              flags=["--clip_norm=1"])
        self.assertEqual(len(losses), 6)
        self.assertLess(losses[-1], 0.5 * losses[0])

    def test_gan_trains(self):
        self.assertEqual(len(self.trained("gan_weir.py")), 400)

    def test_gan_matches_pytorch(self):
        """The network whose turn it is not stays, and Adam does not count the step for it."""
        sys.path.insert(0, EXAMPLES)
        import gan_weir as gan  # pylint: disable=import-error,import-outside-toplevel
        nets, data = [gan.networks() for _ in range(2)], gan.ring()

        def member(i, settings):
            seen, rules = [], gan.optimizers_of(nets[i])
            exchange = self.exchange(nets[i], optimizer=list(rules.values()), train_steps=12,
                                     **settings)
            for step in exchange:
                rule = rules[gan.turn(step.step)]
                rule.zero_grad()
                seen.append(exchange.samples(data))
                z = gan.noise(seen[-1], step.step)
                gan.loss_of(nets[i], data[seen[-1]], z, step.step).backward()
                rule.step()
            return seen
        seen, want = self.job(member), gan.networks()
        rules = gan.optimizers_of(want)
        for step, items in enumerate(zip(*seen)):
            rule = rules[gan.turn(step)]
            rule.zero_grad()
            for mine in items:
                z = gan.noise(mine, step)
                (gan.loss_of(want, data[mine], z, step) / len(items)).backward()
            rule.step()
        for net in nets:
            self.close(net.state_dict(), want.state_dict())


harness.main(__name__)
