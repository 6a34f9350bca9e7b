#!/usr/bin/python3
"""weir.torch: a module trained by Exchange ends with the values of PyTorch's optimizer, also with
shared, unused, frozen and bf16 parameters. The GPT of examples/python has the losses of
DistributedDataParallel, and the same bits after killed processes."""
# label: cluster
import copy
import os
import re
import signal
import subprocess
import sys
import warnings
import weakref
from unittest import mock

import harness
import samples
import torch_case

harness.use_package()
import weir  # noqa: E402

EXAMPLES = harness.source("examples/python")
STEPS = 60
TOLERANCE = 1e-5  # error of each loss: DDP and the servers round at different places
DDP_PORT = 29571


class Alone(torch_case.Torch):
    """Training without servers, by the same rule."""

    def net(self):
        nn = self.torch.nn
        net = nn.Sequential(nn.Linear(8, 8, bias=False), nn.BatchNorm1d(8), nn.Linear(8, 8),
                            nn.Linear(8, 3))
        net[2].weight = net[0].weight  # shared
        net[3].unused = nn.Linear(2, 2)
        net[3].bias.requires_grad_(False)
        return net

    def test_adamw_matches_pytorch(self):
        """AdamW: values, statistics, parameters without a gradient, frozen parameters."""
        net, want = self.net(), self.net()
        want.load_state_dict(net.state_dict())
        rule = self.torch.optim.AdamW([p for p in want.parameters() if p.requires_grad], lr=0.01)
        exchange = self.exchange(net, optimizer="adamw", learning_rate=0.01, train_steps=30,
                                 batch_size=16)
        for step in exchange:
            items = exchange.samples(self.x)
            self.assertEqual((step.n_samples, len(set(items))), (16, 16))
            self.loss(net, items).backward()
            self.assertTrue(all(p.grad is None for p in net[0].parameters()))
            rule.zero_grad()
            self.loss(want, items).backward()
            rule.step()
            if step.step == 10:  # the values are those after this step, before the next one
                self.close(net.state_dict(), want.state_dict())
        self.assertEqual(exchange.result, "done")
        self.close(net.state_dict(), want.state_dict())
        self.assertIs(net[2].weight, net[0].weight)
        self.loss(net, [0, 1]).backward()  # no hook is left
        self.assertIsNotNone(net[0].weight.grad)

    def test_other_dtypes_and_accumulation_train(self):
        for dtype in (self.torch.bfloat16, self.torch.float16, self.torch.float64):
            net = self.torch.nn.Linear(8, 3).to(dtype)
            before = self.loss(net, range(64)).item()
            exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=40,
                                     backwards=2)
            for _ in exchange:
                for half in range(2):
                    (self.loss(net, range(32 * half, 32 * half + 32)) / 2).backward()
            self.assertEqual(net.weight.dtype, dtype)
            self.assertLess(self.loss(net, range(64)).item(), 0.9 * before)
        with self.assertRaisesRegex(weir.Invalid, "'weight' is complex"):
            next(self.exchange(self.torch.nn.Linear(8, 3, dtype=self.torch.complex64)))

    def test_layer_without_elements_trains(self):
        """The layer has nothing to train, and the remaining layers train as in PyTorch."""
        nn, torch = self.torch.nn, self.torch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's warning about a tensor without elements
            net = nn.ModuleDict({"empty": nn.Linear(8, 0), "rest": nn.Linear(8, 3)})
        before = net["rest"].weight.detach().clone()
        for _ in self.exchange(net, train_steps=2):
            (net["empty"](self.x).sum() + net["rest"](self.x).sum()).backward()
        self.assertFalse(torch.equal(before, net["rest"].weight))

    def test_name_with_a_space_refused(self):
        net = self.torch.nn.ModuleDict({"two words": self.torch.nn.Linear(8, 3)})
        with self.assertRaisesRegex(weir.Invalid, "parameter 'two words.weight': a name has .* no "
                                    "spaces; rename it"):
            next(self.exchange(net))

    def test_compiled_network_trains(self):
        """The test compiles the network as a whole, in place, and a part of it."""
        nn, torch = self.torch.nn, self.torch
        for how in ("whole", "in place", "part"):
            net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 3))
            want = copy.deepcopy(net)
            rule = torch.optim.SGD(want.parameters(), lr=0.1)
            if how == "whole":
                made = torch.compile(net, backend="eager")
            elif how == "in place":
                net.compile(backend="eager")
                made = net
            else:
                net[0] = torch.compile(net[0], backend="eager")
                made = net
            made(self.x)  # compiles the network before Exchange adds its hooks
            exchange = self.exchange(made, optimizer="sgd", learning_rate=0.1, train_steps=4,
                                     early=how == "part")
            self.assertFalse(exchange.early)
            for step in exchange:
                torch.testing.assert_close(net(self.x), want(self.x), msg=how)
                self.loss(made, range(64)).backward()
                rule.zero_grad()
                self.loss(want, range(64)).backward()
                rule.step()
                # The values are those after the last step, before the next one begins.
                torch.testing.assert_close(made(self.x), want(self.x), msg=how)
            self.assertEqual(made(self.x).shape, (64, 3))  # without hooks
            self.assertEqual(step.step, 3)
            for a, b in zip(net.parameters(), want.parameters()):
                torch.testing.assert_close(a, b, msg=how)

    def test_state_dicts_restore_exchange(self):
        net = self.torch.nn.Linear(8, 3)
        first = copy.deepcopy(net.state_dict())
        exchange = self.exchange(net, train_steps=4, early=True)
        self.assertEqual(exchange.state_dict()["step"], 0)
        next(exchange)
        self.loss(net, [0]).backward()
        kept = exchange.state_dict()
        next(exchange)
        self.loss(net, [1]).backward()
        exchange.close()
        with self.assertRaisesRegex(weir.Invalid, "ended during a step"):
            exchange.state_dict()
        self.assertEqual(kept["step"], 1)
        self.assertFalse(self.torch.equal(kept["model"]["weight"], first["weight"]))
        other = self.torch.nn.Linear(8, 3)
        exchange = self.exchange(other, train_steps=4, early=True)
        exchange.load_state_dict(kept)
        next(exchange)
        self.close(other.state_dict(), kept["model"])
        with self.assertRaisesRegex(weir.Invalid, "before the first"):
            exchange.load_state_dict(kept)
        self.loss(other, [1]).backward()
        with mock.patch.object(exchange.member, "wait", return_value=False):
            with self.assertRaisesRegex(weir.Invalid, "step 0 was cancelled.*in the next"):
                exchange.state_dict()
        next(exchange)
        self.assertEqual(exchange.state_dict()["step"], 1)
        exchange.close()
        self.assertEqual(exchange.state_dict()["step"], 1)

    def test_loader_reads_batches_of_each_step(self):
        """Batches that a process of the loader reads ahead belong to the right steps, also if the
        next positions are not those that it expected. The test also checks which positions it
        expects, with and without local steps."""
        from weir.torch import Loader
        from weir.torch._loader import positions
        data = self.torch.utils.data.TensorDataset(self.torch.arange(64), self.x)

        # Steps of one member. Before step 3 the positions jump, as if other members had joined, and
        # from step 6 on each step skips positions, as in mode `async`.
        class Steps:
            local_steps, member = 1, weir.Member()

            def samples(self, n):
                return self.member.samples(self.step, n)

            def __iter__(self):
                for i in range(9):
                    at = 8 * i + 1000 * (i >= 3) + 8 * max(0, i - 5)
                    self.step = weir.Step(i, 9, at, 8, 1, 1, 0, 0, 1, i in (0, 3), 0)
                    yield self.step
                self.step = None
        for workers in (0, 1):
            steps = Steps()
            loader, ahead = Loader(steps, data, num_workers=workers), []
            for items, _ in loader:
                self.assertEqual(items.tolist(), steps.samples(64))
                ahead.append(len(loader._asked))
            want = [2] * 6 + [0] * 3 if workers else [0] * 9
            self.assertEqual((ahead, loader.restarts), (want, 2 * workers))
        steps, made, nexts = Steps(), [], []
        loader = Loader(steps, data, num_workers=1)
        for items, _ in loader:
            made.append(items.tolist())
            self.assertEqual(made[-1], steps.samples(64))
            nexts.append(loader.next_batch())
        self.assertIs(loader.next_batch(), None)
        same = [b is not None and b[0].tolist() == m for b, m in zip(nexts, made[1:])]
        self.assertEqual(same, [i not in (2, 5, 6, 7) for i in range(8)])
        with self.assertRaisesRegex(weir.Invalid, "in_order=False"):
            Loader(Steps(), data, num_workers=1, in_order=False)
        for steps in (1, 3):
            def place(r, i, n=steps):
                first = 2 * 4 * n * (i // n) + 4 * n * r + i % n * 4  # 2 members, batches of 4
                return weir.Step(i, 9, 2 * first, 4, 2, 1, r, r, 2, False, 0)
            for r in range(2):
                self.assertEqual(list(positions(place(r, 0), steps)),
                                 [place(r, i).positions for i in range(9)])

    def test_trace_shows_overlap_with_backward(self):
        """Gradients are pushed, and are in flight, while backward still runs."""
        nn, path = self.torch.nn, self.path("trace.json")
        # The weights of each layer are so large that they are sent by themselves.
        net = nn.Sequential(*(nn.Linear(160, 160) for _ in range(3)))
        with weir.Cluster() as cluster:
            for _ in self.exchange(net, train_steps=4, trace=path, **cluster.settings()):
                net(self.torch.ones(16, 160)).sum().backward()
            cluster.wait(20 * harness.PATIENCE)
        events = harness.read_json(path)["traceEvents"]
        for step in range(4):
            mine = {(e["name"], e["ph"]): e for e in events if e.get("args") == {"step": step}}
            backward = mine["backward", "X"]
            end = backward["ts"] + backward["dur"]
            self.assertAlmostEqual(end, max(
                e["ts"] + e["dur"] for (name, _), e in mine.items()
                if name.startswith("backward ")), delta=1)  # in microseconds
            for i in (0, 2):
                for name in ("forward %d", "parameters of %d.weight", "backward %d.weight",
                             "hand out %d.weight"):
                    if step or not name.startswith("parameters"):
                        self.assertIn((name % i, "X"), mine)
                self.assertIn(("request %d.weight" % i, "e"), mine)
            self.assertLess(mine["forward 2", "X"]["ts"], backward["ts"])
            self.assertLess(mine["request 2.weight", "b"]["ts"], end)
            last = mine["backward 0.weight", "X"]
            self.assertLess(mine["request 2.weight", "b"]["ts"], last["ts"] + last["dur"])
        merge = harness.source("bench/trace_merge")
        out = harness.check_output([merge, "-o", path + ".all", path])
        self.assertRegex(out, r"member:0 .*\d%")

    def test_unwritable_trace_does_not_block_leave_message(self):
        """If the trace cannot be written, the servers receive the leave message nevertheless. A
        trace does not keep a member alive that the program has dropped."""
        net, path = self.torch.nn.Linear(8, 3), self.path("gone")
        exchange = self.exchange(net, train_steps=1, trace=path)
        next(exchange)
        self.loss(net, [0]).backward()
        os.remove(path)
        os.mkdir(path)
        with mock.patch.object(exchange.member, "close", wraps=exchange.member.close) as close:
            with self.assertRaises(IsADirectoryError):
                next(exchange)
            close.assert_called_once()
        member = weir.Member()
        from weir._trace import Trace
        trace, dropped = Trace(path + "2"), weakref.ref(member)
        trace.listen(member, [])
        del member
        harness.until(lambda: dropped() is None, "the member has been collected")
        trace.write()

    def test_trace_assigns_answers_to_their_pushes(self):
        """Each answer belongs to its own push, whichever call sees it first."""
        from weir._trace import Trace
        trace = Trace(self.path("trace"))
        trace.names = ["w"]
        for step in range(2):
            trace.begin(step)
            trace.push(0)
            trace.answered(0, step - 1)  # the answer to the previous push
            self.assertEqual(len(trace.spans), step)
            trace.answered(0)
        self.assertEqual([s[5] for s in trace.spans], [0, 1])
        trace.write()

    def test_parameters_used_without_module_call(self):
        """Attention uses a module's parameters without calling it. A user's module that does so is
        refused with advice."""
        nn = self.torch.nn
        net = nn.MultiheadAttention(8, 2)
        exchange = self.exchange(net, train_steps=2, early=True)
        for _ in exchange:
            net(self.x, self.x, self.x)[0].sum().backward()

        class Thief(nn.Module):
            def __init__(self):
                super().__init__()
                self.mine = nn.Linear(8, 3)

            def forward(self, x):
                return nn.functional.linear(x, self.mine.weight)
        net = Thief()
        with self.assertRaisesRegex(weir.Invalid, "mine.weight.*remove early=True"):
            with self.exchange(net, train_steps=2, early=True) as exchange:
                next(exchange)
                self.loss(net, [1, 2]).backward()
        for _ in self.exchange(net, train_steps=2):
            self.loss(net, [1, 2]).backward()

    def test_wrong_steps_refused_and_skipped_steps_change_nothing(self):
        nn = self.torch.nn
        net = nn.Linear(8, 3)
        exchange = self.exchange(net, optimizer="sgd", learning_rate=0.1, train_steps=4)
        next(exchange)
        with self.assertRaisesRegex(weir.Invalid, "step 0 received no gradient.*weir.torch.Loader"):
            next(exchange)
        before = net.weight.detach().clone()
        exchange.skip()
        (self.loss(net, [0]) * float("nan")).backward()
        next(exchange)
        self.loss(net, [0])
        self.assertTrue(self.torch.equal(net.weight, before))
        self.loss(net, [0]).backward()
        with self.assertRaisesRegex(weir.Invalid, "backwards=N"):
            self.loss(net, [0]).backward()
        with self.assertRaisesRegex(weir.Invalid, "--restore"):
            net.load_state_dict(net.state_dict())
        exchange.close()
        with self.assertRaisesRegex(weir.Invalid, "no floating-point buffer 'x'"):
            next(self.exchange(net, buffers=["x"]))

    def test_reassigned_memory_reported(self):
        """If a tensor is assigned other memory, training stops with a message; it resumes when the
        tensor has its own memory again."""
        net = self.torch.nn.Linear(8, 3)
        exchange = self.exchange(net, train_steps=4)
        next(exchange)
        self.loss(net, [0]).backward()
        net.state_dict()  # all values are there
        # For example, a tool assigns the average of the weights.
        mine, net.weight.data = net.weight.data, self.torch.zeros(3, 8)
        self.assertEqual(net(self.x[:1]).tolist(), [net.bias.tolist()])
        net.weight.data = mine
        next(exchange)
        self.loss(net, [0]).backward()
        net.double()
        with self.assertRaisesRegex(weir.Invalid, "'(weight|bias)' has new memory.*before"):
            next(exchange)
            net(self.x[:1].double())
        exchange.close()
        self.assertEqual(net.weight.dtype, self.torch.float64)

    def test_sparse_gradients_train(self):
        net = self.torch.nn.Embedding(5, 2, sparse=True)
        before = net.weight.detach().clone()
        for _ in self.exchange(net, optimizer="sgd", learning_rate=1, train_steps=1):
            net(self.torch.tensor([1, 1])).sum().backward()
        self.torch.testing.assert_close(
            before - net.weight, self.torch.tensor([[0.], [2], [0], [0], [0]]).expand(5, 2))
        with weir.Member() as m:
            w = m.param("w", (1,))
            m.next()
            with self.assertRaisesRegex(weir.Invalid, "Tensor cannot be read.*detach"):
                m.push(w, self.torch.zeros(1, requires_grad=True), samples=1)

    def test_leave_in_signal_handler(self):
        """A signal handler may call leave_soon() at any time, also after close()."""
        exchange = self.exchange(self.torch.nn.Linear(8, 3), train_steps=1)
        exchange.leave_soon(0)
        exchange.close()
        self.assertTrue(exchange.leave_soon(0))

    def test_views_keep_last_values(self):
        """The memory of views stays valid after the end of the job, with the last values."""
        net = self.torch.nn.Linear(8, 3)
        for step in self.exchange(net, train_steps=2):
            loss = self.loss(net, [0])
            loss.backward()
            if step.step == 0:
                kept = net.state_dict()
        self.torch.testing.assert_close(kept["weight"], net.weight.detach())

    def test_memory_shared_without_copy(self):
        """A push reads tensors and numpy arrays without a copy. Views show the library's memory
        without a copy."""
        with weir.Member(optimizer="sgd", learning_rate=1, train_steps=2) as m:
            first = self.torch.arange(6.).view(2, 3)
            w = m.param("w", (2, 3), first)
            m.next()
            values = self.torch.frombuffer(m._view("weir_values", w, True),
                                           dtype=self.torch.float32)
            for wrong, why in ((first.t(), "contiguous"), (first.double(), "float32"),
                               (first[:1], "6 elements")):
                with self.assertRaisesRegex(weir.Invalid, why):
                    m.push(w, wrong, samples=1)
            m.push(w, first.numpy(), samples=1)
            m.next()
            self.assertEqual(values.tolist(), [0] * 6)
            m.push(w, self.torch.ones(4, 3)[::2].contiguous(), samples=1)
            self.assertIsNone(m.next())
        self.assertEqual(values.tolist(), [-1] * 6)  # the memory exists as long as `values`

    def test_sampler_follows_positions(self):
        from weir.torch import Sampler
        net = self.torch.nn.Linear(8, 3)
        exchange = self.exchange(net, batch_size=8, train_steps=16)
        data = self.torch.utils.data.TensorDataset(self.x, self.torch.arange(64))
        seen = []
        for x, items in self.torch.utils.data.DataLoader(data, batch_sampler=Sampler(exchange, 64)):
            seen += items.tolist()
            net(x).sum().backward()
        self.assertEqual(sorted(seen[:64]), list(range(64)))
        self.assertEqual(sorted(seen[64:]), list(range(64)))

    def test_epochs_end_the_loops_over_steps(self):
        """A step belongs to the pass of its first sample. 64 samples in batches of 24."""
        from weir.torch import Sampler
        data = self.torch.utils.data.TensorDataset(self.x, self.torch.arange(64))
        net = self.net()
        exchange = self.exchange(net, batch_size=24, train_steps=8)
        loader = self.torch.utils.data.DataLoader(data, batch_sampler=Sampler(exchange, data))
        passes, seen, before = [], [], None
        for epoch in exchange.epochs(data):
            passes.append((epoch, len(loader), []))
            for x, items in loader:
                passes[-1][2].append(exchange.step.step)
                seen += items.tolist()
                net(x).square().mean().backward()
            values = self.torch.nn.utils.parameters_to_vector(net.parameters()).clone()
            self.assertFalse(before is not None and self.torch.equal(values, before))
            before = values
        self.assertEqual(passes, [(0, 3, [0, 1, 2]), (1, 3, [3, 4, 5]), (2, 2, [6, 7])])
        self.assertEqual(exchange.result, "done")
        for i in range(3):
            self.assertEqual(sorted(seen[64 * i:64 * i + 64]), list(range(64)))

    def test_epochs_left_early_do_not_bound_later_loops(self):
        net = self.net()
        exchange = self.exchange(net, batch_size=16, train_steps=12)
        for epoch in exchange.epochs(64):
            made = 0
            for step in exchange:
                net(self.x[exchange.samples(64)]).mean().backward()
                made += 1
                if step.step == 5:
                    break
            if epoch == 1:
                break
        self.assertEqual((epoch, made), (1, 2))
        self.assertEqual([s.step for s in exchange if net(self.x).mean().backward() is None],
                         list(range(6, 12)))
        for settings in ({"sync_mode": "async"}, {"replicas_to_aggregate": 1}):
            with self.assertRaisesRegex(weir.Invalid, "epochs.. needs sync_mode=sync"):
                self.exchange(net, **settings).epochs(64)
        with self.assertRaisesRegex(weir.Invalid, "without samples"):
            self.exchange(net).epochs([])


class Servers(torch_case.Torch):
    def test_epochs_are_those_of_all_members(self):
        """Two members with batches of 5 read 64 samples; worker processes read ahead over the end
        of a pass. The second job begins in the second pass."""
        from weir.torch import Loader
        data = self.torch.utils.data.TensorDataset(self.x, self.torch.arange(64))

        def member(_i, settings):
            net = self.net()
            rule = self.torch.optim.SGD(net.parameters(), lr=0.01)
            exchange = self.exchange(net, optimizer=rule, train_steps=self.steps,
                                     **{**settings, "batch_size": 5})
            loader, passes = Loader(exchange, data, num_workers=1), []
            for epoch in exchange.epochs(data):
                passes.append((epoch, []))
                for x, _items in loader:
                    rule.zero_grad()
                    passes[-1][1].append(exchange.step.step)
                    net(x).square().mean().backward()
                    rule.step()
            return passes, loader.restarts
        self.steps = 10
        want = [(0, list(range(7))), (1, list(range(7, 10)))], 0
        self.assertEqual(self.job(member, checkpoint_dir=self.path("saved")), [want] * 2)
        self.steps = 15
        want = [(1, [10, 11, 12]), (2, [13, 14])], 0
        self.assertEqual(self.job(member, checkpoint_dir=self.path("saved")), [want] * 2)

    def cluster(self, **kwargs):
        command = [sys.executable, os.path.join(EXAMPLES, "char_gpt_weir.py"),
                   "--train_steps=%d" % STEPS]
        return weir.Cluster(n_workers=2, command=command, **kwargs)

    def wait(self, cluster):
        """Waits for the job's end. Returns the SHA-256 of the weights, which is the same at all
        workers, and the losses of each worker."""
        cluster.wait(60 * harness.PATIENCE)
        said = [cluster.output("worker:%d" % i) for i in range(2)]
        found = {re.search(r"SHA-256 of the weights: (\w+)", text).group(1) for text in said}
        self.assertEqual(len(found), 1)
        return found, [{int(s): float(v) for s, v in re.findall(r"step (\d+) loss (\S+)", text)}
                       for text in said]

    def ddp(self):
        """Returns the losses of each rank by DistributedDataParallel."""
        ranks = [
            self.start("ddp:%d" % rank, [sys.executable, harness.source("tests/python/ddp_gpt.py"),
                                         str(STEPS)],
                       env=harness.package_env(RANK=str(rank), WORLD_SIZE="2",
                                               MASTER_ADDR=harness.LOOPBACK,
                                               MASTER_PORT=str(DDP_PORT)))
            for rank in range(2)]
        self.wait_all(ranks, 60, None)
        self.assertEqual([p.status for p in ranks], [0, 0])
        return [{int(s): float(v) for s, v in re.findall(r"step (\d+) loss (\S+)", p.output())}
                for p in ranks]

    def test_gpt_matches_ddp(self):
        with self.cluster() as cluster:
            bits, losses = self.wait(cluster)
        ddp = self.ddp()
        apart = max(abs(a[step] / b[step] - 1) for a, b in zip(losses, ddp)
                    for step in range(STEPS))
        print("PyTorch %s: losses furthest apart: %.2g; the last: %s" % (
            self.torch.__version__, apart, [a[STEPS - 1] for a in losses]))
        self.assertEqual([len(a) for a in (*losses, *ddp)], [STEPS] * 4)
        self.assertLess(apart, TOLERANCE)
        self.assertLess(losses[0][STEPS - 1], 0.75 * losses[0][0])
        with self.cluster(checkpoint_dir=self.dir(), ps_flags=["--save_steps=10"]) as cluster:
            for n, name in enumerate(("worker:0", "worker:1", "ps:0")):
                at = "step %d " % (5 + 12 * n)
                harness.until(lambda a=at: a in cluster.output("worker:0"), at)
                cluster.kill(name)
                self.assertEqual(cluster.processes[name].popen.returncode, -signal.SIGKILL)
                kind, task = name.split(":")
                (cluster.start_ps if kind == "ps" else cluster.start_worker)(int(task))
            self.assertEqual(self.wait(cluster)[0], bits)

    def test_changing_members_change_no_bit(self):
        """A worker is killed and started again, another one joins and leaves, and the server is
        killed. All workers end with the same bits. Each sample counts once, also if a Loader reads
        samples ahead."""
        record = self.path("samples")
        command = [sys.executable, harness.source("tests/python/gpt_samples.py"), record, "0",
                   "--train_steps=%d" % STEPS]
        with weir.Cluster(n_workers=2, command=command, checkpoint_dir=self.dir() + "/kept",
                          ps_flags=["--save_steps=10"]) as cluster:
            def reached(name, text):
                harness.until(lambda: text in cluster.output(name), "%s: %s" % (name, text), 60)
            reached("worker:0", "step 5 ")
            held = cluster.processes["worker:0"].popen
            held.send_signal(signal.SIGSTOP)  # until the joiner has imported PyTorch
            joins = cluster.add_worker()
            cluster.kill("worker:1")
            cluster.start_worker(1)
            reached("ps:0", "joins at step")
            held.send_signal(signal.SIGCONT)
            reached("joined:0", "step ")
            joins.popen.terminate()
            reached("ps:0", "leaves at step")
            cluster.kill("ps:0")
            cluster.start_ps()
            self.wait(cluster)
            self.assertRegex(cluster.output("worker:0"), r"given up [1-9]\d* times")
        self.assertEqual(samples.wrong([record], STEPS), [])
        with open("/usr/share/common-licenses/GPL-3", encoding="ascii") as f:
            self.assertEqual(samples.wrong_items([record], len(f.read()) - 64), [])

    def test_torchrun_ranks_find_their_places(self):
        """The environment of torchrun determines the place of each rank."""
        with weir.Cluster(n_workers=0) as cluster:
            argv = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                    "--nproc_per_node=2", os.path.join(EXAMPLES, "char_gpt_weir.py"),
                    "--train_steps=3"]
            said = harness.check_output(argv, stderr=subprocess.DEVNULL,
                                        timeout=120 * harness.PATIENCE,
                                        env=harness.package_env(
                                            WEIR_PS_HOSTS=",".join(cluster.ps_hosts)))
            cluster.wait(20 * harness.PATIENCE)
        bits = re.findall("[0-9a-f]{64}", said)  # lines of the two ranks may be mixed
        self.assertEqual((len(bits), len(set(bits))), (2, 1))

    def test_clip_norm_and_checkpoints_match_pytorch(self):
        """clip_norm equals clip_grad_norm_; a checkpoint is PyTorch's state, from which PyTorch
        trains on."""
        from weir.torch import load_checkpoint
        torch = self.torch
        net = torch.nn.Sequential(torch.nn.Linear(8, 400), torch.nn.Linear(400, 3))
        want, other = copy.deepcopy(net), copy.deepcopy(net)

        def rule(of):
            return torch.optim.AdamW(of.parameters(), lr=0.01, weight_decay=0.1)

        def step(of, by):
            by.zero_grad()
            torch.nn.functional.mse_loss(of(self.x), self.y).backward()
            norm = torch.nn.utils.clip_grad_norm_(of.parameters(), 0.05)
            by.step()
            return norm
        by = rule(want)
        with weir.Cluster(checkpoint_dir=self.dir() + "/kept", ps_flags=["--save_steps=3"]) as c:
            for _ in self.exchange(net, optimizer="adamw", learning_rate=0.01, weight_decay=0.1,
                                   clip_norm=0.05, train_steps=5, **c.settings()):
                torch.nn.functional.mse_loss(net(self.x), self.y).backward()
                self.assertGreater(step(want, by), 0.05)
            c.wait(20 * harness.PATIENCE)
        for a, b in zip(net.parameters(), want.parameters()):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        kept = self.path("kept")
        first, = (f for f in os.listdir(kept) if re.fullmatch(r"weir-.*-3\.json", f))
        found = load_checkpoint(os.path.join(kept, first), other)
        self.assertEqual((found["step"], found["position"]), (3, 3 * 32))
        again = rule(other)
        again.load_state_dict({**again.state_dict(), **found["optimizer"]})
        for _ in range(2):
            step(other, again)
        for a, b in zip(other.parameters(), want.parameters()):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
        self.assertEqual(load_checkpoint(kept, other)["step"], 5)
        for a, b in zip(other.parameters(), net.parameters()):
            self.assertTrue(torch.equal(a, b))
        with self.assertRaisesRegex(weir.Error, "has '0.weight' of .400, 8., the model has not"):
            load_checkpoint(kept, torch.nn.Sequential(torch.nn.Linear(8, 3)))
        more = torch.nn.Sequential(*other, torch.nn.Linear(3, 3))
        with self.assertRaisesRegex(weir.Error, "lacks '2.weight', which the model has"):
            load_checkpoint(kept, more)
        more[2].requires_grad_(False)
        load_checkpoint(kept, more)

    def test_worker_started_after_last_step_has_final_values(self):
        """A worker that joins when all steps are made has the final values."""
        net = self.torch.nn.Linear(8, 3)
        with weir.Cluster() as cluster:
            settings = dict(cluster.settings(), optimizer="sgd", learning_rate=1, train_steps=1)
            before = weir.Member(**settings)
            for name, p in net.named_parameters():
                before.param(name, p.shape, self.torch.ones(p.shape))
            before.next()
            for i, p in enumerate(net.parameters()):
                before.push(i, self.torch.full(p.shape, -6.0), samples=32)
            before.wait(0)
            before.close()  # otherwise the servers would wait for this member at the end
            exchange = self.exchange(net, **settings)
            self.assertEqual(list(exchange), [])
            self.assertEqual(exchange.state_dict()["step"], 1)
            cluster.wait(20 * harness.PATIENCE)
        self.assertEqual({v for p in net.parameters() for v in p.flatten().tolist()}, {7.0})

    def test_skipped_local_steps_hidden_from_optimizer(self):
        """PyTorch's optimizer never receives the gradients of skipped steps. The other steps of the
        round count."""
        net = self.torch.nn.Linear(8, 3)
        rule = self.torch.optim.AdamW(net.parameters(), lr=0.03)
        with weir.Cluster() as cluster:
            exchange = self.exchange(net, rule, local_steps=2, batch_size=8, train_steps=6,
                                     outer_optimizer="sgd", outer_learning_rate=1,
                                     **cluster.settings())
            seen = [net.weight.detach().clone()]
            for step in exchange:
                if step.step % 2 == 0:
                    seen.append(net.weight.detach().clone())
                loss = net(self.x).sum()
                if step.step in (0, 2, 3):
                    exchange.skip()
                    loss = loss * float("nan")
                loss.backward()
                self.assertEqual(exchange.state_dict()["step"], step.step)
            self.assertEqual(exchange.state_dict()["step"], 6)
            cluster.wait(20 * harness.PATIENCE)
        self.assertEqual([bool((a != b).any()) for a, b in zip(seen, seen[1:])],
                         [False, True, False])
        self.assertTrue(all(s["exp_avg"].isfinite().all() and s["step"] == 3
                            for s in rule.state.values()))

    def test_other_local_steps_refused(self):
        net = self.torch.nn.Linear(8, 3)
        exchange = self.exchange(net, self.torch.optim.SGD(net.parameters(), lr=1), local_steps=4,
                                 batch_size=8)
        with self.assertRaisesRegex(weir.Invalid, "40 samples.*local_steps=4 with batch_size=8"):
            exchange._way.check_round(mock.Mock(n_samples=40))

    def test_local_steps_by_pytorch_optimizer(self):
        """Two members, each with its own AdamW, end with the same values."""
        import threading
        out, nets = {}, [self.torch.nn.Linear(8, 3) for _ in range(2)]

        def member(i, cluster):
            net = nets[i]
            rule = self.torch.optim.AdamW(net.parameters(), lr=0.03)
            exchange = self.exchange(net, rule, local_steps=5, batch_size=8, train_steps=60,
                                     **cluster.settings(i))
            out[i] = []
            for step in exchange:
                items = exchange.samples(64)
                out[i].append((step.step, items))
                self.torch.nn.functional.mse_loss(net(self.x[items]), self.y[items]).backward()
        with weir.Cluster(n_workers=2) as cluster:
            threads = [threading.Thread(target=member, args=(i, cluster)) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            cluster.wait(20 * harness.PATIENCE)
        self.assertTrue(self.torch.equal(nets[0].weight, nets[1].weight))
        self.assertEqual([step for step, _ in out[0]], list(range(60)))
        read = [i for o in out.values() for _, items in o for i in items]
        self.assertEqual({read.count(i) for i in range(64)}, {15})


harness.main(__name__)
