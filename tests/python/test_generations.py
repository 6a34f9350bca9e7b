#!/usr/bin/python3
"""Servers that die and return while training runs: training continues, and ends with the bits of an
undisturbed run."""
# label: cluster sanitize waits long
import re
import unittest

import ckpt_folder
import generations
import harness
import test_wire


class Generations(generations.Test):
    def test_killed_follower_rolls_job_back(self):
        """ps:1 or ps:2 is killed alone and started again: all members roll back to the
        checkpoint."""
        for n_ps, task in ((2, 1), (3, 2)):
            job = self.slow_job(n_ps, hold=30)
            flags = self.ckpt("--keep_checkpoint_max=0")
            job.start(flags)
            saved = int(job.ps[0].wait_line(r"checkpoint at step (\d+): ").group(1))
            job.restart_ps(task, *flags)
            job.gate.open()
            m = job.ps[0].wait_line(r"ps:%d \(%s\) was restarted and has lost its parameters: "
                                    r"training goes back to the checkpoint at step (\d+) "
                                    r"\(generation 1\.2\)" % (task, job.ps_hosts[task]))
            self.assertGreaterEqual(int(m.group(1)), saved)
            self.assertNotIn("another process has just called", job.ps[task].output())
            self.check(job)
            self.wipe()

    def impostor(self, job):
        """Returns a function that calls ps:0 as ps:1, each time as another process. It returns the
        error of the call, or None if ps:0 accepts the call, and so does not answer in time."""
        import grpc
        pb, _ = test_wire.generate("weir")
        channel = grpc.insecure_channel(job.ps_hosts[0])
        self.addCleanup(harness.keep(channel).close)
        coordinate = channel.unary_unary(
            "/weir.v1.Weir/Coordinate", pb.CoordinateRequest.SerializeToString,
            pb.CoordinateReply.FromString)
        n = 0

        def call(seconds):
            nonlocal n
            n += 1
            request = pb.CoordinateRequest(protocol=harness.PROTOCOL, server=1, n_servers=2,
                                           address=job.ps_hosts[1], incarnation=n,
                                           generation=harness.term(1))
            request.missing.add(member=1, ms=1 << 48)
            try:
                coordinate(request, timeout=seconds * harness.SLOWNESS)
            except grpc.RpcError as e:
                if e.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                    return e
            return None
        return call

    @unittest.skipIf(test_wire.WHY_NOT, test_wire.WHY_NOT)
    def test_unauthenticated_peer_cannot_replace_live_server(self):
        """While ps:1 is alive, no other process can roll the job back, or drop workers, in its
        name. ps:0 regards ps:1 as alive if its next call arrives within half a second
        (tests/ps_calls_test.c). If a call of ps:1 was later, the test repeats everything."""
        for _ in range(generations.TRIES):
            job = self.slow_job(2)
            job.start_servers("--worker_timeout=1")
            job.start_worker(0)
            if self.all_are_refused(job):
                self.check(job)
                self.assertNotIn("generation 1.2", job.ps[0].output())
                return
            self.kill_any(*job.workers, *job.ps)
        self.fail("ps:0 accepted the peer each time")

    def all_are_refused(self, job):
        """Calls as ps:1 before training, and until training ends. Returns whether ps:0 refused
        all calls."""
        call = self.impostor(job)
        job.ps[0].wait_line("worker 0 joined from")  # and waits for worker 1
        for n in range(100):
            error = call(60)
            if error is None:
                return False
            if "another process has just called from" not in error.details():
                self.assertGreater(n, 20, error.details())
                # The error when ps:0 exited.
                self.assertIn(error.code().name, ("UNAVAILABLE", "CANCELLED"))
                job.workers[0].wait_line("Training elapsed time")  # ps:0 has exited
                return True
            self.assertEqual(error.code().name, "UNAVAILABLE")
            if n == 20:
                job.start_worker(1)
                job.workers[0].wait_line("training step 5 done")
            if n >= 20:
                job.workers[0].wait_line("training step %d done" % (5 + (n - 20) // 2))
        return True

    @unittest.skipIf(test_wire.WHY_NOT, test_wire.WHY_NOT)
    def test_place_of_vanished_server_is_free_after_seconds(self):
        """If the host of ps:1 vanishes, another process can replace ps:1 after a few seconds.
        test_unauthenticated_peer_cannot_replace_live_server checks that it cannot do so before."""
        job = self.started_job(n_ps=2, n_workers=2, model="small",
                               flags=[*generations.SLOW, "--train_steps=100000"])
        call = self.impostor(job)
        job.workers[0].wait_line("training step 5 done")

        def is_accepted():
            call(1)
            return re.search(r"ps:1 \(.*\) was restarted", job.ps[0].output())
        with harness.paused(job.ps[1]):
            harness.until(is_accepted, "ps:0 never accepted the peer")
            job.kill()

    def test_rollback_goes_to_restored_checkpoint(self):
        """--restore names an old checkpoint beside newer ones. A server that dies before the new
        job's first checkpoint rolls the job back to the old one, not to a step that the new job
        never had."""
        job = self.slow_job(2)
        job.start(self.ckpt("--keep_checkpoint_max=0"))
        saved = int(job.ps[0].wait_line(r"checkpoint at step (\d+): ").group(1))
        job.ps[0].wait_line(r"checkpoint at step (?!%d:)\d+: " % saved)
        job.kill()
        old = ckpt_folder.path(self.path("ckpt"), saved)
        job = self.slow_job(2)
        job.start(["--checkpoint_dir=" + self.path("ckpt"), "--restore=" + old, "--save_secs=0"])
        job.workers[0].wait_line("training step %d done" % (saved + 3))
        job.restart_ps(1, "--checkpoint_dir=" + self.path("ckpt"), "--save_secs=0",
                       "--restore=" + old)
        job.ps[0].wait_line("ps:1 .* was restarted and has lost its parameters: training goes "
                            "back to the checkpoint at step %d " % saved)
        self.check(job)

    def test_killed_leader_ends_no_process(self):
        """ps:0 is killed alone and started again: no process exits because of it."""
        for n_ps in (1, 2, 3):
            job = self.saved_job(n_ps, hold=30)
            job.restart_ps(0, *self.ckpt())
            job.gate.open()
            job.ps[0].wait_line("resumes from step")
            self.wait_lines(job.ps[1:], "was restarted; training continues from the step that it "
                                        "announces")
            self.check(job)
            self.wipe()

    def test_dropped_server_finds_end_of_job_in_folder(self):
        """A server hangs and is dropped, and the job ends without the server. When it runs again,
        no other process is left, and it finds the end of the job in the folder."""
        job = self.saved_job(2, hold=30)
        hung = job.ps.pop(1)
        hung.hold()
        job.gate.open()
        job.ps[0].wait_line(r"waits for ps:1 .* has been silent for (1[5-9]|[2-9]\d|\d{3,}) s",
                            90)
        job.drain(1)
        job.ps[0].wait_line("is gone with its parameters: training goes back to the checkpoint")
        self.check(job)
        hung.resume()
        self.assertIn("records that the job has continued without this server",
                      hung.wait_output(90))


harness.main(__name__)
