#!/usr/bin/python3
"""A checkpoint folder on a network that does not answer: a server ends nevertheless after one
SIGTERM."""
# label: cluster
import signal
import unittest

import harness
import preload

FLAGS = ["--train_steps=60", "--batch_size=12", "--seed=3", "--chunk_bytes=4096"]


@unittest.skipIf(harness.SANITIZE, "the preloaded library precedes the sanitizer's")
class HungFolder(harness.Test):
    def test_sigterm_ends_reading_server(self):
        folder = self.path("ckpt")
        flags = ["--checkpoint_dir=" + folder, "--save_steps=20"]
        self.started_job(n_ps=2, n_workers=1, model="small", flags=FLAGS, ps_flags=flags).finish()
        job = self.job(n_ps=2, n_workers=1, model="small", flags=[*FLAGS, "--train_steps=100"])
        job.start_ps(0, *flags)
        job.start_ps(1, *flags, env=preload.env(self, preload.HANGING_READS, HANG="60-1-of-2"))
        job.start_worker(0)
        job.ps[1].wait_line("a read of .* hangs")
        job.ps[1].stop(signal.SIGTERM, 60, 143)
        job.ps[1].wait_line("%s, or a thread of this server, has not answered for 15 s: this "
                            "process ends without waiting for it" % folder)
        self.kill(job.workers[0], job.ps[0])

    def test_hung_start_names_folder_and_ends_by_signal(self):
        folder = self.path("ckpt")
        flags = ["--checkpoint_dir=" + folder, "--save_steps=20"]
        self.started_job(n_ps=1, n_workers=1, model="small", flags=FLAGS, ps_flags=flags).finish()
        hangs = preload.env(self, preload.HANGING_READS, HANG="60-0-of-1")
        job = self.job(n_ps=1, n_workers=1, model="small", flags=[*FLAGS, "--train_steps=100"])
        job.start_ps(0, *flags, env=hangs, wait=False)
        job.ps[0].wait_line("%s is still being read, for 3 s now" % folder)
        job.ps[0].stop(signal.SIGTERM, 60, 143)
        job.ps[0].wait_line("%s has not answered for 15 s: this process ends" % folder)


harness.main(__name__)
