"""Gradients and parameter changes in int8 and int4. All paths lead to the same bits, also after
processes died; the number of bytes is the promised one; and a network learns as well as in full
precision."""
# label: cluster
import os
import unittest

import harness

DATA = "/usr/share/datasets/fashion-mnist"
FLAGS = ["--batch_size=20", "--seed=3", "--chunk_bytes=16384",
         "--intra_op_threads=1"]


class Codecs(harness.Test):
    def run_job(self, flags, n_ps=1, model="mlp", hidden=("--hidden_units=32",)):
        job = self.started_job(n_ps=n_ps, n_workers=2, model=model, flags=[*FLAGS, *hidden, *flags])
        summaries = job.finish()
        for s in summaries:
            self.assertEqual(s["parameters_sha256"], summaries[0]["parameters_sha256"])
        return summaries

    def test_codecs_same_bits_on_every_path(self):
        """The bits do not depend on the worker, the transport, the number of servers or the
        order."""
        digests = []
        for dtypes in ("int8", "int4", "int4,fp32", "fp32,int8", "bf16,int4", "int8,bf16",
                       "topk", "topk,int8"):
            with self.subTest(wire_dtype=dtypes):
                flags = ["--optimizer=adam", "--train_steps=25", "--wire_dtype=" + dtypes]
                first = self.run_job(flags)[0]["parameters_sha256"]
                for n_ps, extra in ((1, ["--shared_memory=off"]),
                                    (2, ["--fault_push_delay_ms=3"])):
                    other = self.run_job([*flags, *extra], n_ps=n_ps)
                    self.assertEqual(other[0]["parameters_sha256"], first, extra)
                digests.append(first)
        self.assertEqual(len(set(digests)), len(digests), "a dtype has no effect")

    def test_statistics_of_batch_norm_sent_as_floats(self):
        """The statistics are averages, which are sent as floats."""
        self.run_job(["--train_steps=10", "--wire_dtype=int4", "--batch_size=8"],
                     model="resnet_mini", hidden=())

    def test_codecs_send_the_promised_bytes(self):
        steps = 60
        for dtype, least in (("int8", 3.9), ("int4", 7.6), ("topk", 38)):
            s = self.run_job(["--train_steps=%d" % steps, "--wire_dtype=" + dtype,
                              "--shared_memory=off"])[1]
            each = 4 * s["parameters"] * steps
            # The first and the last values are sent in full, and do not count here.
            received = s["exchange"]["received_bytes"] - 2 * 4 * s["parameters"]
            print("%s: %.2f times fewer bytes up, %.2f down" %
                  (dtype, each / s["exchange"]["sent_bytes"], each / received))
            self.assertGreater(each / s["exchange"]["sent_bytes"], least)
            self.assertGreater(each / received, least)

    def test_killed_members_do_not_change_bits(self):
        """A worker, then the server, are killed and return; a worker joins: all end alike."""
        job = self.job(n_workers=2, model="mlp", flags=[
            *FLAGS, "--train_steps=400", "--wire_dtype=int4", "--log_every=1",
            "--fault_push_delay_ms=5"])
        keeps = ["--checkpoint_dir=" + self.dir(), "--save_steps=20"]
        job.brake_from(300)
        job.start(keeps)
        job.workers[0].wait_line(r"\(global step: 20\)")
        job.restart_worker(1)
        job.workers[1].wait_line(r"training step [0-9]+ done")
        job.ps[0].wait_line("checkpoint")
        job.restart_ps(0, *keeps)
        job.workers[1].wait_line("generation")
        path = self.dir() + "/joiner.json"
        join = self.start("joiner", [*job.workers[0].argv[:2], "--join", "--summary_json=" + path,
                                     *job.flags])
        join.wait_line(r"training step [0-9]+ done")
        job.release()
        join.wait(120)
        digest = harness.read_json(path)["parameters_sha256"]
        job.finish(120, digest)

    def test_job_chooses_format_for_undecided_workers(self):
        """A worker with --wire_dtype=auto uses the job's number format. It is the format of another
        worker's flag, and after a restart that of the job or its checkpoint. Without either it is
        fp32, because all processes are on one host."""
        flags = ["--optimizer=adam", "--train_steps=25"]
        want, _ = self.run_job(flags)
        for s in self.run_job([*flags, "--wire_dtype=auto"]):
            self.assertEqual(s["parameters_sha256"], want["parameters_sha256"])
        job = self.job(n_workers=2, model="mlp", flags=[
            *FLAGS, "--hidden_units=32", "--train_steps=10"])
        job.start_ps(0)
        for i, dtype in enumerate(("auto", "bf16")):
            job.start_worker(i, "--wire_dtype=" + dtype)
        a, b = job.finish(120)  # versions in bf16, and at the end the servers' fp32 values
        self.assertEqual(a["parameters_sha256"], b["parameters_sha256"])
        job = self.job(n_workers=2, model="mlp", flags=[
            *FLAGS, "--hidden_units=32", "--train_steps=150", "--log_every=1",
            "--fault_push_delay_ms=5"])
        keeps = ["--checkpoint_dir=" + self.dir(), "--save_steps=10"]
        told = "this job's number format: int8 for contributions, int8 for parameters"
        job.brake_from(100)
        job.start_ps(0, *keeps)
        job.start_worker(0, "--wire_dtype=auto")
        job.start_worker(1, "--wire_dtype=int8")
        job.workers[0].wait_line("number format for the link to ps:0 .*: fp32: .* as a local")
        job.workers[0].wait_line(told)
        job.workers[0].wait_line(r"\(global step: 20\)")
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(job.workers[0], job.ps[0], job.workers[1])
        job.start_ps(0, *keeps)
        for i in range(2):
            job.start_worker(i, "--wire_dtype=auto")
            job.workers[i].wait_line(told)
        job.release()
        a, b = job.finish(120)
        self.assertEqual(a["parameters_sha256"], b["parameters_sha256"])

    def test_worker_alone_has_no_residual(self):
        """A worker alone sends nothing: its checkpoints have no residual, whatever its flags."""
        keeps = ["--checkpoint_dir=" + self.dir() + "/c", "--wire_dtype=int8", "--save_steps=5",
                 "--hidden_units=8", *FLAGS]
        self.run_worker(*keeps, "--train_steps=10", model="mlp")
        self.assertIn("step 10", self.run_worker(*keeps, "--train_steps=20", "--export=" +
                                                 self.dir() + "/b", model="mlp").output())
        self.run_worker("--hidden_units=8", *FLAGS, "--train_steps=20",
                        "--export=" + self.dir() + "/a", model="mlp")
        a, b = (harness.read_safetensors(self.dir() + name) for name in ("/a", "/b"))
        self.assertEqual(a, b)

    def test_codecs_of_parameters_need_sync(self):
        for flags in (["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=2"],
                      ["--replicas_to_aggregate=1"]):
            worker = self.start_program("worker", "--ps_hosts=127.0.0.1:1",
                                        "--worker_hosts=127.0.0.1:2,127.0.0.1:3", "--task_index=0",
                                        "--wire_dtype=int8", *flags)
            self.assertIn("--wire_dtype: changes of parameters in int8 need --sync_mode=sync "
                          "without backup workers; set --wire_dtype=int8,fp32 for",
                          worker.wait_output(20, 2))

        worker = self.start_program("worker", "--ps_hosts=127.0.0.1:1",
                                    "--worker_hosts=127.0.0.1:2", "--task_index=0",
                                    "--wire_step_ms=20")
        self.assertIn("--wire_step_ms is for --wire_dtype=auto", worker.wait_output(20, 2))

    def test_codecs_of_gradients_work_in_other_modes(self):
        for mode in (["--sync_mode=async"], ["--replicas_to_aggregate=1"]):
            self.started_job(n_workers=2, model="mlp", flags=[*FLAGS, *mode, "--train_steps=60",
                                                              "--wire_dtype=int8,fp32"]).finish()

    @unittest.skipUnless(os.path.exists(DATA), "needs Debian's dataset-fashion-mnist")
    def test_int4_learns_like_fp32(self):
        accuracy = {}
        for dtype in ("fp32", "int4"):
            job = self.job(n_workers=2, model="mlp", data=DATA, flags=[
                "--batch_size=50", "--train_steps=500", "--learning_rate=0.002", "--seed=5",
                "--lr_schedule=linear", "--intra_op_threads=1", "--wire_dtype=" + dtype]).start()
            accuracy[dtype] = job.finish(120)[0]["test_accuracy"]
        print("accuracy %s" % accuracy)
        self.assertGreater(accuracy["int4"], accuracy["fp32"] - 0.01)


harness.main(__name__)
