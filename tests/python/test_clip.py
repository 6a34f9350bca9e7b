#!/usr/bin/python3
"""Clipped gradients in real programs: by value on the servers, by norm at the worker: the same bits
alone and with any number of servers, whatever is killed; what cannot be is refused."""
# label: cluster
import json
import math
import os
import signal

import harness

FLAGS = ["--batch_size=12", "--train_steps=20", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
SGD = ["--optimizer=sgd", "--learning_rate=1", "--train_steps=1"]


class Clip(harness.Test):
    def alone(self, *flags):
        path = os.path.join(self.dir(), "summary.json")
        self.run_worker("--summary_json=" + path, harness.models_dir("small"), *FLAGS, *flags,
                        model="small")
        with open(path, encoding="utf-8") as f:
            return json.load(f)["parameters_sha256"]

    def servers(self, n_ps, n_workers, *flags, disturb=None, ps_flags=()):
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small", flags=[*FLAGS, *flags])
        job.start(ps_flags)
        if disturb:
            disturb(job)
        found = {s["parameters_sha256"] for s in job.finish(120)}
        self.assertEqual(len(found), 1)
        return found.pop()

    def exported(self, *flags):
        """All parameters of the model, in one list."""
        path = os.path.join(self.dir(), "export.safetensors")
        self.alone(*SGD, "--export=" + path, *flags)
        tensors = harness.read_safetensors(path)
        return [x for name in sorted(tensors) for x in tensors[name][1]]

    def test_what_it_does(self):
        """Two runs of one step each, clipped differently, lie apart by exactly that much."""
        low, high = self.exported("--clip_norm=0.25"), self.exported("--clip_norm=0.5")
        self.assertAlmostEqual(math.dist(low, high), 0.25, delta=1e-4)
        free = self.exported()
        self.assertGreater(math.dist(low, free), 0.01)
        clipped = self.exported("--clip_value=0.001")
        # a step of at most 0.001 on one side, and of the whole gradient on the other
        again = self.exported("--clip_value=0.002")
        apart = max(abs(a - b) for a, b in zip(clipped, again))
        self.assertAlmostEqual(apart, 0.001, delta=1e-5)
        self.assertEqual(self.exported("--clip_value=1e9"), free)
        self.assertEqual(self.exported("--clip_norm=1e9"), free)

    def test_same_bits_everywhere(self):
        plain = self.alone()
        for clip in ("--clip_value=0.002", "--clip_norm=0.1"):
            want = self.alone(clip)
            self.assertNotEqual(want, plain)
            for n_ps in (1, 2, 3):
                self.assertEqual(self.servers(n_ps, 1, clip), want)

    def test_value_with_several_workers(self):
        """Of the mean: one, two and three servers agree, and so does a job with a server killed."""
        flags = ["--clip_value=0.002", "--fault_push_delay_ms=4"]
        want = self.servers(1, 2, *flags)
        self.assertEqual(self.servers(3, 2, *flags), want)
        ps_flags = ["--checkpoint_dir=" + os.path.join(self.dir(), "ckpt"), "--save_steps=4"]

        def kill(job):
            job.workers[0].wait_line("training step 6 done")
            job.ps[1].stop(signal.SIGKILL, status=-signal.SIGKILL)
            job.start_ps(1, *ps_flags)
        self.assertEqual(self.servers(2, 2, *flags, disturb=kill, ps_flags=ps_flags), want)

    def test_at_their_own_pace(self):
        """Each contribution by itself; its 16-bit form is made of the clipped one."""
        for mode in (["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=1"]):
            for clip in ("--clip_norm=0.1", "--clip_value=0.002"):
                self.servers(2, 2, clip, *mode, "--wire_dtype=bf16", "--on_nonfinite=skip")

    def test_flags(self):
        hosts = ["--ps_hosts=127.0.0.1:1", "--worker_hosts=a:1,b:1", "--task_index=0"]
        for flags, said in [
                ([*hosts, "--clip_norm=1"],
                 "--clip_norm with several workers in --sync_mode=sync is not built yet"),
                (["--clip_norm=1", "--clip_value=1"], "are both given; give one of them"),
                (["--clip_value=-1"], "--clip_value")]:
            self.assertIn(said, self.run_worker(*flags, status=2).output())


if __name__ == "__main__":
    harness.main()
