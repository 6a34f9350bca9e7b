#!/usr/bin/python3
"""Files that programs write at their end. Links, FIFOs and devices keep their type, and no output
replaces another output."""
# label: cluster
import json
import os
import stat
import subprocess
import threading

import harness

FLAGS = ["--train_steps=2", "--batch_size=12", "--intra_op_threads=1"]
FLAG = {"export": "--export=", "summary_json": "--summary_json=", "output": "--output=",
        "trace": "--trace=", "record_samples": "--record_samples="}


class Outputs(harness.Test):
    def export(self):
        self.run_worker(*FLAGS, "--export=" + self.path("model"))
        return self.path("model")

    def flags(self, what, path):
        if what == "output":
            return ["--predict=" + self.export(), "--output=" + path]
        return [*FLAGS, FLAG[what] + path]

    def device(self, minor):
        """Makes a device like /dev/null (3) or /dev/full (7) for this test alone."""
        path = self.path("device%d" % minor)
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, minor))
            with open(path, "wb"):
                pass
        except OSError as e:
            self.skipTest("no device of our own: %s" % e)
        return path

    def test_link_kept_and_its_target_replaced(self):
        """The file that the link leads to is replaced."""
        for what in FLAG:
            with self.subTest(what):
                target, link = self.path(what + ".target"), self.path(what + ".csv")
                harness.write_file(target, "" if what == "record_samples" else "old")
                os.symlink(os.path.basename(target), link)
                self.run_worker(*self.flags(what, link))
                self.assertTrue(os.path.islink(link))
                self.assertNotIn(harness.read_bytes(target), (b"", b"old"))

    def test_export_with_suffix_of_another_format_refused(self):
        """The worker refuses it before it reads anything: the file's content would not match its
        name."""
        for end, way in (("onnx", "python3 -m weir.onnx"), ("pt", "safetensors.torch.load_file"),
                         ("PTH", "safetensors.torch.load_file"), ("h5", "load_file"),
                         ("npz", "safetensors.numpy.load_file"), ("keras", "load_file")):
            with self.subTest(end):
                path = self.path("model." + end)
                said = self.run_worker(*FLAGS, "--export=" + path, status=2).output()
                self.assert_has(said, "--export=%s: the file would be safetensors" % path,
                                "let the name end in .safetensors: ", way)
                self.assertFalse(os.path.exists(path))

    def test_fifo_reader_gets_all(self):
        """The reader receives all bytes, and then the end of the file."""
        for what in FLAG:
            with self.subTest(what):
                path, got = self.path(what + ".jsonl"), []
                os.mkfifo(path)

                def read(path=path, got=got):
                    got.append(harness.read_bytes(path))

                reader = threading.Thread(target=read, daemon=True)
                reader.start()
                self.run_worker(*self.flags(what, path))
                self.assertTrue(stat.S_ISFIFO(os.lstat(path).st_mode))
                reader.join(60)
                self.assertTrue(got and got[0])
                if what in ("summary_json", "trace"):
                    json.loads(got[0])

    def test_standard_output_written(self):
        """/dev/stdout is a link into procfs on every host. It leads to a pipe or to a file."""
        link = self.path("stdout")
        os.symlink("/proc/self/fd/1", link)
        argv = [harness.program("worker"), harness.models_dir("softmax"), "--model=softmax",
                "--data_dir=" + self.data(), *FLAGS, "--summary_json=" + link]
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual(json.loads(done.stdout)["global_step"], 2)
        with open(self.path("file"), "w+", encoding="ascii") as f:
            f.write("before\n")
            f.flush()
            subprocess.run(argv, stdout=f, stderr=subprocess.PIPE, check=True)
            f.seek(0)
            self.assertEqual(f.readline(), "before\n")
            self.assertEqual(json.loads(f.read())["global_step"], 2)
        self.assertTrue(os.path.islink(link))

    def test_devices_written(self):
        path = self.device(3)
        for what in ("export", "summary_json", "trace", "record_samples"):
            with self.subTest(what):
                self.run_worker(*self.flags(what, path))
                self.assertTrue(stat.S_ISCHR(os.lstat(path).st_mode))

    def test_outputs_of_a_server_written(self):
        path, link, fifo = self.path("figures"), self.path("link"), self.path("fifo")
        os.symlink(path, link)
        os.mkfifo(fifo)
        job = self.job(n_ps=2, n_workers=1, flags=FLAGS)
        job.start_ps(0, "--summary_json=" + link)
        job.start_ps(1, "--summary_json=" + fifo)
        job.start_worker(0)
        self.assertEqual(harness.read_json(fifo)["task_index"], 1)
        job.finish()
        self.assertTrue(os.path.islink(link))
        self.assertEqual(harness.read_json(path)["task_index"], 0)

    def refused(self, *flags, names):
        said = self.run_worker(*flags, status=2).output()
        self.assert_has(said, *("--" + name for name in names))

    def test_same_file_for_two_outputs_refused(self):
        """Paths are compared by name if the file does not exist, otherwise by identity; nothing is
        written."""
        there, link, other = self.path("there"), self.path("link"), self.path("other")
        harness.write_file(there, "mine")
        os.symlink(there, link)
        os.mkdir(self.path("folder"))
        os.symlink(self.dir(), self.path("up"))
        for a, b in ((other, other), (other, self.path("folder/../other")),
                     (other, self.path("up/other")), (there, link), (there, there)):
            for one, two in (("export", "summary_json"), ("trace", "export"),
                             ("summary_json", "trace"), ("record_samples", "export")):
                self.refused(*FLAGS, FLAG[one] + a, FLAG[two] + b, names=(one, two))
        self.assertEqual(harness.read_text(there), "mine")
        self.assertFalse(os.path.exists(other))
        self.run_worker(*FLAGS, "--export=" + there, "--summary_json=" + other)

    def test_input_as_output_refused(self):
        model = self.export()
        before = harness.read_bytes(model)
        os.symlink(model, self.path("model.csv"))
        self.refused("--predict=q.npy", "--output=q.npy", names=("predict", "output"))
        self.refused("--predict=" + model, "--output=" + self.path("model.csv"),
                     names=("predict", "output"))
        self.refused("--evaluate=" + model, "--summary_json=" + model,
                     names=("evaluate", "summary_json"))
        self.refused(*FLAGS, "--init=" + model, "--trace=" + model, names=("init", "trace"))
        self.refused(*FLAGS, "--train_data=" + model, "--export=" + model,
                     names=("train_data", "export"))
        self.assertEqual(harness.read_bytes(model), before)

    def test_same_device_for_two_outputs_accepted(self):
        """Two outputs may be the same device: unlike a file, it keeps no content that the second
        output would replace."""
        path = self.device(3)
        self.run_worker(*FLAGS, "--export=" + path, "--summary_json=" + path)

    def test_same_file_for_two_outputs_of_server_refused(self):
        argv = [harness.program("ps"), "--ps_hosts=127.0.0.1:1", "--summary_json=" + self.path("x"),
                "--trace=" + self.path("x")]
        ps = self.start("ps", argv)
        self.assertIn("--summary_json=%s and --trace=" % self.path("x"), ps.wait_output(20, 2))

    def test_full_disk_ends_with_138(self):
        """The exit status is 138, and the lines name the lost file and the remedy. Existing files
        stay."""
        full = self.device(7)
        for flag, said in (("export", "no room for the trained parameters, which are lost"),
                           ("summary_json", "no room for the final figures, which are lost"),
                           ("trace", "trace file .* could not be written completely"),
                           ("record_samples", "--record_samples: cannot write")):
            worker = self.run_worker(*FLAGS, FLAG[flag] + full, status=138)
            self.assertRegex(worker.output(), said)
            self.assertIn("No space left on device", worker.output())
        os.symlink(full, self.path("full.csv"))
        worker = self.run_worker("--predict=" + self.export(), "--output=" + self.path("full.csv"),
                                 status=138)
        self.assertIn("no room for the results: free some space", worker.output())

    def test_full_disk_with_checkpoints_repeats_no_step(self):
        """Started again, the worker computes no step twice."""
        full, folder = self.device(7), self.path("ckpt")
        flags = [*FLAGS, "--checkpoint_dir=" + folder]
        worker = self.run_worker(*flags, "--export=" + full, status=138)
        self.assertIn("it resumes from the newest checkpoint in " + folder, worker.output())
        worker = self.run_worker(*flags, "--export=" + self.path("model"))
        self.assertIn("found a checkpoint at step 2", worker.output())
        self.assertTrue(os.path.exists(self.path("model")))

    def test_full_disk_of_worker_makes_servers_wait(self):
        """The servers wait for the worker, which then writes their parameters."""
        full = self.device(7)
        job = self.job(n_workers=1, flags=FLAGS)
        job.start_ps(0, "--summary_json=" + full)
        job.start_worker(0, "--export=" + full).wait(60, 138)
        self.assertRegex(job.workers[0].output(), "no room .* while they wait for it")
        job.start_worker(0, "--export=" + self.path("model")).wait(60)
        self.assertTrue(os.path.exists(self.path("model")))
        job.ps[0].wait(60, 138)
        self.assertIn("the figures of this server are lost; free some space", job.ps[0].output())

    def test_outputs_tried_at_start(self):
        """access() does not reveal that no file can be made in /proc, not even by root."""
        os.symlink("/nodir/x", self.path("astray"))
        for path, folder in (("/proc/x", "/proc"), (self.path("astray"), "/nodir")):
            for flag in ("export", "summary_json"):
                said = self.run_worker(*FLAGS, FLAG[flag] + path, status=2).output()
                self.assertIn("--%s=%s: cannot create a file in the folder %s: " %
                              (flag, path, folder), said)
                self.assertNotIn("step", said)
        ps = self.start_program("ps", "--ps_hosts=127.0.0.1:1", "--summary_json=/proc/x")
        self.assertIn("cannot create a file in the folder /proc", ps.wait_output(20, 2))
        os.mkdir(self.path("folder"))
        self.run_worker("--predict=" + self.path("none"), "--output=" + self.path("folder/x.csv"),
                        status=1)
        self.assertEqual(os.listdir(self.path("folder")), [])

    def test_full_disk_at_start_refused(self):
        """The file system has no room for another file."""
        path = self.mount("nr_inodes=1")
        self.assertIn("--export=%s/x: the folder %s is full: " % (path, path),
                      self.run_worker(*FLAGS, "--export=" + path + "/x", status=138).output())
        ps = self.start_program("ps", "--ps_hosts=127.0.0.1:1", "--summary_json=" + path + "/x")
        ps.wait(20, 138)


harness.main(__name__)
