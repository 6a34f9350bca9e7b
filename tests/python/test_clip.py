#!/usr/bin/python3
"""Clipped gradients in real programs. In sync mode the servers clip, by value or by the norm of the
mean gradient; in other modes each worker clips. The parameters are the same alone and with any
number of servers, whatever process is killed. Impossible combinations of flags are refused."""
# label: cluster
import json
import math

import harness

FLAGS = ["--batch_size=12", "--train_steps=20", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
SGD = ["--optimizer=sgd", "--learning_rate=1", "--train_steps=1"]


class Clip(harness.Test):
    def alone(self, *flags):
        return self.digest_alone(*FLAGS, *flags)

    def servers(self, n_ps, n_workers, *flags, disturb=None, ps_flags=()):
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small", flags=[*FLAGS, *flags])
        job.start(ps_flags)
        if disturb:
            disturb(job)
        found = {s["parameters_sha256"] for s in job.finish(120)}
        self.assertEqual(len(found), 1)
        return found.pop()

    def exported(self, *flags):
        """Returns all parameters of the model in one list."""
        path = self.path("export.safetensors")
        self.alone(*SGD, "--export=" + path, *flags)
        tensors = harness.read_safetensors(path)
        return [x for name in sorted(tensors) for x in tensors[name][1]]

    def test_clip_value_limits_the_step(self):
        """Two runs of one step each, clipped differently, lie apart by exactly the difference."""
        low, high = self.exported("--clip_norm=0.25"), self.exported("--clip_norm=0.5")
        self.assertAlmostEqual(math.dist(low, high), 0.25, delta=1e-4)
        free = self.exported()
        self.assertGreater(math.dist(low, free), 0.01)
        clipped = self.exported("--clip_value=0.001")
        # One side makes a step of at most 0.001, the other the step of the whole gradient.
        again = self.exported("--clip_value=0.002")
        apart = max(abs(a - b) for a, b in zip(clipped, again))
        self.assertAlmostEqual(apart, 0.001, delta=1e-5)
        self.assertEqual(self.exported("--clip_value=1e9"), free)
        self.assertEqual(self.exported("--clip_norm=1e9"), free)

    def test_clipped_bits_same_alone_and_with_servers(self):
        plain = self.alone()
        for clip in ("--clip_value=0.002", "--clip_norm=0.1"):
            want = self.alone(clip)
            self.assertNotEqual(want, plain)
            for n_ps in (1, 2, 3):
                self.assertEqual(self.servers(n_ps, 1, clip), want)

    def several_workers(self, clip, disturb):
        """Checks that one, two and three servers, and a disturbed job, have the same norm of the
        mean."""
        flags = [clip, "--fault_push_delay_ms=4"]
        want = self.servers(1, 2, *flags)
        self.assertEqual(self.servers(3, 2, *flags), want)
        ps_flags = ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=4"]
        disturbed = self.servers(2, 2, *flags, ps_flags=ps_flags,
                                 disturb=lambda job: disturb(job, ps_flags))
        self.assertEqual(disturbed, want)
        return want

    @staticmethod
    def kill_server(job, ps_flags):
        job.workers[0].wait_line("training step 6 done")
        job.restart_ps(1, *ps_flags)

    def kill_worker_and_server(self, job, ps_flags):
        job.workers[0].wait_line("training step 3 done")
        job.restart_worker(1)
        self.kill_server(job, ps_flags)

    def test_clip_value_with_several_workers_same_bits(self):
        self.several_workers("--clip_value=0.002", self.kill_server)

    def test_clip_norm_with_several_workers_same_bits(self):
        """The servers exchange their parts of the norm."""
        want = self.several_workers("--clip_norm=0.1", self.kill_worker_and_server)
        self.assertNotEqual(self.servers(1, 2, "--clip_norm=0.2"), want)

    def test_clip_norm_with_16_bit_gradients_same_bits(self):
        """Contributions are rounded, and all workers skip some steps."""
        flags = ["--clip_norm=0.1", "--wire_dtype=bf16", "--on_nonfinite=skip",
                 "--fault_nonfinite=7"]
        self.assertEqual(self.servers(3, 2, *flags), self.servers(1, 2, *flags))

    def test_clip_norm_uses_the_mean(self):
        """Two workers end like one worker with twice the batch, up to rounding."""
        path = self.path("export.safetensors")
        flags = ["--clip_norm=0.1", "--optimizer=momentum", "--learning_rate=0.5"]
        self.alone(*flags, "--batch_size=24", "--export=" + path)
        one = harness.read_safetensors(path)
        job = self.job(n_ps=2, n_workers=2, model="small", flags=[*FLAGS, *flags])
        job.start_servers()
        job.start_worker(0, "--export=" + path)
        job.start_worker(1)
        job.finish(120)
        two = harness.read_safetensors(path)
        apart = max(abs(a - b) for name in one for a, b in zip(one[name][1], two[name][1]))
        self.assertLess(apart, 1e-3)
        self.alone("--clip_norm=0.05", *flags[1:], "--batch_size=24", "--export=" + path)
        other = harness.read_safetensors(path)
        self.assertGreater(max(abs(a - b) for name in one
                               for a, b in zip(one[name][1], other[name][1])), 0.02)

    def test_joining_worker_keeps_clipping(self):
        """One worker becomes two: the servers clip before and after."""
        job = self.job(n_ps=2, n_workers=1, model="small",
                       flags=[*FLAGS, "--clip_norm=0.1", "--train_steps=200"])
        job.hold(30)
        job.start()
        job.workers[0].wait_line("training step 5 done")
        joiner = job.join_worker("joiner", "--data_dir=" + self.data(), "--progress=lines",
                                 "--intra_op_threads=1",
                                 "--summary_json=" + self.path("joiner.json"))
        joiner.wait_line(r"joined as worker 1 of 2 at step \d+")
        job.gate.open()
        [first] = job.finish(120)
        joiner.wait(60)
        with open(self.path("joiner.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f)["parameters_sha256"], first["parameters_sha256"])

    def test_async_and_ssp_clip_each_contribution(self):
        """Each contribution is clipped by itself, before its conversion to 16 bits."""
        for mode in (["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=1"]):
            for clip in ("--clip_norm=0.1", "--clip_value=0.002"):
                self.servers(2, 2, clip, *mode, "--wire_dtype=bf16", "--on_nonfinite=skip")

    def test_impossible_clip_flags_refused(self):
        hosts = ["--ps_hosts=127.0.0.1:1", "--worker_hosts=a:1,b:1", "--task_index=0"]
        for flags, said in [
                ([*hosts, "--clip_norm=1", "--replicas_to_aggregate=1"],
                 "--clip_norm in --sync_mode=sync is not for jobs with backup workers"),
                (["--clip_norm=1", "--clip_value=1"], "exclude each other; set one of them"),
                (["--clip_value=-1"], "--clip_value")]:
            self.assertIn(said, self.run_worker(*flags, status=2).output())


harness.main(__name__)
