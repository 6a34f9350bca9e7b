"""A plain gRPC client sends frames with one fault each. The server answers every frame with REFUSED
or ends the call with a reason, and then accepts the right frame."""
# label: cluster sanitize
import array
import struct
import unittest

import certs
import harness
from harness import crc32c
from test_wire import WHY_NOT, generate

if not WHY_NOT:
    import grpc

VALUES = array.array("f", range(6)).tobytes()
GRADIENT = array.array("f", [1] * 6).tobytes()
MEMBER, INCARNATION = 0, 77


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Case(harness.Test):
    @classmethod
    def setUpClass(cls):
        cls.pb, _ = generate("weir")

    def setUp(self):
        super().setUp()
        self.server_job = self.job(n_workers=1)
        self.channel = self.open(self.server_job)
        self.addCleanup(harness.keep(self.channel).close)
        pb = self.pb
        self.join_call = self.channel.unary_unary(
            "/weir.v1.Weir/Join", pb.JoinRequest.SerializeToString, pb.JoinReply.FromString)
        self.leave_call = self.channel.unary_unary(
            "/weir.v1.Weir/Leave", pb.LeaveRequest.SerializeToString, pb.LeaveReply.FromString)
        self.stream_call = self.channel.stream_stream(
            "/weir.v1.Weir/Exchange", lambda raw: raw, pb.Frame.FromString)

    def open(self, job):
        """Starts the server; returns a channel to it."""
        self.ps = job.start_ps(0)
        return grpc.insecure_channel(job.ps_hosts[0])

    def join_request(self, **changes):
        pb = self.pb
        job = pb.Job(n_workers=1, sync_mode="sync", train_steps=1, seed=1, chunk_bytes=4096,
                     optimizer=pb.Optimizer(name="sgd", learning_rate=0.5, decay=0.9,
                                               beta1=0.9, beta2=0.999, epsilon=1e-8))
        job.parameters.add(name="w", dims=[2, 3])
        request = pb.JoinRequest(protocol=harness.PROTOCOL, member=MEMBER,
                                 incarnation=INCARNATION, job=job)
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def join(self):
        reply = harness.join(self.join_call, self.join_request())
        self.assertEqual(reply.answer, self.pb.JoinReply.INIT, reply)
        self.generation = reply.generation
        answer = self.exchange(self.piece("INIT", 0, VALUES))
        self.assertEqual(answer.kind, self.pb.Piece.VERSION, answer)

    def piece(self, kind, step, payload, chunk=0, weight=1.0, crc=None):
        return self.pb.Piece(kind=self.pb.Piece.Kind.Value(kind), chunk=chunk, step=step,
                             weight=weight, payload=payload,
                             crc32c=crc32c(payload) if crc is None else crc)

    def frame(self, *pieces, **changes):
        head = dict(generation=self.generation, member=MEMBER, incarnation=INCARNATION)
        head.update(changes)
        return self.pb.Frame(pieces=pieces, **head).SerializeToString()

    def exchange(self, *pieces, **changes):
        return self.send(self.frame(*pieces, **changes))

    def send(self, raw):
        """Returns the first piece of the answer to one frame on its own stream, or the error."""
        answers = self.stream_call(iter([raw]), timeout=10 * harness.PATIENCE)
        try:
            for frame in answers:
                for piece in frame.pieces:
                    return piece
        except grpc.RpcError as e:
            return e
        finally:
            answers.cancel()
        return None

    def refused(self, answer, *words):
        if isinstance(answer, grpc.RpcError):
            self.assertNotEqual(answer.code(), grpc.StatusCode.DEADLINE_EXCEEDED, "no answer")
            self.assertNotEqual(answer.code(), grpc.StatusCode.UNAVAILABLE, "the server is gone")
            text = answer.details()
        else:
            self.assertIsNotNone(answer, "the stream ended without an answer")
            self.assertEqual(answer.kind, self.pb.Piece.REFUSED, answer)
            text = answer.why
        self.assertTrue(text, "refused without a reason")
        for word in words:
            self.assertRegex(text, word)

    def finish(self, crc=None):
        """Checks that the server applies the right frame, and has counted none of the refused
        ones; returns the server's answer."""
        answer = self.exchange(self.piece("PUSH", 0, GRADIENT, crc=crc))
        self.assertEqual(answer.kind, self.pb.Piece.APPLIED, answer)
        self.assertEqual(struct.unpack("<6f", answer.payload), tuple(i - 0.5 for i in range(6)))
        self.leave_call(self.pb.LeaveRequest(member=MEMBER, incarnation=INCARNATION, done=True),
                        timeout=10 * harness.PATIENCE)
        self.ps.wait()
        return answer


class BadFrames(Case):
    """The client has joined; after the refusals the server applies the right frame."""

    def setUp(self):
        super().setUp()
        self.join()
        self.at_end(self.finish)

    def test_wrong_checksum_refused(self):
        self.refused(self.exchange(self.piece("PUSH", 0, GRADIENT, crc=1)), "checksum|crc")

    def test_wrong_chunk_refused(self):
        for chunk in (1, 1 << 20, 0xffffffff):
            answer = self.exchange(self.piece("PUSH", 0, GRADIENT, chunk=chunk))
            # Both answers are refusals: a chunk that another server owns need not exist at all.
            if getattr(answer, "kind", None) != self.pb.Piece.WRONG_SHARD:
                self.refused(answer, "chunk")

    def test_wrong_length_refused(self):
        for payload in (b"", GRADIENT[:-4], GRADIENT[:-1], GRADIENT + b"\0" * 4, bytes(4096)):
            self.refused(self.exchange(self.piece("PUSH", 0, payload)),
                         "bytes|length|empty|payload")

    def test_wrong_step_refused(self):
        for step in (1, 7, (1 << 64) - 1):
            self.refused(self.exchange(self.piece("PUSH", step, GRADIENT)), "step|version")

    def test_wrong_marks_refused(self):
        for marks, payload, what in ((b"\1", GRADIENT, "payload of 24 bytes, not 0"),
                                     (b"\2", GRADIENT, "do not fit 1 parameters"),
                                     (b"\1\0", b"", "do not fit 1 parameters")):
            piece = self.piece("PUSH", 0, payload)
            piece.lacking = marks
            self.refused(self.exchange(piece), what)

    def test_wrong_weight_refused(self):
        for weight, what in ((float("nan"), "weight"), (float("inf"), "weight"), (-1.0, "weight"),
                             (0.0, "payload")):  # a contribution of weight 0 has no payload
            self.refused(self.exchange(self.piece("PUSH", 0, GRADIENT, weight=weight)), what)

    def test_wrong_kind_refused(self):
        for kind in ("NONE", "VERSION", "APPLIED", "REFUSED"):
            self.refused(self.exchange(self.piece(kind, 0, GRADIENT)))

    def test_unknown_member_refused(self):
        self.refused(self.exchange(self.piece("PUSH", 0, GRADIENT), member=5), "member|worker|join")
        self.refused(self.exchange(self.piece("PUSH", 0, GRADIENT), incarnation=78))

    def test_oversized_frame_refused(self):
        self.refused(self.exchange(self.piece("PUSH", 0, bytes(9 << 20), crc=0)))
        self.refused(self.exchange(*[self.piece("PULL", 0, b"")] * 2000))

    def test_bytes_that_are_no_protobuf_refused(self):
        for raw in (b"\xff" * 40, b"\x22\xff\xff\xff\xff\x0f", b"\x22\x10\x08\x02"):
            self.refused(self.send(raw))


class Tls(Case):
    def open(self, job):
        own = certs.for_job(self.path("certs"))
        self.ps = job.start_ps(0, *own.flags("ps"))
        read = [harness.read_bytes(own.path(name))
                for name in ("ca.pem", "worker.key", "worker.pem")]
        return grpc.secure_channel(job.ps_hosts[0], grpc.ssl_channel_credentials(*read))

    def test_payloads_by_tls_need_no_checksum(self):
        self.join()
        self.refused(self.exchange(self.piece("PUSH", 0, GRADIENT, crc=1)), "crc")
        self.assertEqual(self.finish(crc=0).crc32c, 0)


class BadJoins(Case):
    def test_claim_of_last_generation_does_not_end_job(self):
        """A client claims the last possible generation."""
        pb = self.pb
        coordinate = self.channel.unary_unary(
            "/weir.v1.Weir/Coordinate", pb.CoordinateRequest.SerializeToString,
            pb.CoordinateReply.FromString)
        coordinate(pb.CoordinateRequest(protocol=harness.PROTOCOL, joining=True, leaving=True,
                                        address="127.0.0.1:9", incarnation=3,
                                        generation=1 << 62, ps0=5),
                   timeout=10 * harness.PATIENCE)
        reply = self.join_call(self.join_request(generation=1 << 62, ps0=5),
                               timeout=10 * harness.PATIENCE)
        self.assertEqual(reply.answer, pb.JoinReply.RETRY, reply)
        self.join()
        self.assertEqual(self.generation, harness.term(1))
        for who in ("a worker", "127.0.0.1:9"):
            self.ps.wait_line(who + " claims to be in generation 274877906944.0, which is out "
                              "of range; the message is ignored")
        self.finish()

    def test_bad_joins_refused(self):
        """Jobs that every server should refuse, and then the good one."""
        def bad(**changes):
            request = self.join_request()
            job = request.job
            for name, value in changes.items():
                if name == "dims":
                    job.parameters[0].dims[:] = value
                elif name in ("name",):
                    job.parameters[0].name = value
                elif name in ("optimizer_name", "learning_rate"):
                    setattr(job.optimizer, name.replace("optimizer_", ""), value)
                elif name in ("protocol", "member", "incarnation"):
                    setattr(request, name, value)
                else:
                    setattr(job, name, value)
            try:
                reply = self.join_call(request, timeout=10 * harness.PATIENCE)
            except grpc.RpcError as e:
                self.assertNotIn(e.code(), (grpc.StatusCode.DEADLINE_EXCEEDED,
                                            grpc.StatusCode.UNAVAILABLE), changes)
                return
            self.assertEqual(reply.answer, self.pb.JoinReply.REFUSED, (changes, reply))
            self.assertTrue(reply.why)
        bad(protocol=harness.PROTOCOL + 1)
        bad(member=1)
        bad(incarnation=0)
        bad(n_workers=0)
        bad(n_workers=2)
        bad(sync_mode="sometimes")
        bad(aggregate=2)
        bad(staleness=1)
        bad(sync_mode="ssp", staleness=(1 << 62) + 1)
        bad(delay_compensation=0.5)
        bad(sync_mode="async", delay_compensation=-1)
        bad(sync_mode="async", delay_compensation=float("inf"))
        bad(push_dtype="fp8")
        bad(version_dtype="float")
        bad(optimizer_name="newton")
        bad(learning_rate=float("nan"))
        bad(chunk_bytes=0)
        bad(chunk_bytes=4097)
        bad(dims=[0])
        bad(dims=[1 << 62, 1 << 62])
        bad(dims=[1 << 39])
        bad(dims=[1] * 100)
        bad(name="")
        bad(name="x" * 300)
        self.join()
        self.finish()


harness.main(__name__)
