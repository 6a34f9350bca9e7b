#!/usr/bin/python3
"""A server whose port is still in use: it tries again for a while, and a signal ends that."""
# label: cluster sanitize
import signal
import socket

import harness

WAITS = r"W .* is in use, by a program that may be ending; trying again for 10 s"


class Listen(harness.Test):
    def start_beside(self):
        """A ps whose port another program has; both."""
        job = self.job(n_workers=1, flags=["--train_steps=3"])
        host, port = job.ps_hosts[0].split(":")
        holder = socket.create_server((host, int(port)))
        self.addCleanup(holder.close)
        job.start_ps(wait=False).wait_line(WAITS)
        return job, holder

    def test_the_port_becomes_free(self):
        job, holder = self.start_beside()
        holder.close()
        job.start_worker()
        job.finish()

    def test_a_signal_ends_the_wait(self):
        job, _ = self.start_beside()
        job.ps[0].stop(signal.SIGTERM)
        self.assertNotIn("listening", job.ps[0].output())

    def test_a_server_that_was_killed(self):
        """Stopped, it holds its port; the next one is there before it is gone."""
        job = self.job(n_workers=1, flags=["--train_steps=3"])
        old = job.start_ps()
        old.popen.send_signal(signal.SIGSTOP)
        new = job.start_ps(wait=False)
        new.wait_line(WAITS)
        old.popen.send_signal(signal.SIGKILL)
        old.wait(20, -signal.SIGKILL)
        job.start_worker()
        job.finish()


if __name__ == "__main__":
    harness.main()
