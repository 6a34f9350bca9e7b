#!/usr/bin/python3
"""Embedding and EmbeddingBag of weir.torch lead to the rows of torch.nn.Embedding and EmbeddingBag
of the same keys, trained by PyTorch's optimizers. The table is a dictionary in this process."""
# label: cluster
import array
import contextlib
import copy
import io
import random
import warnings
from unittest import mock

import harness
import torch_case

import weir
from weir import _library

DIM, STEPS = 4, 25
# Keys of 64 bits, as PyTorch's int64.
KEYS = [0, -1, 2**63 - 1, -2**63] + [i * (2**64 // 61) - 2**63 for i in range(1, 31)]
RATES = {"sgd": 0.5, "adagrad": 0.2, "adam": 0.05}


def first_row(key):
    """Returns a row's initial value, which depends on its key alone."""
    rng = random.Random(key)
    return [rng.uniform(-1, 1) for _ in range(DIM)]


class Rows:
    """A table, whose rows change by PyTorch's definitions of the optimizers."""

    def __init__(self, torch, dim, optimizer="sgd", learning_rate=0.1):
        self.torch, self.dim, self.optimizer, self.rate = torch, dim, optimizer, learning_rate
        self.rows, self.slots, self.version = {}, {}, 0
        self.n_pushed = []  # number of keys of each push

    def row(self, key):
        return self.rows[key] if key in self.rows else self.torch.tensor(first_row(key))

    def add(self, key, g):
        slots = self.slots.setdefault(key, [self.torch.zeros(self.dim) for _ in range(2)])
        row = self.row(key).clone()
        if self.optimizer == "sgd":
            row -= self.rate * g
        elif self.optimizer == "adagrad":
            slots[0] += g * g
            row -= self.rate * g / (slots[0].sqrt() + 1e-10)
        else:
            slots[0] += 0.1 * (g - slots[0])
            slots[1] += 0.001 * (g * g - slots[1])
            root = (1 - 0.999**self.version)**0.5
            row -= self.rate * root / (1 - 0.9**self.version) * slots[0] / (slots[1].sqrt() + 1e-8)
        self.rows[key] = row

    def push(self, keys, gradients):
        self.version += 1
        self.n_pushed.append(len(keys))
        sums = {}
        for key, g in zip(keys, gradients):
            sums[key] = sums[key] + g if key in sums else g
        for key, g in sums.items():
            self.add(key, g)


class Member(weir.Member):
    """A member with tables in its own memory. Each of them must be pushed in each step. If steps
    begin early, the answer to a push is on its way until a lookup waits for it."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.tables, self.reads, self.lookups, self.pushes = [], {}, [], None
        self.in_flight = set()
        self.rebased = False  # whether lookups report that the step no longer counts

    def table(self, name, dim, max_rows, **settings):
        import torch  # pylint: disable=import-outside-toplevel
        assert name and max_rows > 0
        settings.pop("init_scale", None)  # first_row decides
        self.tables.append(Rows(torch, dim, **settings))
        return len(self.tables) - 1

    def lookup(self, table, keys, timeout=None):
        del timeout
        self.in_flight.discard(table)
        if keys is None:
            return memoryview(array.array("f"))
        keys = keys.tolist()
        assert len(set(keys)) == len(keys)
        self.lookups.append((table, keys))
        if self.rebased:
            return None
        rows = [v for key in keys for v in self.tables[table].row(key).tolist()]
        return memoryview(array.array("f", rows)).cast("B").cast("f", [len(keys), DIM])

    def next_keys(self, table, keys):
        self.reads[table] = sorted(keys.tolist())

    def push_rows(self, table, keys, gradients, *, samples):
        assert (keys is None) == (gradients is None) and (samples or keys is None)
        assert table not in self.pushes, "the table is pushed twice in a step"
        assert table not in self.in_flight, "the table's last push has no answer yet"
        self.pushes[table] = samples
        if samples and keys is not None:
            self.tables[table].push(keys.tolist(), gradients.clone())
        elif samples:
            self.tables[table].push([], [])

    def next(self, timeout=None, early=False):
        assert self.pushes is None or len(self.pushes) == len(self.tables) or self.rebased
        self.in_flight = set(self.pushes or ()) if early else set()
        self.pushes = {}
        return super().next(timeout, early)


class Tables(torch_case.Torch):
    def setUp(self):
        super().setUp()
        import weir.torch._tables as tables  # pylint: disable=redefined-outer-name
        self.tables = tables
        self.addCleanup(mock.patch.stopall)
        mock.patch("weir.torch._exchange.Member", Member).start()
        self.rng = random.Random(7)

    # Networks and batches.

    def modules(self, mode, **settings):
        """Returns a network with tables, and one with PyTorch's modules of the same rows."""
        nn = self.torch.nn
        made = []
        for ours in (True, False):
            self.torch.manual_seed(4)
            top = nn.Sequential(nn.Linear(2 * DIM, 8), nn.Tanh(), nn.Linear(8, 1))
            if ours:
                bag = self.tables.EmbeddingBag(100, DIM, name="bags", mode=mode, **settings)
                one = self.tables.Embedding(100, DIM, name="ones", **settings)
            else:
                sparse = mode != "max"
                bag = nn.EmbeddingBag(len(KEYS), DIM, mode=mode, sparse=sparse)
                one = nn.Embedding(len(KEYS), DIM, sparse=True)
                for m in (bag, one):
                    m.weight.data = self.torch.tensor([first_row(k) for k in KEYS])
            made.append(nn.ModuleDict({"bag": bag, "one": one, "top": top}))
        return made

    def batch(self, mode, n=6, seed=None):
        """Returns random bags, as numbers of keys: numbers, offsets, weights or None; and a number
        for each sample."""
        rng = random.Random(seed) if seed is not None else self.rng
        t = self.torch
        bags = [[rng.randrange(len(KEYS)) for _ in range(rng.choice([0, 0, 1, 2, 9]))]
                for _ in range(n)]
        flat = t.tensor([i for b in bags for i in b], dtype=t.int64)
        offsets = t.tensor([sum(map(len, bags[:i])) for i in range(n)])
        weights = t.tensor([rng.uniform(-1, 2) for _ in flat]) if mode == "sum" else None
        one = t.tensor([rng.randrange(len(KEYS)) for _ in range(n)])
        return flat, offsets, weights, one

    def keys(self, numbers):
        return self.torch.tensor(KEYS)[numbers] if numbers.numel() else numbers

    def out(self, net, batch, own):
        """Returns a network's output for a batch. own: the network has tables."""
        flat, offsets, weights, one = batch
        to = self.keys if own else (lambda numbers: numbers)
        x = self.torch.cat([net["bag"](to(flat), offsets, weights), net["one"](to(one))], 1)
        return net["top"](x).square().mean()

    def optimizers(self, net, kind):
        """Returns PyTorch's optimizers of the reference: of its rows and of its top."""
        o, rate = self.torch.optim, RATES[kind]
        rows = [net["bag"].weight, net["one"].weight]
        sparse = {"sgd": o.SGD, "adagrad": o.Adagrad, "adam": o.SparseAdam}[kind]
        if kind == "adam" and net["bag"].mode == "max":  # dense gradients
            self.fail("SparseAdam needs sparse gradients")
        return [sparse(rows, lr=rate), o.SGD(net["top"].parameters(), lr=0.1)]

    def check_rows(self, exchange, want):
        """Compares all rows of both tables, and that only rows with a gradient were created."""
        for table, m in zip(exchange.member.tables, (want["bag"], want["one"])):
            rows = self.torch.stack([table.row(k) for k in KEYS])
            self.torch.testing.assert_close(rows, m.weight.detach(), rtol=1e-5, atol=1e-6)

    def step(self, want, rules, loss):
        for rule in rules:
            rule.zero_grad()
        loss.backward()
        for rule in rules:
            rule.step()

    # Tests.

    def test_rows_match_pytorch(self):
        """Random bags, of which many are empty, in each mode, by each optimizer of rows."""
        for mode, kind in (("sum", "sgd"), ("sum", "adagrad"), ("sum", "adam"), ("mean", "adam"),
                           ("mean", "adagrad"), ("max", "sgd"), ("max", "adagrad")):
            with self.subTest(mode=mode, optimizer=kind):
                net, want = self.modules(mode, optimizer=kind, learning_rate=RATES[kind])
                exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, batch_size=6,
                                         train_steps=STEPS)
                rules = self.optimizers(want, kind)
                for _ in exchange:
                    batch = self.batch(mode)
                    loss = self.out(net, batch, True)
                    other = self.out(want, batch, False)
                    self.torch.testing.assert_close(loss, other)
                    loss.backward()
                    self.step(want, rules, other)
                    self.check_rows(exchange, want)
                self.close(net["top"].state_dict(), want["top"].state_dict())

    def test_own_optimizer_and_accumulation_match_pytorch(self):
        """Two forwards and backwards in a step, whose bags have keys in common."""
        net, want = self.modules("sum", learning_rate=0.3)
        rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
        rules = [self.torch.optim.SGD([want[n].weight for n in ("bag", "one")], lr=0.3),
                 self.torch.optim.SGD(want["top"].parameters(), lr=0.1)]
        exchange = self.exchange(net, optimizer=rule, batch_size=6, train_steps=STEPS)
        for _ in exchange:
            rule.zero_grad()
            losses = []
            for _ in range(2):
                batch = self.batch("sum")
                (self.out(net, batch, True) / 2).backward()
                losses.append(self.out(want, batch, False) / 2)
            rule.step()
            self.step(want, rules, sum(losses))
            self.check_rows(exchange, want)

    def test_several_forwards_before_one_backward_match_pytorch(self):
        net, want = self.modules("mean")
        rules = [self.torch.optim.SGD(want.parameters(), lr=0.1)]
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=STEPS,
                                 backwards=2)
        for _ in exchange:
            first, second, third = (self.batch("mean") for _ in range(3))
            (self.out(net, first, True) + self.out(net, second, True)).backward()
            self.out(net, third, True).backward()
            self.step(want, rules, sum(self.out(want, b, False) for b in (first, second, third)))
            self.check_rows(exchange, want)

    def test_last_offset_and_rectangles_match_pytorch(self):
        t = self.torch
        mine = self.tables.EmbeddingBag(100, DIM, name="t", mode="sum", include_last_offset=True)
        net = t.nn.ModuleDict({"bag": mine, "top": t.nn.Linear(DIM, 1)})
        bag = t.nn.EmbeddingBag(len(KEYS), DIM, mode="sum", include_last_offset=True,
                                _weight=t.tensor([first_row(k) for k in KEYS]))
        exchange = self.exchange(net, train_steps=1)
        next(exchange)
        numbers = t.tensor([3, 3, 1, 0])
        offsets = t.tensor([0, 2, 2, 4])
        t.testing.assert_close(mine(self.keys(numbers), offsets), bag(numbers, offsets))
        square = numbers.view(2, 2).int()
        t.testing.assert_close(mine(self.keys(square)), bag(square))
        few = t.tensor([[5], [7]], dtype=t.int32)
        other = mine(few)  # keys of 32 bits
        t.testing.assert_close(other, t.tensor([first_row(5), first_row(7)]))
        if hasattr(t, "uint64"):
            t.testing.assert_close(mine(few.long().view(t.uint64)), other)
        nothing = mine(t.zeros(0, dtype=t.int64), t.zeros(1, dtype=t.int64))
        self.assertEqual(nothing.shape, (0, DIM))

    def test_part_of_an_empty_tensor_is_empty(self):
        """Strides do not matter without an element. They do with one."""
        keys = self.torch.arange(8).view(2, 4)[:, ::2]
        self.assertEqual(_library.elements(keys[:0], _library.KEYS)[1], 0)
        with self.assertRaisesRegex(weir.Invalid, "not row-major"):
            _library.elements(keys, _library.KEYS)

    def test_evaluation_and_unused_module_push_nothing(self):
        """A module that a step does not use, and forwards without a backward, create no row. Rows
        after the last backward are those of the next step."""
        t = self.torch
        net, want = self.modules("sum")
        rules = [t.optim.SGD(want.parameters(), lr=0.1)]
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=4)
        for step in exchange:
            batch = self.batch("sum", seed=step.step)
            with t.no_grad():
                net["bag"](self.keys(t.arange(len(KEYS))[None]))
            net["bag"](self.keys(t.arange(len(KEYS))[None]))  # no backward
            if step.step == 1:  # only the other module
                for n, own in ((net, True), (want, False)):
                    loss = n["one"](self.keys(batch[3]) if own else batch[3]).square().sum()
                    loss.backward() if own else self.step(want, rules, loss)
            else:
                self.out(net, batch, True).backward()
                self.step(want, rules, self.out(want, batch, False))
            with t.inference_mode():
                t.testing.assert_close(self.out(net, batch, True), self.out(want, batch, False))
            self.check_rows(exchange, want)
        bags, ones = exchange.member.tables
        self.assertEqual((bags.n_pushed[1], bags.version), (0, 4))
        seen = {KEYS[i] for s in (0, 2, 3) for i in self.batch("sum", seed=s)[0].tolist()}
        self.assertEqual(set(bags.rows), seen)
        self.assertTrue(all(ones.n_pushed))

    def test_early_steps_match_pytorch(self):
        """In step 1 only rows have a gradient, and one of the tables is not read."""
        net, want = self.modules("sum")
        rules = [self.torch.optim.SGD(want.parameters(), lr=0.1)]
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=4,
                                 early=True)
        for step in exchange:
            self.check_rows(exchange, want)
            batch = self.batch("sum", seed=step.step)
            losses = [self.out(n, batch, own) if step.step != 1 else
                      n["one"](self.keys(batch[3]) if own else batch[3]).square().sum()
                      for n, own in ((net, True), (want, False))]
            losses[0].backward()
            self.step(want, rules, losses[1])
        self.check_rows(exchange, want)

    def test_reads_name_the_keys_of_the_next_batch(self):
        t = self.torch
        net, _ = self.modules("sum")
        rule = t.optim.SGD(net.parameters(), lr=0.1)
        exchange = self.exchange(net, optimizer=rule, train_steps=3, batch_size=6)
        ahead = None
        for step in exchange:
            here = exchange.samples(40)
            if ahead is not None:
                self.assertEqual(ahead, here)
            ahead = exchange.next_samples(40)
            self.assertEqual(len(ahead), 6 if step.step < 2 else 0)
            self.out(net, self.batch("sum", seed=step.step), True).backward()
            exchange.reads(net["bag"], self.keys(t.tensor([3, 1, 3])))
            exchange.reads(net["bag"], self.keys(t.tensor([[2], [1]])))
            rule.step()
            self.assertEqual(exchange.member.reads, {0: sorted(KEYS[i] for i in (1, 2, 3))})
            with self.assertRaisesRegex(weir.Invalid, "reads.. after the gradients"):
                exchange.reads(net["bag"], t.tensor([1]))
            with self.assertRaisesRegex(weir.Invalid, "reads.. needs an Embedding"):
                exchange.reads(net["top"], t.tensor([1]))
            with self.assertRaisesRegex(weir.Invalid, "table 'ones': keys are a tensor of int64"):
                net["one"](t.tensor([1.0]))
        later = self.exchange(t.nn.Linear(2, 1), train_steps=3, sync_mode="async")
        next(later)
        self.assertEqual(later.next_samples(40), [])

    def test_skip_after_backward_adds_nothing(self):
        net, _ = self.modules("sum")
        rule = self.torch.optim.SGD(net.parameters(), lr=0.1)
        exchange = self.exchange(net, optimizer=rule, train_steps=1)
        for _ in exchange:
            self.out(net, self.batch("sum", seed=1), True).backward()
            exchange.skip()
        self.assertEqual([t.version for t in exchange.member.tables], [0, 0])

    def test_graph_used_twice_adds_up(self):
        net, want = self.modules("sum")
        rules = [self.torch.optim.SGD(want.parameters(), lr=0.1)]
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=2,
                                 backwards=2)
        for step in exchange:
            batch = self.batch("sum", seed=step.step)
            loss = self.out(net, batch, True)
            loss.backward(retain_graph=True)
            loss.backward()
            self.step(want, rules, 2 * self.out(want, batch, False))
            self.check_rows(exchange, want)

    def test_skipped_step_adds_nothing(self):
        net, _ = self.modules("sum")
        exchange = self.exchange(net, optimizer="sgd", train_steps=2, batch_size=6)
        for step in exchange:
            if step.step == 1:
                exchange.skip()
            with self.assertRaisesRegex(weir.Invalid, "model's tables.*clip_value=C"):
                self.torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            self.out(net, self.batch("sum", seed=1), True).backward()
            self.assertEqual(exchange.member.pushes, dict.fromkeys((0, 1), 6 * (step.step == 0)))

    def test_step_that_does_not_count_has_zeros(self):
        net, _ = self.modules("sum")
        exchange = self.exchange(net, optimizer="sgd", train_steps=2)
        for step in exchange:
            exchange.member.rebased = step.step == 0
            loss = self.out(net, self.batch("sum", seed=1), True)
            loss.backward()
            self.assertEqual(exchange.counts, step.step == 1)
            self.assertEqual(len(exchange.member.pushes), 2 * (step.step == 1))
            if step.step == 0:  # the library would repeat the step
                for s in exchange.slots:
                    exchange.member.push(s.number, None, samples=0)

    def test_copies_compiled_and_checkpointed_modules(self):
        """Copies work without the job, but have no rows. torch.compile leaves the modules out.
        Activation checkpoints call forward twice, and push each gradient once."""
        t = self.torch
        net, want = self.modules("sum")
        printed = io.StringIO()
        self.tables._note_no_rows.cache_clear()
        with contextlib.redirect_stderr(printed):
            self.assertEqual(sorted(n for n in net.state_dict() if "top" not in n), [])
            net.state_dict()
        self.assertEqual(printed.getvalue().count("does not contain the rows of tables"), 1)
        rules = [t.optim.SGD(want.parameters(), lr=0.1)]
        out = t.compile(lambda batch: self.out(net, batch, True), backend="aot_eager")
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=4)
        for step in exchange:
            batch = self.batch("sum", seed=step.step)
            if step.step < 2:
                loss = out(batch)
            else:
                loss = t.utils.checkpoint.checkpoint(
                    lambda: self.out(net, batch, True),  # pylint: disable=cell-var-from-loop
                    use_reentrant=False)
            loss.backward()
            self.step(want, rules, self.out(want, batch, False))
            self.check_rows(exchange, want)
            twin = copy.deepcopy(net)
            saved = io.BytesIO()
            t.save(net, saved)
            with self.assertRaisesRegex(weir.Invalid, "table 'bags' has no rows yet.*not a copy"):
                self.out(twin, batch, True)
        self.assertIsNone(t.load(io.BytesIO(saved.getvalue()), weights_only=False)["bag"]._table)
        with self.assertRaisesRegex(weir.Invalid, "table 'bags' has no rows any more.*in the loop"):
            self.out(net, batch, True)

    def test_modules_that_do_not_fit_are_refused(self):
        t, tables = self.torch, self.tables
        for name, value, why in (("padding_idx", 0, "mask"), ("max_norm", 1.0, "part of forward"),
                                 ("scale_grad_by_freq", True, "frequencies"),
                                 ("sparse", True, "remove it"), ("device", "cpu", "of the keys"),
                                 ("dtype", t.float16, "float32"), ("_weight", 1, "init_scale")):
            with self.assertRaisesRegex(weir.Invalid, "a table has no %s: .*%s" % (name, why)):
                tables.Embedding(10, DIM, name="t", **{name: value})
        self.assertEqual(tables.EmbeddingBag(10, DIM, name="t", max_norm=None).settings, {})
        m = tables.Embedding(10, DIM, name="t")
        for name, why in (("weight", "forward.keys. returns"), ("num_embeddings", "max_rows"),
                          ("padding_idx", "mask"), ("reset_parameters", "init_scale")):
            with self.assertRaisesRegex(AttributeError, "Embedding has no %s: .*%s" % (name, why)):
                getattr(m, name)
        with self.assertRaisesRegex(AttributeError, "Embedding has no weight: "):
            m.weight = t.nn.Parameter(t.zeros(10, DIM))
        with self.assertRaisesRegex(AttributeError, "no attribute 'colour'"):
            m.colour  # pylint: disable=pointless-statement
        with self.assertRaisesRegex(weir.Invalid, "no from_pretrained: .*init_scale"):
            tables.EmbeddingBag.from_pretrained(t.zeros(10, DIM))
        self.assertEqual(m.embedding_dim, DIM)
        with self.assertRaisesRegex(weir.Invalid, "mode is"):
            tables.EmbeddingBag(10, DIM, name="t", mode="min")

        def net(*names):
            return t.nn.ModuleDict({"top": t.nn.Linear(DIM, 1), **{
                "m%d" % i: tables.Embedding(10, DIM, name=name) for i, name in enumerate(names)}})
        with self.assertRaisesRegex(weir.Invalid, "two modules have tables named 'a'"):
            next(self.exchange(net("a", "a")))
        one = net("a")
        rule = t.optim.SGD(one.parameters(), lr=0.1)
        with self.assertRaisesRegex(weir.Invalid, "local_steps= does not fit tables"):
            next(self.exchange(one, optimizer=rule, local_steps=2))
        two = net("a")
        two["more"] = t.nn.Linear(2, 2)
        both = [t.optim.SGD(two[n].parameters(), lr=0.1) for n in ("top", "more")]
        with self.assertRaisesRegex(weir.Invalid, "several optimizers do not fit tables"):
            next(self.exchange(two, optimizer=both))
        with self.assertRaisesRegex(weir.Invalid, "table 'a' has no rows yet"):
            one["m0"](t.tensor([1]))

    def test_sparse_modules_get_tables(self):
        """Each module with sparse=True is replaced, in lists and where two places share it; the
        replaced modules train like PyTorch's."""
        import weir.torch  # pylint: disable=redefined-outer-name
        t, nn = self.torch, self.torch.nn
        dense = nn.Embedding(5, DIM)
        shared = nn.Embedding(7, DIM, sparse=True)
        net = nn.ModuleDict({"list": nn.ModuleList([
            nn.EmbeddingBag(9, DIM, mode="sum", sparse=True, include_last_offset=True), shared]),
            "again": shared, "dense": dense, "top": nn.Linear(DIM, 1)})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertIs(weir.torch.with_tables(net, admit_after=2), net)
        bag, one = net["list"]
        self.assertIsInstance(bag, weir.torch.EmbeddingBag)
        self.assertEqual((bag.name, bag.max_rows, bag.dim, bag.mode, bag.include_last_offset),
                         ("list.0", 9, DIM, "sum", True))
        self.assertIsInstance(one, weir.torch.Embedding)
        self.assertEqual((one.name, one.max_rows, one.settings),
                         ("list.1", 7, {"admit_after": 2, "init_scale": 1.0}))
        self.assertIs(net["again"], one)
        self.assertIs(net["dense"], dense)
        self.assertEqual(len(list(net.parameters())), 3)
        net = nn.ModuleList([nn.Embedding(9, DIM), nn.Embedding(8, DIM, sparse=True)])
        weir.torch.with_tables(net, min_rows=9)
        self.assertEqual([type(m) for m in net], [weir.torch.Embedding, nn.Embedding])
        with self.assertRaisesRegex(weir.Invalid, "at least min_rows=9 rows"):
            weir.torch.with_tables(net, min_rows=9)
        net, want = self.modules("sum", optimizer="adagrad", learning_rate=RATES["adagrad"])
        for name in ("bag", "one"):
            net[name] = copy.deepcopy(want[name])
        with self.assertWarnsRegex(UserWarning, "'bag' have a deviation of 0.*begin with 1; set"):
            weir.torch.with_tables(net, optimizer="adagrad", learning_rate=RATES["adagrad"])
        rules = self.optimizers(want, "adagrad")
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, batch_size=6,
                                 train_steps=STEPS)
        for _ in exchange:
            batch = self.batch("sum")
            self.step(want, rules, self.out(want, batch, False))
            self.out(net, batch, True).backward()
        self.check_rows(exchange, want)
        for module, why in (
                (nn.Embedding(9, DIM, sparse=True, padding_idx=0), "'0': a table has no padding"),
                (nn.Embedding(9, DIM, sparse=True, max_norm=1.0), "no max_norm: rows would"),
                (nn.EmbeddingBag(9, DIM, sparse=True, dtype=t.float64), "no dtype: rows are"),
                (nn.Embedding(9, DIM), "no Embedding or EmbeddingBag with sparse=True")):
            with self.assertRaisesRegex(weir.Invalid, why):
                weir.torch.with_tables(nn.Sequential(module))

    def test_gradients_at_the_wrong_time_are_refused(self):
        t = self.torch
        net, _ = self.modules("sum")
        rule = t.optim.SGD(net.parameters(), lr=0.1)
        exchange = self.exchange(net, optimizer=rule, train_steps=3)
        for step in exchange:
            loss = self.out(net, self.batch("sum", seed=1), True)
            if step.step == 0:
                with self.assertRaisesRegex(weir.Invalid, "GradScaler.scale.loss. would send"):
                    t.amp.GradScaler("cpu").scale(loss)
                late = self.out(net, self.batch("sum", seed=1), True)
            if step.step == 1:
                with self.assertRaisesRegex(weir.Invalid, "that an earlier step has looked up"):
                    late.backward()
            loss.backward(retain_graph=True)
            rule.step()
            with self.assertRaisesRegex(weir.Invalid, "received another gradient"):
                loss.backward()
            rule.zero_grad()


harness.main(__name__)
