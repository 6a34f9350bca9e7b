"""Bad input for the real programs. A program prints exactly one line of error that names the cause,
and exits with 2 for wrong arguments or with 1 for wrong files. A server refuses bad input of peers,
and its job continues. test_bad_frames.py tests frames with a fault in a well-formed stream."""
# label: cluster address
import gzip
import os
import random
import shutil
import socket
import struct
import threading

import harness

USAGE, PERMANENT, RETRY = 2, 1, 138
NAMES = {"images": "train-images-idx3-ubyte", "labels": "train-labels-idx1-ubyte"}
INPUT = '"name": "m", "input": [1, 28, 28], "classes": 10'
TAIL = '{"type": "dense", "units": 10}, {"type": "softmax_cross_entropy"}'


# A model whose file has every size, so none depends on the data.
FIXED = """{"input": [1, 28, 28], "classes": 10, "layers": [{"type": "flatten"},
{"type": "dense", "units": 10}, {"type": "softmax_cross_entropy"}]}"""


class BadInput(harness.Test):
    def check(self, process, status, *words):
        """Checks that the process prints one line of error, with the words; all other lines are
        info."""
        process.wait(30, status)
        lines = [l for l in process.lines if not l.startswith("I ")]
        self.assertEqual(len(lines), 1, "not one line: %r" % process.lines)
        self.assertTrue(lines[0].startswith("E "), lines[0])
        for word in words:
            self.assertRegex(lines[0], word)

    def worker(self, *flags, data=None, model="softmax"):
        argv = [harness.program("worker"), "--models_dir=" + harness.MODELS, "--model=" + model,
                "--train_steps=2", "--batch_size=4", "--data_dir=" + (data or self.data()), *flags]
        return self.start("worker", argv)

    def ps(self, *flags):
        return self.start_program("ps", *flags)


class Data(BadInput):
    def copy(self):
        folder = self.path("data")
        shutil.copytree(self.data(), folder)
        return folder

    def damaged(self, which, change):
        """Returns a copy of the data in which `change` was applied to the bytes of one file."""
        folder = self.copy()
        path = os.path.join(folder, NAMES[which])
        content = harness.read_bytes(path)
        harness.write_file(path, change(content))
        return folder

    def refused(self, folder, *words, model="fixed"):
        if model == "fixed":
            model = self.write("fixed.json", FIXED)
        self.check(self.worker(data=folder, model=model), PERMANENT, *words)

    def test_undamaged_copy_accepted(self):
        self.worker(data=self.copy()).wait()

    def test_missing_folder_refused(self):
        self.refused(self.path("nothing"), "nothing")

    def test_missing_file_refused(self):
        folder = self.copy()
        os.remove(os.path.join(folder, NAMES["labels"]))
        self.refused(folder, NAMES["labels"])

    def test_truncated_images_refused(self):
        self.refused(self.damaged("images", lambda b: b[:-1]), NAMES["images"], "truncated")

    def test_truncated_header_refused(self):
        self.refused(self.damaged("images", lambda b: b[:7]), NAMES["images"], "truncated")

    def test_empty_labels_refused(self):
        self.refused(self.damaged("labels", lambda b: b""), NAMES["labels"], "empty")

    def test_bytes_after_the_end_refused(self):
        self.refused(self.damaged("labels", lambda b: b + b"x"), NAMES["labels"])

    def test_wrong_magic_refused(self):
        self.refused(self.damaged("images", lambda b: b"\x89PNG" + b[4:]), NAMES["images"],
                     "begins with the bytes 0x8950")

    def test_swapped_files_refused(self):
        folder = self.copy()
        a, b = (os.path.join(folder, NAMES[k]) for k in ("images", "labels"))
        os.rename(a, a + ".x")
        os.rename(b, a)
        os.rename(a + ".x", b)
        self.refused(folder, "images|labels", "magic|swapped")

    def test_fewer_labels_than_images_refused(self):
        def fewer(b):
            return b[:4] + struct.pack(">I", len(b) - 8 - 1) + b[8:-1]
        self.refused(self.damaged("labels", fewer), "2400", "2399")

    def test_label_out_of_range_refused(self):
        self.refused(self.damaged("labels", lambda b: b[:100] + b"\x0a" + b[101:]),
                     NAMES["labels"], "label 92 is 10, but the model has 10 classes")

    def test_absurd_header_refused(self):
        self.refused(self.damaged("images", lambda b: b[:4] + b"\xff" * 12 + b[16:]),
                     NAMES["images"])

    def gzipped(self, change):
        folder = self.copy()
        path = os.path.join(folder, NAMES["images"])
        packed = gzip.compress(harness.read_bytes(path), 1)
        os.remove(path)
        harness.write_file(path + ".gz", change(packed))
        return folder

    def test_gzip_read(self):
        self.worker(data=self.gzipped(lambda b: b)).wait()

    def test_truncated_gzip_refused(self):
        self.refused(self.gzipped(lambda b: b[:len(b) // 2]), NAMES["images"], "truncated")

    def test_corrupt_gzip_refused(self):
        self.refused(self.gzipped(lambda b: b[:5000] + bytes(64) + b[5064:]), NAMES["images"])

    def test_other_image_size_refused(self):
        folder = self.new_folder("small")
        harness.make_data(folder, 50, 20, size=20)
        self.refused(folder, "20x20", "28x28")


class Model(BadInput):
    def refused(self, text, *words):
        path = self.write("bad.json", text)
        self.check(self.worker(model=path), PERMANENT, "bad.json|model", *words)

    def layers(self, text):
        return '{%s,\n"layers": [\n%s]}' % (INPUT, text)

    def test_good_file_accepted(self):
        path = self.write("good.json", self.layers('{"type": "flatten"}, ' + TAIL))
        self.worker(model=path).wait()

    def test_syntax_error_named_by_line(self):
        self.refused(self.layers('{"type": "flatten"},, ' + TAIL), "line 3")

    def test_truncated_file_refused(self):
        self.refused(self.layers(TAIL)[:40], "line")

    def test_empty_file_refused(self):
        self.refused("", "line|empty")

    def test_unknown_layer_refused(self):
        self.refused(self.layers('{"type": "flatten"},\n{"type": "transformer"}, ' + TAIL),
                     "line 4", "transformer")

    def test_kernel_larger_than_image_refused(self):
        self.refused(self.layers('{"type": "conv2d", "filters": 2, "kernel": 29}, '
                                 '{"type": "flatten"}, ' + TAIL), "29x29", "28x28")

    def test_dense_without_flatten_refused(self):
        self.refused(self.layers(TAIL), "flat")

    def test_wrong_number_of_classes_refused(self):
        self.refused(self.layers('{"type": "flatten"}, {"type": "dense", "units": 7}, '
                                 '{"type": "softmax_cross_entropy"}'), "7", "10")

    def test_missing_key_refused(self):
        self.refused(self.layers('{"type": "flatten"},\n{"type": "dense"}, '
                                 '{"type": "softmax_cross_entropy"}'), "line 4", "units", "missing")

    def test_missing_layers_refused(self):
        self.refused("{%s}" % INPUT, "layers", "missing")

    def test_unknown_model_refused(self):
        self.check(self.worker(model="resnet152"), PERMANENT, "resnet152")

    def test_missing_model_file_refused(self):
        self.check(self.worker(model=self.path("none.json")), PERMANENT, "none.json")


class Flags(BadInput):
    def hosts(self, n_workers=2):
        ports = harness.free_ports(1 + n_workers)
        return ["--ps_hosts=%s:%d" % (harness.LOOPBACK, ports[0]),
                "--worker_hosts=" + ",".join("%s:%d" % (harness.LOOPBACK, p) for p in ports[1:])]

    def both(self, flags, *words):
        """Checks both programs with the same wrong flags."""
        self.check(self.worker(*flags), USAGE, *words)
        self.check(self.ps(*flags), USAGE, *words)

    def test_unknown_flag_refused(self):
        self.both([*self.hosts(), "--task_index=0", "--wroker_hosts=a:1"], "--wroker_hosts")

    def test_stray_word_refused(self):
        self.both([*self.hosts(), "--task_index=0", "quickly"], "quickly")

    def test_bad_number_refused(self):
        self.both([*self.hosts(), "--task_index=one"], "--task_index", "one")
        for flag in ("--train_steps=1.5", "--batch_size=0", "--learning_rate=fast",
                     "--train_steps=99999999999999999999", "--epochs=nan", "--towers=-1"):
            name, value = flag.split("=")
            self.check(self.worker(flag), USAGE, name, value)

    def test_negative_rates_refused(self):
        """Only the default -1 is allowed."""
        for flag in ("learning_rate=-0.5", "momentum=-0.5", "weight_decay=-2", "epsilon=-0.1",
                     "beta1=-0.123456789", "lr_decay=-0.5"):
            name, value = flag.split("=")
            if flag != "weight_decay=-2":
                self.check(self.worker("--" + flag), USAGE, "--" + name, value, "-1")
            else:
                self.check(self.worker("--" + flag), USAGE, "--" + name, value)

    def test_unwritable_outputs_refused(self):
        """The program refuses them before it trains, with the path that the user typed."""
        for flag in ("--export", "--summary_json"):
            for path, words in (("/nodir/x", "/nodir"), (self.dir(), "is a folder")):
                self.check(self.worker(flag + "=" + path), USAGE, flag, path, words)
        self.check(self.worker("--predict=x.safetensors", "--output=/nodir/x.csv"), USAGE,
                   "--output", "/nodir")
        self.check(self.ps(*self.hosts(), "--task_index=0", "--summary_json=/nodir/x"), USAGE,
                   "--summary_json", "/nodir")

    def test_unknown_choice_refused(self):
        self.check(self.worker("--optimizer=adamant"), USAGE, "--optimizer", "adamant", "adam")
        self.check(self.worker("--sync_mode=maybe"), USAGE, "--sync_mode", "maybe")

    def test_flags_of_another_mode_refused(self):
        hosts = [*self.hosts(), "--task_index=0"]
        for flags, *words in ((["--sync_mode=ssp"], "--staleness"),
                              (["--staleness=2"], "--staleness", "ssp"),
                              (["--sync_mode=async", "--staleness=0"], "--staleness"),
                              (["--sync_mode=ssp", "--staleness=-2"], "--staleness", "-2"),
                              (["--replicas_to_aggregate=3"], "--replicas_to_aggregate", "2"),
                              (["--sync_mode=async", "--replicas_to_aggregate=1"],
                               "--replicas_to_aggregate", "sync"),
                              (["--delay_compensation=0.1"], "--delay_compensation"),
                              (["--sync_mode=async", "--delay_compensation=-1"],
                               "--delay_compensation"),
                              (["--sync_replicas", "--sync_mode=ssp", "--staleness=1"],
                               "--sync_replicas"),
                              (["--wire_dtype=fp8"], "--wire_dtype", "fp8", "bf16"),
                              (["--wire_dtype=bf16,"], "--wire_dtype"),
                              (["--wire_dtype=bf16,fp32,fp16"], "--wire_dtype")):
            with self.subTest(flags=flags):
                self.check(self.worker(*hosts, *flags), USAGE, *words)

    def test_flags_of_another_optimizer_refused(self):
        for optimizer, flag in (("sgd", "momentum"), ("adam", "momentum"), ("sgd", "beta1"),
                                ("momentum", "beta2"), ("adam", "decay"), ("sgd", "epsilon")):
            with self.subTest(optimizer=optimizer, flag=flag):
                self.check(self.worker("--optimizer=" + optimizer, "--%s=0.5" % flag), USAGE,
                           "--%s: --optimizer=%s has no such setting; it is " % (flag, optimizer))
        joins = ["--join", self.hosts()[0], "--optimizer=adam"]
        for flags in ([], joins):
            self.check(self.worker(*flags, "--momentum=0.9"), USAGE,
                       "--momentum: --optimizer=adam has no such setting")
        self.check(self.worker(*joins, "--lr_schedule=constant", "--lr_decay=0.5"), USAGE,
                   "--lr_decay: --lr_schedule=constant has no such setting")
        for flags in (["--optimizer=rmsprop", "--momentum=0.5", "--decay=0.9", "--epsilon=1e-6"],
                      ["--optimizer=nesterov", "--momentum=0.5"], ["--optimizer=sgd", "--beta1=-1"],
                      ["--beta1=0.8", "--beta2=0.9", "--epsilon=1e-6", "--weight_decay=0.1"]):
            with self.subTest(flags=flags):
                self.worker(*flags).wait(30)

    def test_flags_without_their_counterpart_refused(self):
        self.check(self.ps(*self.hosts(), "--task_index=0", "--straggler_ms=5"), USAGE,
                   "--straggler_ms needs --log_stragglers")
        self.check(self.worker("--self_test_seconds=5"), USAGE,
                   "--self_test_seconds is for --self_test; set both or neither")
        for flag in ("gpu_memory_fraction=0.4", "gpu_allow_growth", "towers_per_gpu=2",
                     "cuda_graphs=off", "gpu_tuning=measure"):
            with self.subTest(flag=flag):
                self.check(self.worker("--gpus=none", "--" + flag), USAGE,
                           "--%s is for GPUs, but --gpus=none uses none" % flag.split("=")[0])
        self.check(self.worker("--gpu_tuning=all,-capture,fast"), USAGE,
                   "--gpu_tuning: 'fast' is not one of measure, ")
        quiet = self.worker("--gpu_tuning=all,-capture", "--gpu_memory_fraction=0.4",
                            "--cuda_graphs=off")  # a flag of --gpus=auto
        quiet.wait(30)
        self.assertEqual([l for l in quiet.lines if l[0] in "WE"], [])

    def test_task_index_out_of_range_refused(self):
        hosts = self.hosts()
        self.check(self.worker(*hosts, "--task_index=2"), USAGE, "--task_index: 2 is out "
                   "of range; the highest number is 1, since --worker_hosts has 2 entries")
        self.check(self.ps(*hosts, "--task_index=1"), USAGE, "--task_index: 1 is out of range; "
                   "the highest number is 0, since --ps_hosts has 1 entry")

    def test_malformed_address_refused(self):
        for address in ("localhost", "localhost:", "localhost:0", "localhost:65536", ":2221",
                        "localhost:2221x", "a:1,,b:2", "[::1:2221"):
            with self.subTest(address=address):
                self.both(["--ps_hosts=" + address, "--worker_hosts=localhost:2223",
                           "--task_index=0"], "--ps_hosts")

    def test_wrong_job_name_refused(self):
        hosts = self.hosts()
        self.check(self.worker(*hosts, "--task_index=0", "--job_name=ps"), USAGE, "--job_name",
                   "ps")
        self.check(self.ps(*hosts, "--task_index=0", "--job_name=worker"), USAGE, "--job_name",
                   "worker")
        self.check(self.ps(*hosts, "--task_index=0", "--job_name=chief"), USAGE, "--job_name",
                   "chief", "program worker")
        self.check(self.worker(*hosts, "--task_index=1", "--job_name=chief"), USAGE, "--job_name",
                   "chief is worker 0")
        self.both([*hosts, "--task_index=0", "--job_name=evaluator"], "--job_name", "--eval_every")
        self.both([*hosts, "--task_index=0", "--job_name=boss"], "--job_name",
                  "'boss' is not one of")

    def test_port_in_use_refused(self):
        hosts = self.hosts()
        host, port = hosts[0].split("=")[1].split(":")
        with socket.socket() as s:
            s.bind((host, int(port)))
            s.listen(1)
            ps = self.ps(*hosts, "--task_index=0")
            ps.wait(30, RETRY)
        told = [line for line in ps.lines if not line.startswith("I ")]
        self.assertEqual([line[0] for line in told], ["W", "E"], ps.lines)
        self.assertIn("%s:%s is in use" % (host, port), told[0])
        self.assertIn("cannot listen on %s:%s: address in use" % (host, port), told[1])

    def test_address_of_another_host_refused(self):
        self.check(self.ps("--ps_hosts=192.0.2.1:2221", "--worker_hosts=192.0.2.1:2223",
                           "--task_index=0"), PERMANENT, "192.0.2.1:2221")

    def test_host_without_address_refused(self):
        self.check(self.ps("--ps_hosts=a..b:2221", "--worker_hosts=a:1", "--task_index=0"),
                   PERMANENT, "cannot listen on a..b:2221: its host name cannot be resolved: ")

    def test_ps_without_ps_hosts_refused(self):
        self.check(self.ps("--task_index=0"), USAGE, "--ps_hosts")

    def test_workers_without_ps_refused(self):
        self.check(self.worker("--worker_hosts=a:1,b:2", "--task_index=0"), USAGE, "--ps_hosts")

    def test_unwritable_summary_refused(self):
        path = self.path("no", "such", "folder.json")
        process = self.worker("--summary_json=" + path)
        process.wait(30, USAGE)
        errors = [l for l in process.lines if l.startswith("E ")]
        self.assertEqual(len(errors), 1)
        self.assertIn(path, errors[0])


STEPS = ["--batch_size=20", "--train_steps=40", "--seed=3", "--learning_rate=0.01"]


class Peers(BadInput):
    """A job of two workers, one of which has joined. Bad input for the job's server must not change
    the result of the job."""
    def half_job(self):
        job = self.job(flags=STEPS)
        job.start_ps(0)
        job.start_worker(0).wait_line("parameters in", 30)
        return job

    def finish(self, job):
        """Starts the other worker: the job must end as if undisturbed."""
        job.start_worker(1)
        job.finish(60, self.undisturbed_digest(flags=STEPS))

    def intruder(self, job, *flags, model="softmax"):
        # Worker 0 settles the job when it joins, and then waits for worker 1.
        job.ps[0].wait_line("worker:?.?0|member 0", 30)
        argv = [harness.program("worker"), *job.hosts(), "--task_index=1", "--models_dir=" +
                harness.MODELS, "--data_dir=" + self.data(), *STEPS, "--model=" + model, *flags]
        return self.start("intruder", argv)

    def check_refused(self, process, *words):
        process.wait(30, PERMANENT)
        errors = [l for l in process.lines if l.startswith("E ")]
        self.assertEqual(len(errors), 1, process.lines)
        for word in words:
            self.assertRegex(errors[0], word)

    def test_worker_with_another_model_refused(self):
        job = self.half_job()
        self.check_refused(self.intruder(job, model="lenet5"), "parameter", "softmax|dense|c1/")
        self.check_refused(self.intruder(job, model="mlp"), "parameter")
        self.finish(job)

    def test_worker_with_another_optimizer_refused(self):
        job = self.half_job()
        self.check_refused(self.intruder(job, "--optimizer=sgd"), "optimizer")
        self.check_refused(self.intruder(job, "--learning_rate=0.5"), "learning")
        self.finish(job)

    def test_worker_with_another_plan_refused(self):
        job = self.half_job()
        self.check_refused(self.intruder(job, "--train_steps=41"), "41")
        self.check_refused(self.intruder(job, "--seed=4"), "seed")
        self.check_refused(self.intruder(job, "--sync_mode=async"), "async|sync")
        self.check_refused(self.intruder(job, "--sync_mode=ssp", "--staleness=1"), "ssp|sync")
        self.check_refused(self.intruder(job, "--replicas_to_aggregate=1"), "replicas")
        self.check_refused(self.intruder(job, "--chunk_bytes=4096"), "chunk")
        self.finish(job)

    def talk(self, job, *parts):
        """Sends raw bytes to the server, and reads the answer to its end."""
        host, port = job.ps_hosts[0].split(":")
        with socket.create_connection((host, int(port)), 10) as s:
            s.settimeout(5 * harness.PATIENCE)
            try:
                for part in parts:
                    s.sendall(part)
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass

    def test_random_bytes_do_not_change_job(self):
        rng = random.Random(5)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        settings = b"\0\0\0\4\0\0\0\0\0"
        job = self.half_job()
        for _ in range(5):
            self.talk(job, rng.randbytes(rng.choice((1, 100, 70000))))
            self.talk(job, preface, settings, rng.randbytes(20000))
        self.talk(job, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        self.talk(job, b"\x16\x03\x01\x02\x00" + rng.randbytes(512))  # a TLS hello
        self.talk(job, preface, settings, b"\xff\xff\xff\0\0\0\0\0\1" + rng.randbytes(70000))
        self.assertIsNone(job.ps[0].popen.poll())
        self.finish(job)

    def test_random_bytes_during_training_do_not_change_job(self):
        """Random bytes arrive from before the first step to after the last."""
        rng = random.Random(6)
        steps = 1500
        job = self.job(flags=["--batch_size=20", "--train_steps=%d" % steps, "--seed=3",
                              "--log_every=10"])
        job.start_ps()
        first, said = threading.Event(), []

        def talk():
            try:
                while len(said) < 3000:
                    said.append(self.talk(job, rng.randbytes(3000)))
                    first.set()
            except OSError:
                pass  # the job has ended, and its server too; finish() checks the result

        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
        self.assertTrue(first.wait(60))
        job.start_workers()
        for s in job.finish():
            self.assertEqual(s["global_step"], steps)
        talker.join(60)
        self.assertGreaterEqual(len(said), 3)

    def test_silent_connections_do_not_block_job(self):
        job = self.half_job()
        host, port = job.ps_hosts[0].split(":")
        silent = [socket.create_connection((host, int(port)), 10) for _ in range(50)]
        try:
            self.finish(job)
        finally:
            for s in silent:
                s.close()


harness.main(__name__)
