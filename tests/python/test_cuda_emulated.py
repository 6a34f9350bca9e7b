"""The worker trains by the CUDA backend over the CUDA that tests/emulation emulates. Its results
equal those of the CPU backend, also with two towers and with evaluation. The steps of a worker
alone stay on the device, and it ends with the same bits as with a server."""
# label: cluster computes long
import json
import os
import random
import re
import shutil
import unittest

import harness

EMULATED = os.path.join(harness.BIN, "../tests/libweir_emulated.so")
WHY_NOT = "" if os.path.exists(EMULATED) else \
    "skipped: the emulated CUDA backend is not in this build (no CUDA headers, or no C++ compiler)"


@unittest.skipIf(WHY_NOT, WHY_NOT)
class CudaEmulated(harness.Test):
    def backend_dir(self, name):
        folder = self.new_folder(name)
        source = EMULATED if name == "cuda" else os.path.join(harness.BIN, "../lib/libweir_cpu.so")
        # The worker of this test loads the backend "cpu", and finds under this name either library.
        shutil.copy(source, os.path.join(folder, "libweir_cpu.so"))
        return folder

    def run_on(self, name, *flags):
        folder = self.backend_dir(name)
        summary = os.path.join(folder, "summary.json")
        worker = self.run_worker("--backend_dir=" + folder, "--summary_json=" + summary,
                                 "--seed=3", "--learning_rate=0.01", "--intra_op_threads=1",
                                 *flags, model="mlp")
        # All samples of the two sets lie on the device, in one copy for all towers.
        self.assertEqual(len(re.findall(r"cuda:0 holds \d+ images", worker.output())),
                         2 if name == "cuda" else 0)
        return harness.read_json(summary)

    def check(self, *flags):
        cpu, cuda = self.run_on("cpu", *flags), self.run_on("cuda", *flags)
        self.assertEqual(cuda["global_step"], cpu["global_step"])
        self.assertAlmostEqual(cuda["loss"], cpu["loss"], delta=1e-3)
        self.assertAlmostEqual(cuda["test_accuracy"], cpu["test_accuracy"], delta=0.01)
        self.assertGreater(cuda["test_accuracy"], 0.5)

    def test_tower_matches_cpu(self):
        self.check("--batch_size=20", "--train_steps=30")

    def test_two_towers_and_evaluation_match_cpu(self):
        self.check("--batch_size=21", "--train_steps=20", "--towers=2", "--eval_every=10")

    def model(self):
        """Writes a model with every kind of parameter, dropout and branches, small enough for
        emulation."""
        path = self.path("model.json")
        layers = [{"type": "max_pool", "kernel": 4, "stride": 4, "padding": "same"},
                  {"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same"},
                  {"type": "batch_norm"}, {"type": "relu"},
                  {"type": "conv2d", "filters": 4, "kernel": 3, "padding": "same"},
                  {"type": "add", "inputs": ["conv2d2", "relu1"]},
                  {"type": "concat", "inputs": ["add1", "relu1"]}, {"type": "flatten"},
                  {"type": "dense", "units": 20}, {"type": "relu"},
                  {"type": "dropout", "rate": 0.2}, {"type": "dense", "units": 10},
                  {"type": "softmax_cross_entropy"}]
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"name": "all", "input": [1, 28, 28], "classes": 10, "layers": layers}, f)
        return path

    def alone_as_with_a_server(self, steps, *flags):
        """Checks that a worker alone ends with the bits that it has with a server. Returns the
        outputs of the worker with a server, and alone."""
        flags = ["--backend_dir=" + self.backend_dir("cuda"), "--seed=4",
                 "--train_steps=%d" % steps, "--learning_rate=0.01", "--intra_op_threads=1", *flags]
        job = self.started_job(n_ps=1, n_workers=1, flags=flags)
        job.finish()
        want = job.summary(0)
        outputs = [job.workers[0].output()]
        self.assertNotIn("without copies to the host", outputs[0])
        for graphs in ("on", "off"):
            summary = self.path(graphs + ".json")
            logdir = self.path("events_" + graphs)
            outputs.append(self.run_worker("--summary_json=" + summary, "--cuda_graphs=" + graphs,
                                           "--logdir=" + logdir, "--summary_steps=7",
                                           "--histogram_steps=11", *flags).output())
            self.assertIn("training runs on cuda:0 without copies", outputs[-1])
            got = harness.read_json(summary)
            self.assertEqual(got["parameters_sha256"], want["parameters_sha256"])
            self.assertEqual(got["local_steps"], steps)
            self.assertAlmostEqual(got["loss"], want["loss"], delta=1e-6)
            self.check_events(os.path.join(logdir, "worker_0"), steps)
        return outputs

    def check_events(self, folder, steps):
        """Checks that the device stops at steps whose loss or parameters are recorded."""
        (name,) = os.listdir(folder)
        records = harness.read_bytes(os.path.join(folder, name))
        value = rb"\x10(.)\x2a....\x0a....\x0a"
        losses = re.findall(value + rb"\x84\x80\x80\x00loss", records, re.DOTALL)
        self.assertEqual([ord(s) for s in losses], sorted({*range(7, steps, 7), steps}))
        params = re.findall(value + rb"....[a-z]+[0-9]*/weights\x2a", records, re.DOTALL)
        self.assertEqual(sorted({ord(s) for s in params}), sorted({*range(0, steps, 11), steps}))
        self.assertNotIn(b"/gradient", records)

    def job_with_tables(self, folder, data, *flags):
        job = self.started_job(n_workers=1, data=data, model="deepfm", flags=[
            "--backend_dir=" + folder, "--train_steps=20", "--batch_size=21",
            "--seed=3", "--intra_op_threads=1", "--label_column=liked", "--learning_rate=0.01",
            *flags])
        summary = job.finish_alike()[0]
        self.assertEqual("cuDNN" in job.workers[0].output(), folder.endswith("cuda"))
        return summary

    def test_model_with_tables_matches_cpu(self):
        data, rng = self.new_folder("shop"), random.Random(5)
        for part, n in (("train", 200), ("test", 50)):
            rows = ["u%d,i%d,%.2f,%d" % (rng.randrange(9), rng.randrange(9), rng.random(), k % 2)
                    for k in range(n)]
            harness.write_file(os.path.join(data, part + ".csv"),
                               "\n".join(["user,item,price,liked", *rows]) + "\n")
        folders = [self.backend_dir("cpu"), self.backend_dir("cuda")]
        for flags in ((), ("--towers=2", "--eval_every=10")):
            cpu, cuda = (self.job_with_tables(folder, data, *flags) for folder in folders)
            for figure in ("loss", "test_loss"):
                self.assertAlmostEqual(cuda[figure], cpu[figure], delta=1e-3)

    def test_worker_alone_on_device_ends_as_with_a_server(self):
        """The data set is read more than once; a schedule, running averages and dropout count."""
        outputs = self.alone_as_with_a_server(60, "--batch_size=100", "--eval_every=15",
                                              "--lr_schedule=cosine", "--log_every=7",
                                              "--model=" + self.model())
        accuracy = [re.findall("test accuracy: ([0-9.]+)", o) for o in outputs]
        self.assertEqual(len(accuracy[0]), 4)
        self.assertEqual(accuracy, [accuracy[0]] * 3)
        for output in outputs[1:]:
            self.assertIn("training step 35 done", output)

    def test_average_of_parameters_is_that_with_a_server(self):
        """The device keeps no average (--ema_decay), so a worker alone updates on the host."""
        flags = ["--backend_dir=" + self.backend_dir("cuda"), "--seed=4", "--train_steps=20",
                 "--batch_size=20", "--intra_op_threads=1", "--ema_decay=0.9", "--eval_every=5"]
        job = self.started_job(n_ps=1, n_workers=1, flags=flags)
        want = job.finish()[0]
        worker, got = self.train_alone(*flags)
        self.assertNotIn("without copies to the host", worker.output())
        for key in ("parameters_sha256", "test_loss"):
            self.assertEqual(got[key], want[key])

    def test_short_passes_queued_on_device(self):
        """The steps that may be queued at once cover four passes over the 2400 images, and more."""
        self.alone_as_with_a_server(40, "--batch_size=300", "--model=softmax")


harness.main(__name__)
