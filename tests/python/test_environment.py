#!/usr/bin/python3
"""Environment variables: an invalid value ends the program with one line and exit status 2."""
# label: cluster
import os

import harness
from test_bad_input import BadInput, USAGE


class Environment(BadInput):
    def run_in(self, program, flags, **env):
        argv = [harness.program(program), *flags]
        return self.start(program, argv, env={**os.environ, **env})

    def alone(self, **env):
        return self.run_in("worker", ["--models_dir=" + harness.MODELS, "--model=softmax",
                                      "--train_steps=2", "--data_dir=" + self.data()], **env)

    def each(self, ps_hosts, **env):
        yield self.run_in("ps", [ps_hosts, "--task_index=0"], **env)
        yield self.run_in("worker", [ps_hosts, "--data_dir=" + self.data()], **env)
        yield self.run_in("weirctl", [ps_hosts, "status"], **env)

    def test_unknown_poll_strategy_refused(self):
        """gRPC itself would end the program with SIGABRT."""
        hosts = "--ps_hosts=%s:%d" % (harness.LOOPBACK, *harness.free_ports(1))
        for value in ("", "epollex", "epoll", "poll ", "none", "epollex,", ","):
            with self.subTest(value=value):
                for process in self.each(hosts, GRPC_POLL_STRATEGY=value):
                    self.check(process, USAGE, "GRPC_POLL_STRATEGY: '%s' is not a" % value)

    def test_known_poll_strategies_work(self):
        for value in ("poll", "epoll1", "all", "epollex,poll"):
            with self.subTest(value=value):
                job = self.job(n_workers=1, flags=["--train_steps=2"])
                os.environ["GRPC_POLL_STRATEGY"] = value
                self.addCleanup(os.environ.pop, "GRPC_POLL_STRATEGY", None)
                job.start()
                job.finish()

    def test_bad_value_of_allow_growth_refused(self):
        """TensorFlow's variable matters only with GPUs, but is checked everywhere."""
        for value in ("x", "", "yes"):
            self.check(self.alone(TF_FORCE_GPU_ALLOW_GROWTH=value), USAGE,
                       "TF_FORCE_GPU_ALLOW_GROWTH='%s' in the environment is neither true nor "
                       "false; unset it" % value)
        for value in ("TRUE", "0"):
            self.alone(TF_FORCE_GPU_ALLOW_GROWTH=value).wait(30)

    def test_bad_tf_config_refused(self):
        """The error names the variable. A command that needs no cluster does not read it."""
        config = ('{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, '
                  '"task": {"type": "%s", "index": 0}}')
        for program, value, said in (
                ("ps", "{", "TF_CONFIG is not JSON: line 1, column 1"),
                ("ps", "{}", "--ps_hosts is missing"),
                ("ps", config % "worker", "TF_CONFIG: worker 0 must be a worker, .*start worker"),
                ("worker", config % "ps", "TF_CONFIG: ps 0 must be a server, .*start ps"),
                ("worker", config % "evaluator", "TF_CONFIG: task is evaluator 0, but Weir has no "
                                                 "such task.*--eval_every"),
                ("weir-task", config % "boss", "TF_CONFIG: task.type 'boss' is not one of"),
                ("weir-task", config % "evaluator", "TF_CONFIG: task is evaluator 0")):
            self.check(self.run_in(program, [], TF_CONFIG=value), USAGE, said)
        for value in ("", "{}"):
            self.alone(TF_CONFIG=value).wait(30)
        self.run_in("worker", ["--list_devices"], TF_CONFIG="{").wait(30)

    def test_empty_tf_config_ignored(self):
        job = self.job(n_workers=1, flags=["--train_steps=2"])
        os.environ["TF_CONFIG"] = ""
        self.addCleanup(os.environ.pop, "TF_CONFIG")
        job.start()
        job.finish()


harness.main(__name__)
