#!/usr/bin/python3
"""examples/models/deepfm.json and wide_deep.json: workers train them with a server's rows, from a
CSV file with columns of text. PyTorch with the same samples and first values ends with the same
model. Killed processes and other numbers of servers change no bit, and the last checkpoint has the
AUC of the training. Without PyTorch, only the comparison with it is skipped."""
# label: cluster
import array
import csv
import hashlib
import math
import random

import harness
import weights

harness.use_package()
import weir  # noqa: E402
import weir.checkpoint  # noqa: E402
import weir.rows  # noqa: E402

WORDS = ["Drama", "Children's", "Film-Noir", "War", "unknown"]
TABLES = {"embedding_bag1": 1, "factors": 8}  # dim of each table of the two models
N_TRAIN, BATCH, STEPS, SEED = 900, 16, 60, 9
FLAGS = ["--key_separator= ", "--standardize", "--intra_op_threads=1", "--seed=%d" % SEED,
         "--batch_size=%d" % BATCH]
RULE = ["--optimizer=adagrad", "--learning_rate=0.1"]
CLOSE = {"rtol": 1e-3, "atol": 1e-5}  # for values of about 0.1


def ratings(n, seed):
    """Returns rows of the columns of scripts/get_movielens. The label follows from the keys, in
    part from the product of a user's number and a word."""
    rng, rows = random.Random(seed), []
    for _ in range(n):
        user, item = rng.randrange(1, 31), rng.randrange(1, 41)
        words = [w for k, w in enumerate(WORDS) if item >> k & 1]
        score = math.sin(user) + math.cos(3 * item) + sum(
            math.cos(user * 2.3) * (-1) ** len(w) for w in words)
        rows.append(["u%d" % user, "i%d" % item, " ".join(words), 7 + user * 5 % 60,
                     int(rng.random() < 1 / (1 + math.exp(-2 * score)))])
    return rows


def key_texts(row):
    """Returns the texts of the keys in each column of a row."""
    columns = [[row[0]], [row[1]], row[2].split()]
    return [["%s=%s" % (name, cell) for cell in cells]
            for name, cells in zip(("user_id", "item_id", "genre"), columns)]


class SparseModels(harness.Test):
    @classmethod
    def setUpClass(cls):
        cls.train, cls.test = ratings(N_TRAIN, 1), ratings(400, 2)

    def setUp(self):
        super().setUp()
        self.folder = self.new_folder("movies")
        for name, rows in (("train", self.train), ("test", self.test)):
            with open(self.path("movies", name + ".csv"), "w", encoding="utf-8", newline="") as f:
                csv.writer(f).writerows([["user_id", "item_id", "genre", "age", "label"], *rows])

    def run_job(self, kept, *flags, model="deepfm", n_ps=1, data=None, disturb=None):
        """Trains by two workers; returns the summary of worker 0. The last checkpoint is in the
        folder `kept`. disturb(job, flags of the servers) is called at about step 20."""
        job = self.job(n_ps=n_ps, model=model, data=data or self.folder,
                       flags=[*FLAGS, *RULE, "--train_steps=%d" % STEPS, *flags])
        ps_flags = ["--checkpoint_dir=" + self.path(kept), "--save_steps=7"]
        if disturb:
            job.hold(20)
        job.start(ps_flags)
        if disturb:
            disturb(job, ps_flags)
        return job.finish_alike(120)[0]

    def digest(self, kept):
        """Returns the digests of the dense parameters and of all rows of the last checkpoint."""
        found = weir.checkpoint.read(self.path(kept))
        self.assertEqual(sorted(found.tables), sorted(TABLES))
        out = []
        for name, dim in TABLES.items():
            table = found.tables[name]
            rows, n = table.rows.tolist(), len(table.keys)
            self.assertEqual(n, len({k for row in self.train for c in key_texts(row) for k in c}))
            ordered = [rows[i] for i in sorted(range(n), key=table.keys.tolist().__getitem__)]
            values = array.array("f", [v for row in ordered for v in row])
            self.assertEqual(len(values), n * dim)
            out.append(hashlib.sha256(values.tobytes()).hexdigest())
        return found.step, *out

    # ---- the same bits ----

    def test_killed_processes_and_servers_change_no_bit(self):
        def kill(job, ps_flags):
            job.workers[1].wait_line("training step 15 done")
            job.restart_worker(1)
            job.restart_ps(0, *ps_flags)

        want = self.run_job("a", "--log_every=1")
        digest = self.digest("a")
        for kept, options in (("b", {"disturb": kill}), ("c", {"n_ps": 2})):
            with self.subTest(kept):
                got = self.run_job(kept, "--log_every=1", **options)
                self.assert_same(got, want, "parameters_sha256", "test_auc", "global_step")
                self.assertEqual(self.digest(kept), digest)

    def test_towers_end_with_same_bits(self):
        want = self.run_job("a", "--towers=2", model="wide_deep")
        got = self.run_job("b", "--towers=2", model="wide_deep", n_ps=2)
        self.assert_same(got, want, "parameters_sha256", "test_auc")
        self.assertEqual(self.digest("a"), self.digest("b"))

    # ---- results ----

    def test_checkpoint_has_auc_of_training(self):
        for model in ("deepfm", "wide_deep"):
            with self.subTest(model):
                trained = self.run_job(model, model=model)
                self.assertTrue(0.75 < trained["test_auc"] < 0.99, trained)
                out = self.run_worker("--evaluate=" + self.path(model), "--intra_op_threads=1",
                                      "--summary_json=" + self.path("s.json"), data=self.folder,
                                      model=None).output()
                self.assertEqual(self.figures("s.json")["test_auc"], trained["test_auc"], out)

    def test_async_learns(self):
        trained = self.run_job("a", "--sync_mode=async")
        self.assertTrue(0.7 < trained["test_auc"] < 0.99, trained)

    def test_clicks_of_make_data(self):
        clicks = self.make_samples("csv", "clicks", "--clicks", "--train=3000", "--test=1000")
        trained = self.run_job("a", "--batch_size=100", data=clicks)
        self.assertTrue(0.55 < trained["test_auc"] < 0.9, trained)

    # ---- PyTorch ----

    def first_values(self, model, texts):
        """Returns the initial dense parameters, and the initial rows of these keys in each table,
        from a job of one step that changes no value."""
        self.run_job("first", "--learning_rate=1e-30", "--optimizer=sgd", "--train_steps=1",
                     model=model)
        export = self.path("first.safetensors")
        harness.check_output([harness.program("weirctl"), "--checkpoint_dir=" + self.path("first"),
                              "--output=" + export, "export"])
        found = weir.rows.read(export)
        keys = array.array("Q", map(weir.key, texts))
        return ({name: v.tolist() for name, v in found.tensors.items()},
                {name: found.lookup(name, keys)[0].tolist() for name in TABLES})

    def network(self, model, texts):
        """Returns PyTorch's network, and the function of the numbers of samples in its data."""
        t = weights.torch
        dense, rows = self.first_values(model, texts)
        number = {text: k for k, text in enumerate(texts)}
        net = t.nn.ModuleDict({name: t.nn.EmbeddingBag(len(texts), dim, mode="sum")
                               for name, dim in TABLES.items()})
        net.update({"dense1": t.nn.Linear(25, 64), "deep": t.nn.Linear(64, 1)})
        with t.no_grad():
            for name in TABLES:
                net[name].weight.copy_(t.tensor(rows[name]))
            for name in ("dense1", "deep"):
                net[name].weight.copy_(t.tensor(dense[name + "/weights"]))
                net[name].bias.copy_(t.tensor(dense[name + "/biases"]))
        ages = t.tensor([float(row[3]) for row in self.train], dtype=t.float64)
        mean, deviation = ages.mean(), ages.std(correction=0)

        def bags(name, table):
            """Returns (n, 3, dim)."""
            cells = [[number[k] for k in cell] for row in table for cell in key_texts(row)]
            offsets = [0, *map(len, cells[:-1])]
            return net[name](t.tensor([k for cell in cells for k in cell]),
                             t.tensor(offsets).cumsum(0)).unflatten(0, (-1, 3))

        def score(table):
            x = bags("factors", table)
            age = (t.tensor([[float(row[3])] for row in table], dtype=t.float64) - mean) / deviation
            hidden = net["dense1"](t.cat([x.flatten(1), age.float()], 1)).relu()
            out = bags("embedding_bag1", table).sum((1, 2)) + net["deep"](hidden)[:, 0]
            if model == "deepfm":
                out = out + (x.sum(1).square() - x.square().sum(1)).sum(1) / 2
            return out
        return net, score

    def plain(self, model, texts):
        """Trains by PyTorch alone, with the samples of both workers; returns the network and the
        AUC of the test."""
        t = weights.torch
        net, score = self.network(model, texts)
        rule = t.optim.Adagrad(net.parameters(), lr=0.1)
        with weir.Member(seed=SEED) as order:
            items = [order.sample(N_TRAIN, i) for i in range(2 * BATCH * STEPS)]
        for step in range(STEPS):
            table = [self.train[i] for i in items[2 * BATCH * step:2 * BATCH * (step + 1)]]
            rule.zero_grad()
            t.nn.functional.binary_cross_entropy_with_logits(
                score(table), t.tensor([float(row[4]) for row in table])).backward()
            rule.step()
        with t.no_grad():
            found = score(self.test).tolist()
        liked = [s for s, row in zip(found, self.test) if row[4]]
        other = [s for s, row in zip(found, self.test) if not row[4]]
        return net, sum((a > b) + (a == b) / 2 for a in liked for b in other) / (
            len(liked) * len(other))

    def test_models_match_pytorch(self):
        """Two workers, also with two towers each, end with the model of one PyTorch process."""
        t = weights.torch2(self)
        texts = sorted({k for row in self.train + self.test for c in key_texts(row) for k in c})
        keys = list(map(weir.key, texts))
        for model in ("deepfm", "wide_deep"):
            net, auc = self.plain(model, texts)
            for towers in (1, 2):
                with self.subTest(model, towers=towers):
                    kept = "%s-%d" % (model, towers)
                    trained = self.run_job(kept, "--towers=%d" % towers, model=model)
                    self.assertAlmostEqual(trained["test_auc"], auc, delta=5e-4)
                    found = weir.checkpoint.read(self.path(kept))
                    for name, dim in TABLES.items():
                        table = found.tables[name]
                        at = [keys.index(key) for key in table.keys.tolist()]
                        t.testing.assert_close(
                            t.tensor(table.rows.tolist()).view(-1, dim),
                            net[name].weight.detach()[at], **CLOSE, msg=name)
                    for name, values in found.tensors.items():
                        layer, part = name.replace("weights", "weight").replace(
                            "biases", "bias").split("/")
                        t.testing.assert_close(t.tensor(values.tolist()),
                                               getattr(net[layer], part).detach(),
                                               **CLOSE, msg=name)


harness.main(__name__)
