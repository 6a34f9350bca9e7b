"""Local steps: a worker makes H steps by itself, and then the servers make one step with the
changes of all workers. The results are the same bits as those of the definition in plain Python,
whatever process dies. Each sample is read once, and H times fewer bytes are sent. Incompatible
flags are refused."""
# label: cluster
import os
import re
import signal

import harness
import samples

FLAGS = ["--hidden_units=24", "--batch_size=10", "--seed=3", "--chunk_bytes=16384",
         "--intra_op_threads=1", "--learning_rate=0.01"]


class LocalSteps(harness.Test):
    def begin(self, flags, n_ps=1, n_workers=2, model="mlp", keeps=()):
        job = self.job(n_ps=n_ps, n_workers=n_workers, model=model, flags=flags).start(keeps)
        return job

    def digest(self, job):
        summaries = job.finish(120)
        for s in summaries:
            self.assertEqual(s["parameters_sha256"], summaries[0]["parameters_sha256"])
        return summaries[0]["parameters_sha256"]

    def test_local_steps_same_bits_on_every_path(self):
        """The number of servers, the order of arrival and the transport change no bit. Another
        outer optimizer does."""
        digests = []
        for extra in ([], ["--optimizer=momentum"], ["--optimizer=sgd", "--local_steps=5"],
                      ["--outer_optimizer=momentum", "--outer_momentum=0.8"],
                      ["--outer_learning_rate=0.6"], ["--wire_dtype=int4"],
                      ["--optimizer=sgd", "--local_steps=5", "--outer_momentum=0.7"],
                      ["--clip_norm=0.5"], ["--clip_value=0.01"], ["--lr_schedule=cosine"]):
            with self.subTest(flags=extra):
                flags = [*FLAGS, "--train_steps=50", "--local_steps=10", *extra]
                first = self.digest(self.begin(flags))
                other = self.digest(self.begin([*flags, "--fault_push_delay_ms=3",
                                                "--shared_memory=off"], n_ps=2))
                self.assertEqual(other, first)
                digests.append(first)
        self.assertEqual(len(set(digests)), len(digests), "a flag has no effect")

    def test_round_equals_local_steps_of_worker_alone(self):
        """The job has one worker and plain averaging: a round ends with the parameters that a
        worker alone has after H steps."""
        common = [*FLAGS, "--optimizer=sgd", "--train_steps=6"]
        alone, rounds = self.dir() + "/alone.safetensors", self.dir() + "/rounds.safetensors"
        self.run_worker(*common, "--export=" + alone, model="mlp")
        self.started_job(n_workers=1, model="mlp", flags=[*common, "--local_steps=6",
                                                          "--export=" + rounds]).finish()
        a, b = harness.read_safetensors(alone), harness.read_safetensors(rounds)
        self.assertEqual(a.keys(), b.keys())
        for name in a:
            for x, y in zip(a[name][1], b[name][1]):
                self.assertAlmostEqual(x, y, delta=1e-6)

    def test_killed_members_change_no_bit(self):
        """Workers and the server are killed at any moment, also in the middle of a round."""
        flags = [*FLAGS, "--train_steps=600", "--local_steps=20", "--log_every=1"]
        undisturbed = self.digest(self.begin(flags))
        keeps = ["--checkpoint_dir=" + self.dir() + "/checkpoints", "--save_steps=5"]
        job = self.begin([*flags, "--fault_push_delay_ms=1"], keeps=keeps)
        job.brake_from(400)
        for step, who in ((30, 1), (110, 0), (190, 1)):
            job.workers[1 - who].wait_line(r"\(global step: %d\)" % step)
            job.restart_worker(who)
            job.workers[who].wait_line(r"training step [0-9]+ done")
        job.ps[0].wait_line(r"checkpoint at step \d+: ")
        job.restart_ps(0, *keeps)
        job.workers[0].wait_line(r"\(global step: 300\)")
        job.release()
        self.assertEqual(self.digest(job), undisturbed)

    def test_local_steps_read_each_sample_once(self):
        """Each sample is read once also if a worker joins, or leaves, between two rounds."""
        paths = [self.dir() + "/samples-%d" % i for i in range(3)]
        job = self.job(n_workers=2, model="mlp", flags=[
            *FLAGS, "--train_steps=400", "--local_steps=10", "--log_every=1",
            "--fault_push_delay_ms=1"])
        job.start_ps(0)
        job.brake_from(200)
        for i in range(2):
            job.start_worker(i, "--record_samples=" + paths[i])
        job.workers[0].wait_line(r"\(global step: 20\)")
        join = job.join_worker("joiner", *job.flags[2:4], "--log_every=1",
                               "--record_samples=" + paths[2])
        m = join.wait_line(r"joined as worker 2 of 3 at step (\d+)")
        join.wait_line(r"training step [0-9]+ done")
        job.workers[1].popen.send_signal(signal.SIGTERM)
        self.assertIn("left the job at step", job.workers[1].wait_output())
        job.release()
        job.workers[0].wait(120)
        join.wait(60)
        job.ps[0].wait(30)
        rows = samples.last(samples.read(paths))
        numbers = sorted(n for r in rows for n in range(r[2], r[2] + r[3]))
        self.assertEqual(numbers, list(range(len(numbers))), "each position once, without a gap")
        self.assertGreater(int(m.group(1)), 0)

    def test_async_and_ssp_local_steps_read_each_batch_once(self):
        """No worker waits. Each batch is read by one worker, also if a worker is killed in the
        middle of a round. All workers end with the servers' last parameters."""
        for mode in (["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=3"],
                     ["--replicas_to_aggregate=1"]):
            with self.subTest(mode=mode):
                folder = self.path(mode[0][2:])
                paths = [folder + life for life in ("w0-0", "w1-0", "w1-1")]
                job = self.job(n_ps=2, n_workers=2, model="mlp", flags=[
                    *FLAGS, *mode, "--train_steps=600", "--local_steps=10", "--log_every=1",
                    "--fault_push_delay_ms=1"])
                job.start_servers()
                job.brake_from(300)
                for i in range(2):
                    job.start_worker(i, "--record_samples=" + paths[i])
                job.workers[1].wait_line(r"training step 1[2-8] done")
                job.restart_worker(1, "--record_samples=" + paths[2])
                job.workers[1].wait_line(r"training step [0-9]+ done")
                job.release()
                self.digest(job)
                self.assertEqual(samples.wrong_batches(paths, 600, 10, 2 * 10), [])
                for s in job.finish(1):
                    self.assertEqual((s["global_step"], s["local_steps"] % 10), (600, 0))

    def test_async_local_steps_average_changes(self):
        """Four workers begin with the same version, so the servers add only a part of each one's
        change, also to running statistics. The sum of whole changes would far exceed the value of
        every single worker."""
        path = self.dir() + "/out.safetensors"
        model = os.path.dirname(os.path.abspath(__file__)) + "/models/small_norm.json"
        job = self.begin([*FLAGS[1:], "--train_steps=1600", "--local_steps=20", "--log_every=1",
                          "--sync_mode=async", "--fault_push_delay_ms=5", "--export=" + path],
                         n_workers=4, model=model)
        self.digest(job)
        said = [int(n) for n in re.findall(r"\(global step: (\d+)\)", job.workers[0].output())]
        for variance in harness.read_safetensors(path)["n3/moving_variance"][1]:
            # The variance is about 0.1; it would be some thousands if whole changes were added.
            self.assertTrue(0 < variance < 10, variance)
        self.assertEqual(said, sorted(said))

    def test_local_steps_validate_between_rounds(self):
        """Each worker evaluates its part of the samples between rounds. A worker's log has its own
        steps for the evaluations and for the end by --early_stopping; a server's log has the steps
        of the servers, which are rounds."""
        job = self.begin([*FLAGS[:3], "--intra_op_threads=1", "--train_steps=2000",
                          "--local_steps=10", "--eval_every=20", "--validation_split=0.2",
                          "--early_stopping=2", "--learning_rate=1"])
        summaries = job.finish(120)
        self.assertLess(summaries[0]["global_step"], 2000)
        self.assertEqual(summaries[0]["global_step"] % 20, 0)
        self.assertRegex(job.workers[0].output(), r"global step: 20\)|global step 20: validation")
        m = re.search(r"--early_stopping: .* the job ends at step (\d+)", job.ps[0].output())
        self.assertEqual(int(m.group(1)) * 10, summaries[0]["global_step"])

    def test_local_steps_average_batch_norm(self):
        self.digest(self.begin(["--batch_size=8", "--train_steps=12", "--local_steps=4",
                                "--intra_op_threads=1"], model="resnet_mini"))

    def test_local_steps_send_fewer_bytes(self):
        job = self.begin([*FLAGS, "--train_steps=100", "--local_steps=50"])
        self.digest(job)
        e = job.summary(1)["exchange"]
        self.assertEqual(e["sent_bytes"], 2 * 4 * job.summary(1)["parameters"])

    def test_few_rounds_average_and_warn(self):
        """For fewer than five exchanges the default outer optimizer is the mean, and a line has
        the number of exchanges. For five or more it is Nesterov's momentum, without the line."""
        for steps, outer in ((40, "sgd"), (50, "nesterov")):
            job = self.begin([*FLAGS, "--train_steps=%d" % steps, "--local_steps=10"])
            job.finish()
            for worker in job.workers:
                said = worker.output()
                self.assertIn("%d rounds: in each, a worker makes 10 steps with adam, then the "
                              "servers make one step with %s" % (steps / 10, outer), said)
                self.assertEqual("exchanges its parameters only %d times in this job of %d steps"
                                 % (steps / 10, steps) in said, outer == "sgd", said)
                self.assertNotIn("training takes", said)

    def test_epochs_rounded_up_to_rounds(self):
        """Here an epoch is 20 steps of two workers. A round of 30 steps is more than that, which a
        line reports."""
        job = self.begin(["--hidden_units=8", "--batch_size=60", "--epochs=1",
                          "--local_steps=15"])
        self.assertEqual({s["global_step"] for s in job.finish()}, {30})
        self.assertIn("training runs 30 steps instead of 20: whole rounds of --local_steps=15",
                      job.workers[0].output())

    def test_incompatible_local_step_flags_refused(self):
        for flags, words in (
                (["--local_steps=5", "--sync_mode=async", "--outer_optimizer=nesterov"],
                 ("--outer_optimizer", "diverges", "async")),
                (["--local_steps=5", "--sync_mode=ssp", "--staleness=2", "--outer_momentum=0.5"],
                 ("--outer_momentum", "diverges", "ssp")),
                (["--local_steps=5", "--sync_mode=async", "--delay_compensation=1"],
                 ("--delay_compensation", "--local_steps")),
                (["--outer_optimizer=nesterov"], ("--outer_optimizer", "--local_steps")),
                (["--outer_momentum=0.5"], ("--outer_momentum", "--local_steps")),
                (["--local_steps=5", "--outer_optimizer=sgd", "--outer_momentum=0.5"],
                 ("--outer_momentum", "nesterov")),
                (["--local_steps=5", "--eval_every=12"], ("--eval_every", "--local_steps=5")),
                (["--local_steps=200", "--train_steps=50"],
                 ("--train_steps: 50 steps are not a multiple of --local_steps=200",
                  "write --train_steps=200, or another --local_steps")),
                (["--local_steps=20", "--train_steps=50"], ("write --train_steps=40 or 60,",)),
                (["--local_steps=60000", "--batch_size=100000"], ("--local_steps", "samples"))):
            worker = self.start_program("worker", "--ps_hosts=127.0.0.1:1",
                                        "--worker_hosts=127.0.0.1:2,127.0.0.1:3", "--task_index=0",
                                        *flags)
            worker.wait(20, 2)
            errors = [line for line in worker.output().split("\n") if line.startswith("E ")]
            self.assertEqual(len(errors), 1, flags)
            self.assert_has(errors[0], *words)

    def test_worker_with_another_rule_refused(self):
        """The refusal names the difference, in local steps or in the outer optimizer."""
        job = self.job(n_workers=2, model="mlp",
                       flags=[*FLAGS, "--train_steps=400", "--log_every=1"])
        job.start_ps(0)
        job.start_worker(0, "--local_steps=10")
        job.ps[0].wait_line("worker 0 joined")
        self.assertIn("each step is 10 local steps of each worker with adam, learning rate 0.01",
                      self.start_program("weirctl", "--ps_hosts=" + job.ps_hosts[0], "status",
                                         name="status").wait_output(20, 0))
        for flags, words in ((["--local_steps=20"], "local_steps"),
                             (["--local_steps=10", "--outer_learning_rate=0.3"],
                              "outer_learning_rate")):
            job.start_worker(1, *flags)
            job.workers[1].wait(30, 1)
            self.assertRegex(job.workers[1].output(), "another job: .*" + re.escape(words))
        for flags, words in ((["--outer_learning_rate=0.3"], "--outer_learning_rate"),
                             (["--eval_every=7"], "--eval_every: 7 steps are not a multiple")):
            join = job.join_worker("joiner", *job.flags[2:4], *flags)
            self.assertIn(words, join.wait_output(30, None))
        job.start_worker(1, "--local_steps=10")
        job.finish(60)


harness.main(__name__)
