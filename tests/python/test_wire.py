"""A Python client, made from the files of net/wire by grpc_tools, calls a real ps. This proves that
the hand-written coding is protobuf. The client joins, sends first values, pulls, pushes and repeats
on one long stream, while a second connection sends faults. The health check answers."""
# label: cluster sanitize
import glob
import importlib
import os
import queue
import random
import struct
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import crc32c

try:
    import grpc
    import grpc_tools
    WHY_NOT = None
except ImportError as e:
    WHY_NOT = "needs python3-grpcio and python3-grpc-tools (%s); scripts/setup installs them" % e

N_ELEMS, CHUNK_BYTES = 2500, 4096  # 3 chunks: 1024, 1024, 452 floats
LENGTHS = (1024, 1024, 452)
RATE = 0.25


def generate(*names):
    """Returns the modules x_pb2 and x_pb2_grpc of net/wire/x.proto. Files of this folder may import
    each other, so modules of all of them are made."""
    with tempfile.TemporaryDirectory() as out:
        folder = harness.source("net/wire")
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I" + folder,
                        "--python_out=" + out, "--grpc_python_out=" + out] +
                       sorted(glob.glob(os.path.join(folder, "*.proto"))), check=True)
        sys.path.insert(0, out)
        try:
            return [importlib.import_module(n + end) for n in names
                    for end in ("_pb2", "_pb2_grpc")]
        finally:
            del sys.path[0]


def to_bf16(values):
    """Returns the values rounded to the nearest bf16, ties to even; no infinities here."""
    bits = struct.unpack("<%dI" % len(values), struct.pack("<%df" % len(values), *values))
    return struct.pack("<%dH" % len(values), *((b + 0x7fff + (b >> 16 & 1)) >> 16 for b in bits))


def from_bf16(data):
    halves = struct.unpack("<%dH" % (len(data) // 2), data)
    return struct.unpack("<%df" % len(halves), struct.pack("<%dI" % len(halves),
                                                           *(h << 16 for h in halves)))


class Stream:
    """One Exchange call, which sends and receives pieces one by one."""

    def __init__(self, test, stub, **head):
        self.test, self.head, self.out, self.seen = test, head, queue.Queue(), []
        self.is_open = True
        self.call = stub.Exchange(iter(self.out.get, None), timeout=60 * harness.PATIENCE)

    def send(self, kind, chunk, step=0, payload=b"", **changes):
        pb = self.test.pb
        piece = pb.Piece(kind=pb.Piece.Kind.Value(kind), chunk=chunk, step=step, payload=payload,
                         crc32c=crc32c(payload), weight=1)
        for name, value in changes.items():
            setattr(piece, name, value)
        self.out.put(pb.Frame(pieces=[piece], **self.head))

    def receive(self):
        while not self.seen:
            frame = next(self.call)
            self.test.assertEqual(frame.generation, self.head["generation"])
            self.seen = list(frame.pieces)
        return self.seen.pop(0)

    def ask(self, *args, **kwargs):
        self.send(*args, **kwargs)
        return self.receive()

    def cancel(self):
        self.is_open = False
        self.call.cancel()

    def close(self):
        """Closes the sending side; the call must end well."""
        if not self.is_open:
            return
        self.is_open = False
        self.out.put(None)
        self.test.assertEqual(list(self.call), [])
        self.test.assertEqual(self.call.code(), grpc.StatusCode.OK)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Client(harness.Test):
    """Base of tests with foreign members."""

    @classmethod
    def setUpClass(cls):
        cls.pb, cls.pb_grpc = generate("weir")

    def connect(self, address):
        """Returns a stub with a connection of its own."""
        channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(harness.keep(channel).close)
        return self.pb_grpc.WeirStub(channel)

    def join_as(self, stub, job, member=0, **more):
        """Joins as this member, which must succeed; returns the reply."""
        reply = harness.join(stub.Join, self.pb.JoinRequest(
            protocol=harness.PROTOCOL, member=member, incarnation=7 + member, job=job, **more))
        self.assertIn(reply.answer, (self.pb.JoinReply.WELCOME, self.pb.JoinReply.INIT), reply)
        return reply

    def open_stream(self, stub, **head):
        """Returns a stream that the end of the test closes."""
        stream = Stream(self, stub, **head)
        self.at_end(stream.close)
        return stream


class Wire(Client):
    @classmethod
    def setUpClass(cls):
        cls.health, cls.health_grpc, cls.pb, cls.pb_grpc = generate("health", "weir")

    def setUp(self):
        super().setUp()
        rng = random.Random(5)
        self.values = [[rng.uniform(-1, 1) for _ in range(n)] for n in LENGTHS]
        self.raw = [struct.pack("<%df" % len(v), *v) for v in self.values]
        self.values = [struct.unpack("<%df" % len(v), r) for v, r in zip(self.values, self.raw)]
        self.gradient = [struct.pack("<%df" % n, *([0.5] * n)) for n in LENGTHS]
        self.server_job = self.job(n_workers=1)
        self.ps = self.server_job.start_ps(0)
        self.stub = self.connect(self.server_job.ps_hosts[0])

    def join_request(self, member=0, incarnation=7, n_workers=1, **changes):
        pb = self.pb
        job = pb.Job(n_workers=n_workers, sync_mode="sync", train_steps=2, seed=1,
                     chunk_bytes=CHUNK_BYTES,
                     optimizer=pb.Optimizer(name="sgd", learning_rate=RATE))
        job.parameters.add(name="w", dims=[50, 50])
        job.MergeFrom(pb.Job(**changes))
        return pb.JoinRequest(protocol=harness.PROTOCOL, member=member, incarnation=incarnation,
                              job=job)

    def join(self, n_workers=1, **changes):
        if n_workers != 1:
            self.ps.stop()
            self.server_job = self.job(n_workers=n_workers)
            self.ps = self.server_job.start_ps(0)
            self.stub = self.connect(self.server_job.ps_hosts[0])
        reply = harness.join(self.stub.Join,
                             self.join_request(n_workers=n_workers, **changes))
        self.assertEqual(reply.answer, self.pb.JoinReply.INIT, reply)
        self.assertEqual(reply.step, -1)
        self.assertEqual(list(reply.server), [0, 0, 0])
        self.generation = reply.generation
        return Stream(self, self.stub, generation=reply.generation, member=0, incarnation=7)

    def check(self, answer, kind, chunk, step, times):
        """Checks that the answer contains the first values after `times` updates."""
        self.assertEqual(self.pb.Piece.Kind.Name(answer.kind), kind, answer.why)
        self.assertEqual((answer.chunk, answer.step), (chunk, step))
        self.assertEqual(answer.crc32c, crc32c(answer.payload))
        got = struct.unpack("<%df" % LENGTHS[chunk], answer.payload)
        for a, b in zip(got, self.values[chunk]):
            self.assertAlmostEqual(a, b - times * RATE * 0.5, delta=1e-6)
        if times == 0:
            self.assertEqual(answer.payload, self.raw[chunk])

    def finish(self, stream, step):
        """Trains to the job's end on the stream."""
        for s in range(step, 2):
            for c in range(3):
                self.check(stream.ask("PUSH", c, s, self.gradient[c]), "APPLIED", c, s + 1, s + 1)
        stream.close()
        self.stub.Leave(self.pb.LeaveRequest(member=0, incarnation=7, done=True),
                        timeout=10 * harness.PATIENCE)
        self.ps.wait()

    def test_job_trains_from_end_to_end(self):
        self.assertEqual(crc32c(b"123456789"), 0xe3069283)
        stream = self.join()
        for c in range(3):
            self.check(stream.ask("INIT", c, 0, self.raw[c]), "VERSION", c, 0, 0)
        for c in (2, 0, 1):
            self.check(stream.ask("PULL", c), "VERSION", c, 0, 0)
        for c in range(3):
            self.check(stream.ask("PUSH", c, 0, self.gradient[c]), "APPLIED", c, 1, 1)
        for c in range(3):
            self.check(stream.ask("PUSH", c, 0, self.gradient[c]), "DUPLICATE", c, 1, 1)
        self.check(stream.ask("PULL", 1, 2), "VERSION", 1, 1, 1)
        for c in range(3):
            self.check(stream.ask("PUSH", c, 1, self.gradient[c]), "APPLIED", c, 2, 2)
        self.check(stream.ask("PUSH", 1, 0, self.gradient[1]), "STALE", 1, 2, 2)
        self.finish(stream, 2)

    def test_early_pull_waits_for_first_values(self):
        """Member 1 pulls before the first values exist. The gradients of both members count by
        their weights."""
        stream = self.join(n_workers=2)
        pb, stub = self.pb, self.connect(self.server_job.ps_hosts[0])
        reply = harness.join(stub.Join, self.join_request(member=1, incarnation=8, n_workers=2))
        self.assertEqual(reply.answer, pb.JoinReply.WELCOME, reply)
        other = Stream(self, stub, generation=reply.generation, member=1, incarnation=8)
        for c in range(3):
            other.send("PULL", c)
        for c in range(3):
            self.check(stream.ask("INIT", c, 0, self.raw[c]), "VERSION", c, 0, 0)
        answers = sorted((other.receive() for _ in range(3)), key=lambda p: p.chunk)
        for c in range(3):
            self.check(answers[c], "VERSION", c, 0, 0)
        for step in range(2):
            for c in range(3):
                other.send("PUSH", c, step, bytes(len(self.gradient[c])), weight=3, ask_taken=True)
                taken = other.receive()
                self.assertEqual((taken.kind, taken.chunk, taken.step, taken.payload),
                                 (pb.Piece.TAKEN, c, step, b""))
                if (step, c) == (1, 2): # this push is the last one, and its answer is still due
                    other.out.put(None)
                self.check(stream.ask("PUSH", c, step, self.gradient[c]), "APPLIED", c, step + 1,
                           (step + 1) / 4)
                self.check(other.receive(), "APPLIED", c, step + 1, (step + 1) / 4)
        other.close()
        stub.Leave(pb.LeaveRequest(member=1, incarnation=8, done=True),
                   timeout=10 * harness.PATIENCE)
        self.finish(stream, 2)

    def test_job_in_bf16_rounds_once(self):
        """The servers' value stays in fp32; values are rounded once for sending."""
        stream = self.join(push_dtype="bf16", version_dtype="bf16")
        bf16, f32 = self.pb.Piece.BF16, self.pb.Piece.F32
        gradient = [[0.3 + i / 7919 for i in range(n)] for n in LENGTHS]
        sent = [to_bf16(g) for g in gradient]
        whole = self.raw  # the server's values, exactly
        for step in range(3):
            for c in range(3):
                if step == 0:
                    kind, answer = "VERSION", stream.ask("INIT", c, 0, self.raw[c])
                else:
                    kind, answer = "APPLIED", stream.ask("PUSH", c, step - 1, sent[c], dtype=bf16)
                pulled = stream.ask("PULL", c, step + 1, dtype=f32)
                self.assertEqual(self.pb.Piece.Kind.Name(answer.kind), kind, answer.why)
                self.assertEqual((answer.chunk, answer.step, answer.dtype), (c, step, bf16))
                self.assertEqual(answer.crc32c, crc32c(answer.payload))
                self.assertEqual((pulled.chunk, pulled.step, pulled.dtype), (c, step, f32))
                self.assertEqual(pulled.crc32c, crc32c(pulled.payload))
                now = struct.unpack("<%df" % LENGTHS[c], pulled.payload)
                self.assertEqual(answer.payload, to_bf16(now))
                again = stream.ask("PULL", c, step + 1, dtype=bf16)
                self.assertEqual((again.dtype, again.payload), (bf16, answer.payload))
                for a, first, g in zip(now, self.values[c], from_bf16(sent[c])):
                    self.assertAlmostEqual(a, first - step * RATE * g, delta=1e-6)
                self.assertEqual(step == 0, pulled.payload == whole[c])
        self.generation = stream.head["generation"]
        self.bad(dtype=f32)  # a PUSH like in fp32
        self.bad(payload=sent[0], dtype=self.pb.Piece.F16)  # same length, but another type
        self.finish(stream, 2)

    def bad(self, **piece):
        """Sends a push with one fault, on a connection of its own."""
        values = dict(kind="PUSH", chunk=0, step=0, payload=self.gradient[0])
        changes = {k: piece.pop(k) for k in list(piece) if k not in values}
        values.update(piece)
        stream = Stream(self, self.connect(self.server_job.ps_hosts[0]),
                        generation=self.generation, member=0, incarnation=7)
        stream.send(values["kind"], values["chunk"], values["step"], values["payload"], **changes)
        try:
            answer = stream.receive()
        except grpc.RpcError as e:
            self.assertIn(e.code(), (grpc.StatusCode.INVALID_ARGUMENT,
                                     grpc.StatusCode.RESOURCE_EXHAUSTED), e)
            return
        if values["chunk"] > 2:
            self.assertIn(answer.kind, (self.pb.Piece.REFUSED, self.pb.Piece.WRONG_SHARD))
        else:
            self.assertEqual(answer.kind, self.pb.Piece.REFUSED, answer.kind)
            self.assertTrue(answer.why)
        if answer.kind == self.pb.Piece.WRONG_SHARD:
            stream.close()
            return
        with self.assertRaises(grpc.RpcError) as caught:
            stream.receive()
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_bad_pieces_end_only_their_stream(self):
        stream = self.join()
        for c in range(3):
            self.check(stream.ask("INIT", c, 0, self.raw[c]), "VERSION", c, 0, 0)
        wrong = [dict(chunk=3), dict(chunk=0xffffffff), dict(payload=self.gradient[0][:-4]),
                 dict(payload=self.gradient[0] + b"\0"), dict(payload=b""), dict(step=1),
                 dict(step=1 << 63), dict(crc32c=0), dict(kind="APPLIED"),
                 dict(payload=bytes(9 << 20), crc32c=0)]
        for i, change in enumerate(wrong):
            self.bad(**change)
            self.check(stream.ask("PULL", i % 3), "VERSION", i % 3, 0, 0)
        self.finish(stream, 0)

    def test_health_check_answers(self):
        channel = grpc.insecure_channel(self.server_job.ps_hosts[0])
        self.addCleanup(harness.keep(channel).close)
        stub = self.health_grpc.HealthStub(channel)
        for service in ("", "weir.v1.Weir"):
            reply = stub.Check(self.health.HealthCheckRequest(service=service),
                               timeout=10 * harness.PATIENCE)
            self.assertEqual(reply.status, self.health.HealthCheckResponse.SERVING)
        with self.assertRaises(grpc.RpcError) as caught:
            stub.Check(self.health.HealthCheckRequest(service="nobody"),
                       timeout=10 * harness.PATIENCE)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        watch = stub.Watch(self.health.HealthCheckRequest(), timeout=30 * harness.PATIENCE)
        self.assertEqual(next(watch).status, self.health.HealthCheckResponse.SERVING)
        self.ps.stop()
        with self.assertRaises(grpc.RpcError):
            next(watch)


harness.main(__name__)
