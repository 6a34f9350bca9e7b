"""scripts/run_local: a job of one server and several workers on this machine."""
# label: cluster
import os
import re
import signal

import harness

SCRIPT = harness.source("scripts/run_local")
ENDLESS = "--train_steps=1000000000"


class RunLocal(harness.Test):
    def run_local(self, *arguments):
        """Starts the script in a folder of its own, in which paths of flags begin."""
        return self.start("run_local", [SCRIPT, "--out=out", *arguments], cwd=self.dir(),
                          env=dict(os.environ, WEIR_BIN=harness.BIN))

    def training(self, n, *flags):
        os.symlink(self.data(), self.path("data"))
        return self.run_local(str(n), "--model=softmax", "--data_dir=data", "--progress=lines",
                              "--batch_size=20", "--intra_op_threads=1", *flags)

    def log(self, name):
        return harness.read_text(self.path("out", name))

    def tasks(self):
        """Returns the process ids of the job's programs that run: {(role, index): pid}."""
        found = {}
        server = re.search(r"ps on (\S+);", self.processes[0].output()).group(1)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = harness.read_bytes("/proc/%s/cmdline" % pid).decode().split("\0")
            except (OSError, UnicodeError):
                continue
            flags = dict(w[2:].split("=", 1) for w in words if w.startswith("--") and "=" in w)
            if flags.get("ps_hosts") == server:
                found[flags["job_name"], int(flags["task_index"])] = int(pid)
        return found

    def test_workers_train_together(self):
        job = self.training(3, "--train_steps=30", "--checkpoint_dir=saved")
        job.wait()
        self.assertIn("global step: 30", job.output())
        self.assertNotIn("worker:1", job.output())
        for task in (1, 2):
            self.assertIn("worker:%d" % task, self.log("worker%d.log" % task))
        results = [self.figures("out/worker%d.json" % task) for task in range(3)]
        for result in results:
            self.assert_same(result, results[0], "global_step", "parameters_sha256")
        self.assertTrue(os.listdir(self.path("saved")), "the server has the flags, too")

    def test_failed_program_ends_all(self):
        job = self.training(2, ENDLESS, "--checkpoint_dir=out/ps0.log/saved")
        job.wait(status=1)
        self.assertRegex(job.output(), r"run_local: \w+ ended with status \d+; logs are in out")
        self.assertEqual(self.tasks(), {})

    def test_lost_worker_ends_all(self):
        job = self.training(2, ENDLESS)
        job.wait_line(r"training step")
        os.kill(self.tasks()["worker", 1], signal.SIGKILL)
        job.wait(status=1)
        self.assert_has(job.output(), "run_local: worker1 ended with status 137", "training step")
        self.assertEqual(self.tasks(), {})

    def test_signal_ends_all(self):
        job = self.training(2, ENDLESS)
        job.wait_line(r"training step")
        job.stop(signal.SIGTERM, seconds=60, status=143)
        self.assertIn("run_local: ended by SIGTERM", job.output())
        self.assertEqual(self.tasks(), {})

    def test_wrong_arguments(self):
        for arguments, message in (
                ([], "number of workers must come first"),
                (["--model=softmax"], "not '--model=softmax'"),
                (["0"], "not '0'"),
                (["2", "--task_index=1"], "sets --task_index for each program"),
                (["2", "--trace=t"], "a file or port of its own for --trace"),
                (["2", "--ps_hosts", "a:1"], "sets --ps_hosts for each program")):
            done = self.run_local(*arguments)
            done.wait(status=2)
            self.assertIn(message, done.output())
        done = self.start("run_local", [SCRIPT, "2"], env=dict(os.environ, WEIR_BIN=self.dir()))
        done.wait(status=2)
        self.assertIn("no ps and worker in " + self.dir(), done.output())

    def test_help_and_own_files_only(self):
        self.new_folder("out")
        for name in ("mine.json", "workers.log", "worker7.log"):
            harness.write_file(self.path("out", name), "")
        self.training(1, "--train_steps=2").wait()
        self.assertEqual(sorted(os.listdir(self.path("out"))),
                         ["mine.json", "ps0.log", "worker0.json", "workers.log"])
        done = self.start("help", [SCRIPT, "--help"])
        done.wait()
        self.assert_has(done.output(), "scripts/run_local 2 --model=lenet5", "Exit status")


if __name__ == "__main__":
    harness.main()
