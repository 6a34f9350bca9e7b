"""A plain gRPC client imitates a second server, and a worker, of a real ps 0. The tests check the
state of ps 0, and how it handles wrong messages and silence."""
# label: cluster sanitize waits long
import array
import re
import signal
import threading
import time
import unittest

import harness
from harness import crc32c
from test_wire import WHY_NOT, generate

if not WHY_NOT:
    import grpc

N = 1024  # elements of a chunk
TRIES = 10
VALUES = array.array("f", [0] * N).tobytes()
GRADIENT = array.array("f", [1] * N).tobytes()
CRC = {VALUES: crc32c(VALUES), GRADIENT: crc32c(GRADIENT)}


class Follower:
    """Server 1 of two, or a server that joins. It sends only the messages that the test orders."""

    def __init__(self, test, address, joining):
        self.pb, self.call = test.pb, test.coordinate
        self.request = self.pb.CoordinateRequest(protocol=harness.PROTOCOL, address=address,
                                                 incarnation=3)
        self.request.stand.lowest = self.request.stand.highest = -1
        if joining:
            self.request.joining = True
        else:
            self.request.server, self.request.n_servers = 1, 2

    def report(self, **changes):
        for name, value in changes.items():
            setattr(self.request, name, value)
        reply = self.call(self.request, timeout=20 * harness.PATIENCE)
        self.request.seen = reply.number
        return reply

    def stand(self, version):
        self.request.stand.lowest = self.request.stand.highest = version

    def follow(self, until):
        """Confirms each generation and each stop at once, until `until` is true of the reply."""
        deadline = time.monotonic() + 60 * harness.PATIENCE
        while time.monotonic() < deadline:
            reply = self.report()
            if until(reply):
                return reply
            if reply.HasField("plan"):
                self.request.generation, self.request.ps0 = reply.plan.generation, reply.plan.ps0
            if reply.stop.number:
                self.request.stand.stop = reply.stop.number
                self.request.stand.reached = True
        raise harness.Failure("ps 0 never sent the reply: %s" % reply)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Coordinate(harness.Test):
    @classmethod
    def setUpClass(cls):
        cls.pb, _ = generate("weir")

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
        """Sends one Join of the worker; returns the reply."""
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
        """Waits until the worker is in that generation of ps 0 or a later one."""
        deadline = time.monotonic() + seconds * harness.PATIENCE
        while True:
            reply = self.joins(member)
            self.assertNotEqual(reply.answer, self.pb.JoinReply.REFUSED, reply)
            if (reply.answer != self.pb.JoinReply.RETRY and
                    reply.generation >= harness.term(generation)):
                return reply
            self.assertLess(time.monotonic(), deadline, reply)
            time.sleep(0.05)  # pause of a worker before its next request

    def send(self, joined, kind, step, payload, member=0, chunk=0):
        """Returns the answers of ps 0, on a stream of their own."""
        pb = self.pb
        piece = pb.Piece(kind=pb.Piece.Kind.Value(kind), chunk=chunk, step=step, weight=1,
                         payload=payload, crc32c=CRC[payload])
        frame = pb.Frame(generation=joined.generation, member=joined.rank,
                         incarnation=70 + member, pieces=[piece])
        return self.exchange(iter([frame]), timeout=20 * harness.PATIENCE)

    def stay(self, joined, member):
        """Opens a stream that stays open to the test's end."""
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
        """Returns the kind of the answer, by default about the first chunk."""
        answers = self.send(joined, kind, step, payload, **of)
        kind = next(answers).pieces[0].kind
        answers.cancel()
        return self.pb.Piece.Kind.Name(kind)

    def removes(self, worker):
        return self.commands(self.pb.CommandRequest.REMOVE_WORKER, worker).answer

    def commands(self, kind, index):
        return self.command(self.pb.CommandRequest(protocol=harness.PROTOCOL, kind=kind,
                                                   index=index))

    def begin(self):
        """Begins a job with its first values."""
        joined = self.await_join()
        self.assertEqual(self.piece(joined, "INIT", 0, VALUES), "VERSION")
        return joined

    def begin_with_follower(self):
        """Begins a job of two servers with the first values of all chunks; both servers are
        members."""
        address = self.server_job.ps_hosts[1]
        follower = Follower(self, address, joining=False)

        def settled(reply):
            if not reply.settled:
                self.joins()  # repeated, because ps 0 may have been recording its start before
            return reply.settled > 0
        follower.follow(settled)
        follower.stand(0)
        return follower, self.begin()

    def ordered(self, follower):
        """Waits for the order of a checkpoint before the job's last step, whose order exists from
        the start."""
        harness.until(lambda: 0 <= follower.report().checkpoint.step < 100, "an order")

    def test_joiner_that_vanishes_is_dropped(self):
        """The joiner calls once, and is gone when it should fetch its chunks."""
        self.start_ps0(1)
        joined = self.begin()
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        Follower(self, address, joining=True).report()
        self.ps.wait_line("ps:1 .* joins at step 0")
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "REBASE")
        joined = self.await_join(generation=3)
        self.assertEqual(len(joined.server_address), 1, joined)
        self.assertEqual(len(re.findall(r"ps:1 .* joins at step", self.ps.output())), 1,
                         "the joiner was admitted again")
        self.assertEqual(joined.generation, harness.term(3))

    def test_absent_server_drained_by_command(self):
        """A server of the first plan that will not be started is removed by a command."""
        self.start_ps0(2, *self.ckpt())
        joined = self.await_join()
        self.assertEqual(len(joined.server_address), 2, joined)
        reply = self.commands(self.pb.CommandRequest.DRAIN_SERVER, 1)
        self.assertEqual(reply.answer, self.pb.CommandReply.ACCEPTED, reply)
        joined = self.await_join(generation=2)
        self.assertEqual(len(joined.server_address), 1, joined)
        self.assertEqual(self.piece(joined, "INIT", 0, VALUES), "VERSION")
        self.assertEqual(self.piece(joined, "PUSH", 0, GRADIENT), "APPLIED")

    def test_order_of_earlier_ps0_ignored(self):
        """A file that a server wrote for an order of another ps 0 belongs to no checkpoint of this
        ps 0, whatever the order's number."""
        self.start_ps0(2, *self.ckpt("--save_secs=0"))
        follower, joined = self.begin_with_follower()
        written = follower.request.checkpoint
        written.order, written.bytes, written.crc32c = 2, 4711, 42
        written.phase = self.pb.CoordinateRequest.WRITTEN
        follower.report()
        self.ps.popen.send_signal(signal.SIGUSR1)
        self.ordered(follower)
        for step in range(2):
            self.assertEqual(self.piece(joined, "PUSH", step, GRADIENT), "APPLIED")
        self.ps.wait_line("given up: servers did not answer within 3 s")
        self.assertNotRegex(self.ps.output(), r"checkpoint at step \d+: ")

    def test_server_leaves_during_an_order(self):
        """A server that leaves during an order, and ignores the order, is not dropped for that. The
        change does not wait for the checkpoint."""
        self.start_ps0(2, *self.ckpt("--save_secs=0"))
        follower, joined = self.begin_with_follower()
        self.ps.popen.send_signal(signal.SIGUSR1)
        self.ordered(follower)
        follower.report(leaving=True)
        harness.until(lambda: "training stops for a change" in self.status(
            self.pb.StatusRequest(protocol=harness.PROTOCOL)).change, "the server leaves regularly")
        self.assertNotIn("is gone with its parameters", self.ps.output())

    def test_worker_removed_before_it_joined_may_join_later(self):
        """The removal of a worker that never joined does not bar it for good."""
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
        time.sleep(1)  # within this time ps 0 would remove worker 1 again
        self.assertEqual(self.joins(member=1).generation, harness.term(3))

    def test_sigterm_between_chunks_saves_the_common_step(self):
        """SIGTERM while training waits for workers, after some chunks of a step: the last
        checkpoint has the step that all chunks have."""
        self.start_ps0(1, *self.ckpt("--save_steps=1000", "--worker_timeout=4", "--min_workers=2"),
                       n_workers=2, n_chunks=2)
        joined = [self.await_join(member=member) for member in range(2)]
        for chunk in range(2):
            self.assertEqual(self.piece(joined[0], "INIT", 0, VALUES, chunk=chunk), "VERSION")
        other = self.send(joined[0], "PUSH", 0, GRADIENT)
        self.assertEqual(self.piece(joined[1], "PUSH", 0, GRADIENT, member=1), "APPLIED")
        other.cancel()
        self.ps.wait_line("training waits at step 0: 0 workers are present, --min_workers=2")
        self.ps.stop(status=143)
        self.ps.wait_line("checkpoint at step 0: ")

    def test_last_answer_of_ps_0_repeated(self):
        """ps 0 stays until the other server has confirmed the end. If that server made another call
        before it received the last answer, ps 0 repeats the answer. It waits half a second for such
        a call (tests/ps_calls_test.c). If the test's call is later, the test repeats everything."""
        for n in range(TRIES):
            self.start_ps0(2, "--checkpoint_dir=%s" % self.path("ckpt-%d" % n))
            follower = Follower(self, self.server_job.ps_hosts[1], joining=False)
            seen = follower.report().number
            self.ps.popen.send_signal(signal.SIGTERM)
            try:
                self.assertTrue(follower.follow(lambda reply: reply.closing).closing)
                time.sleep(0.15)  # the latency of a network
                again = follower.report(seen=seen)
            except grpc.RpcError:
                self.ps.wait(status=143)
                continue
            self.assertTrue(again.closing)
            with self.assertRaises(grpc.RpcError):  # ps 0 is gone, and sends nothing more
                follower.report()
            self.ps.wait(status=143)
            return
        self.fail("ps 0 never waited for another question")

    def test_idle_workers_do_not_block_a_change(self):
        """Connected workers that make no step do not delay a change for ever."""
        self.start_ps0(1, "--worker_timeout=1", n_workers=2)
        joined = [self.await_join(member=member) for member in range(2)]
        self.assertEqual(self.piece(joined[0], "INIT", 0, VALUES), "VERSION")
        for member in range(2):
            self.stay(joined[member], member)
        self.removes(1)
        self.ps.wait_line(r"generation 1\.2 from step 0: 1 worker, 1 server")

    def test_unreachable_server_removed(self):
        """A server joined and calls ps 0, but no process listens at its address. After its removal
        the worker continues."""
        self.start_ps0(1, "--worker_timeout=1")
        worker = self.server_job.start_worker(0, "--train_steps=10000000", "--chunk_bytes=4096",
                                              "--fault_push_delay_ms=2")
        worker.wait_line("training step [0-9]+ done")
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        follower = Follower(self, address, joining=True)
        follower.follow(lambda reply: reply.settled == harness.term(2))
        worker.wait_line("waiting for ps:1")
        self.commands(self.pb.CommandRequest.DRAIN_SERVER, 1)
        self.ps.wait_line("must move its chunks to other servers, but has been silent", 60)
        # The second command states that the server does not return.
        self.commands(self.pb.CommandRequest.DRAIN_SERVER, 1)
        self.ps.wait_line("is gone with its parameters", 40)
        worker.wait_line(r"generation [\d.]+ from step 0: 1 worker, 1 server", 20)
        worker.kill()


harness.main(__name__)
