"""A plain gRPC client plays a second server, and a worker, to a real ps 0: what that believes of
them, and how it goes on when they say the wrong thing, or nothing any more."""
# label: cluster sanitize waits long
import array
import re
import signal
import threading
import time
import unittest

import harness
from test_bad_frames import WHY_NOT, crc32c, messages

if not WHY_NOT:
    import grpc

N = 1024  # elements of a chunk
TRIES = 10
VALUES = array.array("f", [0] * N).tobytes()
GRADIENT = array.array("f", [1] * N).tobytes()
CRC = {VALUES: crc32c(VALUES), GRADIENT: crc32c(GRADIENT)}


class Follower:
    """Server 1 of two, or one that is to join: says what it is told to, and nothing by itself."""

    def __init__(self, test, address, joining):
        self.pb, self.call = test.pb, test.coordinate
        self.request = self.pb.CoordinateRequest(protocol=harness.PROTOCOL, address=address,
                                                 incarnation=3)
        self.request.stand.lowest = self.request.stand.highest = -1
        if joining:
            self.request.joining = True
        else:
            self.request.server, self.request.n_servers = 1, 2

    def say(self, **changes):
        for name, value in changes.items():
            setattr(self.request, name, value)
        reply = self.call(self.request, timeout=20 * harness.PATIENCE)
        self.request.seen = reply.number
        return reply

    def stand(self, version):
        self.request.stand.lowest = self.request.stand.highest = version

    def follow(self, until):
        """Is in each generation and at each stop at once, until the reply is such."""
        deadline = time.monotonic() + 60 * harness.PATIENCE
        while time.monotonic() < deadline:
            reply = self.say()
            if until(reply):
                return reply
            if reply.HasField("plan"):
                self.request.generation, self.request.ps0 = reply.plan.generation, reply.plan.ps0
            if reply.stop.number:
                self.request.stand.stop = reply.stop.number
                self.request.stand.reached = True
        raise harness.Failure("ps 0 never said it: %s" % reply)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Coordinate(harness.Test):
    @classmethod
    def setUpClass(cls):
        cls.pb = messages()

    def start_ps0(self, n_ps, *flags, n_workers=1, n_chunks=0):
        pb = self.pb
        self.n_workers, self.n_chunks = n_workers, n_chunks or n_ps
        self.server_job = self.job(n_ps=n_ps, n_workers=n_workers)
        self.ps = self.server_job.start_ps(0, *flags)
        channel = grpc.insecure_channel(self.server_job.ps_hosts[0])
        self.addCleanup(harness.keep(channel).close)
        self.join_call = channel.unary_unary(
            "/weir.v1.Weir/Join", pb.JoinRequest.SerializeToString, pb.JoinReply.FromString)
        self.coordinate = channel.unary_unary(
            "/weir.v1.Weir/Coordinate", pb.CoordinateRequest.SerializeToString,
            pb.CoordinateReply.FromString)
        self.command = channel.unary_unary(
            "/weir.v1.Weir/Command", pb.CommandRequest.SerializeToString,
            pb.CommandReply.FromString)
        self.status = channel.unary_unary(
            "/weir.v1.Weir/Status", pb.StatusRequest.SerializeToString, pb.StatusReply.FromString)
        self.exchange = channel.stream_stream(
            "/weir.v1.Weir/Exchange", pb.Frame.SerializeToString, pb.Frame.FromString)

    def tearDown(self):
        if self.ps.status is None:
            self.ps.kill()
        super().tearDown()

    def ckpt(self, *more):
        return ["--checkpoint_dir=" + self.path("ckpt"), *more]

    def joins(self, member=0):
        """One word of the worker; its reply."""
        pb = self.pb
        job = pb.Job(n_workers=self.n_workers, sync_mode="sync", train_steps=100, seed=1,
                     chunk_bytes=4 * N, optimizer=pb.Optimizer(
                         name="sgd", learning_rate=0.5, decay=0.9, beta1=0.9, beta2=0.999,
                         epsilon=1e-8))
        job.parameters.add(name="w", dims=[self.n_chunks, N])
        return self.join_call(
            pb.JoinRequest(protocol=harness.PROTOCOL, member=member, incarnation=70 + member,
                           job=job), timeout=10 * harness.PATIENCE)

    def await_join(self, generation=1, member=0, seconds=20):
        """Until the worker is in ps 0's so many-th generation or a later one."""
        deadline = time.monotonic() + seconds * harness.PATIENCE
        while True:
            reply = self.joins(member)
            self.assertNotEqual(reply.answer, self.pb.JoinReply.REFUSED, reply)
            if (reply.answer != self.pb.JoinReply.RETRY and
                    reply.generation >= harness.term(generation)):
                return reply
            self.assertLess(time.monotonic(), deadline, reply)
            time.sleep(0.05)  # as a worker does before it asks again

    def send(self, joined, kind, step, payload, member=0, chunk=0):
        """The answers of ps 0, on a stream of their own."""
        pb = self.pb
        piece = pb.Piece(kind=pb.Piece.Kind.Value(kind), chunk=chunk, step=step, weight=1,
                         payload=payload, crc32c=CRC[payload])
        frame = pb.Frame(generation=joined.generation, member=joined.rank,
                         incarnation=70 + member, pieces=[piece])
        return self.exchange(iter([frame]), timeout=20 * harness.PATIENCE)

    def stay(self, joined, member):
        """A stream that stays open to the test's end."""
        over = threading.Event()
        self.addCleanup(over.set)
        head = self.pb.Frame(generation=joined.generation, member=joined.rank,
                             incarnation=70 + member)
        head.pieces.add(kind="PULL", step=0)

        def frames():
            yield head
            over.wait()

        answers = self.exchange(frames(), timeout=200 * harness.PATIENCE)
        self.addCleanup(answers.cancel)
        return next(answers)

    def piece(self, joined, kind, step, payload, **of):
        """The kind of the answer, by default about the first chunk."""
        answers = self.send(joined, kind, step, payload, **of)
        kind = next(answers).pieces[0].kind
        answers.cancel()
        return self.pb.Piece.Kind.Name(kind)

    def removes(self, worker):
        return self.command(self.pb.CommandRequest(
            protocol=harness.PROTOCOL, kind=self.pb.CommandRequest.REMOVE_WORKER,
            index=worker)).answer

    def begin(self):
        """A job with its first values."""
        joined = self.await_join()
        self.assertEqual(self.piece(joined, "INIT", 0, VALUES), "VERSION")
        return joined

    def begin_with_follower(self):
        """A job of two servers, all of whose first values are there, with both in it."""
        address = self.server_job.ps_hosts[1]
        follower = Follower(self, address, joining=False)

        def settled(reply):
            if not reply.settled:
                self.joins()  # again, as workers do: ps 0 may not have recorded its start before
            return reply.settled > 0
        follower.follow(settled)
        follower.stand(0)
        return follower, self.begin()

    def ordered(self, follower):
        """Until an order is out that is not of the job's last step, which is from the start."""
        harness.until(lambda: 0 <= follower.say().checkpoint.step < 100, "an order")

    def test_joiner_is_gone(self):
        """It calls once; when it has its chunks to fetch, there is nobody any more."""
        self.start_ps0(1)
        joined = self.begin()
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        Follower(self, address, joining=True).say()
        self.ps.wait_line("ps:1 .* joins at step 0")
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "REBASE")
        joined = self.await_join(generation=3)
        self.assertEqual(len(joined.server_address), 1, joined)
        self.assertEqual(len(re.findall(r"ps:1 .* joins at step", self.ps.output())), 1,
                         "it was taken in again")
        self.assertEqual(joined.generation, harness.term(3))

    def test_leaves_before_it_came(self):
        """A server of the first plan that is not started any more is taken out by command."""
        self.start_ps0(2, *self.ckpt())
        joined = self.await_join()
        self.assertEqual(len(joined.server_address), 2, joined)
        reply = self.command(self.pb.CommandRequest(
            protocol=harness.PROTOCOL, kind=self.pb.CommandRequest.DRAIN_SERVER, index=1))
        self.assertEqual(reply.answer, self.pb.CommandReply.ACCEPTED, reply)
        joined = self.await_join(generation=2)
        self.assertEqual(len(joined.server_address), 1, joined)
        self.assertEqual(self.piece(joined, "INIT", 0, VALUES), "VERSION")
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "APPLIED")

    def test_order_of_an_earlier_ps0(self):
        """A file that a server wrote for an order of another ps 0, whatever its number, is no part
        of a checkpoint of this one."""
        self.start_ps0(2, *self.ckpt("--save_secs=0"))
        follower, joined = self.begin_with_follower()
        written = follower.request.checkpoint
        written.order, written.bytes, written.crc32c = 2, 4711, 42
        written.phase = self.pb.CoordinateRequest.WRITTEN
        follower.say()
        self.ps.popen.send_signal(signal.SIGUSR1)
        self.ordered(follower)
        for step in range(2):
            self.assertEqual(self.piece(joined, "PUSH", step, GRADIENT), "APPLIED")
        self.ps.wait_line("given up: not all servers answered within 3 s")
        self.assertNotRegex(self.ps.output(), r"checkpoint at step \d+: ")

    def test_leaves_while_an_order_is_out(self):
        """A server that wants out while an order is out, which it does not take, is not lost for
        that; the change does not wait for the checkpoint."""
        self.start_ps0(2, *self.ckpt("--save_secs=0"))
        follower, joined = self.begin_with_follower()
        self.ps.popen.send_signal(signal.SIGUSR1)
        self.ordered(follower)
        follower.say(leaving=True)
        harness.until(lambda: "training stops for a change" in self.status(
            self.pb.StatusRequest(protocol=harness.PROTOCOL)).change, "it leaves as others do")
        self.assertNotIn("is gone with its parameters", self.ps.output())

    def test_removed_before_it_came(self):
        """A worker that is removed without ever having come may come after all, later."""
        self.start_ps0(1, n_workers=2)
        self.assertEqual(self.await_join().n_members, 2)
        self.assertEqual(self.removes(1), self.pb.CommandReply.ACCEPTED)
        joined = self.await_join(generation=2)
        self.assertEqual(joined.n_members, 1)
        self.assertEqual(self.piece(joined, "INIT", 0, VALUES), "VERSION")
        self.assertEqual(self.joins(member=1).answer, self.pb.JoinReply.RETRY)
        self.ps.wait_line("worker 1 .* joins at step 0")
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "REBASE")
        self.assertEqual(self.await_join(generation=3, member=1).n_members, 2)
        time.sleep(1)  # in which it would be removed again
        self.assertEqual(self.joins(member=1).generation, harness.term(3))

    def test_end_in_the_middle_of_a_step(self):
        """SIGTERM while training waits for workers, where it was cut off between two chunks: the
        last checkpoint is of the step that all chunks have."""
        self.start_ps0(1, *self.ckpt("--save_steps=1000", "--worker_timeout=4", "--min_workers=2"),
                       n_workers=2, n_chunks=2)
        joined = [self.await_join(member=member) for member in range(2)]
        for chunk in range(2):
            self.assertEqual(self.piece(joined[0], "INIT", 0, VALUES, chunk=chunk), "VERSION")
        other = self.send(joined[0], "PUSH", 0, GRADIENT)
        self.assertEqual(self.piece(joined[1], "PUSH", 0, GRADIENT, member=1), "APPLIED")
        other.cancel()
        self.ps.wait_line("training waits at step 0: 0 workers are there, --min_workers=2")
        self.ps.stop(status=143)
        self.ps.wait_line("checkpoint at step 0: ")

    def test_goodbye_is_heard(self):
        """ps 0 that ends stays until the other server has shown that it knows: an answer that
        crossed with another question is given again. It waits half a second for that question
        (tests/ps_calls_test.c): where ours was later, all is done once more."""
        for n in range(TRIES):
            self.start_ps0(2, "--checkpoint_dir=%s" % self.path("ckpt-%d" % n))
            follower = Follower(self, self.server_job.ps_hosts[1], joining=False)
            seen = follower.say().number
            self.ps.popen.send_signal(signal.SIGTERM)
            try:
                self.assertTrue(follower.follow(lambda reply: reply.closing).closing)
                time.sleep(0.15)  # the question's way
                again = follower.say(seen=seen)
            except grpc.RpcError:
                self.ps.wait(status=143)
                continue
            self.assertTrue(again.closing)
            with self.assertRaises(grpc.RpcError):  # it is gone, with no more to say
                follower.say()
            self.ps.wait(status=143)
            return
        self.fail("it was never there for another question")

    def test_nobody_comes_to_the_stop(self):
        """Workers that are there but make no step do not keep a change waiting for ever."""
        self.start_ps0(1, "--worker_timeout=1", n_workers=2)
        joined = [self.await_join(member=member) for member in range(2)]
        self.assertEqual(self.piece(joined[0], "INIT", 0, VALUES), "VERSION")
        for member in range(2):
            self.stay(joined[member], member)
        self.command(self.pb.CommandRequest(
            protocol=harness.PROTOCOL, kind=self.pb.CommandRequest.REMOVE_WORKER, index=1))
        self.ps.wait_line(r"generation 1\.2 from step 0: 1 workers, 1 servers")

    def test_server_that_no_worker_reaches(self):
        """It joined, and ps 0 hears of it, but at its address nobody listens: taken out, and gone,
        it does not keep the worker."""
        self.start_ps0(1, "--worker_timeout=1")
        worker = self.server_job.start_worker(0, "--train_steps=10000000", "--chunk_bytes=4096",
                                              "--fault_push_delay_ms=2")
        worker.wait_line("training step [0-9]+ done")
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        follower = Follower(self, address, joining=True)
        follower.follow(lambda reply: reply.settled == harness.term(2))
        worker.wait_line("waiting for ps:1")
        self.command(self.pb.CommandRequest(
            protocol=harness.PROTOCOL, kind=self.pb.CommandRequest.DRAIN_SERVER, index=1))
        self.ps.wait_line("is to hand on its chunks and has not been heard of", 60)
        self.command(self.pb.CommandRequest(  # once more: it does not come back
            protocol=harness.PROTOCOL, kind=self.pb.CommandRequest.DRAIN_SERVER, index=1))
        self.ps.wait_line("is gone with its parameters", 40)
        worker.wait_line(r"generation [\d.]+ from step 0: 1 worker, 1 server", 20)
        worker.kill()


harness.main(__name__)
