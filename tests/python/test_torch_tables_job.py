#!/usr/bin/python3
"""A server and two members train modules with tables of weir.torch. They end with the rows of one
PyTorch process with all samples."""
# label: cluster
import random

import harness
import torch_case

import weir

DIM, STEPS = 4, 15
KEYS = [0, -1, 2**63 - 1, -2**63] + [i * (2**64 // 61) - 2**63 for i in range(1, 31)]
RATES = {"sgd": 0.5, "adagrad": 0.2, "adam": 0.05}


class Job(torch_case.Torch):
    def setUp(self):
        super().setUp()
        rng, t = random.Random(3), self.torch
        # 64 samples. Each has a bag, which is often empty, with weights, and another key.
        self.bags = [[rng.randrange(len(KEYS)) for _ in range(rng.choice([0, 0, 1, 2, 9]))]
                     for _ in range(64)]
        self.weights = [[rng.uniform(-1, 2) for _ in bag] for bag in self.bags]
        self.ones = t.tensor([rng.randrange(len(KEYS)) for _ in range(64)])
        self.keys = t.tensor(KEYS)

    def net(self, bag, one):
        nn = self.torch.nn
        self.torch.manual_seed(4)
        return nn.ModuleDict({"bag": bag, "one": one, "top": nn.Sequential(
            nn.Linear(2 * DIM, 8), nn.Tanh(), nn.Linear(8, 1))})

    def numbers(self, items):
        """Returns the numbers of the keys in the bags of some samples, with their offsets."""
        t = self.torch
        flat = [k for i in items for k in self.bags[i]]
        sizes = [len(self.bags[i]) for i in items]
        return t.tensor(flat, dtype=t.int64), t.tensor([0, *sizes[:-1]]).cumsum(0)

    def out(self, net, items, own):
        """Returns a network's loss on some samples. own: the network has tables."""
        t = self.torch
        flat, offsets = self.numbers(items)
        weights = t.tensor([w for i in items for w in self.weights[i]])
        one = self.ones[items]
        if own:
            flat, one = self.keys[flat], self.keys[one]
        x = t.cat([net["bag"](flat, offsets, weights), net["one"](one)], 1)
        return net["top"](x).square().mean()

    def rows(self, net):
        """Returns the rows of all keys of both tables."""
        with self.torch.no_grad():
            return net["one"](self.keys), net["bag"](self.keys[:, None])

    def reference(self, first, seen, kind):
        """Trains by PyTorch alone, on the samples of all members together. Returns the network."""
        nn, o = self.torch.nn, self.torch.optim
        one, bag = (nn.Embedding(len(KEYS), DIM, sparse=True),
                    nn.EmbeddingBag(len(KEYS), DIM, mode="sum", sparse=True))
        for m, rows in zip((one, bag), first):
            m.weight.data = rows.clone()
        net = self.net(bag, one)
        sparse = {"sgd": o.SGD, "adagrad": o.Adagrad, "adam": o.SparseAdam}[kind]
        rules = [sparse([one.weight, bag.weight], lr=RATES[kind]),
                 o.SGD(net["top"].parameters(), lr=0.1)]
        for items in zip(*seen):
            for rule in rules:
                rule.zero_grad()
            for mine in items:
                (self.out(net, mine, False) / len(items)).backward()
            for rule in rules:
                rule.step()
        return net

    def check(self, kind, member, **kwargs):
        """Trains by two members, and compares all rows with PyTorch's. member(i, exchange, net,
        rule): makes a step."""
        from weir.torch import Embedding, EmbeddingBag
        settings = {"optimizer": kind, "learning_rate": RATES[kind], "buckets": 8}
        nets = [self.net(EmbeddingBag(500, DIM, name="bags", mode="sum", **settings),
                         Embedding(500, DIM, name="ones", **settings)) for _ in range(2)]

        def run(i, job):
            net, seen, first, last = nets[i], [], None, None
            rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
            exchange = self.exchange(net, optimizer=rule, train_steps=STEPS, **{**job, **kwargs})
            for step in exchange:
                first = self.rows(net) if step.step == 0 else first
                seen.append(exchange.samples(64))
                rule.zero_grad()
                member(i, exchange, net, seen[-1])
                rule.step()
                last = self.rows(net) if step.step + 1 == step.train_steps else None
            return seen, first, last
        (seen0, first, last0), (seen1, other, last1) = self.job(run)
        for a, b in zip([*first, *last0], [*other, *last1]):
            self.assertTrue(self.torch.equal(a, b))
        self.assertEqual(len({tuple(row.tolist()) for rows in first for row in rows}),
                         2 * len(KEYS))
        want = self.reference(first, [seen0, seen1], kind)
        self.torch.testing.assert_close(last0[0], want["one"].weight.detach(), rtol=1e-4, atol=1e-6)
        self.torch.testing.assert_close(last0[1], want["bag"].weight.detach(), rtol=1e-4, atol=1e-6)
        for net in nets:
            self.close(net["top"].state_dict(), want["top"].state_dict(), rtol=1e-4)

    def test_members_match_pytorch(self):
        """One of the members reads ahead."""
        def member(i, exchange, net, items):
            self.out(net, items, True).backward()
            ahead = exchange.next_samples(64)
            if i == 0 and ahead:
                exchange.reads(net["one"], self.keys[self.ones[ahead]])
                exchange.reads(net["bag"], self.keys[self.numbers(ahead)[0]])
        for kind in RATES:
            with self.subTest(kind):
                self.check(kind, member)

    def test_accumulation_matches_pytorch(self):
        def member(_, _exchange, net, items):
            for half in (items[:4], items[4:]):
                (self.out(net, half, True) / 2).backward()
        self.check("adagrad", member)

    def test_schedule_applies_to_tables(self):
        """The factor of scheduler= is that of the rows, too: with 0 they stay."""
        from weir.torch import Embedding
        t = self.torch
        with weir.Cluster(checkpoint_dir=self.path("kept")) as cluster:
            net = t.nn.ModuleDict({"rows": Embedding(100, DIM, name="t"), "top": t.nn.Linear(4, 1)})
            rule, seen = t.optim.SGD(net.parameters(), lr=0.5), []
            exchange = self.exchange(net, optimizer=rule, train_steps=3, batch_size=8,
                                     scheduler=lambda step: float(step % 2), **cluster.settings())
            for _ in exchange:
                net["top"](net["rows"](self.keys)).sum().backward()
                rule.step()
                with t.no_grad():
                    seen.append(net["rows"](self.keys))
                rule.zero_grad()
            cluster.wait(20 * harness.PATIENCE)
        self.assertEqual([t.equal(*pair) for pair in zip(seen, seen[1:])], [False, True])
        last = {n: v.clone() for n, v in net.state_dict().items()}
        net["top"].reset_parameters()
        with self.assertWarnsRegex(UserWarning, "not the rows of table 't'; weir.checkpoint.read"):
            weir.torch.load_checkpoint(self.path("kept"), net)
        self.close(net.state_dict(), last)

    def test_full_table_and_other_settings_are_refused(self):
        """The errors name the table, and the setting to change."""
        from weir.torch import Embedding
        t = self.torch

        def train(settings, optimizer="sgd", **table):
            net = t.nn.ModuleDict({"rows": Embedding(40, DIM, name="ads", buckets=2, **table),
                                   "top": t.nn.Linear(DIM, 1)})
            for step in self.exchange(net, optimizer=optimizer, train_steps=6, **settings):
                keys = t.arange(20, 90) * (step.step + 1)
                net["top"](net["rows"](keys)).sum().backward()
        with self.assertRaisesRegex(weir.Unsupported, "tables need servers"):
            train({})
        for refused, why in (({"clip_norm": 1}, "clip_norm.*use clip_value"),
                             ({"wire_dtype": "int8"}, "wire_dtype int8"),
                             ({"optimizer": "adamw"}, "table 'ads'.*set an optimizer"),
                             ({"bucket": 4}, "did you mean 'buckets'"),
                             ({"step_rows": 4}, "table 'ads'.*raise step_rows=4"),
                             ({"when_full": "stop"}, "table 'ads'.*max_rows=40")):
            with self.subTest(refused), weir.Cluster() as cluster:
                job = {k: v for k, v in refused.items() if k in ("clip_norm", "wire_dtype")}
                rows = {k: v for k, v in refused.items() if k not in job and k != "optimizer"}
                with self.assertRaisesRegex(weir.Error, why):
                    train({**cluster.settings(), **job}, refused.get("optimizer", "sgd"), **rows)
        with weir.Cluster() as cluster:
            train(cluster.settings(), when_full="evict")
            cluster.wait(20 * harness.PATIENCE)


harness.main(__name__)
