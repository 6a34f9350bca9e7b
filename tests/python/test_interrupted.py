"""Ctrl-C: a worker leaves its job in order. A worker alone keeps its parameters if a flag names a
file for them, and reports the files that it did not write."""
# label: cluster
import os
import signal

import harness

FLAGS = ["--batch_size=12", "--train_steps=100000", "--log_every=1", "--intra_op_threads=1",
         "--eval_every=0", "--fault_push_delay_ms=2"]


class Interrupted(harness.Test):
    def test_worker_with_servers_leaves_the_job(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        job.start_ps(0)
        path = self.path("x.safetensors")
        job.start_worker(0)
        job.start_worker(1, "--export=" + path)
        job.workers[1].wait_line("training step 3 done")
        job.workers[1].stop(signal.SIGINT, status=0)
        text = job.workers[1].output()
        self.assertIn("Ctrl-C: leaving the job when the other workers are ready; a second "
                      "signal ends", text)
        self.assertRegex(text, r"left the job at step \d+, as worker 1")
        self.assertRegex(text, "--export: %s is not written, because this worker left" % path)
        self.assertFalse(os.path.exists(path))
        job.workers[0].wait_line(r"generation 1\.2 from step \d+: 1 worker, 1 server")
        seen = len(job.workers[0].lines)
        harness.until(lambda: len(job.workers[0].lines) > seen + 5, "the other worker trains")
        job.workers[0].stop(signal.SIGINT, status=0)
        job.ps[0].stop()

    def alone(self, *flags):
        worker = self.start_alone(*FLAGS, *flags, model="small")
        worker.wait_line("training step 3 done")
        worker.stop(signal.SIGINT, status=130)
        return worker.output()

    def test_worker_alone_marks_its_export(self):
        for towers in ("1", "2"):
            path = self.path(towers + ".safetensors")
            text = self.alone("--export=" + path, "--towers=" + towers)
            found = harness.safetensors_metadata(path)
            self.assertEqual(found["interrupted"], "true")
            self.assertGreaterEqual(int(found["global_step"]), 3)
            self.assertIn("interrupted: stopping after this step; a second signal ends this", text)
            self.assertIn("interrupted at step %s of 100000: the export has the parameters of that "
                          "step" % found["global_step"], text)
            self.assertRegex(text, "exported .* to %s, marked as interrupted" % path)
            for flags in (["--evaluate=" + path],
                          ["--predict=" + path, "--output=" + path + ".csv"]):
                reads = self.start_program("worker", "--data_dir=" + self.data(), *flags)
                self.assertIn("%s: the training that wrote %s was interrupted at step %s: " %
                              (flags[0].split("=")[0], path, found["global_step"]),
                              reads.wait_output())

    def test_worker_alone_reports_lost_training(self):
        self.assertRegex(self.alone(), r"interrupted at step \d+ of 100000: the trained "
                                       r"parameters are lost; with --checkpoint_dir=DIR training ")

    def test_worker_alone_reports_missing_files(self):
        export, summary, folder = (self.path(name) for name in ("x.safetensors", "summary.json",
                                                                "ckpt"))
        text = self.alone("--export=" + export, "--summary_json=" + summary,
                          "--checkpoint_dir=" + folder)
        for flag, path in (("export", export), ("summary_json", summary)):
            self.assertRegex(text, r"interrupted at step \d+ of 100000: --%s: %s is not "
                                   r"written; with the same flags training resumes from the "
                                   r"newest checkpoint in %s and writes the file at its end"
                             % (flag, path, folder))
            self.assertFalse(os.path.exists(path))
        self.assertRegex(self.alone("--summary_json=" + summary),
                         r"interrupted at step \d+ of 100000: --summary_json: %s is not written; "
                         r"training writes it only at its end" % summary)


harness.main(__name__)
