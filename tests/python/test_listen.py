#!/usr/bin/python3
"""A server whose port is still in use retries for a while, and a signal ends its wait. While it has
no port, it disturbs no other process."""
# label: cluster address
import os
import re
import signal
import socket

import ckpt_folder
import harness
from relay import Relay

FLAGS = ["--batch_size=12", "--train_steps=24", "--seed=5", "--chunk_bytes=32768",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
WAITS = r"W .* is in use, by a program that may be ending; trying again for 10 s"


class Listen(harness.Test):
    def test_bind_differs_from_ps_hosts(self):
        """--ps_hosts has the address that other processes connect to, --bind the one to listen
        at."""
        job = self.job(n_workers=1, flags=["--train_steps=3"])
        host, port = job.ps_hosts[0].split(":")
        (inner,) = harness.free_ports(1)
        nat = Relay((host, inner), at=(host, int(port)))
        self.addCleanup(nat.close)
        ps = job.start_ps(0, "--bind=%s:%d" % (host, inner))
        ps.wait_line("listening on %s:%d; other programs connect to %s" %
                     (host, inner, job.ps_hosts[0]))
        job.start_worker()
        job.finish()
        wrong = job.start_ps(0, "--bind=0.0.0.0:x", wait=False)
        wrong.ends(2, "--bind: '0.0.0.0:x' has a port that is not a number", 20)

    def start_beside(self):
        """Starts a ps whose port another program has; returns both."""
        job = self.job(n_workers=1, flags=["--train_steps=3"])
        host, port = job.ps_hosts[0].split(":")
        holder = socket.create_server((host, int(port)))
        self.addCleanup(holder.close)
        job.start_ps(wait=False).wait_line(WAITS)
        return job, holder

    def test_server_listens_once_port_is_free(self):
        job, holder = self.start_beside()
        holder.close()
        job.start_worker()
        job.finish()

    def test_signal_ends_wait_for_port(self):
        job, _ = self.start_beside()
        job.ps[0].stop(signal.SIGTERM)
        self.assertNotIn("listening", job.ps[0].output())

    def test_server_waits_for_port_of_stopped_one(self):
        """A server that is stopped by SIGSTOP holds its port. The next server starts before, and
        waits until the first one has ended."""
        job = self.job(n_workers=1, flags=["--train_steps=3"])
        old = job.start_ps()
        old.popen.send_signal(signal.SIGSTOP)
        job.start_ps(wait=False).wait_line(WAITS)
        old.kill()
        job.start_worker()
        job.finish()

    def test_server_resumes_from_last_checkpoint_of_previous_one(self):
        """The owner of the port receives SIGTERM, and writes a last checkpoint. The next server was
        started before that, and resumes from this checkpoint."""
        job = self.job(n_workers=1, model="small", flags=[*FLAGS, "--train_steps=400",
                                                          "--fault_push_delay_ms=5"])
        flags = ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=1000"]
        old = job.start_ps(0, *flags)
        job.start_worker().wait_line("training step 3 done")
        with harness.paused(old):
            new = job.start_ps(0, *flags, wait=False)
            new.wait_line(WAITS)
        old.stop()
        step = old.wait_line("checkpoint at step ([0-9]+): ").group(1)
        new.wait_line("resumes from step %s," % step)
        job.finish(120)
        self.assertNotIn("going back", job.workers[0].output())

    def marks(self, folder):
        """Returns the names of the leases, and of the files of running servers, in the folder."""
        return sorted(n for n in os.listdir(folder) if re.match("lease-|up-", n))

    def assert_no_text(self, processes, *texts):
        for p in processes:
            for text in texts:
                self.assertNotIn(text, p.output(), p.name)

    def test_second_start_of_servers_disturbs_no_job(self):
        """Both servers of a job are started a second time with the same flags. The second ones
        exit, and until then neither call ps 0 nor claim the folder; training continues as if they
        did not exist."""
        want = self.undisturbed_digest(n_ps=2, model="lenet5", flags=FLAGS)
        folder = self.path("ckpt")
        flags = ["--checkpoint_dir=" + folder, "--save_steps=6"]
        job = self.job(n_ps=2, model="lenet5", flags=[*FLAGS, "--fault_push_delay_ms=4"])
        job.start(flags)
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        first, before = list(job.ps), self.marks(folder)
        self.assertEqual(len(before), 3, before)  # a lease, and the files of two running servers
        with harness.paused(*job.workers):  # the job lasts until the second servers have exited
            second = [job.start_ps(i, *flags, wait=False) for i in range(2)]
            job.ps = first
            for ps in second:
                ps.wait_line(WAITS)
                self.assertIn("address in use", ps.wait_output(60, 138))
            self.assertEqual(self.marks(folder), before)
        self.assert_no_text(second, "waiting for ps:0", "claimed from")
        self.assert_no_text([*first, *second], "another process has just called")
        job.finish(120, want)
        self.assertEqual(ckpt_folder.steps(folder)[-1], 24)
        self.assert_no_text(first, "another process has just called", "was restarted",
                            "has since claimed this folder", "generation 1.2", "generation 2.")


harness.main(__name__)
