#!/usr/bin/python3
"""Jobs with a sparse table whose servers and members change: servers join and leave, and processes
are killed. The rows end with the bits of a plain program, and a checkpoint is restored by another
number of servers."""
# label: cluster
import os
import re
import unittest

import harness

harness.use_package()
import ckpt_folder  # noqa: E402
import table_job  # noqa: E402
import table_trainer  # noqa: E402
import weir.checkpoint  # noqa: E402


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Changes(table_job.TableJob):
    def rows_of_checkpoint(self):
        """Returns the step of the newest checkpoint, and the digest of its rows."""
        found = weir.checkpoint.read(self.folder)
        table, rows = found.tables["words"], {}
        for i, key in enumerate(table.keys):
            rows[key] = [table.rows[i, d] for d in range(table_trainer.DIM)]
        keys = [table_trainer.key_of(w) for w in range(table_trainer.N_WORDS)]
        first = {k: table_trainer.first_row("words", k) for k in keys}
        if "table.row_dtype=bf16" in self.settings:
            first = {k: table_trainer.half(row, k, None) for k, row in first.items()}
        return found.step, table_trainer.digest(
            [x for k in keys for x in rows.get(k) or first[k]])

    def test_last_checkpoint_has_the_last_rows(self):
        self.start_servers(3)
        self.start_members(3)
        self.finish()
        self.assertEqual(self.rows_of_checkpoint(),
                         (table_trainer.STEPS, table_trainer.plain(2)))

    def test_stopped_job_ends_with_the_rows_of_its_step(self):
        """An operator ends the job early."""
        self.start_servers(2)
        self.start_members(2, 20)
        self.await_gate(20)
        self.start("weirctl", [harness.program("weirctl"), "--ps_hosts=" + self.hosts[0],
                               "stop"]).wait(30)
        self.servers[0].wait_line("the job is stopped, as requested: it ends at step")
        self.open_gate(20)
        self.wait_all([*self.members.values(), *self.servers.values()])
        step, digest = self.rows_of_checkpoint()
        self.assertIn(step, range(19, table_trainer.STEPS))
        want = table_trainer.plain(2, step)
        self.assertEqual(digest, want)
        for m in self.members.values():
            self.assertEqual(re.findall("^rows (.*)", m.output(), re.M), [want])

    def test_servers_join_and_leave(self):
        """Buckets move to a server that joins, and from one that leaves. Between both, a member is
        killed and returns."""
        self.start_servers(2)
        self.start_members(2, 10, 20, 30)
        self.await_gate(10)
        self.servers["join"] = self.join_server()
        self.servers[0].wait_line(" elements in 1 chunk, 1 table in 8 buckets; 2 workers, sync")
        self.servers[0].wait_line(r"joins at step \d+: .* chunks and 2 buckets move to it")
        self.servers["join"].wait_line("chunks, with the optimizer's state .* received from")
        self.open_gate(10)
        self.await_gate(20)
        self.kill(self.members[0])
        self.start_member(0, 2)
        self.open_gate(20)
        self.await_gate(30)
        self.leave(1)
        self.servers.pop(1).wait(60, 0)
        self.open_gate(30)
        self.finish()

    def test_another_number_of_servers_restores_the_rows(self):
        """All processes are killed. The next servers, first three and then two, read the buckets
        from the files of the servers before."""
        self.start_servers(1)
        self.start_members(1, 20)
        self.await_gate(20)
        self.servers[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(*self.members.values(), *self.servers.values())
        self.start_servers(3)
        self.start_members(3, 30)
        self.servers[2].wait_line(r"resumes from step \d+, as generation 2[.]1")
        self.await_gate(30)
        self.servers[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(*self.members.values(), *self.servers.values())
        self.servers = {}
        self.start_servers(2)
        self.start_members(2)
        self.servers[1].wait_line(r"resumes from step \d+, as generation 3[.]1")
        self.finish()

    def test_rows_in_bf16_keep_their_bits(self):
        """Buckets move, a member is killed, and then all processes; other servers read the
        checkpoint, whose rows are BF16."""
        self.settings = ["table.row_dtype=bf16"]
        self.start_servers(2)
        self.start_members(2, 10, 20)
        self.await_gate(10)
        self.servers["join"] = self.join_server()
        self.servers["join"].wait_line("chunks, with the optimizer's state .* received from")
        self.kill(self.members[0])
        self.start_member(0, 2)
        self.open_gate(10)
        self.await_gate(20)
        self.servers[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(*self.members.values(), *self.servers.values())
        self.servers = {}
        self.start_servers(1)
        self.start_members(1)
        self.servers[0].wait_line(r"resumes from step \d+, as generation 2[.]1")
        self.finish()
        self.assertEqual(self.rows_of_checkpoint(),
                         (table_trainer.STEPS, table_trainer.plain(2, is_half=True)))
        path = ckpt_folder.path(self.folder, table_trainer.STEPS, "-0-of-1.safetensors")
        tensors = harness.read_safetensors(path)
        self.assertEqual({v.typecode for n, (_, v) in tensors.items() if " rows [" in n}, {"H"})

    def test_servers_with_folders_of_their_own_restore_the_rows(self):
        """Two servers keep their files in folders of their own. After a kill of all processes a
        third server joins them; it receives its buckets from both."""
        folders = [self.folder, self.new_folder("own")]
        self.start_servers(2, folders)
        self.start_members(2, 20)
        self.await_gate(20)
        self.servers[0].wait_line(r"checkpoint at step \d+: ")
        self.kill(*self.members.values(), *self.servers.values())
        for i, folder in enumerate(folders):
            files = [name for name in os.listdir(folder) if name.endswith("safetensors")]
            self.assertTrue(files)
            for name in files:
                self.assertIn("-%d-of-2" % i, name)
        self.start_servers(2, folders)
        self.start_members(2, 25)
        self.servers[1].wait_line(r"resumes from step \d+, as generation 2[.]1")
        self.await_gate(25)
        self.servers["join"] = self.join_server()
        self.servers["join"].wait_line("chunks, with the optimizer's state .* received from")
        self.open_gate(25)
        self.finish()

    def test_killed_servers_between_changes(self):
        """Servers are killed soon after buckets have moved to them or away from them."""
        self.start_servers(2)
        self.start_members(2, 10, 18, 26, 34)
        self.await_gate(10)
        joined = self.join_server()
        self.servers[0].wait_line("generation 1[.]2 from step .* 2 workers, 3 servers")
        self.open_gate(10)
        self.await_gate(18)
        self.kill(self.servers[1])  # ps 1 returns: all rows are those of the checkpoint again
        self.start_server(1, 2)
        self.open_gate(18)
        self.await_gate(26)
        self.leave(2)
        joined.wait(60, 0)
        self.open_gate(26)
        self.await_gate(34)
        self.kill(self.servers[0], self.members[0])
        self.start_server(0, 2)
        self.start_member(0, 2)
        self.open_gate(34)
        self.finish()


harness.main(__name__)
