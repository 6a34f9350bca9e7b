#!/usr/bin/python3
"""Servers join and leave while training runs, and some die during these changes. Training
continues, and ends with the bits of an undisturbed run."""
# label: cluster sanitize waits long
import os
import re
import signal

import generations
import harness
import preload


class ServerChanges(generations.Test):
    def test_killed_draining_server_dropped_by_command(self):
        """A server with --drain is killed before the other servers have fetched its chunks, and is
        not started again. ps:0 reports that it waits for these chunks. After a second --leave it
        resumes from the checkpoint."""
        job = self.slow_job(2, hold=30)
        job.start_ps(0, *self.ckpt())
        job.start_ps(1, *self.ckpt("--drain", "--fault_keep_chunks"))
        job.start_workers()
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        job.ps[1].popen.send_signal(signal.SIGTERM)
        job.ps[1].wait_line("moves its chunks to the other servers")
        job.gate.open()
        job.ps[0].wait_line("ps:1 .* leaves at step")
        job.ps[0].wait_line("cannot begin yet: .* are still missing from .*: --fault_keep_chunks")
        self.kill(job.ps.pop(1))
        job.ps[0].wait_line("a server .* must move its chunks to other servers, but has", 60)
        job.drain(1)
        job.ps[0].wait_line("is gone with its parameters: training goes back to the checkpoint")
        self.check(job)

    def held_job(self, brake=None, **env):
        """Returns a job of two servers with a checkpoint, and the path of a file. While this file
        exists, ps 0 cannot write its list of servers."""
        if harness.SANITIZE:
            self.skipTest("the preloaded library precedes the sanitizer's")
        hold, job = self.path("hold"), self.slow_job(2)
        if brake:
            job.brake_from(brake)
        job.start_ps(0, *self.ckpt(), env=preload.env(
            self, preload.HOLDS_NAMES, HELD_NAME="/servers", HOLD=hold, **env))
        job.start_ps(1, *self.ckpt())
        job.start_workers()
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        open(hold, "w", encoding="ascii").close()
        return job, hold

    def test_drained_server_stays_until_list_is_recorded(self):
        """A restarted ps 0 reads the list of servers in the folder. If the list were old, ps 0
        would wait for a server that has left."""
        job, hold = self.held_job()
        job.drain(1)
        step = int(job.ps[0].wait_line(r"generation 1[.]2 from step (\d+): ").group(1))
        job.workers[0].wait_line("training step %d done" % (step + 15))
        job.ps[0].wait_line(r"the server at %s has moved its chunks to the other servers, "
                            ".*/servers: the write has not finished" % re.escape(job.ps_hosts[1]))
        self.assertNotIn("this server has no chunks any more", job.ps[1].output())
        self.assertIsNone(job.ps[1].popen.poll())
        os.unlink(hold)
        job.ps[1].wait_line("this server has no chunks any more")
        job.ps[1].wait(60, 0)
        self.check(job)

    def test_drained_server_stays_while_disk_is_full(self):
        """ps 0 is stopped before the disk has room for the list. The drained server is still there
        for the next ps 0."""
        job, hold = self.held_job(brake=20, HELD_FULL="1")
        self.leave(job, 1)
        job.ps[0].wait_line("generation 1[.]2 from step")
        job.ps[0].wait_line("/servers: not written, retrying every 5 s; if ps:0 is restarted")
        job.ps[0].wait_line("and exits when .*/servers: the write failed and is retried")
        job.ps[0].stop(signal.SIGTERM, status=None)
        self.assertNotIn("this server has no chunks any more", job.ps[1].output())
        self.assertIsNone(job.ps[1].popen.poll())
        os.unlink(hold)
        job.start_ps(0, *self.ckpt())
        self.check(job)

    def test_joined_server_changes_no_bit(self):
        """ps --join while training runs: chunks and slots move to it."""
        for n_ps in (1, 2):
            job = self.training_job(n_ps, hold=20)
            self.join(job)
            job.gate.open()
            m = job.ps[0].wait_line(r"ps:%d \(.*\) joins at step (\d+): \d+\.\d MB in (\d+) chunks "
                                    r"move to it \(generation 1\.2, %d servers?\)" %
                                    (n_ps, n_ps + 1))
            job.ps[n_ps].wait_line(r" ps:%d generation 1\.2 from step" % n_ps)
            # worker 0 has contributed to step 9, for which it needed version 8 of all chunks
            self.assertGreaterEqual(int(m.group(1)), 8)
            self.assertGreater(int(m.group(2)), 0)
            self.check(job)
            self.assertGreater(float(re.search(r"([\d.]+) MB of gradients received",
                                               job.ps[n_ps].output()).group(1)), 0.1)

    def test_server_with_capital_host_name_joins_once(self):
        """Host names have no case: the joined server is the one in the plan."""
        job = self.slow_job(1)
        job.start()
        port = harness.free_ports(1)[0]
        ps = self.start_program("ps", "--join", "--ps_hosts=" + job.ps_hosts[0],
                                "--address=LocalHost:%d" % port, name="ps:join", ready=True)
        self.assertEqual(ps.wait_ready(), "localhost:%d" % port)
        job.ps.append(ps)
        job.ps[0].wait_line(r"ps:1 \(localhost:%d\) joins at step" % port)
        self.check(job)

    def test_drained_server_changes_no_bit(self):
        """SIGTERM with --drain: its chunks move to the other servers, and it exits with 0."""
        for n_ps in (2, 3):
            job = self.slow_job(n_ps, hold=20)
            for i in range(n_ps):
                job.start_ps(i, *(["--drain"] if i == 1 else []))
            job.start_workers()
            job.workers[0].wait_line("training step 9 done")
            job.ps[1].popen.send_signal(signal.SIGTERM)
            job.gate.open()
            job.ps[1].wait(20)
            job.ps[0].wait_line(r"ps:1 \(.*\) leaves at step \d+: \d+\.\d MB in \d+ chunks move "
                                r"to the other servers \(generation 1\.2, %d servers?\)" %
                                (n_ps - 1))
            self.check(job)

    def test_leave_command_drains_server(self):
        """ps --leave=INDEX works for a joined server; it is refused for ps:0 and for an absent
        server."""
        job = self.training_job(1, hold=15)
        joined = self.join(job)
        job.brake_from(20)
        job.gate.open()
        job.ps[0].wait_line("ps:1 .* joins at step")
        self.assertIn("ps:0 coordinates the job and cannot leave it", self.leave(job, 0, 1))
        self.assertIn("there is no ps:7", self.leave(job, 7, 1))
        self.assertIn("moves its chunks to the other servers", self.leave(job, 1))
        joined.wait(60)
        job.ps[0].wait_line("ps:1 .* leaves at step")
        self.check(job)

    def test_drained_server_stays_away_after_restart_of_ps_0(self):
        """ps:0 keeps the list of servers in the checkpoint folder, if it has one, and reads it
        after a restart."""
        job = self.slow_job(2, hold=15)
        job.start_ps(0, *self.ckpt())
        job.start_ps(1, *self.ckpt("--drain"))
        job.brake_from(30)
        job.start_workers()
        job.workers[0].wait_line("training step 5 done")
        job.ps[1].popen.send_signal(signal.SIGTERM)
        job.gate.open()
        job.ps[1].wait(20)
        del job.ps[1]
        job.ps[0].wait_line(r"checkpoint at step (1[6-9]|[23]\d): ")
        job.restart_ps(0, *self.ckpt())
        job.ps[0].wait_line("servers have joined or left since --ps_hosts was written")
        self.check(job)

    def test_killed_joining_server_does_not_stop_job(self):
        """A server is killed as it joins: the job continues, with it or without."""
        job = self.training_job(2, self.ckpt(), hold=20)
        joined = self.join(job, *self.ckpt())
        job.gate.open()
        job.ps[0].wait_line("ps:2 .* joins at step")
        self.kill(joined)
        job.ps.pop()
        again = self.start("ps:join", joined.argv, ready=True)
        again.wait_ready()
        job.ps.append(again)
        self.check(job, seconds=180)

    def test_follower_killed_in_a_change_changes_no_bit(self):
        """A follower is killed while another server joins."""
        job = self.saved_job(2, hold=25)
        self.join(job, *self.ckpt())
        job.gate.open()
        job.ps[0].wait_line("ps:2 .* joins at step")
        job.restart_ps(1, *self.ckpt())
        self.check(job, seconds=180)


harness.main(__name__)
