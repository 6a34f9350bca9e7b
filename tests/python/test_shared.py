"""Payloads through shared memory. Several threads may make one update. A ps writes versions to the
parameters of a worker. No segment of a killed process is left. A ps handles foreign clients that
lend memory, name wrong memory, or read slowly."""
# label: cluster sanitize
import fcntl
import mmap
import os
import random
import signal
import socket
import struct
import tempfile
import unittest

import harness
from harness import crc32c
import test_wire
from test_wire import Stream

ON = r"ps:%d \(\S+\) is on this host: payloads are sent through shared memory"
F_SEAL_FUTURE_WRITE = 16
HEAD, N = 4096, 1024  # size of a segment's head; floats of a chunk


def segments_in(process):
    """Returns the number of segments that a process has mapped."""
    with open("/proc/%d/maps" % process.popen.pid, encoding="utf-8") as f:
        return sum("/memfd:weir" in line for line in f)


def written_by(process):
    """Returns the number of segments that a process can write."""
    with open("/proc/%d/maps" % process.popen.pid, encoding="utf-8") as f:
        return sum("/memfd:weir" in line and line.split()[1].startswith("rw") for line in f)


class Case(harness.Test):
    def run_job(self, choice, flags, n_ps=1, n_workers=2, ps_choice=None):
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="mlp", flags=[
            "--hidden_units=32", "--batch_size=20", "--seed=3", "--chunk_bytes=16384",
            "--intra_op_threads=1", "--shared_memory=" + choice, *flags])
        job.start(["--shared_memory=" + (ps_choice or choice)])
        summaries = job.finish()
        for s in summaries:
            self.assertEqual(s["exchange"]["reconnects"], 0)
            self.assertEqual(s["parameters_sha256"], summaries[0]["parameters_sha256"])
        return job, summaries

    def moved(self, summary):
        e = summary["exchange"]
        return e["shared_bytes"], e["sent_bytes"] + e["received_bytes"]


class Programs(Case):
    def test_threads_share_update_with_same_bits(self):
        """Threads share the update and the copy of its version: the bits equal those of one
        thread."""
        digests = set()
        for choice, threads in (("auto", 3), ("auto", 1), ("off", 3)):
            job = self.job(n_workers=1, model="mlp", flags=[
                "--hidden_units=128", "--batch_size=12", "--seed=3", "--train_steps=12",
                "--optimizer=adam", "--intra_op_threads=12", "--shared_memory=" + choice])
            job.start(["--update_threads=%d" % threads, "--shared_memory=" + choice])
            digests.add(job.finish()[0]["parameters_sha256"])
        self.assertEqual(len(digests), 1)

    def test_shared_memory_needs_both_sides(self):
        for choice, ps_choice in (("auto", "off"), ("off", "auto")):
            job, summaries = self.run_job(choice, ["--train_steps=5"], ps_choice=ps_choice)
            for i in range(2):
                self.assertEqual(self.moved(summaries[i])[0], 0)
                self.assertNotIn("shared memory", job.workers[i].output())

    def start_long(self, n_workers):
        job = self.job(n_workers=n_workers, model="mlp", flags=[
            "--batch_size=20", "--train_steps=100000", "--log_every=5", "--intra_op_threads=1"])
        job.start()
        self.wait_lines(job.workers, ON % 0)
        self.wait_lines(job.workers, "training step 5 done")
        return job

    def test_segments_of_killed_worker_released(self):
        """The server releases the memory of a killed worker. The next worker in its place shares
        memory with the server again."""
        left = os.listdir("/dev/shm")
        job = self.start_long(2)
        self.assertEqual(segments_in(job.ps[0]), 5)  # its own, and two of each worker
        for _ in range(3):
            job.workers[1].kill()
            harness.until(lambda: segments_in(job.ps[0]) == 3, "the worker's memory is released")
            job.start_worker(1).wait_line(ON % 0)
            job.workers[1].wait_line("training step [0-9]+ done")
            self.assertEqual(segments_in(job.ps[0]), 5)
        self.kill(*job.workers)  # no worker leaves in order, so the server continues to wait
        harness.until(lambda: segments_in(job.ps[0]) == 1, "the workers' segments are released")
        job.ps[0].stop()
        self.assertEqual(os.listdir("/dev/shm"), left)

    def test_segments_of_leaving_workers_released(self):
        """The ps also has only one segment of its own at a time, though the next generation
        continues to use buffers of the previous one."""
        job = self.start_long(4)
        self.assertEqual(segments_in(job.ps[0]), 9)
        for left in (3, 2, 1):
            job.workers[left].stop(signal.SIGTERM, status=0)
            harness.until(lambda: segments_in(job.ps[0]) == 1 + 2 * left, "its memory is released")
        self.kill(job.workers[0], job.ps[0])

    def test_segments_of_killed_ps_released(self):
        left = os.listdir("/dev/shm")
        job = self.start_long(1)
        self.assertEqual(segments_in(job.workers[0]), 3)
        job.ps[0].kill()
        job.workers[0].wait_line("connection to ps:0 .* lost")
        job.workers[0].stop(signal.SIGINT, status=130)
        self.assertEqual(os.listdir("/dev/shm"), left)


    def test_killed_server_leaves_no_half_version(self):
        """A ps is killed while it writes versions to the parameters of a worker. The worker goes
        back with the next process, which writes there, too: the bits are those of an undisturbed
        job."""
        n_steps = 150 if harness.SANITIZE == "thread" else 600  # the ps is killed during these
        flags = ["--batch_size=12", "--train_steps=%d" % n_steps, "--seed=3",
                 "--hidden_units=256", "--optimizer=adam", "--intra_op_threads=1"]
        want = self.undisturbed_digest(n_workers=1, model="mlp",
                                       flags=[*flags, "--shared_memory=off"])
        ps_flags = ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=5"]
        job = self.started_job(n_workers=1, model="mlp", ps_flags=ps_flags, flags=flags)
        for _ in range(3):
            harness.until(lambda: written_by(job.ps[0]) == 2, "the parameters can be written")
            job.ps[0].wait_line(r"checkpoint at step [1-9]\d*: ")
            job.restart_ps(0, *ps_flags)
        job.finish(120, want)

    def test_killed_worker_harms_no_server(self):
        job = self.job(n_workers=1, model="mlp", flags=[
            "--batch_size=12", "--train_steps=100000", "--log_every=5", "--hidden_units=256",
            "--intra_op_threads=1"])
        job.start()
        for _ in range(5):
            job.workers[0].wait_line("training step [0-9]+ done")
            self.assertEqual(written_by(job.ps[0]), 2)
            job.restart_worker(0)
        job.workers[0].wait_line("training step [0-9]+ done")
        self.kill(job.workers[0])
        job.ps[0].stop()


class Segment:
    """A client's own segment: n floats after the head, in a sealed file in memory."""

    def __init__(self, test, n, name="weir-payloads", seals=None, size=None, sparse=False):
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        test.addCleanup(os.close, self.fd)
        self.nonce, self.bytes = os.urandom(16), 4 * n
        os.ftruncate(self.fd, HEAD + self.bytes if size is None else size)
        if not sparse:
            os.posix_fallocate(self.fd, 0, os.fstat(self.fd).st_size)
        os.pwrite(self.fd, self.nonce + struct.pack("<Q", self.bytes), 0)
        self.map = mmap.mmap(self.fd, 0)
        test.addCleanup(self.map.close)
        if seals is None:
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        if seals:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def name(self, pb, **changes):
        values = dict(pid=os.getpid(), fd=self.fd, nonce=self.nonce, bytes=self.bytes)
        return pb.Segment(**{**values, **changes})

    def floats(self, at, n):
        return struct.unpack("<%df" % n, self.map[HEAD + at:HEAD + at + 4 * n])

    def write(self, at, floats):
        self.map[HEAD + at:HEAD + at + 4 * len(floats)] = struct.pack("<%df" % len(floats), *floats)


class Arena:
    """The server's segment, opened by the rules of net/wire/weir.proto."""

    def __init__(self, test, name):
        fd = os.open("/proc/%d/fd/%d" % (name.pid, name.fd), os.O_RDONLY)
        self.map = mmap.mmap(fd, HEAD + name.bytes, prot=mmap.PROT_READ)
        os.close(fd)
        test.addCleanup(self.map.close)
        test.assertEqual(self.map[:16], name.nonce)

    def read(self, answer):
        """Returns the payload, and whether the server has not reused its place."""
        at = HEAD + answer.shared_offset - 1
        data = self.map[at:at + answer.shared_bytes]
        return data, struct.unpack("<Q", self.map[at - 64:at - 56])[0] == answer.shared_stamp


class Clients(test_wire.Client):
    """Foreign members; two chunks of 1024 floats."""
    address = None  # the server's; None: the harness' choice

    def open(self, n=N, ps_flags=(), **job):
        import grpc
        self.grpc = grpc
        pb = self.pb
        self.wire = pb.Job(n_workers=1, sync_mode="sync", train_steps=1000, chunk_bytes=4 * n,
                           optimizer=pb.Optimizer(name="sgd", learning_rate=0.5))
        self.wire.parameters.add(name="w", dims=[2 * n])
        self.wire.MergeFrom(pb.Job(**job))
        self.cluster = self.job(n_workers=self.wire.n_workers)
        if self.address:
            self.cluster.ps_hosts = ["%s:%d" % (self.address,
                                                harness.free_ports(1, self.address)[0])]
        self.stop_at_end(self.cluster.start_ps(0, *ps_flags))
        self.stub = self.connect(self.cluster.ps_hosts[0])

    def join(self, segment=None, member=0, **more):
        reply = self.join_as(self.stub, self.wire, member, segment=segment, **more)
        self.generation = reply.generation
        return reply

    def stream(self, member=0):
        return self.open_stream(self.stub, generation=self.generation, member=member,
                                incarnation=7 + member)

    def init(self, s):
        for c in range(2):
            self.check(s.ask("INIT", c, 0, bytes(4 * N)), "VERSION", 0, [0] * N)

    def check(self, answer, kind, step, values, arena=None):
        self.assertEqual(self.pb.Piece.Kind.Name(answer.kind), kind, answer)
        self.assertEqual(answer.step, step)
        if arena is None:
            self.assertEqual((answer.shared_offset, answer.shared_bytes), (0, 0))
            data = answer.payload
        else:
            self.assertEqual(answer.payload, b"")
            self.assertGreater(answer.shared_offset, 0)
            data, good = arena.read(answer)
            self.assertTrue(good)
        self.assertEqual(answer.crc32c, 0 if arena else crc32c(data))
        self.assertEqual(list(struct.unpack("<%df" % N, data)), values)

    def test_payloads_by_reference_in_both_directions(self):
        self.open()
        segment = Segment(self, 2 * N)
        arena = Arena(self, self.join(segment.name(self.pb)).segment)
        s = self.stream()
        self.init(s)
        for step in range(20):
            for c in range(2):
                segment.write(4 * N * c, [step + c + i % 3 for i in range(N)])
                answer = s.ask("PUSH", c, step, shared_offset=1 + 4 * N * c, shared_bytes=4 * N,
                               shared=True, crc32c=0)
                want = [-0.5 * sum(k + c + i % 3 for k in range(step + 1)) for i in range(N)]
                self.check(answer, "APPLIED", step + 1, want, arena)
        self.check(s.ask("PULL", 0, shared=True), "VERSION", 20, want[:0] + [
            -0.5 * sum(k + i % 3 for k in range(20)) for i in range(N)], arena)
        s.close()
        plain = self.stream()  # a client that does not declare to read there receives all of it
        self.check(plain.ask("PULL", 1), "VERSION", 20, want)

    def liars_about_values(self, n, arena):
        """Yields names of memory that is no member's to lend, or is not safe to write."""
        lent = Segment(self, 2 * n)
        yield lent.name(self.pb, nonce=os.urandom(16))
        yield lent.name(self.pb, bytes=8 * n - 4)
        yield Segment(self, n).name(self.pb)
        yield Segment(self, 3 * n).name(self.pb)
        yield Segment(self, 2 * n, seals=0).name(self.pb)
        yield Segment(self, 2 * n, seals=fcntl.F_SEAL_GROW).name(self.pb)
        yield Segment(self, 2 * n, name="weird").name(self.pb)
        yield Segment(self, 2 * n, sparse=True).name(self.pb)
        for seals in (fcntl.F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE,
                      fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL):
            yield Segment(self, 2 * n, seals=seals).name(self.pb)
        yield arena

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "a server on one core has no other threads")
    def test_versions_written_to_values(self):
        """The server writes versions to the memory that the member lends for that, if the push
        allows it. It leaves alone what it must not or cannot write, whatever the member claims."""
        n = 1 << 17
        self.open(n, ["--update_threads=2"])
        segment = Segment(self, 2 * n)
        values = Segment(self, 2 * n)
        reply = self.join(segment.name(self.pb), values=values.name(self.pb))
        self.assertTrue(reply.values)
        ones = [1] * n
        segment.write(0, ones)
        segment.write(4 * n, ones)
        s = self.stream()
        push = dict(shared_bytes=4 * n, shared=True, crc32c=0)
        for c in range(2):
            s.ask("INIT", c, 0, bytes(4 * n))
        for step in range(6):
            for c in (1, 0):
                answer = s.ask("PUSH", c, step, shared_offset=1 + 4 * n * c, placed=step != 3,
                               **push)
                self.assertEqual((answer.kind, answer.step), (self.pb.Piece.APPLIED, step + 1))
                self.assertEqual((answer.placed, answer.shared_offset == 0), (step != 3,) * 2)
                self.assertEqual(answer.payload, b"")
                want = -0.5 * (step if step == 3 else step + 1)
                self.assertEqual(values.floats(4 * n * c, n), (want,) * n)
        answer = s.ask("PUSH", 0, 0, shared_offset=1, placed=True, **push)  # counted long ago
        self.assertEqual((answer.kind, answer.placed), (self.pb.Piece.STALE, False))
        s.close()
        liars = self.liars_about_values(n, reply.segment)
        for step, name in enumerate([values.name(self.pb), *liars], 6):
            reply = self.join(segment.name(self.pb), values=name)
            self.assertTrue(reply.HasField("segment"))
            self.assertFalse(reply.values, name)
            s = self.stream()
            answer = s.ask("PUSH", 0, step, shared_offset=1, placed=True, **push)
            self.assertEqual((answer.kind, answer.placed), (self.pb.Piece.APPLIED, False))
            self.assertGreater(answer.shared_offset, 0)
            s.close()
        self.assertEqual(values.floats(0, n), (-3.0,) * n)
        self.assertEqual(written_by(self.cluster.ps[0]), 1)

    def test_same_address_does_not_prove_same_host(self):
        """Both ends of a tunnel may have the same address. A server therefore requires checksums of
        payloads, unless the client has proved that it reads the server's memory."""
        self.address = "127.0.0.1"
        self.open()
        ones = struct.pack("<%df" % N, *[1] * N)
        self.join()
        s = self.stream()
        self.init(s)
        s.close()
        self.ends("crc32c", payload=ones)
        self.join()
        s = self.stream()
        self.check(s.ask("PUSH", 0, 0, ones), "APPLIED", 1, [-0.5] * N)
        s.close()
        name = Segment(self, 2 * N).name(self.pb)
        arena = Arena(self, self.join(name).segment)
        s = self.stream()
        self.check(s.ask("PUSH", 0, 1, ones, crc32c=0, shared=True), "APPLIED", 2, [-1] * N, arena)

    def test_client_without_segment_served(self):
        self.open()
        self.assertFalse(self.join().HasField("segment"))
        s = self.stream()
        self.init(s)
        self.check(s.ask("PUSH", 0, 0, struct.pack("<%df" % N, *[1] * N)), "APPLIED", 1, [-0.5] * N)

    def liars(self):
        """Yields names that belong to no segment, or to a wrong one."""
        segment = Segment(self, 2 * N)
        yield segment.name(self.pb, nonce=os.urandom(16))
        for nonce in (b"", b"abc", bytes(17), bytes(1 << 16)):
            yield segment.name(self.pb, nonce=nonce)
        for size in (1, 4 * N, 1 << 40, (1 << 64) - 1):
            yield segment.name(self.pb, bytes=size)
        for pid in (0, 1, 0x7fffffff, 0xffffffff, self.cluster.ps[0].popen.pid):
            yield segment.name(self.pb, pid=pid)
        for fd in (999999, 0xffffffff):
            yield segment.name(self.pb, fd=fd)
        for forged in (Segment(self, 2 * N, seals=0), Segment(self, 2 * N, name="weird"),
                       Segment(self, 2 * N, size=HEAD + 4), Segment(self, 3 * N)):
            yield forged.name(self.pb, bytes=8 * N)
        # This segment has the size that its name declares, but not the size of the model.
        yield Segment(self, 3 * N).name(self.pb)
        with tempfile.TemporaryDirectory() as folder, socket.socket() as sock:
            fifo = os.path.join(folder, "memfd:weir-payloads")
            os.mkfifo(fifo)
            for fd in (os.open("/dev/zero", os.O_RDWR), os.open(fifo, os.O_RDWR),
                       os.open(folder, os.O_RDONLY), os.dup(sock.fileno())):
                yield segment.name(self.pb, fd=fd)
                os.close(fd)

    def test_liars_served_by_tcp(self):
        self.open()
        ones = struct.pack("<%df" % N, *[1] * N)
        self.join()
        s = self.stream()
        self.init(s)
        s.close()
        for step, name in enumerate(self.liars()):
            self.assertFalse(self.join(name).HasField("segment"), name)
            s = self.stream()
            self.check(s.ask("PUSH", 0, step, ones, shared=True), "APPLIED", step + 1,
                       [-0.5 * (step + 1)] * N, Arena(self, self.arena()))
            s.close()
        self.assertGreater(step, 15)
        self.assertEqual(segments_in(self.cluster.ps[0]), 1)

    def arena(self):
        """Returns the name of the server's segment, which an honest member receives when it
        joins."""
        segment = Segment(self, 2 * N)
        name = self.join(segment.name(self.pb)).segment
        self.join()
        return name

    def ends(self, *words, segment=None, **piece):
        """Sends a wrong push, and checks that its stream ends, with the words."""
        self.join(segment.name(self.pb) if segment else None)
        s = Stream(self, self.stub, generation=self.generation, member=0, incarnation=7)
        values = {"crc32c": 0, "payload": b"", **piece}
        s.send("PUSH", 0, 0, values.pop("payload"), **values)
        text = ""
        try:
            answer = s.receive()
            self.assertEqual(answer.kind, self.pb.Piece.REFUSED)
            text = answer.why
            s.receive()
            self.fail("the stream did not end")
        except self.grpc.RpcError as e:
            text += e.details()
        self.assert_has(text, *words)

    def test_bad_references_end_stream(self):
        self.open()
        segment = Segment(self, 2 * N)
        self.join()
        s = self.stream()
        self.init(s)
        whole = dict(shared_bytes=4 * N, segment=segment)
        self.ends("join again", shared_offset=1, shared_bytes=4 * N)
        for offset in (2, 4, 4 * N + 5, 8 * N + 1, 1 << 40, (1 << 64) - 1, (1 << 64) - 4 * N + 1):
            self.ends("segment", shared_offset=offset, **whole)
        self.ends("segment", shared_offset=1, shared_bytes=0xffffffff, segment=segment)
        self.ends("segment", shared_offset=1, payload=bytes(4 * N), **whole)
        for n in (0, 4, 4 * N - 4, 4 * N + 4):
            self.ends("bytes", shared_offset=1, shared_bytes=n, segment=segment)
        rng = random.Random(1)
        for _ in range(20):
            self.ends(shared_offset=rng.getrandbits(rng.randint(1, 64)) & ~1 | 2,
                      shared_bytes=rng.getrandbits(32), segment=segment)
        # Other streams continue, and none of the wrong pushes was applied.
        self.check(s.ask("PULL", 0), "VERSION", 0, [0] * N)

    def test_slow_reader_never_reads_torn_buffer(self):
        """A buffer that a server lends to a member stays unchanged until the next answer to this
        member, however many steps other members make. If no place is free, the server sends answers
        by TCP."""
        self.open(n_workers=3, sync_mode="async")
        segments = [Segment(self, 2 * N) for _ in range(3)]
        arenas = [Arena(self, self.join(segments[m].name(self.pb), m).segment) for m in range(3)]
        s = [self.stream(m) for m in range(3)]
        self.init(s[0])
        for segment in segments:
            segment.write(0, [1] * N)
        push = dict(shared_offset=1, shared_bytes=4 * N, shared=True, crc32c=0)
        version = 0
        for rounds in range(5):
            slow = [s[m].ask("PULL", 0, shared=True) for m in (1, 2)]
            for _ in range(40):
                answer = s[0].ask("PUSH", 0, version, **push)
                version += 1
                self.check(answer, "APPLIED", version, [-0.5 * version] * N, arenas[0])
            for m in (1, 2):
                self.check(slow[m - 1], "VERSION", rounds * 41, [-0.5 * rounds * 41] * N, arenas[m])
            self.check(s[1].ask("PUSH", 0, rounds * 41, **push), "APPLIED", version + 1,
                       [-0.5 * (version + 1)] * N, arenas[1])
            version += 1
        more, held = [], []
        for m in range(12):  # each stream holds its last answer
            more.append(self.stream(2))
            held.append(more[m].ask("PULL", 0, shared=True))
            answer = s[0].ask("PUSH", 0, version, **push)
            version += 1
        plain = [a for a in held if not a.shared_offset]
        self.assertGreater(len(plain), 2)
        self.assertGreater(len(held) - len(plain), 1)
        for k, answer in enumerate(held):
            at = version - 12 + k
            self.check(answer, "VERSION", at, [-0.5 * at] * N,
                       arenas[2] if answer.shared_offset else None)

    def test_two_members_on_one_stream_served_by_tcp(self):
        """Answers on a stream do not show which of its two members has read a buffer, so the server
        lends neither of them one."""
        self.open(n_workers=2, sync_mode="async")
        for m in range(2):
            self.join(Segment(self, 2 * N).name(self.pb), m)
        s = self.stream(0)
        self.init(s)
        self.assertGreater(s.ask("PULL", 0, shared=True).shared_offset, 0)
        s.head["member"], s.head["incarnation"] = 1, 8
        self.check(s.ask("PULL", 0, shared=True), "VERSION", 0, [0] * N)
        s.head["member"], s.head["incarnation"] = 0, 7
        self.check(s.ask("PULL", 0, shared=True), "VERSION", 0, [0] * N)


harness.main(__name__)
