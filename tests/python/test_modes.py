"""The modes besides plain sync, with real processes. Each mode trains, its guarantee is visible
from outside, and all programs exit with 0. A foreign client receives the right typed answers."""
# label: cluster sanitize waits long
import contextlib
import re
import struct

import harness
from harness import crc32c
import test_wire

N_CHUNKS = 2  # the weights of softmax fill one, and leave no room for the biases
QUICK = ["--batch_size=20", "--learning_rate=0.01", "--seed=3", "--intra_op_threads=1",
         "--chunk_bytes=%d" % (7840 * 4)]
SLOW = "--fault_push_delay_ms=60"  # longest delay of each push
HELD_AT = 20  # step
BRISK = "--fault_push_delay_ms=3"  # makes a job longer than its processes' starts


def last_step(worker):
    """Returns the number of steps of a worker with --log_every=1."""
    found = re.findall(r"training step (\d+) done", worker.output())
    return int(found[-1]) if found else 0


def count_steps(worker):
    """Returns the number of steps that the worker made itself: a late worker numbers its first step
    after the steps of earlier workers."""
    return len(re.findall(r"training step \d+ done", worker.output()))


def run_away(fast, slow, n_steps):
    """Waits until the fast worker has made so many more steps while the slow one is stopped."""
    with harness.paused(slow):
        fast.wait_line("training step %d done" % (last_step(slow) + n_steps))


def stay_near(test, fast, slow, staleness):
    """Checks the bound while the slow worker is held: the fast workers make the allowed steps, and
    then stand still. The slow worker may have begun one more step, which counts."""
    slow.wait_line("training step %d done" % (HELD_AT - 4))
    harness.wait_still(slow, *fast)
    for worker in fast:
        apart = count_steps(worker) - count_steps(slow)
        test.assertGreaterEqual(apart, staleness - 1)
        test.assertLessEqual(apart, staleness + 2)


class Case(harness.Test):
    def start_job(self, flags, n_workers=3, n_ps=1, slow=None, first=0, ps_flags=(), held=None):
        """Starts a job. The slow worker starts first, or `first` does, so that it does not arrive
        after the end. A held worker stops after some steps until the job's gate is opened."""
        job = self.job(n_ps=n_ps, n_workers=n_workers, flags=[*QUICK, *flags])
        if held is not None:
            job.hold(HELD_AT, task=held)
        job.start_servers(*ps_flags)
        first = first if slow is None else slow
        for i in sorted(range(n_workers), key=lambda i: i != first):
            job.start_worker(i, *([SLOW] if i == slow else []))
        return job

    def check(self, job, steps, least=0.85, applied=None):
        """Checks that all end with the same parameters: each chunk's last version, made by
        `applied` contributions per step. If the answer to a counted contribution is lost (a paused
        worker reads shared memory too late), the second answer to the contribution is DUPLICATE."""
        summaries = job.finish(90)
        for s in summaries:
            self.assertEqual(s["global_step"], steps)
            self.assertEqual(s["parameters_sha256"], summaries[0]["parameters_sha256"])
            self.assertGreaterEqual(s["test_accuracy"], least)
        if applied:
            counted = [s["exchange"][kind] for s in summaries for kind in ("applied", "duplicate")]
            self.assertEqual(sum(counted), applied * steps * N_CHUNKS)
        return summaries

    def start_steady(self, *flags):
        """Starts a job that logs each step, and waits until all of its workers train."""
        job = self.start_job([*flags, BRISK, "--log_every=1"])
        self.wait_lines(job.workers, r"training step \d+ done")  # the worker may have joined late
        return job


class Modes(Case):
    def test_async_worker_runs_away(self):
        """No worker waits for another, so the test stops each worker that has begun until all have
        begun."""
        job = self.job(n_workers=3, flags=[*QUICK, BRISK, "--log_every=1", "--sync_mode=async",
                                           "--train_steps=1200"])
        job.start_ps()
        with contextlib.ExitStack() as stack:
            for i in range(3):
                job.start_worker(i).wait_line(r"training step \d+ done")
                stack.enter_context(harness.paused(job.workers[i]))
        run_away(job.workers[0], job.workers[2], 40)
        self.check(job, 1200, applied=1)

    def test_ssp_worker_stays_within_staleness(self):
        for staleness in (0, 5):
            for slow in (2, 0):
                job = self.start_job(["--sync_mode=ssp", "--staleness=%d" % staleness, BRISK,
                                      "--train_steps=400", "--log_every=1"], held=slow)
                fast = [w for i, w in enumerate(job.workers) if i != slow]
                stay_near(self, fast, job.workers[slow], staleness)
                self.check(job, 400, applied=1)

    def test_async_chunks_end_at_last_version(self):
        """Every worker continues until the last chunk has all its versions. There are so many that
        training succeeds however stale gradients are, which depends on the machine."""
        for mode in (["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=1"],
                     ["--replicas_to_aggregate=1"]):
            job = self.started_job(n_ps=2, n_workers=3, model="mlp",
                                   flags=[*QUICK, *mode, "--hidden_units=32", "--chunk_bytes=4096",
                                          "--train_steps=240", "--fault_push_delay_ms=1"])
            self.check(job, 240)

    def test_backup_workers_do_not_wait_for_slow_one(self):
        """No step waits for the slow worker; each step has exactly two gradients."""
        job = self.start_steady("--replicas_to_aggregate=2", "--train_steps=600")
        run_away(job.workers[0], job.workers[2], 50)
        slow = self.check(job, 600, applied=2)[2]
        self.assertLessEqual(slow["local_steps"], 600 - 45)
        self.assertGreater(slow["exchange"]["stale"], 0)

    def test_killed_worker_returns_in_every_mode(self):
        for mode in (["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=1"],
                     ["--replicas_to_aggregate=2"]):
            with self.subTest(mode=mode):
                job = self.start_job([*mode, "--train_steps=300", "--log_every=5",
                                      "--fault_push_delay_ms=10"], first=1)
                job.workers[1].wait_line("training step 5 done")
                job.restart_worker(1)
                self.check(job, 300)


class TypedAnswers(test_wire.Client):
    """Answers to a foreign client, with chunks of 1024 floats on two servers."""

    def open(self, n_workers=1, n_ps=1, **job):
        self.cluster = self.job(n_ps=n_ps, n_workers=n_workers)
        pb, self.streams, self.stubs = self.pb, [], []
        wire = pb.Job(n_workers=n_workers, sync_mode="sync", train_steps=3, seed=1,
                      chunk_bytes=4096, optimizer=pb.Optimizer(name="sgd", learning_rate=0.5))
        wire.parameters.add(name="w", dims=[2048])
        wire.MergeFrom(pb.Job(**job))
        for task in range(n_ps):
            self.stop_at_end(self.cluster.start_ps(task))
            self.stubs.append(self.connect(self.cluster.ps_hosts[task]))
        for member in range(n_workers):
            named = {}  # a server other than ps 0 may not have begun the generation yet
            for stub in self.stubs:
                reply = self.join_as(stub, wire, member, **named)
                if reply.server:
                    self.shards = list(reply.server)
                self.generation = named["generation"] = reply.generation
        self.zeros, self.ones = bytes(4096), struct.pack("<1024f", *([1] * 1024))

    def stream(self, member=0, server=0, **head):
        head = {"generation": self.generation, "member": member, "incarnation": 7 + member, **head}
        return self.open_stream(self.stubs[server], **head)

    def check(self, answer, kind, step=0, value=None):
        self.assertEqual(self.pb.Piece.Kind.Name(answer.kind), kind, answer)
        self.assertEqual(answer.step, step)
        self.assertEqual(answer.crc32c, crc32c(answer.payload))
        if value is None:
            self.assertEqual(answer.payload, b"")
        else:
            self.assertEqual(answer.payload, struct.pack("<1024f", *([value] * 1024)))

    def test_duplicate_and_stale_answered(self):
        self.open()
        s = self.stream()
        self.check(s.ask("INIT", 0, 0, self.zeros), "VERSION", 0, 0)
        self.check(s.ask("PUSH", 0, 0, self.ones), "APPLIED", 1, -0.5)
        self.check(s.ask("PUSH", 0, 0, self.ones), "DUPLICATE", 1, -0.5)
        self.check(s.ask("PUSH", 0, 1, self.ones), "APPLIED", 2, -1)
        self.check(s.ask("PUSH", 0, 0, self.ones), "STALE", 2, -1)
        self.check(s.ask("PUSH", 0, 2, self.ones), "APPLIED", 3, -1.5)
        self.check(s.ask("PUSH", 0, 3, self.ones), "STALE", 3, -1.5)  # the job has 3 steps

    def test_wrong_shard_answered(self):
        self.open(n_ps=2)
        self.assertEqual(sorted(self.shards), [0, 1])
        for server in (0, 1):
            s = self.stream(server=server)
            there, elsewhere = self.shards.index(server), self.shards.index(1 - server)
            self.check(s.ask("INIT", there, 0, self.zeros), "VERSION", 0, 0)
            for kind, payload in (("PUSH", self.ones), ("PULL", b""), ("INIT", self.zeros)):
                answer = s.ask(kind, elsewhere, 0, payload)
                self.check(answer, "WRONG_SHARD")
                self.assertEqual(answer.chunk, elsewhere)
            self.check(s.ask("PULL", there), "VERSION", 0, 0)  # the stream stays open

    def test_other_generation_answered_with_rebase(self):
        self.open()
        s = self.stream()
        self.check(s.ask("INIT", 0, 0, self.zeros), "VERSION", 0, 0)
        for generation in (self.generation - 1, self.generation + 1):
            old = self.stream(generation=generation)
            self.check(old.ask("PUSH", 0, 0, self.ones), "REBASE")
            self.check(old.ask("PULL", 0), "REBASE")
            old.close()
        self.check(s.ask("PULL", 0), "VERSION", 0, 0)

    def test_late_contribution_of_backup_worker_stale(self):
        """Two of three contributions count. The third is answered with STALE and the version made
        without it."""
        self.open(n_workers=3, aggregate=2)
        s = [self.stream(m) for m in range(3)]
        self.check(s[0].ask("INIT", 0, 0, self.zeros), "VERSION", 0, 0)
        s[2].send("PUSH", 0, 0, self.ones)
        self.check(s[2].ask("PULL", 0), "VERSION", 0, 0)  # the server has handled the push
        self.check(s[0].ask("PUSH", 0, 0, self.zeros), "APPLIED", 1, -0.25)
        self.check(s[2].receive(), "APPLIED", 1, -0.25)
        self.check(s[1].ask("PUSH", 0, 0, self.ones), "STALE", 1, -0.25)
        self.check(s[2].ask("PUSH", 0, 0, self.ones), "DUPLICATE", 1, -0.25)

    def test_ssp_delays_answer_of_fast_worker(self):
        self.open(n_workers=2, sync_mode="ssp", staleness=1, train_steps=100)
        fast, slow = self.stream(0), self.stream(1)
        self.check(fast.ask("INIT", 0, 0, self.zeros), "VERSION", 0, 0)
        self.check(slow.ask("PULL", 0), "VERSION", 0, 0)
        self.check(fast.ask("PUSH", 0, 0, self.ones), "APPLIED", 1, -0.5)
        fast.send("PUSH", 0, 1, self.ones)  # two steps ahead: counted, not answered
        self.check(fast.ask("PULL", 0, 3), "VERSION", 2, -1)
        fast.cancel()
        fast = self.stream(0)
        fast.send("PUSH", 0, 1, self.ones)  # the repetition is not answered, either
        self.check(fast.ask("PULL", 0, 3), "VERSION", 2, -1)
        self.check(slow.ask("PUSH", 0, 0, self.ones), "APPLIED", 3, -1.5)
        self.check(fast.receive(), "APPLIED", 3, -1.5)
        fast.send("PUSH", 0, 3, self.ones)
        self.check(fast.ask("PULL", 0, 5), "VERSION", 4, -2)
        # The worker is done, so the coordinator plans no next generation, whose REBASE could be the
        # first answer.
        self.stubs[0].Leave(self.pb.LeaveRequest(member=1, incarnation=8, done=True),
                            timeout=10 * harness.PATIENCE)
        self.check(fast.receive(), "APPLIED", 4, -2)  # the server waits for no worker that has left


harness.main(__name__)
