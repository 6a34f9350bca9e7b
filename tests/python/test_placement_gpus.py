"""One network over several devices: the CPU and two GPUs of the fake driver and of the CUDA that
tests/emulation emulates. Its parameters must end near those of the same network on one device."""
# label: cluster address
import json
import re
import unittest

import fake_gpus
import harness
from fake_gpus import card

PERMANENT = 1
SPLIT = "--placement=c1=gpu:1,left=gpu:0,right=gpu:1,fc=cpu:0,out=gpu:1"
NET = {
    "input": [1, 28, 28], "classes": 10, "layers": [
        {"type": "conv2d", "name": "c1", "filters": 4, "kernel": 5, "stride": 3},
        {"type": "batch_norm", "name": "norm"}, {"type": "relu", "name": "r1"},
        {"type": "conv2d", "name": "left", "filters": 4, "kernel": 3, "padding": "same"},
        {"type": "relu", "name": "r2"},
        {"type": "conv2d", "name": "right", "input": "r1", "filters": 4, "kernel": 1,
         "after": ["r2"]},
        {"type": "add", "name": "sum", "inputs": ["r2", "right", "r1"]},
        {"type": "flatten"}, {"type": "dropout", "rate": 0.2},
        {"type": "dense", "name": "fc", "units": 20}, {"type": "relu", "name": "r3"},
        {"type": "dense", "name": "out", "units": 10},
        {"type": "softmax_cross_entropy", "name": "loss"}]}


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class Split(fake_gpus.Machine):
    CUDA = fake_gpus.EMULATED

    def setUp(self):
        super().setUp()
        self.machine(*(card(i, "total=400 used=10") for i in range(2)))

    def net(self, units=20, **devices):
        """Writes the network's file, with these layers' devices and this many units in `fc`."""
        layers = [dict(l, device=devices[l["name"]]) if l.get("name") in devices else l
                  for l in NET["layers"]]
        layers = [dict(l, units=units) if l.get("name") == "fc" else l for l in layers]
        path = self.path("-".join(["net%d" % units, *sorted(devices)]) + ".json")
        harness.write_file(path, json.dumps(dict(NET, layers=layers)))
        return path

    def run_net(self, name, *flags, **devices):
        # The layer after c1 cancels the biases of c1, so their gradients are only rounding errors,
        # and Adam would move the biases at random.
        return self.train(name, "--batch_size=12", "--train_steps=15", "--optimizer=momentum",
                          "--learning_rate=0.02", *flags, model=self.net(**devices))

    def same(self, a, b):
        """Checks that both are equal except for rounding."""
        self.compare(a, b)
        self.assertGreater(a[0]["test_accuracy"], 0.5)
        for name, (_, values) in a[1].items():
            self.assertLess(max(abs(x - y) for x, y in zip(values, b[1][name][1])), 1e-5, name)

    def test_split_over_two_gpus_and_cpu_matches_cpu(self):
        trace = self.path("trace.json")
        split = self.run_net("split", "--gpus=0,1", SPLIT, "--log_device_placement",
                             "--eval_every=5", "--trace=" + trace)
        self.same(split, self.run_net("whole", "--gpus=none"))
        self.assert_has(split[2], " c1/weights: /device:GPU:1 (rule 'c1=gpu:1')",
                        " norm/gamma: /device:GPU:0 (default)",
                        " r1: /device:GPU:0 (default: the device of 'norm')",
                        " right/weights: /device:GPU:1 (rule 'right=gpu:1')",
                        " sum: /device:GPU:0 (default: the device of 'r2')",
                        " fc/weights: /device:CPU:0 (rule 'fc=cpu:0')",
                        " r3: /device:CPU:0 (default: the device of 'fc')",
                        " loss: /device:GPU:1 (default: the device of 'out')")
        self.assertEqual(len(re.findall(r": /device:", split[2])), len(NET["layers"]))
        self.assertEqual(len(split[0]["towers"]), 1)
        self.check_trace(trace)

    def check_trace(self, path):
        """Checks that each copy from one device to another is once in the first step, and in the
        right order."""
        events = harness.read_json(path)["traceEvents"]
        crossed = [e["name"] for e in sorted(events, key=lambda e: e.get("ts", 0))
                   if e.get("cat") == "cross" and e["args"].get("step") == 0]
        self.assertEqual(crossed, [
            "output of c1", "output of r1", "end of r2", "output of right", "output of dropout1",
            "output of r3", "gradient of r3", "gradient of dropout1", "gradient of right",
            "gradient of r1", "gradient of c1"])

    @unittest.skipIf(harness.SANITIZE, "slow, and no other code than the others'")
    def test_devices_in_model_file_match_flag(self):
        by_file = self.run_net("file", "--gpus=0,1", c1="/gpu:1", left="gpu:0", right="GPU:1",
                               fc="/device:CPU:0", out="/device:GPU:1")
        by_flag = self.run_net("flag", "--gpus=0,1", SPLIT)
        self.same(by_file, by_flag)
        self.assertEqual(by_file[0]["towers"], by_flag[0]["towers"])

    def test_towers_with_layers_on_cpu_match_cpu(self):
        towers = self.run_net("towers", "--gpus=0,1", "--placement=fc=cpu,out=cpu",
                              "--log_device_placement")
        self.assertEqual(len(towers[0]["towers"]), 2)
        for i in range(2):
            self.assertIn(" tower_%d/c1/weights: /device:GPU:%d (default)" % (i, i), towers[2])
            self.assertIn(" tower_%d/fc/weights: /device:CPU:0 (rule" % i, towers[2])
        self.same(towers, self.run_net("cpu", "--gpus=none", "--towers=2"))

    def test_placement_numbers_are_cudas_without_gpus_flag(self):
        """Without --gpus the numbers in --placement are those of CUDA, even if other programs use
        some of the cards."""
        self.machine(card(0, "total=400 used=10 procs=11"), card(1, "total=400 used=10"),
                     card(2, "total=400 used=10"))  # CUDA's numbers: 1, 0, 2
        for rules, lines in (("*=/gpu:2", ["c1/weights: /device:GPU:2 (rule '*=/gpu:2')"]),
                             ("fc=gpu:2", ["c1/weights: /device:GPU:0 (default)",
                                           "fc/weights: /device:GPU:2 (rule 'fc=gpu:2')"])):
            p = self.worker("--model=" + self.net(), "--train_steps=2", "--batch_size=4",
                            "--placement=" + rules, "--log_device_placement")
            p.wait(60)
            self.assert_has(p.output(), *(" " + line for line in lines))
        p = self.worker("--model=" + self.net(fc="gpu:2"), "--train_steps=2",
                        "--batch_size=4", "--log_device_placement")
        self.assertIn(" fc/weights: /device:GPU:2 (model file)", p.wait_output())
        p = self.worker("--model=" + self.net(), "--placement=fc=gpu:1")
        self.assertRegex(p.wait_output(30, PERMANENT),
                         "1 of the 2 requested GPUs are free: GPU 1: process " "11 ")
        self.assertIn("there are /device:CPU:0, /device:GPU:0;", p.output())

    def in_bf16(self, **env):
        """Returns the output of a worker whose first dense layer lies on the CPU."""
        return self.worker("--model=" + self.net(units=200), "--gpus=0", "--placement=fc=cpu",
                           "--precision=bf16", "--train_steps=2", "--batch_size=4",
                           env=self.env(**env)).wait_output()

    def test_bf16_on_cpu_without_it_computes_in_fp32(self):
        self.assertEqual(self.in_bf16(ONEDNN_MAX_CPU_ISA="AVX2").count(
            "--precision=bf16: the CPU does not support products in this format; it computes in "
            "fp32"), 1)

    def test_bf16_of_layers_on_cpu(self):
        flags = harness.read_text("/proc/cpuinfo")
        if "avx512_bf16" not in flags and "amx_bf16" not in flags:
            self.skipTest("this CPU has neither AVX512_BF16 nor AMX")
        self.assertIn("--precision=bf16: 1 of 1 dense and convolution layers compute in bf16: fc;",
                      self.in_bf16())

    @unittest.skipIf(harness.SANITIZE, "slow, and no other code than the others'")
    def test_round_robin_spreads_parameters(self):
        robin = self.run_net("robin", "--gpus=0,1", "--placement=*=round_robin",
                             "--log_device_placement")
        for i, name in enumerate(("c1/weights", "norm/gamma", "left/weights", "right/weights",
                                  "fc/weights", "out/weights")):
            self.assertIn(" %s: /device:GPU:%d (rule '*=round_robin')" % (name, i % 2), robin[2])
        self.same(robin, self.run_net("whole", "--gpus=none"))

    def test_split_worker_and_whole_worker_agree(self):
        """One of two workers is split, the other is not; the second job has no split worker."""
        jobs = []
        for split in (True, False):
            job = self.job(n_ps=2, flags=["--model=" + self.net(), "--batch_size=10", "--seed=3",
                                          "--train_steps=15", "--intra_op_threads=1",
                                          "--optimizer=momentum", "--learning_rate=0.02"])
            job.start_servers()
            on_gpus = ["--backend_dir=" + self.backends(self.CUDA), "--gpus=0,1", SPLIT,
                       "--gpu_lock_dir=" + self.locks()]
            job.start_worker(0, *(on_gpus if split else ["--gpus=none"]), env=self.env())
            job.start_worker(1, "--gpus=none")
            jobs.append(job.finish())
        for a, b in zip(*jobs):
            self.assertEqual(a["global_step"], 15)
            self.assertAlmostEqual(a["test_loss"], b["test_loss"], delta=1e-5)
        self.assertEqual(jobs[0][0]["parameters_sha256"], jobs[0][1]["parameters_sha256"])

    def wire(self, name, dtype, *flags):
        """Returns the parameters' hash after a run on one card with a server, and whether the card
        rounded."""
        # There are so many parameters that some pages of 16-bit numbers are pinned.
        job = self.job(n_ps=1, n_workers=1, flags=[
            "--model=" + self.net(units=300), "--batch_size=10", "--seed=3", "--train_steps=10",
            "--intra_op_threads=1", "--learning_rate=0.02", "--wire_dtype=" + dtype])
        job.start_ps(0)
        worker = job.start_worker(0, "--backend_dir=" + self.backends(self.CUDA), "--gpus=0",
                                  "--gpu_lock_dir=" + self.locks(), *flags, env=self.env())
        summary, = job.finish()
        self.assertEqual(summary["global_step"], 10, name)
        rounded = "rounds gradients to " + dtype.split(",", maxsplit=1)[0] in worker.output()
        return summary["parameters_sha256"], rounded

    def test_card_rounds_like_host(self):
        """A card that computes all layers rounds its gradients for the wire. If the CPU has a
        layer, even one that computes nothing, the host rounds."""
        some_on_host = "--placement=flatten1=cpu:0,dropout1=gpu:0"
        for dtype in ("bf16", "fp16,fp32"):
            host = self.wire("host", dtype, some_on_host)
            card = self.wire("card", dtype)
            by_tcp = self.wire("tcp", dtype, "--shared_memory=off")
            self.assertEqual((host[1], card[1], by_tcp[1]), (False, True, True))
            self.assertEqual(card[0], host[0], dtype)
            self.assertEqual(by_tcp[0], host[0], dtype)
        plain = self.wire("plain", "fp32")
        self.assertFalse(plain[1])
        self.assertNotEqual(plain[0], host[0])

    def test_parameters_on_host_match_cpu(self):
        """By TensorFlow's names: the card computes, the host keeps and updates the parameters."""
        there = self.run_net("there", "--gpus=0", "--log_device_placement")
        self.assertIn("training runs on cuda:0 without copies", there[2])
        host = self.run_net("host", "--gpus=0", "--log_device_placement",
                            "--placement=*/*=/job:localhost/replica:0/task:0/cpu:0,"
                            "type:dense=/job:worker/task:0/device:GPU:0")
        self.assertNotIn("without copies to the host", host[2])
        self.assertIn(" fc/weights: /device:CPU:0 (rule '*/*=/job:localhost/", host[2])
        self.assertIn(" fc: /device:GPU:0 (rule 'type:dense=/job:worker/", host[2])
        self.same(host, there)

    def test_bad_placement_refused(self):
        def refused(*words, flags):
            self.refused(self.worker("--model=" + self.net(), *flags), PERMANENT, *words)
        refused("layer 'fc'", "gpu:2", "there are /device:CPU:0, /device:GPU:0, /device:GPU:1;",
                flags=["--gpus=0,1", "--placement=fc=gpu:2"])
        refused("layers are placed on GPUs by number", "1 towers on the CPU and 2 on 2 GPUs",
                flags=["--gpus=0,1", "--towers=1", "--placement=fc=gpu:1"])
        refused("layer 'fc'", "a tower on the CPU has no GPU of its own",
                flags=["--gpus=0", "--towers=1", "--placement=fc=gpu"])

    @unittest.skipIf(harness.SANITIZE, "slow, and no other code than the others'")
    def test_soft_placement_falls_back_with_warning(self):
        soft = self.run_net("soft", "--gpus=0,1", "--placement=fc=gpu:7", "--allow_soft_placement")
        self.assertRegex(soft[2], r"W .* layer 'fc' cannot be placed on gpu:7 .*; its tower's own "
                                  r"device computes it")
        self.assertEqual(len(soft[0]["towers"]), 2)  # nothing is left to spread
        self.same(soft, self.run_net("cpu", "--gpus=none", "--towers=2"))


harness.main(__name__)
