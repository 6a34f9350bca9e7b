#!/usr/bin/python3
"""Servers and workers that die, come back, join and leave while training runs: it goes on, and ends
with the bits of a run that nobody disturbed, wherever the same workers did all of it."""
# label: cluster sanitize waits long
import os
import re
import signal
import unittest

import ckpt_folder
import harness
import test_bad_frames

FLAGS = ["--batch_size=12", "--train_steps=60", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
SLOW = [*FLAGS, "--fault_push_delay_ms=6"]
TRIES = 10  # of what a busy machine may miss


class Generations(harness.Test):
    want = {}

    def undisturbed(self, n_workers=2):
        """The parameters' digest of such a run, made once."""
        if n_workers not in self.want:
            job = self.job(n_workers=n_workers, model="small", flags=FLAGS)
            job.start()
            self.want[n_workers] = job.finish(120)[0]["parameters_sha256"]
        return self.want[n_workers]

    def ckpt(self, *more):
        return ["--checkpoint_dir=" + os.path.join(self.dir(), "ckpt"), "--save_steps=8", *more]

    def slow_job(self, n_ps, n_workers=2, hold=0):
        """hold: no further than that before the test ends it (check() does)."""
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small", flags=SLOW)
        if hold:
            job.hold(hold)
        return job

    def check(self, job, n_workers=2, seconds=120):
        for s in job.finish(seconds):
            self.assertEqual(s["parameters_sha256"], self.undisturbed(n_workers))

    def kill(self, process):
        process.stop(signal.SIGKILL, status=-signal.SIGKILL)

    def join(self, job, *flags):
        """One server more, that joins the running job."""
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        argv = [os.path.join(harness.BIN, "ps"), "--join", "--ps_hosts=" + job.ps_hosts[0],
                "--address=" + address, *flags]
        ps = self.start("ps:join", argv, ready=True)
        self.assertEqual(ps.wait_ready(), address)
        job.ps.append(ps)
        return ps

    def leave(self, job, index, status=0):
        """ps --leave=INDEX, a command."""
        argv = [os.path.join(harness.BIN, "ps"), "--leave=%d" % index,
                "--ps_hosts=" + job.ps_hosts[0]]
        command = self.start("leave", argv)
        command.wait(20, status)
        return command.output()

    def test_follower_dies(self):
        """ps:1 or ps:2 is killed alone and started again: all go back to the checkpoint."""
        for n_ps, task in ((2, 1), (3, 2)):
            job = self.slow_job(n_ps, hold=30)
            flags = self.ckpt("--keep_checkpoint_max=0")
            job.start(flags)
            saved = int(job.ps[0].wait_line(r"checkpoint at step (\d+): ").group(1))
            self.kill(job.ps[task])
            job.start_ps(task, *flags)
            job.gate.open()
            m = job.ps[0].wait_line(r"ps:%d \(%s\) was started anew and has lost its parameters: "
                                    r"training goes back to the checkpoint at step (\d+) "
                                    r"\(generation 1\.2\)" % (task, job.ps_hosts[task]))
            self.assertGreaterEqual(int(m.group(1)), saved)
            self.assertNotIn("another process has just called", job.ps[task].output())
            self.check(job)
            self.wipe()

    def impostor(self, job):
        """Calls ps:0 as ps:1, each time as another process: the call's error, or None where it had
        no answer within so many seconds, as one that was taken has none."""
        import grpc
        pb = test_bad_frames.messages()
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

    @unittest.skipIf(test_bad_frames.WHY_NOT, test_bad_frames.WHY_NOT)
    def test_unauthenticated_peer_speaks_for_a_server(self):
        """While ps:1 is there, nobody else sends the job back, or workers away, in its name. It is
        there while it calls again within half a second (tests/ps_calls_test.c): where it was later
        than that, all is done once more."""
        for _ in range(TRIES):
            job = self.slow_job(2)
            for i in range(2):
                job.start_ps(i, "--worker_timeout=1")
            job.start_worker(0)
            if self.all_are_refused(job):
                self.check(job)
                self.assertNotIn("generation 1.2", job.ps[0].output())
                return
            for process in (*job.workers, *job.ps):
                if process:
                    process.stop(signal.SIGKILL, status=None)
        self.fail("the unauthenticated peer was believed each time")

    def all_are_refused(self, job):
        """Before training, and all the while."""
        call = self.impostor(job)
        job.ps[0].wait_line("worker 0 joined from")  # and waits for the other
        for n in range(100):
            error = call(60)
            if error is None:
                return False
            if "another process has just called from" not in error.details():
                self.assertGreater(n, 20, error.details())
                self.assertIn(error.code().name, ("UNAVAILABLE", "CANCELLED"))  # as it ended
                job.workers[0].wait_line("Training elapsed time")  # ps:0 has ended
                return True
            self.assertEqual(error.code().name, "UNAVAILABLE")
            if n == 20:
                job.start_worker(1)
                job.workers[0].wait_line("training step 5 done")
            if n >= 20:
                job.workers[0].wait_line("training step %d done" % (5 + (n - 20) // 2))
        return True

    @unittest.skipIf(test_bad_frames.WHY_NOT, test_bad_frames.WHY_NOT)
    def test_server_vanishes(self):
        """Where ps:1's host is gone without a word its place is free after a few seconds; before
        that it is not (test_unauthenticated_peer_speaks_for_a_server)."""
        job = self.job(n_ps=2, n_workers=2, model="small", flags=[*SLOW, "--train_steps=100000"])
        job.start()
        call = self.impostor(job)
        job.workers[0].wait_line("training step 5 done")

        def believed():
            call(1)
            return re.search(r"ps:1 \(.*\) was started anew", job.ps[0].output())
        with harness.paused(job.ps[1]):
            harness.until(believed, "never believed")
            for process in (*job.workers, *job.ps):
                self.kill(process)

    def test_back_to_what_was_restored(self):
        """--restore names an old checkpoint beside newer ones: a server that dies before there is
        one of the new job's takes all back to that, not to what the new job never was at."""
        job = self.slow_job(2)
        job.start(self.ckpt("--keep_checkpoint_max=0"))
        saved = int(job.ps[0].wait_line(r"checkpoint at step (\d+): ").group(1))
        job.ps[0].wait_line(r"checkpoint at step (?!%d:)\d+: " % saved)
        for process in (*job.ps, *job.workers):
            self.kill(process)
        old = ckpt_folder.path(os.path.join(self.dir(), "ckpt"), saved)
        job = self.slow_job(2)
        job.start(["--checkpoint_dir=" + os.path.join(self.dir(), "ckpt"), "--restore=" + old,
                   "--save_secs=0"])
        job.workers[0].wait_line("training step %d done" % (saved + 3))
        self.kill(job.ps[1])
        job.start_ps(1, "--checkpoint_dir=" + os.path.join(self.dir(), "ckpt"), "--save_secs=0",
                     "--restore=" + old)
        job.ps[0].wait_line("ps:1 .* was started anew and has lost its parameters: training goes "
                            "back to the checkpoint at step %d " % saved)
        self.check(job)

    def wipe(self):
        for name in os.listdir(os.path.join(self.dir(), "ckpt")):
            os.remove(os.path.join(self.dir(), "ckpt", name))

    def test_leader_dies(self):
        """ps:0 is killed alone and started again: nobody ends because of it."""
        for n_ps in (1, 2, 3):
            job = self.slow_job(n_ps, hold=30)
            job.start(self.ckpt())
            job.ps[0].wait_line(r"checkpoint at step \d+: ")
            self.kill(job.ps[0])
            job.start_ps(0, *self.ckpt())
            job.gate.open()
            job.ps[0].wait_line("goes on from step")
            for ps in job.ps[1:]:
                ps.wait_line("was started anew; training goes on from where it says")
            self.check(job)
            self.wipe()

    def test_leader_and_worker_die(self):
        """ps:0 comes back, a worker that died with it does not: the others go on without it."""
        job = self.slow_job(2, n_workers=3, hold=30)
        flags = self.ckpt("--worker_timeout=1")
        job.start(flags)
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(job.ps[0])
        self.kill(job.workers.pop(2))
        job.start_ps(0, *flags)
        job.gate.open()
        job.ps[0].wait_line("worker 2 .*has not come back for 1 s: training goes on without it")
        self.assertEqual(len({s["parameters_sha256"] for s in job.finish(120)}), 1)

    def test_leader_and_worker_begin_anew(self):
        """Without checkpoints ps:0 and a worker that come back find others of the generation that
        they would begin with. ps:0 gives ps:1 a few seconds to call (tests/ps_calls_test.c): where
        the worker came later than that, all is done once more."""
        for _ in range(TRIES):
            job = self.slow_job(2)
            job.start()
            job.workers[0].wait_line("training step 9 done")
            self.kill(job.ps[0])
            self.kill(job.workers[0])
            with harness.paused(job.ps[1]):
                job.start_worker(0)
                job.start_ps(0)
                waits = job.workers[0].wait_line("waiting for ps:0 .*: ps:1 .* has not called it "
                                                 "(yet)|ps:0 .* is on this host")
            if waits.group(1):
                self.check(job)
                return
            for process in (*job.workers, *job.ps):
                process.stop(signal.SIGKILL, status=None)
        self.fail("ps:0 never waited for ps:1")

    def test_draining_server_dies(self):
        """--drain, but killed before the others have fetched its chunks, which it keeps so long,
        and never started again: ps:0 says that it waits, and once told that it is gone goes on
        from the checkpoint."""
        job = self.slow_job(2, hold=30)
        job.start_ps(0, *self.ckpt())
        job.start_ps(1, *self.ckpt("--drain", "--fault_keep_chunks"))
        for i in range(2):
            job.start_worker(i)
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        job.ps[1].popen.send_signal(signal.SIGTERM)
        job.ps[1].wait_line("hands on its chunks")
        job.gate.open()
        job.ps[0].wait_line("ps:1 .* leaves at step")
        job.ps[0].wait_line("cannot begin yet: .* are still to come from .*: --fault_keep_chunks")
        self.kill(job.ps.pop(1))
        job.ps[0].wait_line("a server .* is to hand on its chunks and has not been heard of", 60)
        self.start("drain", [os.path.join(harness.BIN, "ps"), "--ps_hosts=" + job.ps_hosts[0],
                             "--leave=1"]).wait(30, 0)
        job.ps[0].wait_line("is gone with its parameters: training goes back to the checkpoint")
        self.check(job)

    def test_given_up_server_outlives_the_job(self):
        """It hangs, is taken for gone, and the job ends without it: when it runs again, nobody is
        there to tell it, and it finds so in the folder."""
        job = self.slow_job(2, hold=30)
        job.start(self.ckpt())
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        hung = job.ps.pop(1)
        hung.hold()
        job.gate.open()
        job.ps[0].wait_line(r"waits for ps:1 .* not been heard of for (1[5-9]|[2-9]\d|\d{3,}) s",
                            90)
        self.start("drain", [os.path.join(harness.BIN, "ps"), "--ps_hosts=" + job.ps_hosts[0],
                             "--leave=1"]).wait(30, 0)
        job.ps[0].wait_line("is gone with its parameters: training goes back to the checkpoint")
        self.check(job)
        hung.go_on()
        hung.wait(90)
        self.assertIn("says that the job has gone on without this server", hung.output())

    def test_worker_does_not_come_back(self):
        """Past --worker_timeout the others go on without it, and end."""
        for n_ps in (1, 2):
            job = self.slow_job(n_ps, n_workers=3, hold=20)
            job.start(["--worker_timeout=1"])
            job.workers[0].wait_line("training step 9 done")
            self.kill(job.workers.pop(2))
            job.gate.open()
            m = job.ps[0].wait_line(r"worker 2 \(.*\) has not come back for 1 s: training goes on "
                                    r"without it from step (\d+) \(generation 1\.2, 2 workers\)")
            self.assertGreaterEqual(int(m.group(1)), 8)
            summaries = job.finish(120)
            self.assertEqual(len({s["parameters_sha256"] for s in summaries}), 1)

    def test_worker_is_not_waited_for(self):
        """--worker_timeout=0: a worker that dies is left out at once, each time, and is taken in
        again when it comes back."""
        for n_ps in (1, 2):
            job = self.job(n_ps=n_ps, n_workers=3, model="small",
                           flags=[*SLOW, "--train_steps=200"])
            job.start(["--worker_timeout=0"])
            job.workers[0].wait_line("training step 9 done")
            for i in range(4):
                task = 2 - i % 2
                self.kill(job.workers[task])
                job.ps[0].wait_line(r"worker %d \(.*\) has not come back for 0 s: training goes on "
                                    r"without it from step \d+ \(generation 1\.%d, 2 workers\)" %
                                    (task, 2 * i + 2))
                job.start_worker(task)
                m = job.ps[0].wait_line(r"worker %d \(.*\) joins at step (\d+) \(generation 1\.%d, "
                                        r"3 workers\)" % (task, 2 * i + 3))
                job.workers[0].wait_line(r"\(global step: %d\)" % (int(m.group(1)) + 2))
            summaries = job.finish(120)
            self.assertEqual(len({s["parameters_sha256"] for s in summaries}), 1)

    def test_worker_comes_back_in_time(self):
        """Within the time there is no new generation, and no bit differs."""
        job = self.slow_job(2, hold=20)
        job.start(["--worker_timeout=60"])
        job.workers[0].wait_line("training step 9 done")
        self.kill(job.workers[1])
        job.start_worker(1)
        self.check(job)
        self.assertNotIn("generation 1.2", job.ps[0].output())

    def test_too_few_workers(self):
        """With fewer than --min_workers training waits, and then goes on where it was."""
        job = self.slow_job(2, hold=20)
        job.start(["--worker_timeout=1", "--min_workers=2"])
        job.workers[0].wait_line("training step 9 done")
        self.kill(job.workers[1])
        job.gate.open()
        job.ps[0].wait_line(r"training waits at step \d+: 1 workers are there, --min_workers=2")
        job.start_worker(1)
        self.check(job)

    def test_begin_with_fewer(self):
        """--min_workers: training begins without those that never came."""
        job = self.slow_job(1)
        job.start_ps(0, "--min_workers=1", "--worker_timeout=1")
        job.start_worker(0)
        job.ps[0].wait_line("worker 1 .*has not come back for 1 s: training goes on without it "
                            "from step 0")
        job.workers.pop(1)
        self.assertGreaterEqual(job.finish(120)[0]["local_steps"], 60)

    def test_server_joins(self):
        """ps --join while training runs: chunks and slots move to it, no bit differs."""
        for n_ps in (1, 2):
            job = self.slow_job(n_ps, hold=20)
            job.start()
            job.workers[0].wait_line("training step 10 done")
            self.join(job)
            job.gate.open()
            m = job.ps[0].wait_line(r"ps:%d \(.*\) joins at step (\d+): \d+\.\d MB in (\d+) chunks "
                                    r"move to it \(generation 1\.2, %d servers\)" %
                                    (n_ps, n_ps + 1))
            self.assertGreaterEqual(int(m.group(1)), 9)
            self.assertGreater(int(m.group(2)), 0)
            self.check(job)
            self.assertGreater(float(re.search(r"([\d.]+) MB of gradients in",
                                               job.ps[n_ps].output()).group(1)), 0.1)

    def test_server_leaves(self):
        """SIGTERM with --drain: its chunks go to the others, it ends with 0, no bit differs."""
        for n_ps in (2, 3):
            job = self.slow_job(n_ps, hold=20)
            for i in range(n_ps):
                job.start_ps(i, *(["--drain"] if i == 1 else []))
            for i in range(2):
                job.start_worker(i)
            job.workers[0].wait_line("training step 9 done")
            job.ps[1].popen.send_signal(signal.SIGTERM)
            job.gate.open()
            job.ps[1].wait(20)
            job.ps[0].wait_line(r"ps:1 \(.*\) leaves at step \d+: \d+\.\d MB in \d+ chunks move "
                                r"to the others \(generation 1\.2, %d servers\)" % (n_ps - 1))
            self.check(job)

    def test_leave_command(self):
        """ps --leave=INDEX, for one that joined; ps:0 and one that is not there are refused."""
        job = self.slow_job(1, hold=15)
        job.start()
        job.workers[0].wait_line("training step 5 done")
        joined = self.join(job)
        job.brake_from(20)
        job.gate.open()
        job.ps[0].wait_line("ps:1 .* joins at step")
        self.assertIn("ps:0 coordinates the job and cannot leave it", self.leave(job, 0, 1))
        self.assertIn("there is no ps:7", self.leave(job, 7, 1))
        self.assertIn("hands on its chunks", self.leave(job, 1))
        joined.wait(60)
        job.ps[0].wait_line("ps:1 .* leaves at step")
        self.check(job)

    def test_drained_server_stays_away(self):
        """The list of servers outlives ps:0, where checkpoints are kept."""
        job = self.slow_job(2, hold=15)
        job.start_ps(0, *self.ckpt())
        job.start_ps(1, *self.ckpt("--drain"))
        job.brake_from(30)
        for i in range(2):
            job.start_worker(i)
        job.workers[0].wait_line("training step 5 done")
        job.ps[1].popen.send_signal(signal.SIGTERM)
        job.gate.open()
        job.ps[1].wait(20)
        del job.ps[1]
        job.ps[0].wait_line(r"checkpoint at step (1[6-9]|[23]\d): ")
        self.kill(job.ps[0])
        job.start_ps(0, *self.ckpt())
        job.ps[0].wait_line("servers have joined or left since --ps_hosts was given")
        self.check(job)

    def test_joiner_dies(self):
        """Killed as it joins: the job goes on, with it or without."""
        job = self.slow_job(2, hold=20)
        job.start(self.ckpt())
        job.workers[0].wait_line("training step 9 done")
        joined = self.join(job, *self.ckpt())
        job.gate.open()
        job.ps[0].wait_line("ps:2 .* joins at step")
        self.kill(joined)
        job.ps.pop()
        again = self.start("ps:join", joined.argv, ready=True)
        again.wait_ready()
        job.ps.append(again)
        self.check(job, seconds=180)

    def test_server_dies_in_a_change(self):
        """A follower is killed while another server joins."""
        job = self.slow_job(2, hold=25)
        job.start(self.ckpt())
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        self.join(job, *self.ckpt())
        job.gate.open()
        job.ps[0].wait_line("ps:2 .* joins at step")
        self.kill(job.ps[1])
        job.start_ps(1, *self.ckpt())
        self.check(job, seconds=180)


if __name__ == "__main__":
    harness.main()
