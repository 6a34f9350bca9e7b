"""--precision=bf16 on the CPU: the measurements of one worker apply to its whole job, also after
checkpoints, so that the bits do not depend on which process measured."""
# label: cluster
import unittest

import harness

FLAGS = ["--batch_size=20", "--seed=3", "--intra_op_threads=1", "--precision=bf16"]
CHOICES = ["--bf16_layers=c3,c5", "--bf16_layers=f6"]
TOLD = "as measured by the job's first worker"


class Rounding(harness.Test):
    def setUp(self):
        super().setUp()
        probe = self.job(n_ps=0, n_workers=1, flags=[*FLAGS, "--train_steps=1"])
        worker = self.start_program("worker", *probe.flags, name="probe")
        worker.wait(status=None)
        if "oneDNN finds neither AVX512_BF16 nor AMX" in worker.output():
            self.assertEqual(worker.status, 1)
            raise unittest.SkipTest("this CPU has no bf16")
        self.assertEqual(worker.status, 0)

    def train(self, choices, n_steps=40):
        job = self.job(model="lenet5", flags=[*FLAGS, "--train_steps=%d" % n_steps])
        job.start_ps(0)
        job.start_worker(0, choices[0])
        job.ps[0].wait_line("worker 0 joined")
        job.start_worker(1, choices[1])
        digests = {s["parameters_sha256"] for s in job.finish()}
        self.assertEqual(len(digests), 1)
        return job, digests.pop()

    def test_measured_layers_logged_by_each_worker(self):
        """Each worker logs the measured layers, and both workers compute alike."""
        job = self.started_job(model="lenet5", flags=[*FLAGS, "--train_steps=5"])
        job.finish()
        for worker in job.workers:
            self.assertRegex(worker.output(), r"bf16: \d of 5 dense and convolution layers "
                             r"compute in bf16.*, as measured")

    def test_first_worker_decides_layers(self):
        _, want = self.train([CHOICES[0], CHOICES[0]])
        job, got = self.train(CHOICES)
        self.assertEqual(got, want)
        self.assertRegex(job.workers[1].output(),
                         r"2 of 5 dense and convolution layers .*: c3, c5, " + TOLD)
        self.assertNotIn(TOLD, job.workers[0].output())
        self.assertNotEqual(self.train([CHOICES[1], CHOICES[1]])[1], want)

    def test_first_worker_in_fp32_disables_measurements(self):
        """The first worker computes in fp32: the measurements of the other do not count, either."""
        digests = set()
        for choice in CHOICES:
            job = self.job(model="lenet5", flags=[*FLAGS, "--train_steps=20"])
            job.start_ps(0)
            job.start_worker(0, "--precision=fp32")
            job.ps[0].wait_line("worker 0 joined")
            job.start_worker(1, choice)
            digests |= {s["parameters_sha256"] for s in job.finish()}
            self.assertIn("by their shapes", job.workers[1].output())
        self.assertEqual(len(digests), 1)

    def test_layers_kept_by_checkpoints(self):
        _, want = self.train([CHOICES[0], CHOICES[0]], 60)
        job = self.job(model="lenet5", flags=[*FLAGS, "--train_steps=60"])
        keeps = ["--checkpoint_dir=%s/keep" % self.dir(), "--save_steps=10"]
        job.hold(30)
        job.start(keeps, [CHOICES[0]])
        job.ps[0].wait_line("checkpoint at step 20: ")
        self.kill(*job.workers, *job.ps)
        job.gate = job.held = None
        job.start(keeps, [CHOICES[1]])
        self.assertEqual({s["parameters_sha256"] for s in job.finish()}, {want})
        for worker in job.workers:
            self.assertIn(TOLD, worker.output())

    def test_named_layers_same_bits_in_each_run(self):
        """The user may name the layers, or none at all; an unknown name is refused."""
        job = self.job(n_ps=0, n_workers=1, model="lenet5", flags=[*FLAGS, "--train_steps=1"])
        argv = [harness.program("worker"), *job.flags]
        none = self.start("none", [*argv, "--bf16_layers=none"])
        self.assertIn("0 of 5 dense and convolution layers compute in bf16", none.wait_output())
        for bad in ("c4", "c3,", "s2", ""):
            wrong = self.start("wrong", [*argv, "--bf16_layers=" + bad])
            self.assertIn("is not a convolution or dense layer of model",
                          wrong.wait_output(status=1))

    def test_named_layers_without_bf16_refused(self):
        argv = [harness.program("worker"), "--precision=fp32", CHOICES[0]]
        worker = self.start("fp32", argv)
        self.assertIn("--bf16_layers is for --precision=bf16", worker.wait_output(status=2))

    def test_worker_alone_keeps_layers_in_checkpoint(self):
        digests = []
        for stop, choices in ((False, [CHOICES[0]]), (True, CHOICES)):
            flags = ["--checkpoint_dir=%s/alone-%d" % (self.dir(), stop), "--save_steps=10"]
            job = self.job(n_ps=0, n_workers=1, model="lenet5", flags=[
                *FLAGS, "--train_steps=60", "--log_every=1", *flags])
            argv = [harness.program("worker"), *job.flags, "--export=%s/out-%d" % (self.dir(),
                                                                                   stop)]
            if stop:
                self.start("first", [*argv, choices[0], "--train_steps=30"]).wait()
            last = self.start("last", [*argv, choices[-1]])
            self.assertRegex(last.wait_output(), "2 of 5 dense and convolution layers .*: c3, c5, ")
            digests.append(harness.read_safetensors("%s/out-%d" % (self.dir(), stop)))
        for name, (_, values) in digests[0].items():
            self.assertEqual(list(values), list(digests[1][name][1]))


harness.main(__name__)
