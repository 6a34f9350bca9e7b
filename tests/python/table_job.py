"""Jobs of real servers and of members that run table_trainer.py, for tests of tables. Weir's Python
package must be importable (harness.use_package)."""
import os
import re
import sys

import harness
import table_trainer


class TableJob(harness.Test):
    def setUp(self):
        super().setUp()
        self.hosts = ["%s:%d" % (harness.LOOPBACK, port) for port in harness.free_ports(3)]
        self.folder = self.new_folder("checkpoints")
        self.flags = ["--checkpoint_dir=" + self.folder, "--save_steps=8"]
        self.settings = []  # settings of the table that differ from table_trainer's
        self.servers, self.members = {}, {}

    def start_servers(self, n, folders=()):
        for i in range(n):
            self.start_server(i, n, *("--checkpoint_dir=" + f for f in folders[i:i + 1]))

    def start_server(self, i, n, *more):
        self.servers[i] = self.start("ps:%d" % i, [
            harness.program("ps"), "--ps_hosts=" + ",".join(self.hosts[:n]), "--job_name=ps",
            "--task_index=%d" % i, *self.flags, *more], ready=True)
        self.servers[i].wait_ready()

    def join_server(self):
        """Starts a server that joins the job; returns it."""
        ps = self.start("ps:join", [
            harness.program("ps"), "--join", "--ps_hosts=" + self.hosts[0],
            "--address=%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0]), *self.flags],
            ready=True)
        ps.wait_ready()
        return ps

    def leave(self, i):
        self.start("leave", [harness.program("ps"), "--leave=%d" % i,
                             "--ps_hosts=" + self.hosts[0]]).wait(30)

    def start_members(self, n_ps, *steps):
        """steps: steps at which member 1 waits until open_gate is called. So member 0 waits in the
        next step. A gate holds only one process."""
        self.start_member(0, n_ps)
        self.start_member(1, n_ps, *steps)

    def start_member(self, i, n_ps, *steps):
        for step in steps:
            if not os.path.exists(self.gate(step)):
                os.mkfifo(self.gate(step))
        self.members[i] = self.start("member:%d" % i, [
            sys.executable, harness.source("tests/python/table_trainer.py"),
            "--ps_hosts=" + ",".join(self.hosts[:n_ps]), "--n_workers=2", "--task_index=%d" % i,
            *self.settings,
            *("%d=%s" % (step, self.gate(step)) for step in steps)], env=harness.package_env())

    def gate(self, step):
        return self.path("gate-%d" % step)

    def await_gate(self, step):
        self.members[1].wait_line("^step %d$" % step)

    def open_gate(self, step):
        with open(self.gate(step), "w", encoding="ascii"):
            pass

    def finish(self):
        self.wait_all([*self.members.values(), *self.servers.values()])
        want = table_trainer.plain(2, is_half="table.row_dtype=bf16" in self.settings)
        for m in self.members.values():
            self.assertEqual(re.findall("^rows (.*)", m.output(), re.M), [want])

    def kill(self, *processes):
        for p in processes:
            p.kill()
