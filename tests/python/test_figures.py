#!/usr/bin/python3
"""Figures say what this process did: one that came to a job later, or that went on from a
checkpoint, does not count the steps of others."""
# label: cluster waits
import json
import os
import signal

import harness

FLAGS = ["--batch_size=12", "--seed=5", "--chunk_bytes=5120", "--log_every=1",
         "--intra_op_threads=1"]


class Figures(harness.Test):
    def ckpt(self, *more):
        return ["--checkpoint_dir=" + os.path.join(self.dir(), "ckpt"), "--save_steps=20", *more]

    def run_to(self, steps):
        job = self.job(model="small", flags=[*FLAGS, "--train_steps=%d" % steps])
        summary = os.path.join(self.dir(), "ps.json")
        job.start(self.ckpt("--summary_json=" + summary))
        job.finish()
        with open(summary, encoding="utf-8") as f:
            return job.ps[0], json.load(f)

    def test_resumed(self):
        ps, summary = self.run_to(40)
        ps.wait_line(r" 40 steps in [0-9.]+ s; ")
        self.assertEqual((summary["first_step"], summary["steps"]), (0, 40))
        ps, summary = self.run_to(60)
        ps.wait_line(r" 20 steps in [0-9.]+ s, from step 40 to 60; ")
        self.assertEqual((summary["first_step"], summary["steps"]), (40, 60))

    def test_without_chunks(self):
        """The model is too small for two servers: the second one knows of no steps."""
        summary = os.path.join(self.dir(), "ps.json")
        job = self.job(n_ps=2, n_workers=1, model="small", flags=[
            "--batch_size=12", "--seed=5", "--log_every=1", "--train_steps=100000000"])
        job.start(["--summary_json=" + summary])
        job.workers[0].wait_line("training step 3 done")
        job.ps[1].stop()
        job.ps[1].wait_line("no chunks were here; 0.0 MB of gradients in, 0.0 MB of parameters out")
        with open(summary, encoding="utf-8") as f:
            self.assertEqual(json.load(f)["steps"], 0)
        for process in (job.workers[0], job.ps[0]):
            process.stop(signal.SIGKILL, status=-signal.SIGKILL)

    def test_joined(self):
        job = self.job(model="small", flags=[*FLAGS, "--train_steps=60"])
        job.hold(20)
        job.start()
        job.workers[0].wait_line("training step 9 done")
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        joined = self.start("ps:join", [
            os.path.join(harness.BIN, "ps"), "--join", "--ps_hosts=" + job.ps_hosts[0],
            "--address=" + address], ready=True)
        joined.wait_ready()
        step = int(job.ps[0].wait_line(r"ps:1 .* joins at step (\d+)").group(1))
        job.gate.open()
        job.finish()
        joined.wait(60)
        joined.wait_line(r" %d steps in [0-9.]+ s, from step %d to 60; " % (60 - step, step))
        job.ps[0].wait_line(r" 60 steps in [0-9.]+ s; ")


if __name__ == "__main__":
    harness.main()
