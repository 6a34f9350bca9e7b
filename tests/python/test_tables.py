#!/usr/bin/python3
"""Jobs with a sparse table, by the Python package: members that train rows end with the bits of a
plain program, in whatever process is killed; in async and ssp each contribution counts once; wrong
calls are refused by a sentence that names the table."""
# label: cluster
import array
import os
import re
import sys
import threading
import unittest

import harness

harness.use_package()
import table_trainer  # noqa: E402
import weir  # noqa: E402


def numbers(*values):
    return array.array("q", values)


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Trained(harness.Test):
    def start_ps(self, hosts, task, *flags):
        ps = self.start("ps:%d" % task, [harness.program("ps"), "--ps_hosts=" + ",".join(hosts),
                                         "--job_name=ps", "--task_index=%d" % task, *flags],
                        ready=True)
        ps.wait_ready()
        return ps

    def start_member(self, hosts, task, *more):
        return self.start("member:%d" % task, [
            sys.executable, harness.source("tests/python/table_trainer.py"),
            "--ps_hosts=" + ",".join(hosts), "--n_workers=2", "--task_index=%d" % task, *more],
            env=harness.package_env())

    def hosts(self, n):
        return ["%s:%d" % (harness.LOOPBACK, port) for port in harness.free_ports(n)]

    def finish(self, processes, members):
        """Waits for the end, and checks that all members have the rows of the plain program."""
        self.wait_all(processes)
        want = table_trainer.plain(2)
        for m in members:
            self.assertEqual(re.findall("^rows (.*)", m.output(), re.M), [want])

    def test_rows_have_the_bits_of_a_plain_program(self):
        for n_ps in 1, 3:
            hosts = self.hosts(n_ps)
            servers = [self.start_ps(hosts, i) for i in range(n_ps)]
            members = [self.start_member(hosts, i) for i in range(2)]
            self.finish([*members, *servers], members)


    def gate(self):
        path = self.path("gate")
        os.mkfifo(path)
        return path

    def test_killed_member_resumes_with_the_same_bits(self):
        """The member is killed in a step whose rows it has pushed; its successor repeats the
        step."""
        hosts, gate = self.hosts(2), self.gate()
        servers = [self.start_ps(hosts, i) for i in range(2)]
        members = [self.start_member(hosts, 0), self.start_member(hosts, 1, gate)]
        members[1].wait_line("^step %d$" % table_trainer.GATED)
        members[1].kill()
        members[1] = self.start_member(hosts, 1)
        self.finish([*members, *servers], members)

    def test_killed_server_resumes_with_the_same_bits(self):
        """A killed server reads its rows from a checkpoint, and members go back to its step."""
        hosts, gate, folder = self.hosts(2), self.gate(), self.new_folder("checkpoints")
        flags = "--checkpoint_dir=" + folder, "--save_steps=8"
        servers = [self.start_ps(hosts, i, *flags) for i in range(2)]
        members = [self.start_member(hosts, 0), self.start_member(hosts, 1, gate)]
        members[1].wait_line("^step %d$" % table_trainer.GATED)
        servers[0].wait_line("checkpoint at step [1-9]")
        servers[1].kill()
        servers[1] = self.start_ps(hosts, 1, *flags)
        with open(gate, "w", encoding="ascii"):
            pass  # opens the gate
        self.finish([*members, *servers], members)
        self.assertRegex(servers[1].output(), "resumes from step [1-9]")


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Pace(harness.Test):
    """Each contribution to a row counts once, whatever the order of arrival: rows begin with zeros,
    and each contribution subtracts a quarter."""

    def train(self, cluster, task, rows, **settings):
        with weir.Member(**cluster.settings(task), train_steps=40, optimizer="sgd",
                         learning_rate=0.25, batch_size=2, **settings) as m:
            w = m.param("w", (2,))
            t = m.table("t", 2, 100, buckets=2, init="zeros")
            own, both = 100 + task, 7
            for _ in m:
                m.lookup(t, numbers(both, own))
                m.next_keys(t, numbers(both))
                m.push_rows(t, numbers(both, own, own), array.array("f", [1, 2] * 3), samples=2)
                m.push(w, samples=2)
            rows[task] = m.lookup(t, numbers(both, 100, 101, 5)).tolist()

    def run_mode(self, **settings):
        rows = {}
        with weir.Cluster(n_workers=2, command=None) as cluster:
            threads = [threading.Thread(target=self.train, args=(cluster, i, rows),
                                        kwargs=settings) for i in range(2)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            cluster.wait(20 * harness.PATIENCE)
        self.assertEqual(rows[0], rows[1])
        return rows[0]

    def test_async_and_ssp_count_each_contribution_once(self):
        for settings in {"sync_mode": "async"}, {"sync_mode": "ssp", "staleness": 2}:
            both, first, second, never = self.run_mode(**settings)
            self.assertEqual(never, [0, 0])
            self.assertEqual(both, [-10, -20])  # 40 contributions by both members
            self.assertEqual([a + b for a, b in zip(first, second)], [-20, -40])

    def run_member(self, m, leave_at=None):
        """Pushes equal gradients to a row and to the parameter, and stops the job when the member
        is alone."""
        gradient = array.array("f", [1, 2])
        for step in m:
            if step.step == leave_at:
                m.leave_soon()
            m.lookup(0, numbers(7))
            m.push_rows(0, numbers(7), gradient, samples=2)
            m.push(0, gradient, samples=2)
            if step.n_members == 1:
                m.stop_job()

    def test_member_leaves(self):
        """In the new generation the remaining member looks its rows up again. Each step counts
        once: the row ends with the values of the parameter."""
        with weir.Cluster(n_workers=2, command=None) as cluster:
            members = [weir.Member(**cluster.settings(i), train_steps=1000000, optimizer="sgd",
                                   learning_rate=0.25, batch_size=2) for i in range(2)]
            for m in members:
                m.param("w", (2,))
                m.table("t", 2, 100, buckets=2, init="zeros")
            leaver = threading.Thread(target=self.run_member, args=(members[1], 9))
            leaver.start()
            self.run_member(members[0])
            leaver.join()
            self.assertEqual([m.result for m in members], ["done", "left"])
            values = members[0].values(0).tolist()
            self.assertLess(values[0], -2)
            self.assertEqual(members[0].lookup(0, numbers(7)).tolist(), [values])
            for m in members:
                m.close()
            cluster.wait(20 * harness.PATIENCE)

    def test_rows_of_16_bits(self):
        """Half the bytes on the wire; these values are exact in all formats."""
        for dtype in "bf16", "fp16":
            both, first, second, never = self.run_mode(wire_dtype=dtype)
            self.assertEqual((both, never), ([-10, -20], [0, 0]))
            self.assertEqual((first, second), ([-10, -20], [-10, -20]))


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Calls(harness.Test):
    def member(self, cluster, table=(2, 100), **settings):
        """Returns a member with a parameter and a table of one bucket, whose rows begin with
        zeros."""
        m = weir.Member(**cluster.settings(), train_steps=3, optimizer="sgd",
                        learning_rate=1, batch_size=1)
        self.addCleanup(m.close)
        m.param("w", (1,))
        m.table("t", *table, **{"buckets": 1, "init": "zeros", **settings})
        return m

    def test_wrong_calls_are_refused_by_the_tables_name(self):
        with weir.Cluster(command=None) as cluster:
            m = self.member(cluster)
            for call, why in (
                    (lambda: m.table("t", 2, 1), "table 't' was added already"),
                    (lambda: m.table("u", 2000, 1), "table 'u': dim is 2000"),
                    (lambda: m.table("v", 2, 1, lr=1), "table 'v': there is no setting 'lr'; did"),
                    (lambda: m.lookup(0, numbers(1)), "there is no step")):
                with self.assertRaisesRegex(weir.Invalid, why):
                    call()
        with weir.Cluster(command=None) as cluster:
            m = self.member(cluster)
            m.next()
            for call, why in (
                    (lambda: m.table("late", 2, 1), "before the first weir_next"),
                    (lambda: m.lookup(1, numbers(1)), "there is no table 1"),
                    (lambda: m.lookup(0, [1]), "table 't': keys: .*int64 or uint64 is needed"),
                    (lambda: m.lookup(0, array.array("i", [1])), "'t': keys.*has the format 'i'"),
                    (lambda: m.next_keys(0, array.array("d", [1])), "'t': keys.*the format 'd'"),
                    (lambda: m.next_keys(1, numbers(1)), "there is no table 1"),
                    (lambda: m.push_rows(0, numbers(1), array.array("f", [1]), samples=1),
                     "table 't': gradients: 2 elements are needed; the buffer has 1"),
                    (lambda: m.push_rows(0, numbers(1), None, samples=1),
                     "table 't': gradients is NULL"),
                    (lambda: m.push_rows(0, None, None, samples=-1), "number of samples is -1")):
                with self.assertRaisesRegex(weir.Invalid, why):
                    call()
            self.assertEqual(m.lookup(0, numbers(5, 6, 5)).tolist(), [[0, 0]] * 3)
            self.assertEqual(m.lookup(0, None).tolist(), [])
            m.push(0, samples=1)
            with self.assertRaisesRegex(weir.Invalid, "table 't' was not pushed at step 0: call"):
                m.next()
            m.push_rows(0, None, None, samples=1)
            with self.assertRaisesRegex(weir.Invalid, "table 't' is pushed twice at step 0"):
                m.push_rows(0, None, None, samples=1)
            self.assertEqual(m.next().step, 1)
            m.stop_job()

    def test_calls_for_a_table_wait_for_each_other(self):
        """A lookup whose rows are late has several turns in the library. A push by another thread
        waits until the last turn, and a lookup without time ends."""
        with weir.Cluster(command=None) as cluster:
            m = self.member(cluster)
            m.next()
            handle, lock = m._handle, m._locks[0]
            library, asked, calls, late = handle.lib, threading.Event(), [], []

            def push():
                m.push_rows(0, numbers(1), array.array("f", [1, 0]), samples=1)

            def read():
                try:
                    m.lookup(0, numbers(1), timeout=0)
                except weir.Timeout as e:
                    late.append(str(e))
            pusher, reader = threading.Thread(target=push), threading.Thread(target=read)

            class Lock:
                release = lock.release

                def acquire(self, *args, **kwargs):
                    if threading.current_thread() is pusher:
                        asked.set()
                    return lock.acquire(*args, **kwargs)

            class Library:
                def __getattr__(self, name):
                    return getattr(library, name)

                def weir_lookup(self, *args):
                    calls.append("lookup")
                    if len(calls) > 1:
                        return library.weir_lookup(*args)
                    reader.start()
                    reader.join()
                    pusher.start()
                    asked.wait(20 * harness.PATIENCE)
                    return weir._library.AGAIN

                def weir_push_rows(self, *args):
                    calls.append("push")
                    asked.set()
                    return library.weir_push_rows(*args)
            m._locks[0], handle.lib = Lock(), Library()
            self.assertEqual(m.lookup(0, numbers(1)).tolist(), [[0, 0]])
            pusher.join()
            self.assertEqual((calls, late), (["lookup", "lookup", "push"],
                                             ["table 0: no rows within 0 s"]))
            m.stop_job()

    def test_lookups_after_the_push_and_after_the_end(self):
        """A lookup after the push returns the rows of the next step; after the last step, until
        close(), it returns the last rows, also of keys that it has not read before."""
        with weir.Cluster(command=None) as cluster:
            m = self.member(cluster)
            for step in m:
                self.assertEqual(m.lookup(0, numbers(9)).tolist(), [[-step.step, 0]])
                m.push_rows(0, numbers(9, -3), array.array("f", [1, 0, 0, 2]), samples=1)
                self.assertEqual(m.lookup(0, numbers(9)).tolist(), [[-step.step - 1, 0]])
                m.push(0, samples=1)
            self.assertEqual(m.lookup(0, numbers(9, -3, 8)).tolist(), [[-3, 0], [0, -6], [0, 0]])
            self.assertEqual(m.lookup(0, array.array("Q", [2 ** 64 - 3])).tolist(), [[0, -6]])
            m.close()
            cluster.wait(20 * harness.PATIENCE)

    def test_step_without_waiting(self):
        """next(early=True) does not wait for rows; lookup() does. step_rate() is for rows, too."""
        with weir.Cluster(command=None) as cluster:
            m = self.member(cluster)
            expected = 0.0
            step = m.next(early=True)
            while step:
                m.step_rate(0.5 ** step.step)
                self.assertEqual(m.lookup(0, numbers(1)).tolist(), [[expected, 0]])
                m.push_rows(0, numbers(1), array.array("f", [1, 0]), samples=1)
                m.push(0, samples=1)
                expected -= 0.5 ** step.step
                step = m.next(early=True)
            self.assertEqual(m.lookup(0, numbers(1)).tolist(), [[expected, 0]])
            m.close()
            cluster.wait(20 * harness.PATIENCE)

    def test_two_tables_have_rows_of_their_own(self):
        """Tables with the same keys have other rows, settings and numbers of floats."""
        with weir.Cluster(n_ps=2, command=None) as cluster:
            m = self.member(cluster)
            u = m.table("u", 3, 100, optimizer="momentum", momentum=0.5, learning_rate=2,
                        init="uniform", init_scale=0)
            for step in m:
                m.push_rows(0, numbers(1), array.array("f", [1, 2]), samples=1)
                m.push(0, samples=1)
                if step.step == 1:
                    with self.assertRaisesRegex(weir.Invalid, "table 'u' was not pushed at step 1"):
                        m.next()
                m.push_rows(u, numbers(1, 2), array.array("f", [1, 0, 0, 0, 0, 1]), samples=1)
            self.assertEqual(m.lookup(0, numbers(1, 2)).tolist(), [[-3, -6], [0, 0]])
            total = -2 * (1 + 1.5 + 1.75)
            self.assertEqual(m.lookup(u, numbers(2, 1)).tolist(), [[0, 0, total], [total, 0, 0]])
            m.close()
            cluster.wait(20 * harness.PATIENCE)

    def test_member_with_another_table_is_refused(self):
        for table, settings, why in (
                ((3, 100), {}, "table 't': dim 2 on the servers, 3 on the worker"),
                ((2, 99), {}, "table 't': max_rows 100 on the servers, 99 on the worker"),
                ((2, 100), {"learning_rate": 2}, "table 't': learning_rate 1 on the servers, 2 on"),
                ((2, 100), {"init": "normal"}, "table 't': init zeros on the servers, normal on"),
                ((2, 100), {"row_dtype": "bf16"}, "'t': row_dtype fp32 on the servers, bf16 on")):
            with weir.Cluster(command=None) as cluster:
                first, other = self.member(cluster), self.member(cluster, table=table, **settings)
                self.assertEqual(first.next().step, 0)
                with self.assertRaisesRegex(weir.Refused, why):
                    other.next(20 * harness.PATIENCE)
                first.leave_failed("the test ends")

    def test_full_table_refuses_the_step(self):
        with weir.Cluster(command=None) as cluster:
            m = self.member(cluster, table=(1, 1))
            m.next()
            m.push_rows(0, numbers(*range(24)), array.array("f", [1] * 24), samples=1)
            m.push(0, samples=1)
            with self.assertRaisesRegex(weir.Refused, r"table 't', bucket 0: 24 rows, at most 23 "
                                        r"\(max_rows=1\); set evict_after or when_full=evict"):
                m.next()

    def test_gradients_that_are_not_finite_are_refused(self):
        with weir.Cluster(command=None) as cluster:
            m = self.member(cluster)
            m.next()
            m.push_rows(0, numbers(4), array.array("f", [1, float("nan")]), samples=1)
            m.push(0, samples=1)
            with self.assertRaisesRegex(weir.Refused, "table 't', bucket 0"):
                m.next()

    def test_join_receives_the_settings_of_tables(self):
        """A member that joins names only the table's dim and max_rows."""
        with weir.Cluster(n_workers=1, command=None) as cluster:
            first = weir.Member(**cluster.settings(0), train_steps=100000, optimizer="sgd",
                                learning_rate=1, batch_size=1)
            second = weir.Member(ps_hosts=cluster.ps_hosts[0], join=True)
            for m in first, second:
                m.param("w", (1,))
            first.table("t", 2, 100, buckets=2, init="zeros", optimizer="adagrad", admit_after=2)
            second.table("t", 2, 100)
            joined = threading.Thread(target=self.run_member, args=(second,))
            for step in first:
                if step.step == 3:
                    joined.start()
                first.lookup(0, numbers(1))
                first.push_rows(0, numbers(1), array.array("f", [1, 2]), samples=1)
                first.push(0, samples=1)
                if step.n_members == 2:
                    first.stop_job()
            joined.join()
            self.assertEqual(self.last, first.lookup(0, numbers(1, 2)).tolist())
            for m in first, second:
                m.close()
            cluster.wait(20 * harness.PATIENCE)

    def run_member(self, m):
        for _ in m:
            m.push_rows(0, numbers(1), array.array("f", [1, 2]), samples=1)
            m.push(0, samples=1)
        self.last = m.lookup(0, numbers(1, 2)).tolist()


harness.main(__name__)
