#!/usr/bin/python3
"""--ema_decay in real programs: an average of the parameters over the steps, as PyTorch's
AveragedModel with get_ema_multi_avg_fn computes it. Evaluations, the export and --evaluate of a
checkpoint have the average, with the same bits alone and with servers, whatever is killed or added.
Training does not change."""
# label: cluster
import re
import signal
import unittest

import ckpt_folder
import harness
import weights

DECAY = 0.75
EMA = "--ema_decay=%g" % DECAY
STEPS = 6
FLAGS = ["--batch_size=12", "--seed=5", "--chunk_bytes=5120", "--optimizer=adam", "--log_every=1",
         "--intra_op_threads=1"]
SHORT = [*FLAGS, "--train_steps=%d" % STEPS]
LONG = [*FLAGS, "--train_steps=40", EMA]
SAID = "evaluations and the export have the average of the parameters (--ema_decay=0.75)"


class Average(harness.Test):
    def exported(self, *flags, model="small"):
        """Trains alone; returns {parameter: values} of the export, and the worker."""
        path = self.path("export.safetensors")
        worker = self.run_worker(*flags, "--export=" + path, model=model)
        return {name: v[1] for name, v in harness.read_safetensors(path).items()}, worker

    def values_of_steps(self, **kwargs):
        """Returns the parameters after each step of a job without an average."""
        return [self.exported(*FLAGS, "--train_steps=%d" % n, **kwargs)[0]
                for n in range(1, STEPS + 1)]

    def assert_near(self, got, want):
        for name, values in want.items():
            for a, b in zip(got[name], values):
                self.assertAlmostEqual(a, b, delta=2e-6 * (1 + abs(b)), msg=name)

    def test_export_is_average_of_all_steps(self):
        """The reference is in double precision. The average begins with the values of step 1."""
        steps = self.values_of_steps()
        want = {name: list(v) for name, v in steps[0].items()}
        for values in steps[1:]:
            for name, v in values.items():
                want[name] = [DECAY * a + (1 - DECAY) * b for a, b in zip(want[name], v)]
        folder = self.path("ckpt")
        got, worker = self.exported(*SHORT, EMA, "--checkpoint_dir=" + folder,
                                    "--chunk_bytes=1048576")
        self.assertIn(SAID, worker.output())
        self.assert_near(got, want)
        kept = harness.read_safetensors(ckpt_folder.path(folder, STEPS, "-0-of-1.safetensors"))
        for name, v in steps[-1].items():
            self.assertEqual(kept[name][1], v, "training changed")
            self.assertEqual(kept[name + " slot 2"][1], got[name])

    @unittest.skipIf(harness.SANITIZE, "PyTorch is compiled without a sanitizer")
    def test_average_is_that_of_torch(self):
        torch = weights.torch2(self)
        steps = self.values_of_steps()
        net = torch.nn.ParameterList(torch.zeros(len(v)) for v in steps[0].values())
        average = torch.optim.swa_utils.AveragedModel(
            net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(DECAY))
        for values in steps:
            for p, v in zip(net, values.values()):
                p.data.copy_(torch.tensor(v))
            average.update_parameters(net)
        want = dict(zip(steps[0], (p.tolist() for p in average.module)))
        self.assert_near(self.exported(*SHORT, EMA)[0], want)

    def test_statistics_are_not_averaged(self):
        """PyTorch copies buffers, such as the running means of batch norm."""
        plain, _ = self.exported(*SHORT, model="small_norm")
        got, _ = self.exported(*SHORT, EMA, model="small_norm")
        moving = [name for name in plain if "moving" in name]
        self.assertGreater(len(moving), 0)
        for name, values in plain.items():
            (self.assertEqual if name in moving else self.assertNotEqual)(got[name], values, name)

    def evaluations(self, worker):
        return re.findall(r"global step \d+: (test accuracy: .*)", worker.output())

    def test_servers_have_the_bits_of_a_worker_alone(self):
        flags = [*SHORT, EMA, "--eval_every=2"]
        alone, want = self.train_alone(*flags, model="small")
        plain = self.train_alone(*SHORT, "--eval_every=2", model="small")[0]
        for memory in ("auto", "off"):
            job = self.started_job(n_ps=2, n_workers=1, model="small",
                                   flags=[*flags, "--shared_memory=" + memory])
            summary, = job.finish(60, want["parameters_sha256"])
            self.assertEqual(summary["test_loss"], want["test_loss"])
            self.assertIn(SAID, job.workers[0].output())
            self.assertEqual(self.evaluations(job.workers[0]), self.evaluations(alone))
        self.assertNotEqual(self.evaluations(plain), self.evaluations(alone))
        self.assertEqual(len(self.evaluations(alone)), 2)
        shorter = self.train_alone(*flags, "--train_steps=2", model="small")[0]
        self.assertIn(self.evaluations(alone)[0], shorter.output())

    def test_skipped_steps_leave_first_values(self):
        """No step changes anything; the average is that of the first values."""
        flags = [*SHORT, "--on_nonfinite=skip", "--fault_nonfinite=1"]
        first = self.digest_alone(*flags)
        self.assertEqual(self.digest_alone(*flags, EMA), first)
        self.started_job(n_ps=1, n_workers=1, model="small", flags=[*flags, EMA]).finish(60, first)

    def test_job_without_lockstep_has_average(self):
        for mode in (["--sync_mode=async"], ["--replicas_to_aggregate=1"]):
            job = self.started_job(n_ps=1, n_workers=2, model="small",
                                   flags=[*LONG, "--eval_every=10", *mode])
            job.finish_alike()

    def test_checkpoint_is_evaluated_by_average(self):
        folder, path = self.path("ckpt"), self.path("summary.json")
        _, want = self.train_alone(*SHORT, EMA, "--checkpoint_dir=" + folder, model="small")
        worker = self.run_worker("--evaluate=" + folder, "--summary_json=" + path, model="small")
        self.assertIn("--evaluate: these are the averages of the parameters", worker.output())
        for key in ("parameters_sha256", "test_loss"):
            self.assertEqual(self.figures()[key], want[key])
        flags = [*SHORT, "--learning_rate=1e-37", "--optimizer=sgd"]
        got = self.digest_alone(*flags, "--init=" + folder)
        self.assertEqual(got, self.digest_alone(*SHORT), "--init must read the last values")

    def test_interrupted_worker_alone_exports_average(self):
        path = self.path("torn.safetensors")
        worker = self.start_alone(*FLAGS, EMA, "--train_steps=100000", "--fault_push_delay_ms=2",
                                  "--export=" + path, model="small")
        worker.wait_line("training step 3 done")
        worker.stop(signal.SIGINT, status=130)
        step = harness.safetensors_metadata(path)["global_step"]
        want, _ = self.exported(*FLAGS, EMA, "--train_steps=" + step)
        self.assertEqual({n: v[1] for n, v in harness.read_safetensors(path).items()}, want)

    def test_resumed_worker_alone_has_same_bits(self):
        want = self.digest_alone(*LONG)
        folder = "--checkpoint_dir=" + self.path("ckpt")
        self.digest_alone(*LONG, "--train_steps=15", folder)
        other = self.train_alone(*LONG, "--ema_decay=0.5", folder, model="small", status=1)[0]
        self.assertIn("--ema_decay: the checkpoint has 0.75, the worker has 0.5", other.output())
        self.assertEqual(self.digest_alone(*LONG, folder), want)


class Disturbed(harness.Test):
    def started(self, *ps_flags, n_ps=1):
        job = self.job(n_ps=n_ps, n_workers=2, model="small", flags=[*LONG, "--eval_every=10"])
        job.hold(12)
        job.start(ps_flags)
        return job

    def check(self, job):
        job.finish(120, self.undisturbed_digest(n_workers=2, model="small", flags=LONG))

    def test_killed_server_restores_average(self):
        flags = ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=8"]
        job = self.started(*flags)
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        job.restart_ps(0, *flags)
        self.check(job)
        self.assertRegex(job.ps[0].output(), r"found a checkpoint at step [1-9]")

    def test_killed_worker_restores_average(self):
        job = self.started()
        job.workers[1].wait_line("training step 9 done")
        job.restart_worker(1)
        self.check(job)

    def test_added_server_receives_average(self):
        job = self.started()
        job.workers[0].wait_line("training step 9 done")
        job.ps.append(job.join_ps())
        job.ps[0].wait_line(r"generation 1\.2 from step \d+: 2 workers, 2 servers")
        self.check(job)

    def test_joining_worker_adopts_decay(self):
        job = self.started()
        job.workers[0].wait_line("training step 9 done")
        data = "--data_dir=" + self.data()
        other = job.join_worker("other", data, "--ema_decay=0.5")
        self.assertIn("--ema_decay: the servers have 0.75, the worker has 0.5",
                      other.wait_output(60, 1))
        joiner = job.join_worker("joiner", data)
        joiner.wait_line(re.escape(SAID))
        joiner.wait_line("joined as worker 2 of 3")
        job.release()
        joiner.wait(60)
        job.finish_alike()


class Refused(harness.Test):
    def test_settings_without_average_are_refused(self):
        hosts = ["--ps_hosts=127.0.0.1:9", "--worker_hosts=127.0.0.1:10", EMA]
        for flag, said in (
                ("--local_steps=4", "with --local_steps the servers do not have them; remove one"),
                ("--wire_dtype=int8", "set --wire_dtype=int8,fp32, which sends only gradients"),
                ("--wire_dtype=auto", "set --wire_dtype=int8,fp32, which sends only gradients"),
                ("--ema_decay=1", "ema_decay"), ("--ema_decay=-0.1", "ema_decay")):
            self.assertIn(said, self.run_worker(*hosts, flag, status=2).output())

    def test_region_refuses_average(self):
        job = self.job(n_ps=1, n_workers=1, model="small", flags=[*SHORT, EMA])
        job.start_ps(0, "--parent_hosts=127.0.0.1:9", "--region_index=0", "--regions=2")
        self.assertIn("a region keeps no average of its parameters: remove --ema_decay",
                      job.start_worker(0).wait_output(60, 1))
        job.kill()


harness.main(__name__)
