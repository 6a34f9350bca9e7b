#!/usr/bin/python3
"""examples/python/clicks_weir.py: a server and two members reach the AUC of one PyTorch process
with the same samples, and killed processes change no bit."""
# label: cluster long
import os
import re
import signal
import sys

import harness
import torch_case

import weir

EXAMPLES = harness.source("examples/python")


class Clicks(torch_case.Torch):
    def setUp(self):
        super().setUp()
        self.data = self.path("clicks")
        harness.check_output([harness.source("scripts/make_data"), "--clicks", "--out=" + self.data,
                              "--train=20000", "--test=5000"])

    def test_auc_is_that_of_pytorch(self):
        sys.path.insert(0, EXAMPLES)
        import clicks  # pylint: disable=import-error,import-outside-toplevel
        from weir.torch import Embedding
        t, steps = self.torch, 60
        (keys, dense, labels), test = (clicks.load("%s/%s.safetensors" % (self.data, part))
                                       for part in ("train", "test"))
        words = t.cat([keys.flatten(), test[0].flatten()]).unique()

        def network(rows):
            t.manual_seed(1)
            return clicks.Net(rows)

        def optimizer(net):
            return t.optim.Adagrad(net.parameters(), lr=0.05, eps=clicks.EPSILON)

        def loss(net, k, items):
            return t.nn.functional.binary_cross_entropy_with_logits(
                net(k[items], dense[items]), labels[items])

        # The threads of the members would use PyTorch's random numbers at the same time.
        nets = [network(Embedding(1000000, clicks.DIM, name="keys", init="uniform",
                                  init_scale=0.05)) for _ in range(2)]

        def member(i, settings):
            net = nets[i]
            rule, seen, first, found = optimizer(net), [], None, None
            exchange = self.exchange(net, optimizer=rule, train_steps=steps,
                                     **{**settings, "batch_size": 128})
            for step in exchange:
                if step.step == 0 and i == 0:
                    with t.no_grad():
                        first = t.cat([net.rows(part) for part in words.split(20000)])
                seen.append(exchange.samples(labels))
                rule.zero_grad()
                loss(net, keys, seen[-1]).backward()
                exchange.reads(net.rows, keys[exchange.next_samples(labels)])
                rule.step()
                if step.step + 1 == step.train_steps:
                    found = clicks.evaluate(net, *test)
            return seen, first, found
        (seen, first, found), (more, _, other) = self.job(member)
        self.assertEqual(found, other)
        want = network(t.nn.Embedding(len(words), clicks.DIM, sparse=True))
        want.rows.weight.data = first
        rule = optimizer(want)
        numbers = t.searchsorted(words, keys)
        for items in zip(seen, more):
            rule.zero_grad()
            for mine in items:
                (loss(want, numbers, mine) / 2).backward()
            rule.step()
        alone = clicks.evaluate(want, t.searchsorted(words, test[0]), *test[1:])
        self.assertTrue(0.6 < alone < 0.9, alone)
        self.assertLess(abs(found - alone), 0.0005)

    def example(self, disturb=None):
        """Runs the example with two workers. Returns the lines of worker 0 about the result."""
        command = [sys.executable, os.path.join(EXAMPLES, "clicks_weir.py"), self.data,
                   "--train_steps=40", "--batch_size=64"]
        kept = self.path("kept%d" % bool(disturb))
        with weir.Cluster(n_workers=2, command=command, checkpoint_dir=kept,
                          ps_flags=["--save_steps=5"]) as cluster:
            if disturb:
                disturb(cluster)
            cluster.wait(120 * harness.PATIENCE)
            said = [cluster.output("worker:%d" % i) for i in range(2)]
        found = {tuple(re.findall(r"test AUC .*|SHA-256 of the weights: .*", text))
                 for text in said}
        self.assertEqual(len(found), 1)
        return found.pop()

    def test_killed_processes_change_no_bit(self):
        def disturb(cluster):
            for n, name in enumerate(("worker:1", "ps:0")):
                at = "step %d " % (8 + 10 * n)
                harness.until(lambda a=at: a in cluster.output("worker:0"), at)
                cluster.kill(name)
                self.assertEqual(cluster.processes[name].popen.returncode, -signal.SIGKILL)
                kind, task = name.split(":")
                (cluster.start_ps if kind == "ps" else cluster.start_worker)(int(task))
        undisturbed = self.example()
        self.assertEqual(len(undisturbed), 2)
        self.assertEqual(self.example(disturb), undisturbed)


harness.main(__name__)
