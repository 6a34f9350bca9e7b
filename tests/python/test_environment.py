#!/usr/bin/python3
"""What stands in the environment: what is not understood is told in one line, with status 2."""
# label: cluster
import os

import harness
from test_bad_input import BadInput, USAGE


class Environment(BadInput):
    def run_in(self, program, flags, **env):
        argv = [os.path.join(harness.BIN, program), *flags]
        return self.start(program, argv, env={**os.environ, **env})

    def alone(self, **env):
        return self.run_in("worker", ["--models_dir=" + harness.MODELS, "--model=softmax",
                                      "--train_steps=2", "--data_dir=" + self.data()], **env)

    def each(self, ps_hosts, **env):
        yield self.run_in("ps", [ps_hosts, "--task_index=0"], **env)
        yield self.run_in("worker", [ps_hosts, "--data_dir=" + self.data()], **env)
        yield self.run_in("weirctl", [ps_hosts, "status"], **env)

    def test_poll_strategy(self):
        """gRPC itself would end the program with SIGABRT."""
        hosts = "--ps_hosts=%s:%d" % (harness.LOOPBACK, *harness.free_ports(1))
        for value in ("", "epollex", "epoll", "poll ", "none", "epollex,", ","):
            with self.subTest(value=value):
                for process in self.each(hosts, GRPC_POLL_STRATEGY=value):
                    self.check(process, USAGE, "GRPC_POLL_STRATEGY: '%s' is nothing" % value)

    def test_poll_strategies_that_work(self):
        for value in ("poll", "epoll1", "all", "epollex,poll"):
            with self.subTest(value=value):
                job = self.job(n_workers=1, flags=["--train_steps=2"])
                os.environ["GRPC_POLL_STRATEGY"] = value
                self.addCleanup(os.environ.pop, "GRPC_POLL_STRATEGY", None)
                job.start()
                job.finish()

    def test_growth(self):
        """TensorFlow's variable, which counts where there are GPUs: not passed over elsewhere."""
        for value in ("x", "", "yes"):
            self.check(self.alone(TF_FORCE_GPU_ALLOW_GROWTH=value), USAGE,
                       "TF_FORCE_GPU_ALLOW_GROWTH='%s' in the environment is neither true nor "
                       "false; unset it" % value)
        for value in ("TRUE", "0"):
            self.alone(TF_FORCE_GPU_ALLOW_GROWTH=value).wait(30)

    def test_tf_config(self):
        """It is not read: nobody may think so."""
        config = '{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}'
        said = "TF_CONFIG is in the environment, and is not read: .*unset TF_CONFIG.*--ps_hosts"
        hosts = "--ps_hosts=%s:%d" % (harness.LOOPBACK, *harness.free_ports(1))
        for value in (config, "{}"):
            self.check(self.run_in("ps", [], TF_CONFIG=value), USAGE, said)
            self.check(self.alone(TF_CONFIG=value), USAGE, said)
            for program in ("ps", "worker"):
                self.check(self.run_in(program, [hosts, "--task_index=0"], TF_CONFIG=value), USAGE,
                           said)
        self.alone(TF_CONFIG="").wait(30)
        devices = self.run_in("worker", ["--list_devices"], TF_CONFIG=config)
        devices.wait(30)

    def test_tf_config_that_is_empty(self):
        job = self.job(n_workers=1, flags=["--train_steps=2"])
        os.environ["TF_CONFIG"] = ""
        self.addCleanup(os.environ.pop, "TF_CONFIG")
        job.start()
        job.finish()


if __name__ == "__main__":
    harness.main()
