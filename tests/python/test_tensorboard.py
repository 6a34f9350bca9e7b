"""--logdir: TensorBoard's own reader finds each kind of data that a worker writes. The values equal
those in the worker's other outputs, and each step appears once, also after a rollback."""
# label: cluster
import os
import subprocess
import sys
import unittest

import ckpt_folder
import harness

READER = os.path.join(os.path.dirname(os.path.abspath(harness.BIN)), "tensorboard")
STEPS, BATCH, RATE = 60, 20, 0.01
PARAMS = {"hid/weights": 78400, "hid/biases": 100, "sm/weights": 1000, "sm/biases": 10}


def reader():
    """Returns its modules, or skips the test if they are missing."""
    got = subprocess.run([harness.source("scripts/get_tensorboard"), READER])
    if got.returncode == harness.SKIPPED:
        raise unittest.SkipTest("TensorBoard's packages cannot be fetched here")
    if got.returncode:
        raise harness.Failure("get_tensorboard ended with %d" % got.returncode)
    if READER not in sys.path:
        sys.path.insert(0, READER)
    from tensorboard.backend.event_processing import event_accumulator
    from tensorboard.backend.event_processing import plugin_event_accumulator
    return event_accumulator, plugin_event_accumulator


class TensorBoard(harness.Test):
    def logdir(self):
        return self.path("log/dir")

    def read(self, run):
        """Returns the run as TensorBoard reads it: its data by kind, and by the plugin that shows
        them."""
        kinds, plugins = reader()
        path = os.path.join(self.logdir(), run)
        guide = {kind: 0 for kind in ("scalars", "histograms", "images", "tensors")}
        by_kind = kinds.EventAccumulator(path, size_guidance=guide)
        by_plugin = plugins.EventAccumulator(path, size_guidance={"tensors": 0})
        return by_kind.Reload(), by_plugin.Reload()

    def figures(self, run, tag):
        return {e.step: e.value for e in self.once(run.Scalars(tag))}

    def once(self, events):
        """Checks that no step appears twice, and none after a later one."""
        steps = [e.step for e in events]
        self.assertEqual(steps, sorted(set(steps)))
        return events

    def train(self, *more):
        return self.train_alone(
            "--train_steps=%d" % STEPS, "--batch_size=%d" % BATCH, "--learning_rate=%g" % RATE,
            "--optimizer=sgd", "--lr_schedule=linear", "--seed=3", "--intra_op_threads=1",
            "--logdir=" + self.logdir(), "--summary_steps=5", "--histogram_steps=10",
            "--eval_every=30", "--save_steps=20", "--keep_checkpoint_max=0",
            "--checkpoint_dir=" + self.checkpoints(), *more, model="mlp")[1]

    def checkpoints(self):
        return self.path("ckpt")

    def test_every_kind_readable_also_after_rollback(self):
        reader()
        self.train()
        final = self.train("--restore=" + ckpt_folder.path(self.checkpoints(), 20))
        self.assertEqual(final["local_steps"], STEPS - 20)
        self.assertEqual(len(os.listdir(os.path.join(self.logdir(), "worker_0"))), 2)
        run, plugins = self.read("worker_0")
        self.check_figures(run, final)
        self.check_histograms(run)
        self.check_graph(run, "/job:worker/task:0/device:CPU:0")
        self.check_samples(run, plugins)
        self.check_settings(plugins)

    def check_figures(self, run, final):
        every = list(range(5, STEPS + 1, 5))
        loss, accuracy, rate, speed = [self.figures(run, tag) for tag in (
            "loss", "accuracy", "learning_rate", "images_per_second")]
        for steps in (loss, accuracy, rate, speed):
            self.assertEqual(list(steps), every)
        self.assertAlmostEqual(loss[STEPS], final["loss"], places=5)
        self.assertLess(loss[STEPS], loss[5])
        self.assertTrue(all(0 <= a <= 1 and abs(a * BATCH - round(a * BATCH)) < 1e-3
                            for a in accuracy.values()))
        for step, value in rate.items():
            self.assertAlmostEqual(value, RATE * (1 - (step - 1) / STEPS), places=7)
        self.assertTrue(all(value > 0 for value in speed.values()))
        for tag in ("accuracy", "loss"):
            told = self.figures(run, "test/" + tag)
            self.assertEqual(list(told), [30, STEPS])
            self.assertAlmostEqual(told[STEPS], final["test_" + tag], places=5)
        self.assertFalse([tag for tag in run.Tags()["scalars"] if tag.startswith("exchange")])

    def check_histograms(self, run):
        for name, n in PARAMS.items():
            for tag, last in ((name, STEPS), (name + "/gradient", STEPS - 10)):
                events = self.once(run.Histograms(tag))
                self.assertEqual([e.step for e in events], list(range(0, last + 1, 10)), tag)
                for h in (e.histogram_value for e in events):
                    self.assertEqual(h.num, n)
                    self.assertEqual(sum(h.bucket), n)
                    self.assertTrue(h.min <= h.sum / n <= h.max)
                    self.assertTrue(h.sum_squares >= h.sum ** 2 / n * 0.999)

    def check_graph(self, run, params_on):
        nodes = {node.name: node for node in run.Graph().node}
        self.assertEqual(list(nodes["hid/dense"].input), ["flatten1", "hid/weights", "hid/biases"])
        self.assertEqual(nodes["sm/dense"].op, "dense")
        self.assertEqual(nodes["sm/dense"].device, "/job:worker/task:0/device:CPU:0")
        self.assertEqual({nodes[name].device for name in PARAMS}, {params_on})
        shape = nodes["input"].attr["_output_shapes"].list.shape[0]
        self.assertEqual([d.size for d in shape.dim], [BATCH, 1, 28, 28])

    def check_samples(self, run, plugins):
        images = self.once(run.Images("test/samples"))
        self.assertEqual([e.step for e in images], [30, STEPS])
        self.assertTrue(all(e.encoded_image_string.startswith(b"\x89PNG") and e.width == 4 * 64
                            for e in images))
        tables = self.once(plugins.Tensors("test/predictions"))
        self.assertEqual([e.step for e in tables], [30, STEPS])
        lines = tables[-1].tensor_proto.string_val[0].decode().splitlines()
        self.assertEqual(len(lines), 2 + 16)
        self.assertTrue(all(line.count(" | ") == 3 for line in lines[2:]))
        self.assertEqual(list(plugins.PluginTagToContent("text")), ["test/predictions"])

    def check_settings(self, plugins):
        from tensorboard.plugins.hparams import plugin_data_pb2
        told = plugins.PluginTagToContent("hparams")
        begin, end = [plugin_data_pb2.HParamsPluginData.FromString(told["_hparams_/session_" + tag])
                      for tag in ("start_info", "end_info")]
        settings = begin.session_start_info.hparams
        self.assertEqual(settings["learning_rate"].number_value, RATE)
        self.assertEqual(settings["batch_size"].number_value, BATCH)
        self.assertEqual(settings["optimizer"].string_value, "sgd")
        self.assertEqual(settings["lr_schedule"].string_value, "linear")
        self.assertEqual(end.session_end_info.status, 1)

    def test_runs_of_workers_have_wire_figures(self):
        """Each worker has its own run, with the bytes on the wire, and its delay."""
        reader()
        summaries = self.started_job(
            model="mlp", flags=["--sync_mode=ssp", "--staleness=1", "--train_steps=40",
                                "--batch_size=%d" % BATCH, "--intra_op_threads=1", "--logdir=" +
                                self.logdir(), "--summary_steps=4", "--histogram_steps=0"]).finish()
        for task, summary in enumerate(summaries):
            run, plugins = self.read("worker_%d" % task)
            late = self.figures(run, "exchange/staleness")
            sent = self.figures(run, "exchange/sent_bytes_per_step")
            self.assertTrue(all(value >= 0 for value in late.values()))
            self.assertTrue(all(value > 0 for value in sent.values()), sent)
            self.assertGreater(sum(sent.values()) / len(sent), 4 * sum(PARAMS.values()) / 2)
            for tag in ("received_bytes_per_step", "stale", "reconnects"):
                self.assertEqual(list(self.figures(run, "exchange/" + tag)), list(sent))
            waited = self.figures(run, "exchange/wait_ms_per_step")
            self.assertEqual(list(waited), list(sent)[1:])  # the first wait has no known beginning
            self.assertLessEqual(len(sent), summary["local_steps"] // 4 + 1)
            self.assertEqual(run.Tags()["histograms"], [])
            self.assertEqual({n.device for n in run.Graph().node if n.op == "VariableV2"},
                             {"/job:ps/task:0/device:CPU:0"})
            self.assertEqual(bool(plugins.PluginTagToContent("hparams") if task == 0 else {}),
                             task == 0)
        steps = sum(s["local_steps"] for s in summaries)
        self.assertGreaterEqual(steps, 40)

    def test_folder_that_is_a_file_refused(self):
        path = self.path("file")
        with open(path, "w", encoding="utf-8"):
            pass
        worker = self.run_worker("--logdir=" + path, status=2)
        wrong = "cannot write event files there (in its folder worker_N): Not a directory"
        self.assertIn("--logdir=%s: %s" % (path, wrong), worker.output())
        os.makedirs(self.logdir())
        os.rename(path, os.path.join(self.logdir(), "worker_0"))
        worker = self.run_worker("--logdir=" + self.logdir(), status=2)
        self.assertIn("--logdir=%s: %s" % (self.logdir(), wrong), worker.output())
        self.assertIn("--summary_steps and --histogram_steps: no effect without --logdir",
                      self.run_worker("--summary_steps=3", "--train_steps=1").output())


harness.main(__name__)
