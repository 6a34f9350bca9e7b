"""A job: a group of servers and its workers."""
import json
import os

from .files import read_json
from .pace import Brake, Gate
from .process import check_output, free_ports
from .settings import LOOPBACK, PATIENCE, models_dir, program


class Job:
    """A group of servers and its workers: addresses, common flags, and the processes."""

    def __init__(self, test, n_ps=1, n_workers=2, data=None, model="softmax", flags=()):
        self.test = test
        ports = free_ports(n_ps + n_workers)
        self.ps_hosts = ["%s:%d" % (LOOPBACK, p) for p in ports[:n_ps]]
        self.worker_hosts = ["%s:%d" % (LOOPBACK, p) for p in ports[n_ps:]]
        self.ps, self.workers = [None] * n_ps, [None] * n_workers
        self.flags = [models_dir(model), "--model=" + model, "--progress=lines",
                      "--data_dir=" + (data or test.data()), *flags]
        self.gate = self.held = self.brake = None
        self.generation = 0  # number of the last generation that a test has seen

    def brake_from(self, step, more=lambda: []):
        """Slows this job's workers, and processes that `more` returns, from this step until
        finish()."""
        self.brake = Brake(self.test, lambda: [*self.workers, *more()], step)

    def release(self):
        """Ends every brake and gate of this job."""
        if self.brake:
            self.brake.release()
        if self.gate:
            self.gate.open()

    def hold(self, n_steps, into=None, task=0):
        """Holds this worker, and so lock-step training, after n_steps; returns the gate."""
        self.gate, self.held = Gate(self.test, n_steps, into), task
        return self.gate

    def hosts(self):
        return ["--ps_hosts=" + ",".join(self.ps_hosts),
                "--worker_hosts=" + ",".join(self.worker_hosts)]

    def start_ps(self, task=0, *flags, wait=True, env=None, prefix=()):
        argv = [*prefix, program("ps"), *self.hosts(), "--job_name=ps", "--task_index=%d" % task]
        self.ps[task] = self.test.start("ps:%d" % task, argv + list(flags), ready=wait,
                                       env=env)
        if wait:
            self.test.assertEqual(self.ps[task].wait_ready(), self.ps_hosts[task])
        return self.ps[task]

    def restart_ps(self, task, *flags, **kwargs):
        """Kills a server, and starts it again with these flags."""
        self.ps[task].kill()
        return self.start_ps(task, *flags, **kwargs)

    def restart_worker(self, task, *flags):
        """Kills a worker, and starts it again with these flags."""
        self.workers[task].kill()
        return self.start_worker(task, *flags)

    def summary_path(self, task):
        return os.path.join(self.test.dir(), "summary-%s-%d.json" %
                            (self.worker_hosts[task].split(":")[1], task))

    def start_worker(self, task=0, *flags, env=None, prefix=()):
        argv = [*prefix, program("worker"), *self.hosts(), "--job_name=worker",
                "--task_index=%d" % task, "--summary_json=" + self.summary_path(task)]
        if task == self.held:
            argv.append("--record_samples=" + self.gate.path)
        self.workers[task] = self.test.start("worker:%d" % task, argv + self.flags + list(flags),
                                             env=env)
        return self.workers[task]

    def start(self, ps_flags=(), worker_flags=()):
        self.start_servers(*ps_flags)
        self.start_workers(*worker_flags)
        return self

    def start_servers(self, *flags):
        for i in range(len(self.ps)):
            self.start_ps(i, *flags)

    def start_workers(self, *flags, **kwargs):
        for i in range(len(self.workers)):
            self.start_worker(i, *flags, **kwargs)

    def join_worker(self, name, *flags, env=None):
        """Starts a worker that joins with these flags, and no flags of the job."""
        argv = [program("worker"), "--join", "--ps_hosts=" + self.ps_hosts[0], *flags]
        return self.test.start(name, argv, env=env)

    def join_ps(self, *flags, address=None):
        """Starts a server that joins the running job, and waits until it listens."""
        address = address or "%s:%d" % (LOOPBACK, free_ports(1)[0])
        argv = [program("ps"), "--join", "--ps_hosts=" + self.ps_hosts[0], "--address=" + address]
        ps = self.test.start("ps:join", argv + list(flags), ready=True)
        self.test.assertEqual(ps.wait_ready(), address)
        return ps

    def drain(self, index):
        """Makes a server leave by `ps --leave`, which must succeed."""
        argv = [program("ps"), "--leave=%d" % index, "--ps_hosts=" + self.ps_hosts[0]]
        self.test.start("drain", argv).wait(30)

    def kill(self):
        """Kills the processes that the test has not collected."""
        for process in self.workers + self.ps:
            if process and process.status is None:
                process.kill()

    def ctl(self, *words, seconds=60, check=True):
        """Runs weirctl; returns its stdout. check: weirctl must succeed."""
        return check_output([program("weirctl"), "--ps_hosts=" + ",".join(self.ps_hosts), *words],
                            timeout=seconds * PATIENCE, check=check)

    def report(self, command="status"):
        """Returns weirctl's JSON; for members and servers, their list."""
        found = json.loads(self.ctl("--json", command))
        return found if command == "status" else found[command]

    def finish(self, seconds=60, *digest):
        """Waits until every process exited with 0; returns the workers' summaries in task order.
        digest: digest of the parameters that each summary must have."""
        self.release()
        for process in self.workers + self.ps:
            process.wait(seconds)
        summaries = [self.summary(i) for i in range(len(self.workers))]
        for want in digest:
            for s in summaries:
                self.test.assertEqual(s["parameters_sha256"], want)
        return summaries

    def finish_alike(self, seconds=60):
        """Does the same as finish(); all workers must end with the same parameters."""
        summaries = self.finish(seconds)
        self.test.assertEqual(len({s["parameters_sha256"] for s in summaries}), 1, summaries)
        return summaries

    def summary(self, task):
        return read_json(self.summary_path(task))
