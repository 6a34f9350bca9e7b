"""Peers that are slow use only bounded memory of the other side. The memory of a server whose
clients do not read, and of a worker whose server stands still, stays below the formulas in
docs/design/exchange.md. A client that reads late loses nothing. The server cuts off a client that
sends requests without end and never reads, and the job continues."""
# label: cluster
import os
import signal
import unittest

import harness
from harness import crc32c
import test_wire
from test_wire import Stream

MB = 1 << 20
N_CHUNKS = 16  # chunks of 1 MB
MODEL = N_CHUNKS * MB
FRAME = 12 * MB  # the longest frame in, and the longest out
WINDOW = 4 * MB  # other memory of gRPC per connection, with clients as slow as these
SLACK = 8 * MB  # threads' stacks, tables, fragmentation of the heap


def memory(process, field):
    """Returns a line of /proc/PID/status in bytes: VmRSS, or VmHWM, its highest value."""
    with open("/proc/%d/status" % process.popen.pid, encoding="ascii") as f:
        for line in f:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise harness.Failure("%s: no %s" % (process.name, field))


@unittest.skipIf(harness.SANITIZE, "a sanitizer's memory is not the program's")
class Server(test_wire.Client):
    def start_job(self, n_workers, optimizer="sgd", **changes):
        self.cluster = self.job(n_workers=n_workers)
        self.ps = self.cluster.start_ps(0)
        self.before = memory(self.ps, "VmHWM")
        pb = self.pb
        job = pb.Job(n_workers=n_workers, sync_mode="async", train_steps=1000000, seed=1,
                     chunk_bytes=MB,
                     optimizer=pb.Optimizer(name=optimizer, learning_rate=0.5, beta1=0.9,
                                            beta2=0.999, epsilon=1e-8))
        job.parameters.add(name="w", dims=[MODEL // 4])
        for name, value in changes.items():
            setattr(job, name, value)
        streams = []
        for member in range(n_workers):
            stub = self.connect(self.cluster.ps_hosts[0])
            reply = self.join_as(stub, job, member)
            streams.append(Stream(self, stub, generation=reply.generation, member=member,
                                  incarnation=7 + member))
        return streams

    def each(self, stream, kind, step=0, **piece):
        """Returns the same request for every chunk."""
        for c in range(N_CHUNKS):
            stream.out.put(self.pb.Frame(pieces=[self.pb.Piece(
                kind=self.pb.Piece.Kind.Value(kind), chunk=c, step=step, **piece)], **stream.head))

    def ask_all(self, stream, step=0):
        """Requests every chunk in one frame, so that the first answer implies all answers."""
        stream.out.put(self.pb.Frame(pieces=[self.pb.Piece(
            kind=self.pb.Piece.PULL, chunk=c, step=step) for c in range(N_CHUNKS)], **stream.head))
        return stream.receive()

    def receive_each(self, stream, first=()):
        """Returns one answer for every chunk, by chunk. first: answers that the caller has received
        already."""
        rest = [stream.receive() for _ in range(N_CHUNKS - len(first))]
        answers = sorted([*first, *rest], key=lambda a: a.chunk)
        self.assertEqual([a.chunk for a in answers], list(range(N_CHUNKS)))
        return answers

    def test_slow_readers_and_flooder_have_bounded_memory(self):
        import grpc
        pusher, slow, late, flooder = self.start_job(4)
        zeros = bytes(MB)
        crc = crc32c(zeros)
        self.each(pusher, "INIT", payload=zeros, crc32c=crc)
        self.receive_each(pusher)
        asked = {slow: (0, self.ask_all(slow))}
        for step in range(40):
            self.each(pusher, "PUSH", step, payload=zeros, crc32c=crc, weight=1)
            for answer in self.receive_each(pusher):
                self.assertEqual((answer.kind, answer.step), (self.pb.Piece.APPLIED, step + 1))
            if step == 20:
                asked[late] = (21, self.ask_all(late, 11))
            if flooder.call.is_active():
                self.each(flooder, "PULL")
        most = memory(self.ps, "VmHWM") - self.before
        # Two versions and the next one; four streams; sgd in async mode has no slots, sums or
        # copies.
        bound = 3 * MODEL + 4 * (2 * MODEL + FRAME + WINDOW) + SLACK
        print("\nserver: %.1f MB, at most %.1f, for a model of %.1f" %
              (most / MB, bound / MB, MODEL / MB), flush=True)
        self.assertLessEqual(most, bound)
        m = self.ps.wait_line(r"requests answers faster than it reads them: (\d+) bytes are "
                              "queued for this peer, and the server ends its stream")
        self.assertLessEqual(int(m.group(1)), 2 * MODEL)
        self.assertEqual(self.ps.output().count("requests answers faster than it reads"), 1)
        with self.assertRaises(grpc.RpcError):  # after the answers that were in flight
            while True:
                flooder.receive()
        # The slow clients read at last: they receive the versions of the time of their requests.
        for stream, (step, first) in asked.items():
            for answer in self.receive_each(stream, [first]):
                self.assertEqual((answer.kind, answer.step), (self.pb.Piece.VERSION, step))
                self.assertEqual(answer.payload, zeros)
                self.assertEqual(answer.crc32c, crc)
            self.each(stream, "PULL")
            self.assertEqual([a.step for a in self.receive_each(stream)], [40] * N_CHUNKS)
            stream.close()
        pusher.close()
        self.ps.stop()

    def test_sync_memory_stays_within_the_bound(self):
        """All members push before the first one, whose contribution must be added first. The
        optimizer has two slots, and versions exist in fp32 and bf16."""
        streams = self.start_job(4, "adam", sync_mode="sync", push_dtype="bf16",
                                 version_dtype="bf16")
        zeros = bytes(MB)
        self.each(streams[0], "INIT", payload=zeros, crc32c=crc32c(zeros))
        self.receive_each(streams[0])
        half = {"payload": zeros[:MB // 2], "crc32c": crc32c(zeros[:MB // 2]), "weight": 1,
                "dtype": self.pb.Piece.BF16}
        for step in range(6):
            for stream in streams[:0:-1]:
                self.each(stream, "PUSH", step, **half)
                # The server has handled all earlier pieces when it answers this one.
                stream.ask("PULL", 0, step + 1, dtype=self.pb.Piece.BF16)
            self.each(streams[0], "PUSH", step, **half)
            for stream in streams:
                for answer in self.receive_each(stream):
                    self.assertEqual((answer.kind, answer.step), (self.pb.Piece.APPLIED, step + 1))
        most = memory(self.ps, "VmHWM") - self.before
        # Values, versions in bf16, the sum, two slots twice, copies of three contributions.
        bound = (3 + 1.5 + 1 + 4 + 3) * MODEL + 4 * (FRAME + WINDOW) + SLACK
        print("\nserver: %.1f MB, at most %.1f, for a model of %.1f" %
              (most / MB, bound / MB, MODEL / MB), flush=True)
        self.assertLessEqual(most, bound)
        for stream in streams:
            stream.close()
        self.ps.stop()


@unittest.skipIf(harness.SANITIZE, "a sanitizer's memory is not the program's")
class Client(harness.Test):
    STEPS = 20

    def highest(self, worker, step):
        """Returns the worker's highest memory after so many steps."""
        worker.wait_line(r"training step %d done" % step, 90)
        return memory(worker, "VmHWM")

    def test_stopped_server_stops_growth_of_worker(self):
        """A worker whose server is stopped waits, and allocates nothing."""
        flags = ["--batch_size=8", "--learning_rate=0.01", "--intra_op_threads=1",
                 "--log_every=1", "--train_steps=100000"]
        alone = self.start_alone(*flags, model="deep_mnist", name="alone")
        least = self.highest(alone, self.STEPS)
        alone.stop()
        job = self.started_job(n_workers=1, model="deep_mnist", flags=[*flags, "--wire_dtype=bf16"])
        worker, ps = job.workers[0], job.ps[0]
        before = self.highest(worker, self.STEPS)
        ps.popen.send_signal(signal.SIGSTOP)
        harness.wait_still(worker)
        stopped = memory(worker, "VmHWM")
        ps.popen.send_signal(signal.SIGCONT)
        after = self.highest(worker, 3 * self.STEPS)
        print("\nworker: alone %.1f MB; with a server %.1f, %.1f while that was stopped, "
              "%.1f later" % (least / MB, before / MB, stopped / MB, after / MB), flush=True)
        self.assertLessEqual(stopped - before, MB)
        # Payloads in bf16 are kept aside: half of 13.1 MB.
        self.assertLessEqual(after - least, 13.1 * MB / 2 + FRAME + WINDOW + SLACK)
        worker.stop(signal.SIGINT, status=0)
        ps.stop()


@unittest.skipIf(harness.SANITIZE, "a sanitizer's memory is not the program's")
class Rollbacks(harness.Test):
    def test_rollback_holds_one_model(self):
        """A server that rolls back to a checkpoint releases its memory before it loads."""
        folder = self.dir()
        job = self.job(n_ps=2, n_workers=1, model="deep_mnist",
                       flags=["--batch_size=1", "--optimizer=adam", "--train_steps=100000",
                              "--shared_memory=off"])
        flags = ["--checkpoint_dir=" + folder, "--save_steps=3", "--keep_checkpoint_max=1",
                 "--shared_memory=off"]
        job.start(ps_flags=flags)
        harness.until(lambda: any(n.endswith(".json") for n in os.listdir(folder)),
                      "first checkpoint")
        job.workers[0].hold()
        before = memory(job.ps[0], "VmHWM")
        for n in range(1, 4):
            job.restart_ps(1, *flags)
            harness.until(lambda: job.ps[0].output().count("resumes from step") >= n,
                          "the checkpoint is loaded again")
        grown = memory(job.ps[0], "VmHWM") - before
        self.assertLess(grown, 16 * MB)  # 38 MB if the server still held the previous generation
        self.kill(*job.workers, *job.ps)


harness.main(__name__)
