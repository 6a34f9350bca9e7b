"""A plain gRPC client plays a second server, and a worker, to a real ps 0: what that believes of
them, and how it goes on when they say the wrong thing, or nothing any more."""
# label: cluster sanitize long
import array
import os
import signal
import threading
import time
import unittest

import harness
from test_bad_frames import WHY_NOT, crc32c, messages

if not WHY_NOT:
    import grpc

N = 1024  # elements of a chunk
VALUES = array.array("f", [0] * N).tobytes()
GRADIENT = array.array("f", [1] * N).tobytes()
CRC = {VALUES: crc32c(VALUES), GRADIENT: crc32c(GRADIENT)}


class Follower:
    """Server 1 of two, or one that is to join: says what it is told to, and nothing by itself."""

    def __init__(self, test, address, joining):
        self.pb, self.call = test.pb, test.coordinate
        self.request = self.pb.CoordinateRequest(protocol=1, address=address, incarnation=3)
        self.request.stand.lowest = self.request.stand.highest = -1
        if joining:
            self.request.joining = True
        else:
            self.request.server, self.request.n_servers = 1, 2

    def say(self, **changes):
        for name, value in changes.items():
            setattr(self.request, name, value)
        reply = self.call(self.request, timeout=20 * harness.SLOWNESS)
        self.request.seen = reply.number
        return reply

    def stand(self, version):
        self.request.stand.lowest = self.request.stand.highest = version

    def follow(self, until):
        """Is in each generation and at each stop at once, until the reply is such."""
        while True:
            reply = self.say()
            if until(reply):
                return reply
            if reply.HasField("plan"):
                self.request.generation = reply.plan.generation
            if reply.stop.number:
                self.request.stand.stop = reply.stop.number
                self.request.stand.reached = True


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
        self.addCleanup(channel.close)
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
            self.ps.stop(signal.SIGKILL, status=-signal.SIGKILL)
        super().tearDown()

    def ckpt(self, *more):
        return ["--checkpoint_dir=" + os.path.join(self.dir(), "ckpt"), *more]

    def joins(self, member=0):
        """One word of the worker; its reply."""
        pb = self.pb
        job = pb.Job(n_workers=self.n_workers, sync_mode="sync", train_steps=100, seed=1,
                     chunk_bytes=4 * N, optimizer=pb.Optimizer(
                         name="sgd", learning_rate=0.5, decay=0.9, beta1=0.9, beta2=0.999,
                         epsilon=1e-8))
        job.parameters.add(name="w", dims=[self.n_chunks, N])
        return self.join_call(pb.JoinRequest(protocol=1, member=member, incarnation=70 + member,
                                             job=job), timeout=10 * harness.SLOWNESS)

    def await_join(self, generation=1, member=0, seconds=20):
        """Until the worker is in that generation or a later one."""
        deadline = time.monotonic() + seconds * harness.SLOWNESS
        while True:
            reply = self.joins(member)
            self.assertNotEqual(reply.answer, self.pb.JoinReply.REFUSED, reply)
            if reply.answer != self.pb.JoinReply.RETRY and reply.generation >= generation:
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
        return self.exchange(iter([frame]), timeout=20 * harness.SLOWNESS)

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

        answers = self.exchange(frames(), timeout=200 * harness.SLOWNESS)
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
            protocol=1, kind=self.pb.CommandRequest.REMOVE_WORKER, index=worker)).answer

    def begin(self):
        """A job with its first values."""
        joined = self.await_join()
        self.assertEqual(self.piece(joined, "INIT", 0, VALUES), "VERSION")
        return joined

    def begin_with_follower(self):
        """A job of two servers, all of whose first values are there, with both in it."""
        address = self.server_job.ps_hosts[1]
        follower = Follower(self, address, joining=False)
        self.assertEqual(self.joins().answer, self.pb.JoinReply.RETRY)
        follower.follow(lambda reply: reply.settled > 0)
        follower.stand(0)
        return follower, self.begin()

    def ordered(self, follower, step):
        """Until that is the step of the order that is out; the job's last is from the start."""
        while follower.say().checkpoint.step != step:
            pass

    def test_joiner_is_gone(self):
        """It calls once; when it has its chunks to fetch, there is nobody any more."""
        self.start_ps0(1)
        joined = self.begin()
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        Follower(self, address, joining=True).say()
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "REBASE")
        self.ps.wait_line("ps:1 .* joins at step 1")
        joined = self.await_join(generation=3)
        self.assertEqual(len(joined.server_address), 1, joined)
        self.assertEqual(self.ps.output().count("joins at step 1: "), 1, "it was taken in again")
        self.assertEqual(joined.generation, 3)

    def test_leaves_before_it_came(self):
        """A server of the first plan that is not started any more is taken out by command."""
        self.start_ps0(2, *self.ckpt())
        joined = self.await_join()
        self.assertEqual(len(joined.server_address), 2, joined)
        reply = self.command(self.pb.CommandRequest(
            protocol=1, kind=self.pb.CommandRequest.DRAIN_SERVER, index=1))
        self.assertEqual(reply.answer, self.pb.CommandReply.ACCEPTED, reply)
        joined = self.await_join(generation=2)
        self.assertEqual(len(joined.server_address), 1, joined)
        self.assertEqual(self.piece(joined, "INIT", 0, VALUES), "VERSION")
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "APPLIED")

    def test_order_of_an_earlier_ps0(self):
        """What a server wrote for an order of another ps 0, however that was numbered, is no part
        of a checkpoint that this one makes."""
        self.start_ps0(2, *self.ckpt("--save_secs=0"))
        follower, joined = self.begin_with_follower()
        written = follower.request.checkpoint
        written.order, written.bytes, written.crc32c = 2, 4711, 42
        written.phase = self.pb.CoordinateRequest.WRITTEN
        follower.say()
        self.ps.popen.send_signal(signal.SIGUSR1)
        self.ordered(follower, 2)
        for step in range(2):
            self.assertEqual(self.piece(joined, "PUSH", step, GRADIENT), "APPLIED")
        self.ps.wait_line("given up: not all servers answered within 3 s")
        self.assertNotIn("checkpoint at step 2: ", self.ps.output())

    def test_slow_to_take_an_order_up(self):
        """A server that wants out, and takes no order up in time, is not lost for that."""
        self.start_ps0(2, *self.ckpt("--save_secs=0"))
        follower, joined = self.begin_with_follower()
        self.ps.popen.send_signal(signal.SIGUSR1)
        self.ordered(follower, 2)
        follower.say(leaving=True)
        self.ps.wait_line("given up: not all servers answered within 3 s")
        deadline = time.monotonic() + 10 * harness.SLOWNESS
        change = ""
        while "training stops for a change" not in change and time.monotonic() < deadline:
            status = self.status(self.pb.StatusRequest(protocol=1))
            change = status.change
        self.assertIn("training stops for a change", change, "it leaves as others do")
        self.assertLess(status.servers[1].heard_ms, 10000 * harness.SLOWNESS, status)
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
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "REBASE")
        self.assertEqual(self.await_join(generation=3, member=1).n_members, 2)
        time.sleep(1)  # in which it would be removed again
        self.assertEqual(self.joins(member=1).generation, 3)

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
        self.ps.stop(seconds=12, status=143)
        self.ps.wait_line("checkpoint at step 0: ")

    def test_goodbye_is_heard(self):
        """ps 0 that ends stays until the other server has shown that it knows: an answer that
        crossed with another question is given again."""
        self.start_ps0(2, *self.ckpt())
        follower = Follower(self, self.server_job.ps_hosts[1], joining=False)
        seen = follower.say().number
        self.ps.popen.send_signal(signal.SIGTERM)
        self.assertTrue(follower.follow(lambda reply: reply.closing).closing)
        time.sleep(0.15)  # the question's way
        self.assertTrue(follower.say(seen=seen).closing)
        with self.assertRaises(grpc.RpcError):  # it is gone, with no more to say
            follower.say()
        self.ps.wait(5, 143)

    def test_nobody_comes_to_the_stop(self):
        """Workers that are there but make no step do not keep a change waiting for ever."""
        self.start_ps0(1, "--worker_timeout=1", n_workers=2)
        joined = [self.await_join(member=member) for member in range(2)]
        self.assertEqual(self.piece(joined[0], "INIT", 0, VALUES), "VERSION")
        for member in range(2):
            self.stay(joined[member], member)
        self.command(self.pb.CommandRequest(
            protocol=1, kind=self.pb.CommandRequest.REMOVE_WORKER, index=1))
        self.ps.wait_line("workers do not come to step 1 for a change: training stops", 30)
        self.ps.wait_line(r"generation 2 from step 0: 1 workers, 1 servers")

    def test_server_that_no_worker_reaches(self):
        """It joined, and ps 0 hears of it, but at its address nobody listens: taken out, and gone,
        it does not keep the worker."""
        self.start_ps0(1, "--worker_timeout=1")
        worker = self.server_job.start_worker(0, "--train_steps=10000000", "--chunk_bytes=4096",
                                              "--fault_push_delay_ms=2")
        worker.wait_line("training step [0-9]+ done")
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        follower = Follower(self, address, joining=True)
        follower.follow(lambda reply: reply.settled == 2)
        worker.wait_line("waiting for ps:1")
        self.command(self.pb.CommandRequest(
            protocol=1, kind=self.pb.CommandRequest.DRAIN_SERVER, index=1))
        self.ps.wait_line("is gone with its parameters", 40)
        worker.wait_line(r"generation \d+ from step 0: 1 worker, 1 server", 20)
        worker.stop(signal.SIGKILL, status=-signal.SIGKILL)


if __name__ == "__main__":
    harness.main()
