"""A worker alone in a job updates the parameters on its card, ahead of the servers
(--gpu_tuning=updates). The job ends with the bits that it has without these updates: with several
optimizers and servers, when worker and server are killed, and when a second worker joins."""
# label: cluster computes long
import re
import signal
import unittest

import ckpt_folder
import fake_gpus
import harness
import samples
from relay import Relay

ON = "--gpu_tuning=auto,updates"
UPDATES = r"cuda:0 updates the parameters itself from step %s on, and compares"
NO_EFFECT = r"--gpu_tuning=updates has no effect from step %s on: %s"


@unittest.skipIf(fake_gpus.NO_EMULATION, fake_gpus.NO_EMULATION)
class CardUpdates(fake_gpus.Machine):
    CUDA = fake_gpus.EMULATED

    def setUp(self):
        super().setUp()
        self.machine(fake_gpus.card(0))

    def card_job(self, *flags, n_ps=1, n_workers=1, steps=24):
        return self.job(n_ps=n_ps, n_workers=n_workers, model="mlp", flags=[
            "--backend_dir=" + self.backends(self.CUDA), "--gpu_lock_dir=" + self.locks(),
            "--gpus=0", "--deterministic", "--train_steps=%d" % steps, "--batch_size=20",
            "--seed=3", "--intra_op_threads=1", "--log_every=1", "--eval_every=0", *flags])

    def started(self, job, ps_flags=()):
        job.start_servers(*ps_flags)
        job.start_worker(0, env=self.env())
        return job

    def run_job(self, *flags, n_ps=1):
        """Returns summary and output of the worker."""
        job = self.started(self.card_job(*flags, n_ps=n_ps))
        return job.finish()[0], job.workers[0].output()

    def test_bits_are_those_of_the_servers(self):
        for n_ps, tuning, flags in (
                (1, "auto", ("--optimizer=adam", "--lr_schedule=cosine", "--eval_every=10")),
                (2, "auto", ("--optimizer=momentum", "--chunk_bytes=20000", "--weight_decay=0.01")),
                (1, "all", ("--optimizer=adagrad", "--chunk_bytes=4096"))):
            want, said = self.run_job(*flags, "--gpu_tuning=%s,-updates" % tuning, n_ps=n_ps)
            self.assertNotIn("updates the parameters itself", said)
            accuracy = re.findall("test accuracy: [0-9.]+", said)
            # The parameters of some steps, and the gradients of others, are read on the host.
            events = ["--logdir=" + self.path("events-%d-%s" % (n_ps, tuning)),
                      "--summary_steps=5", "--histogram_steps=7"]
            got, said = self.run_job(*flags, "--gpu_tuning=%s,updates" % tuning, *events, n_ps=n_ps)
            self.assertRegex(said, UPDATES % 0)
            self.assertEqual(got["parameters_sha256"], want["parameters_sha256"], flags)
            self.assertEqual(re.findall("test accuracy: [0-9.]+", said), accuracy)

    def test_reasons_against_it(self):
        for flags, why in ((("--wire_dtype=bf16",), "it needs --wire_dtype=fp32"),
                           (("--sync_mode=async",), "it needs --sync_mode=sync"),
                           (("--clip_norm=1",), "it does not support --clip_value"),
                           (("--on_nonfinite=skip",), "it does not support --on_nonfinite=skip")):
            _, said = self.run_job(ON, *flags)
            self.assertRegex(said, NO_EFFECT % (0, why))

    def killed_job(self, want, *flags):
        """kill -9 of the worker and of the server, while the worker is ahead."""
        folder = self.path("ckpt-" + flags[0][12:])
        ps_flags = ["--checkpoint_dir=" + folder, "--save_steps=4"]
        job = self.card_job(ON, "--fault_push_delay_ms=5", *flags)
        job.start_servers(*ps_flags)
        job.hold(8)
        job.start_worker(0, env=self.env())
        job.workers[0].wait_line("training step 6 done")
        job.workers[0].kill()
        job.hold(8)
        job.start_worker(0, env=self.env())
        job.workers[0].wait_line("training step 10 done")
        harness.until(lambda: (ckpt_folder.steps(folder) or [0])[-1] >= 8, "a checkpoint")
        job.restart_ps(0, *ps_flags)
        job.ps[0].wait_line("resumes from step")
        job.finish(120, want)
        return job.workers[0].output()

    def test_killed_worker_and_server_lose_no_bits(self):
        slots = NO_EFFECT % (r"\d+", "the optimizer's slots are on the servers")
        for flags, again in ((("--optimizer=sgd",), UPDATES % r"\d+"),
                             (("--optimizer=adam",), slots)):
            want, _ = self.run_job(*flags)
            said = self.killed_job(want["parameters_sha256"], *flags)
            self.assertEqual(len(re.findall(again, said)), 2, said)

    def test_stopped_server_and_killed_worker_lose_no_bits(self):
        """SIGSTOP of one of two servers, then kill -9 of the worker, which has run ahead of it."""
        flags = ["--optimizer=sgd", "--chunk_bytes=20000"]
        want, _ = self.run_job(*flags, n_ps=2)
        for stopped in 0, 1:
            job = self.card_job(ON, *flags, n_ps=2)
            job.start_servers()
            job.hold(8)
            job.start_worker(0, env=self.env())
            job.workers[0].wait_line("training step 4 done")
            with harness.paused(job.ps[stopped]):
                job.gate.open()
                harness.wait_still(job.workers[0])
                job.workers[0].kill()
            job.start_worker(0, env=self.env())
            job.finish(120, want["parameters_sha256"])
            self.assertRegex(job.workers[0].output(), UPDATES % r"[1-9]\d*")

    def test_lost_pushes_to_one_server_lose_no_bits(self):
        """The pushes to one of three servers are lost together with the worker, which has run
        ahead. The other servers have not counted the step after the one that is lost. (The worker
        needs the answers to two chunks before it pushes the first, so with two servers it would
        wait in any case.)"""
        flags = ["--optimizer=sgd", "--chunk_bytes=20000", "--shared_memory=off"]
        want, _ = self.run_job(*flags, n_ps=3)
        for lost in range(3):
            job = self.card_job(ON, *flags, n_ps=3)
            inner = harness.free_ports(1)[0]
            relay = Relay((harness.LOOPBACK, inner))
            self.addCleanup(relay.close)
            job.ps_hosts[lost] = relay.address
            job.start_ps(lost, "--bind=%s:%d" % (harness.LOOPBACK, inner))
            for i in {0, 1, 2} - {lost}:
                job.start_ps(i)
            job.hold(8)
            job.start_worker(0, env=self.env())
            job.workers[0].wait_line("training step 4 done")
            relay.open.clear()
            job.gate.open()
            harness.wait_still(job.workers[0])
            job.workers[0].kill()
            relay.cut()
            relay.open.set()
            job.start_worker(0, env=self.env())
            job.finish(120, want["parameters_sha256"])

    def test_second_worker_joins_and_leaves(self):
        """The servers' version counts while there are two workers, and afterwards the card's
        again."""
        job = self.card_job(ON, "--optimizer=sgd", "--fault_push_delay_ms=5", steps=400)
        record = self.path("samples-0"), self.path("samples-1")
        job.start_servers()
        gate = job.hold(20, record[0])
        job.start_worker(0, env=self.env())
        job.workers[0].wait_line("training step 10 done")
        joiner = job.join_worker("joiner", "--gpus=none", "--data_dir=" + self.data(),
                                 "--models_dir=" + harness.MODELS, "--progress=lines",
                                 "--log_every=1", "--fault_push_delay_ms=5",
                                 "--record_samples=" + record[1])
        joiner.wait_line("tower 0: CPU")
        gate.open()
        joiner.wait_line(r"joined as worker 1 of 2 at step \d+")
        job.workers[0].wait_line(NO_EFFECT % (r"\d+", "the job has several workers"))
        joiner.wait_line("training step")
        joiner.stop(signal.SIGTERM, status=0)
        job.workers[0].wait_line(r"generation [\d.]+ from step \d+: 1 worker, 1 server")
        job.workers[0].wait_line(UPDATES % r"[1-9]\d*")
        job.finish(120)
        gate.close()
        self.assertEqual(samples.wrong(list(record), 400), [])


harness.main(__name__)
