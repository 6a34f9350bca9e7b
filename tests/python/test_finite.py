#!/usr/bin/python3
"""Losses, gradients and parameters that are not finite, in real programs. The worker names such a
value and exits with 1, or it skips and counts the contribution, which then changes no bit. No
checkpoint and no export contains such a value."""
# label: cluster long
import math
import os
import re
import shutil

import ckpt_folder
import harness
import weights

FLAGS = ["--batch_size=12", "--train_steps=20", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
# The decay multiplies the parameters by -1e9 in each step: 5 steps make them infinite, while all
# gradients are still finite.
DIVERGING = ["--optimizer=sgd", "--learning_rate=1e6", "--weight_decay=1e3", "--train_steps=5"]
EMULATED = os.path.join(harness.BIN, "../tests/libweir_emulated.so")


class Finite(harness.Test):
    def outputs(self):
        return [self.path(name) for name in ("summary.json", "export.safetensors")]

    def alone(self, *flags, status=0, model="small"):
        summary, export = self.outputs()
        for path in self.outputs():
            if os.path.exists(path):
                os.unlink(path)
        worker = self.run_worker("--summary_json=" + summary, "--export=" + export,
                                 harness.models_dir(model), *flags, status=status, model=model)
        if status:
            self.assertFalse(os.path.exists(summary))
            self.assertFalse(os.path.exists(export))
            return worker.output()
        return harness.read_json(summary)

    def test_non_finite_gradient_ends_worker_alone(self):
        said = self.alone("--optimizer=sgd", "--learning_rate=1e6", status=1, model="lenet5")
        self.assertRegex(said, r"E .*worker 0, step \d+: the gradient of 'output/weights' \(layer "
                               r"'output'\) is not finite; training stops")
        said = self.alone(*FLAGS, "--fault_nonfinite=4", status=1)
        self.assertIn("worker 0, step 3: the gradient of 'c2/weights' (layer 'c2') is not finite",
                      said)

    def test_non_finite_parameters_not_exported(self):
        said = self.alone(*DIVERGING, status=1, model="softmax")
        self.assertIn("parameter 'softmax/weights' is not finite: training has diverged; nothing "
                      "is exported", said)
        said = self.alone(*DIVERGING, "--train_steps=9", status=1, model="softmax")
        self.assertIn("step 5: parameter 'softmax/weights' is not finite itself", said)

    def test_max_nonfinite_limits_skipped_steps(self):
        self.alone("--max_nonfinite=3", status=2)
        said = self.alone(*FLAGS, "--on_nonfinite=skip", "--max_nonfinite=2", "--fault_nonfinite=3",
                          status=1)
        self.assert_has(said, "step 8",
                        "2 contributions were skipped before, and --max_nonfinite allows no more")

    def test_non_finite_parameters_not_saved_by_servers(self):
        """The last good checkpoint stays the newest, and no process waits for ever."""
        folder = self.path("ckpt")
        job = self.job(n_ps=2, n_workers=1, flags=[*DIVERGING, "--chunk_bytes=5120"])
        job.start(["--checkpoint_dir=" + folder, "--save_steps=1"])
        job.workers[0].wait(60, status=1)
        self.assertIn("parameter 'softmax/weights' is not finite", job.workers[0].output())
        self.wait_all(job.ps, 60)
        said = job.ps[0].output() + job.ps[1].output()
        self.assertRegex(said, "no checkpoint at step 5: parameter 'softmax/weights' is not finite")
        steps = ckpt_folder.steps(folder)
        self.assertNotIn(5, steps)
        for step in steps:
            for server in range(2):
                path = ckpt_folder.path(folder, step, "-%d-of-2.safetensors" % server)
                for name, (_, values) in harness.read_safetensors(path).items():
                    self.assertTrue(all(map(math.isfinite, values)), name)

    def test_non_finite_parameters_not_saved_by_worker_alone(self):
        """The last good checkpoint stays, and --evaluate still computes its figures."""
        folder = self.path("ckpt")
        said = self.alone(*DIVERGING, "--checkpoint_dir=" + folder, "--save_steps=1",
                          "--keep_checkpoint_max=1", status=1, model="softmax")
        self.assertIn("no checkpoint at step 5: a parameter is not finite", said)
        made = [int(step) for step in re.findall(r"checkpoint at step (\d+): /", said)]
        self.assertEqual(ckpt_folder.steps(folder), made[-1:])
        self.assertIn(made[-1], range(1, 5))
        path = ckpt_folder.path(folder, made[-1], "-0-of-1.safetensors")
        for name, (_, values) in harness.read_safetensors(path).items():
            self.assertTrue(all(map(math.isfinite, values)), name)
        self.run_worker("--evaluate=" + folder)

    def test_overflow_of_finite_parameters_found(self):
        """Training reads black pictures only, for which the largest weights are good enough."""
        for part, pixel in (("train", b"\0"), ("t10k", b"\xff")):
            harness.write_samples(self.path(part), (20, 4, 4), pixel * 320, bytes(range(10)) * 2)
        state = {"softmax/weights": ("F32", (10, 16), [3e38] * 160),
                 "softmax/biases": ("F32", (10,), [0.0] * 10)}
        init = self.path("init.safetensors")
        weights.write(init, state)
        said = self.alone("--data_dir=" + self.dir(), "--init=" + init, "--train_steps=2",
                          "--batch_size=10", status=1, model="softmax")
        self.assertRegex(said, r"worker 0, step 2: the test loss is -?(nan|inf): the parameters "
                               "are finite, but too large")
        self.assertIn("nothing is exported, and there are no final figures", said)

    def test_non_finite_gradient_ends_worker_with_servers(self):
        for mode in (["--sync_mode=sync"], ["--sync_mode=async"],
                     ["--sync_mode=ssp", "--staleness=2"]):
            job = self.job(n_ps=1, n_workers=1, model="small", flags=[*FLAGS, *mode])
            job.start(worker_flags=["--fault_nonfinite=5", "--wire_dtype=bf16"])
            self.assertIn("worker 0, step 4: the gradient of 'c2/weights' (layer 'c2') is not "
                          "finite", job.workers[0].wait_output(60, 1))
            self.assertFalse(os.path.exists(job.summary_path(0)))
            job.ps[0].wait(60, 1)
            self.assertRegex(job.ps[0].output(), "W .*worker 0 ended with an error: worker 0, step "
                             r"4: the gradient of 'c2/weights' \(layer 'c2'\) is not finite; ")

    def test_non_finite_gradient_of_last_worker_ends_servers(self):
        """Servers without workers exit with 1, too, and report why; their checkpoint is good."""
        for n_ps in (1, 2):
            folder = self.path("ckpt-%d" % n_ps)
            ps_flags = ["--checkpoint_dir=" + folder, "--save_steps=2"]
            job = self.job(n_ps=n_ps, n_workers=2, model="small", flags=FLAGS)
            job.start(ps_flags, ["--fault_nonfinite=16", "--fault_push_delay_ms=20"])
            self.wait_all([*job.workers, *job.ps], 60, 1)
            said = job.ps[0].output()
            for k in range(2):
                self.assertRegex(said, r"W .*worker %d ended with an error: worker %d, step \d+: "
                                 "the gradient of 'c2/weights'" % (k, k))
            last = re.search(r"E .*all workers have ended with an error, at step \d+: the job has "
                             r"failed, and its servers exit; .* the last checkpoint, of step "
                             r"(\d+), is kept", said)
            self.assertTrue(last, said)
            self.assertEqual(int(last.group(1)), ckpt_folder.steps(folder)[-1])
            for ps in job.ps[1:]:
                self.assertRegex(ps.output(), "E .*all workers have ended with an error: the job "
                                 "has failed")
            job.start(ps_flags)
            job.ps[0].wait_line("resumes from step " + last.group(1))
            self.assertEqual({s["global_step"] for s in job.finish(120)}, {20})

    def test_non_finite_worker_dropped_and_job_continues(self):
        """The other worker continues at once, and completes the job."""
        job = self.job(n_ps=2, n_workers=2, model="small", flags=FLAGS)
        job.start_servers("--worker_timeout=600")
        job.start_worker(0)
        job.start_worker(1, "--fault_nonfinite=5")
        job.workers[1].wait(60, 1)
        self.wait_all((job.workers[0], *job.ps), 120)
        self.assertEqual(job.summary(0)["global_step"], 20)
        self.assertRegex(job.ps[0].output(), "W .*worker 1 ended with an error: worker 1, step 4: ")

    def skip(self, n_ps, n_workers, *flags, disturb=None, ps_flags=()):
        """Returns the summaries of a job whose last worker skips every third of its 20 steps."""
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small",
                       flags=[*FLAGS, "--on_nonfinite=skip", *flags])
        job.start_servers(*ps_flags)
        for i in range(n_workers - 1):
            job.start_worker(i)
        job.start_worker(n_workers - 1, "--fault_nonfinite=3")
        first = disturb(job) if disturb else 2
        summaries = job.finish(120)
        self.assertRegex(job.workers[-1].output(), "W .*worker %d, step %s: the gradient of "
                         r"'c2/weights' \(layer 'c2'\) is not finite; the contribution is skipped: "
                         r"it counts with weight 0 \(1 so far\)" % (n_workers - 1, first))
        return summaries, job

    def test_skipped_steps_change_no_bit(self):
        """The bits are the same alone and with one server, and the same with one, two and three
        servers. --on_nonfinite=skip changes no bit if no step is skipped."""
        want = self.alone(*FLAGS, "--on_nonfinite=skip", "--fault_nonfinite=3")
        self.assertEqual(want["nonfinite_skipped"], 6)
        plain = self.alone(*FLAGS)
        self.assertNotEqual(plain["parameters_sha256"], want["parameters_sha256"])
        self.assertEqual(self.alone(*FLAGS, "--on_nonfinite=skip")["parameters_sha256"],
                         plain["parameters_sha256"])
        (got,), _ = self.skip(1, 1)
        self.assertEqual(got["parameters_sha256"], want["parameters_sha256"])
        self.assertEqual(got["nonfinite_skipped"], 6)
        found = set()
        for n_ps in (1, 2, 3):
            summaries, job = self.skip(n_ps, 2)
            found.update(s["parameters_sha256"] for s in summaries)
            self.assertEqual([s["nonfinite_skipped"] for s in summaries], [0, 6])
            self.assertRegex(job.ps[0].output(), r"W .*worker 1 .*skipped 6 contributions")
        self.assertEqual(len(found), 1)

    def test_kills_of_skipping_job_change_no_bit(self):
        """A worker that skips, and a server, are killed on the way (I8)."""
        (want, _), _ = self.skip(2, 2)
        folder = self.path("ckpt")
        ps_flags = ["--checkpoint_dir=" + folder, "--save_steps=4"]

        def kill(job):
            job.workers[1].wait_line(r"\(2 so far\)")
            job.restart_worker(1, "--fault_nonfinite=3")
            job.workers[1].wait_line(r"\(1 so far\)")
            job.restart_ps(1, *ps_flags)
            return r"(5|8|11|14|17)"

        summaries, _ = self.skip(2, 2, "--fault_push_delay_ms=20", disturb=kill, ps_flags=ps_flags)
        for s in summaries:
            self.assertEqual(s["parameters_sha256"], want["parameters_sha256"])

    def test_async_and_ssp_skip_contributions(self):
        """Each job makes all its steps, because a skipped contribution makes a version, too."""
        for mode in (["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=1"]):
            (summary,), _ = self.skip(1, 1, *mode, "--wire_dtype=fp16")
            self.assertEqual(summary["nonfinite_skipped"], 6)
            self.assertEqual(summary["exchange"]["applied"], 20 * 12)
        job = self.job(n_ps=2, n_workers=2, model="small", flags=[
            *FLAGS, "--on_nonfinite=skip", "--fault_nonfinite=3", "--replicas_to_aggregate=1"])
        job.start()
        summaries = job.finish(120)
        self.assertGreater(sum(s["nonfinite_skipped"] for s in summaries), 0)
        self.assertEqual(len({s["parameters_sha256"] for s in summaries}), 1)

    def test_weirctl_shows_skipped_steps(self):
        job = self.job(n_ps=1, n_workers=2, model="small",
                       flags=[*FLAGS, "--train_steps=100000", "--on_nonfinite=skip"])
        job.start_ps(0)
        job.start_worker(0)
        job.start_worker(1, "--fault_nonfinite=2", "--fault_push_delay_ms=5",
                         "--max_nonfinite=1000000")
        job.workers[1].wait_line(r"\(3 so far\)")
        members = harness.until(lambda: self.skipped(job), "weirctl shows the skipped steps")
        self.assertEqual([m["index"] for m in members], [0, 1])
        job.workers[0].kill()
        job.workers[1].kill()
        job.ps[0].stop()

    def skipped(self, job):
        members = job.report("members")
        ok = len(members) == 2 and members[0]["skipped"] == 0 and members[1]["skipped"] >= 2
        return members if ok else None

    def test_non_finite_loss_on_device_found(self):
        """Training that stays on a GPU checks the losses that it copies to the host."""
        if not os.path.exists(EMULATED):
            self.skipTest("the emulated CUDA backend is not in this build")
        folder = self.new_folder("cuda")
        shutil.copy(EMULATED, os.path.join(folder, "libweir_cpu.so"))
        flags = ["--backend_dir=" + folder, *FLAGS]
        said = self.alone(*flags, *DIVERGING, "--train_steps=12", status=1, model="softmax")
        self.assertIn("training runs on cuda:0 without copies", said)
        self.assertRegex(said, r"worker 0, step \d+ or shortly before: the loss is -?nan, and "
                               "parameter 'softmax/weights' is not finite")
        said = self.alone(*flags, *DIVERGING, status=1, model="softmax")
        self.assertIn("parameter 'softmax/weights' is not finite", said)
        got = self.alone(*flags, "--on_nonfinite=skip", "--fault_nonfinite=3", model="softmax")
        self.assertEqual(got["nonfinite_skipped"], 6)
        said = self.alone(*flags, "--fault_nonfinite=3", status=1, model="softmax")
        self.assertIn("worker 0, step 2: the gradient of 'softmax/weights'", said)


harness.main(__name__)
