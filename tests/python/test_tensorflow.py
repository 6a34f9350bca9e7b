#!/usr/bin/python3
"""Command lines in the style of TensorFlow 1: the same command line for both roles, its flags, its
host lists, and its names of jobs."""
# label: cluster

import harness

USAGE = 2


class OneCommandLine(harness.Test):
    def test_ps_accepts_worker_flags(self):
        """All programs of a TensorFlow script have the same flags, except for their role and their
        task index. Weir's programs can start in this way, too."""
        job = self.job(n_workers=1, flags=["--train_steps=3", "--batch_size=20", "--sync_replicas",
                                           "--optimizer", "sgd", "--learning_rate=0.01"])
        ps = job.start_ps(0, *job.flags)
        job.start_worker()
        job.finish()
        said = [line for line in ps.lines if "not used by ps" in line]
        self.assertEqual(len(said), 1, ps.output())
        self.assertRegex(said[0], "workers: --models_dir --model --progress --data_dir "
                                  "--train_steps --batch_size --sync_replicas --optimizer "
                                  "--learning_rate$")

    def test_command_line_shared_by_both_programs(self):
        """The command line has flags of only one program, and a flag with a meaning in each. Each
        program logs once which flags it ignores."""
        flags = ["--train_steps=3", "--batch_size=20", "--worker_timeout=50", "--address=trainer",
                 "--min_workers=1", "--log_stragglers", "--straggler_ms=5", "--inter_op_threads=1"]
        job = self.job(n_workers=1, flags=flags)
        ps = job.start_ps(0, *job.flags)
        worker = job.start_worker()
        job.finish()
        for process, want in ((ps, "--train_steps --batch_size"),
                              (worker, "--worker_timeout --min_workers --log_stragglers "
                                       "--straggler_ms --inter_op_threads")):
            said = [line for line in process.lines if "can serve ps and workers:" in line]
            self.assertEqual(len(said), 1, process.output())
            self.assertTrue(said[0].endswith(" " + want), said[0])
        ps.wait_line("--address is for workers, .* this server uses its entry in --ps_hosts")

    def test_worker_checks_ps_flags(self):
        worker = self.start_program("worker", "--worker_timeout=-1")
        self.assertRegex(worker.wait_output(20, USAGE), "^E .*--worker_timeout: -1 is below 0, the "
                         "lowest allowed value$")
        # This command exists for ps alone.
        self.start_program("worker", "--leave=1").wait(20, USAGE)

    def test_ps_checks_worker_flags(self):
        ps = self.start_program("ps", "--ps_hosts=localhost:2221", "--batch_size=0")
        self.assertRegex(ps.wait_output(20, USAGE), "^E .*--batch_size: 0 is below 1, the lowest "
                         "allowed value$")


class Names(harness.Test):
    def test_chief_is_worker_0(self):
        """--job_name=chief starts worker 0. Entries of the host lists may have the form of
        TensorFlow's targets, grpc://HOST:PORT."""
        job = self.job(flags=["--train_steps=3", "--batch_size=20"])
        job.start_ps()
        hosts = [flag.replace("=", "= grpc://").replace(",", " , grpc://") for flag in job.hosts()]
        chief = self.start_program("worker", *hosts, "--job_name=chief", *job.flags, name="chief")
        job.start_worker(1)
        self.wait_all((chief, job.workers[1], job.ps[0]))
        self.assertIn("worker:0", chief.output())

    def test_list_with_a_space_refused(self):
        worker = self.start_program("worker", "--ps_hosts=a:1,", "b:1", "--worker_hosts=c:1")
        worker.wait(20, USAGE)
        self.assertRegex(worker.output(), "^E .*'b:1' is not a flag; a list must be[^\n]*$")


harness.main(__name__)
