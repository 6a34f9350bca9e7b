#!/usr/bin/python3
"""Jobs whose cluster is not in the flags, but in TF_CONFIG, as in a TFJob's containers, or in the
environment of a Slurm step. The same command line, of weir-task, starts all tasks."""
# label: cluster
import json
import os

import harness
from test_bad_input import BadInput, USAGE


class Cluster(harness.Test):
    def task(self, name, env, *flags):
        """Starts weir-task with the flags that all tasks have; it reports when a server listens."""
        argv = [harness.program("weir-task"), harness.models_dir("softmax"), "--model=softmax",
                "--train_steps=4", "--log_every=1", "--progress=lines", "--data_dir=" + self.data(),
                *flags]
        return self.start(name, argv, env={**os.environ, **env})

    def hosts(self, n):
        return ["%s:%d" % (harness.LOOPBACK, p) for p in harness.free_ports(n)]

    def config(self, cluster, kind, index, key="cluster"):
        return {"TF_CONFIG": json.dumps({key: cluster, "environment": "cloud",
                                         "task": {"type": kind, "index": index}})}


class TfConfig(Cluster):
    def test_tf_config_with_ps_chief_worker_trains(self):
        ps, chief, worker = self.hosts(3)
        cluster = {"ps": [ps], "chief": [chief], "worker": [worker]}
        tasks = [self.task(kind, self.config(cluster, kind, 0)) for kind in cluster]
        for task, said in zip(tasks, ("ps 0 at %s .ps 0" % ps, "worker 0 at %s .chief 0" % chief,
                                      "worker 1 at %s .worker 0" % worker)):
            task.wait_line("cluster from TF_CONFIG: ps 1, workers 2; this is " + said)
        self.wait_all(tasks, 60)
        tasks[0].wait_line("4 steps in")
        tasks[2].wait_line(r"Worker 1: .*\(global step: 4\)")

    def test_dynamic_worker_joins(self):
        """enableDynamicWorker: worker 0 begins the job alone, worker 1 joins it."""
        ps, *workers = self.hosts(3)
        server = self.task("ps", self.config({"ps": [ps], "worker": {}}, "ps", 0, "sparseCluster"))
        server.wait_line("listening on")
        tasks = []
        gate = harness.Gate(self, 10)  # worker 0 waits at step 10 until worker 1 has joined
        for i, host in enumerate(workers):
            cluster = {"ps": [ps], "worker": {str(i): host}}
            tasks.append(self.task("worker:%d" % i,
                                   self.config(cluster, "worker", i, "sparseCluster"),
                                   "--train_steps=100",
                                   *(["--record_samples=" + gate.path] if i == 0 else [])))
        tasks[1].wait_line("this is worker 1 at .*worker 1, which joins")
        tasks[1].wait_line("joined as worker 1 of 2")
        gate.open()
        self.wait_all([*tasks, server], 60)


class Slurm(Cluster):
    def step(self, task, n, **more):
        """Returns the variables that srun -n sets for one of n tasks on this node."""
        return {"SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": harness.LOOPBACK,
                "SLURM_STEP_TASKS_PER_NODE": str(n), "SLURM_STEP_NUM_TASKS": str(n),
                "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task), "SLURM_NODEID": "0", **more}

    def test_slurm_step_trains(self):
        flags = ["--slurm_ps=1", "--slurm_port=%d" % harness.free_ports(1)[0]]
        tasks = [self.task("task:%d" % i, self.step(i, 3), *flags) for i in range(3)]
        tasks[0].wait_line("cluster from Slurm's environment: ps 1, workers 2; this is ps 0")
        tasks[2].wait_line("this is worker 1 at .*task 2")
        self.wait_all(tasks, 60)
        tasks[0].wait_line("4 steps in")

    def test_slurm_step_without_flag_ignored(self):
        """A worker that a user starts in a step belongs to no job without the flag."""
        worker = self.task("worker", self.step(1, 3))
        worker.ends(0, "task 1 of the 3 of a Slurm step, and trains alone: --slurm_ps=N")


class Wrong(BadInput):
    def test_bad_slurm_flags_refused(self):
        def run(program, *flags, **env):
            return self.start_program(program, *flags, env={**os.environ, **env})
        step = Slurm.step(None, 0, 2)
        self.check(run("worker", "--slurm_ps=1"), USAGE, "SLURM_STEP_ID is not in the environment")
        self.check(run("worker", "--slurm_ps=1", **step), USAGE,
                   "--slurm_ps: task 0 must be a server, .*start ps")
        self.check(run("ps", "--slurm_ps=1", "--ps_hosts=a:1", **step), USAGE,
                   "--ps_hosts is set too")
        self.check(run("ps", "--slurm_ps=2", **step), USAGE, "so no task is left for a worker")
        self.check(run("weir-task", "--ps_hosts=a:1"), USAGE, "--job_name is missing")


harness.main(__name__)
