#!/usr/bin/python3
"""Chunks move between servers over a link that is much too slow. The server that sends them reports
its progress, no member regards it as lost, and a command ends the move."""
# label: net waits long
import unittest

import harness
import namespaces

FLAGS = ["--batch_size=12", "--train_steps=60", "--seed=5", "--chunk_bytes=8192",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
SLOW = [*FLAGS, "--fault_push_delay_ms=6"]
WHY_NOT = namespaces.why_not(bridge=True)


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SlowLink(harness.Test):
    def setUp(self):
        super().setUp()
        self.net = namespaces.Network(3, test=self)
        self.hosts = [self.net.address(i) + ":2221" for i in range(3)]

    def ckpt(self):
        return ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=8"]

    def begin(self):
        """Begins a job of two servers, with two workers beside the first."""
        job = self.job(n_ps=2, n_workers=2, model="lenet5", flags=SLOW)
        job.ps_hosts = self.hosts[:2]
        job.worker_hosts = ["%s:%d" % (self.net.address(0), port) for port in (2223, 2224)]
        for i in (1, 0):
            job.start_ps(i, *self.ckpt(), prefix=self.net.hosts[i].enter)
        job.start_workers(prefix=self.net.hosts[0].enter)
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        return job

    def drain(self, index):
        command = self.start("drain", [*self.net.hosts[0].enter, harness.program("weirctl"),
                                       "--ps_hosts=" + self.hosts[0], "drain", str(index)])
        return command.wait_output(30)

    def check(self, job):
        job.finish(120, self.undisturbed_digest(n_workers=2, model="lenet5", flags=FLAGS))

    def slow_join(self, job, kbit):
        """Starts a server that joins by a link of this rate; returns it once chunks arrive."""
        self.net.limit(2, kbit, to=True)
        argv = [*self.net.hosts[2].enter, harness.program("ps"), "--join",
                "--ps_hosts=" + self.hosts[0], "--address=" + self.hosts[2],
                "--checkpoint_dir=" + self.path("ckpt")]
        joined = self.start("ps:join", argv, ready=True)
        job.ps[0].wait_line("ps:2 .* joins at step .* move to it")
        joined.wait_line(r"generation 1\.2: \d+ of \d+ chunks, \d+\.\d of \d+\.\d MB from")
        return joined

    def slow_leave(self, job):
        """Drains ps 1, whose chunks would need minutes to move."""
        with harness.paused(*job.workers):
            harness.wait_still(*job.ps)
            self.net.limit(1, 40, to=False)
            self.assertIn("moves its chunks to the other servers", self.drain(1))
            job.ps[0].wait_line("ps:1 .* leaves at step .* move to the other servers")
        job.ps[0].wait_line(r"generation 1\.2: \d+ of \d+ chunks, \d+\.\d of \d+\.\d MB from")

    def test_drained_joiner_stops_its_move(self):
        """A joiner's chunks would need minutes; it is drained, and training continues at its
        step."""
        job = self.begin()
        joined = self.slow_join(job, 40)
        self.assertIn("moves its chunks to the other servers", self.drain(2))
        joined.wait(60)
        # The joiner receives the order from ps 0, or from a server that received it earlier.
        self.assertRegex(joined.output(), "chunks, .* before the transfer was cancelled|"
                                          "is no longer on this server")
        job.workers[0].wait_line("training step 59 done", 60)
        self.assertNotIn("goes back to the checkpoint", job.ps[0].output())
        self.check(job)

    def test_terminated_joiner_exits_at_once(self):
        """SIGTERM: the joiner exits, though its chunks are still arriving; the job continues
        without it."""
        job = self.begin()
        joined = self.slow_join(job, 40)
        joined.stop(seconds=30)
        self.assertIn("before the transfer was cancelled", joined.output())
        self.assertNotIn("MB, received from", joined.output())  # it did not wait for its chunks
        job.workers[0].wait_line("training step 59 done", 60)
        self.check(job)

    def test_terminated_ps_0_exits_at_once(self):
        """SIGTERM to ps 0 while it receives chunks: it exits, and after its restart training
        resumes from the newest checkpoint."""
        job = self.begin()
        self.slow_leave(job)
        job.ps[0].stop(seconds=60)
        self.assertIn("before the transfer was cancelled", job.ps[0].output())
        job.start_ps(0, *self.ckpt(), prefix=self.net.hosts[0].enter)
        self.net.limit(1, 0, to=False)
        self.check(job)

    def test_slow_joiner_is_not_dropped(self):
        """A slow joiner receives all chunks, however rarely ps 0 receives its calls."""
        job = self.begin()
        joined = self.slow_join(job, 150)
        joined.wait_line(r"chunks, .* MB, received from " + self.hosts[0], 60)
        joined.wait_line(r"chunks, .* MB, received from " + self.hosts[1], 60)
        self.net.limit(2, 0, to=True)
        self.check(job)
        joined.wait(60)
        self.assertNotIn("generation 1.3", job.ps[0].output())

    def test_slow_source_dropped_by_second_command(self):
        """A server leaves, and its chunks would need minutes to move. After a second --leave ps 0
        continues without them, from the checkpoint."""
        job = self.begin()
        self.slow_leave(job)
        harness.until(lambda: job.ps[0].output().count("generation 1.2 waits for") >= 3,
                      "ps 0 has waited for a while", 60)
        harness.until(lambda: "counts as lost" in self.drain(1),
                      "ps 1 is dropped", 60)
        job.ps[0].wait_line(r"10\.83\.0\.2:2221\) counts as lost: training goes "
                            "back to the checkpoint at step")
        job.ps[1].wait(60)
        self.check(job)


harness.main(__name__)
