#!/usr/bin/python3
"""Schedules of the learning rate in real programs. The bits are the same alone and with any number
of servers, also if a job stops and resumes from a checkpoint. Incompatible flags are refused."""
# label: cluster
import re

import harness

FLAGS = ["--batch_size=12", "--train_steps=24", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=momentum", "--log_every=1", "--intra_op_threads=1", "--lr_warmup_steps=5"]
SCHEDULES = [["--lr_schedule=step", "--lr_boundaries=6,15", "--lr_decay=0.5"],
             ["--lr_schedule=exponential", "--lr_decay=0.9", "--lr_decay_steps=4"],
             ["--lr_schedule=one_cycle"], ["--lr_schedule=one_cycle_linear"]]


class Schedule(harness.Test):
    def alone(self, *flags):
        return self.digest_alone(*FLAGS, *flags)

    def test_schedules_same_bits_alone_and_with_servers(self):
        found = {self.alone()}
        for schedule in SCHEDULES:
            want = self.alone(*schedule)
            self.assertNotIn(want, found)
            found.add(want)
            for n_ps in (1, 3):
                job = self.job(n_ps=n_ps, n_workers=1, model="small", flags=[*FLAGS, *schedule])
                job.start()
                self.assertEqual(job.finish()[0]["parameters_sha256"], want)

    def test_schedule_kept_by_checkpoint(self):
        """The job resumes with the checkpoint's schedule, and refuses another."""
        flags = [*FLAGS, *SCHEDULES[0]]
        want = self.alone(*SCHEDULES[0])
        ps_flags = ["--checkpoint_dir=" + self.path("ckpt")]
        job = self.started_job(n_ps=2, n_workers=1, model="small",
                               flags=[*flags, "--fault_push_delay_ms=4"], ps_flags=ps_flags)
        job.workers[0].wait_line("training step 8 done")
        self.terminate(job.ps, 60, 143)
        job.workers[0].kill()
        job = self.job(n_ps=1, n_workers=1, model="small", flags=flags)
        job.start_ps(0, *ps_flags)
        other = job.start_worker(0, "--lr_boundaries=6,16")
        self.assertRegex(other.wait_output(60, 1), "--lr_boundaries: .*6,15.*6,16")
        job.start_worker(0)
        self.assertEqual(job.finish()[0]["parameters_sha256"], want)

    def test_default_learning_rates_match_docs(self):
        """Without the flag, or at -1, the rate is that of docs/guide/training.md and --help, for
        each optimizer."""
        with open(harness.source("docs/guide/training.md"), encoding="utf-8") as f:
            row = next(line for line in f if line.startswith("| `--learning_rate=X`"))
        few, others = re.findall(r"(0\.\d+) for", row)
        adams = re.findall(r"`(adam\w*)`", row)
        text = self.run_worker("--help").output()
        said = "--learning_rate=X -1: the optimizer's default, %s for %s, else %s" % (
            re.escape(few), " and ".join(adams), re.escape(others))
        self.assertRegex(" ".join(text.split()), said)
        optimizers = re.search(r"--optimizer=(\S+)", text).group(1).split("|")
        self.assertEqual(len(optimizers), 7)
        for name in optimizers:
            documented = few if name in adams else others
            with self.subTest(optimizer=name):
                flags = ["--train_steps=3", "--lr_warmup_steps=0", "--optimizer=" + name]
                want = self.alone(*flags)
                for rate in (documented, "-1"):
                    self.assertEqual(self.alone(*flags, "--learning_rate=" + rate), want)
                other = others if name in adams else few
                self.assertNotEqual(self.alone(*flags, "--learning_rate=" + other), want)

    def test_bad_schedule_flags_refused(self):
        for flags, said in [
                (["--lr_schedule=step"], "needs --lr_boundaries=STEP,..."),
                (["--lr_schedule=exponential"], "needs --lr_decay_steps=N"),
                (["--lr_boundaries=5"], "--lr_schedule=constant has no such setting"),
                (["--lr_decay=0.5"], "it is for step and exponential"),
                (["--lr_schedule=one_cycle", "--lr_decay=0.5"], "it is for step and exponential"),
                (["--lr_schedule=step", "--lr_boundaries=5,5"], "not a list of rising"),
                (["--lr_schedule=step", "--lr_boundaries=5,"], "not a list of rising step numbers"),
                (["--lr_schedule=step", "--lr_boundaries=-5"], "not a list of rising step numbers"),
                (["--lr_schedule=step", "--lr_boundaries=99999999999999999999"],
                 "not a list of rising step numbers"),
                (["--lr_schedule=step", "--lr_boundaries=" + ",".join(map(str, range(1, 19)))],
                 "more than 16"),
                (["--lr_schedule=step", "--lr_boundaries=5", "--lr_decay=0"], "lr_decay 0 is not")]:
            self.assertIn(said, self.run_worker(*flags, status=2).output())


harness.main(__name__)
