#!/usr/bin/python3
"""The Python package `weir` with Debian's Python alone. Its declarations match the library. The
tests cover members, their errors and their memory, clusters on this machine whose processes are
killed, and the wheel, as pip makes and installs it."""
# label: cluster
import array
import gc
import hashlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref
from unittest import mock

import harness
import samples

harness.use_package()
import weir  # noqa: E402
from weir import _library, checkpoint, member, progress  # noqa: E402

STEPS = 300
# A worker whose parameters depend on its samples, each of which it reads once.
WORKER = """
import array, hashlib, os, signal, sys, weir
settings, (gate,) = weir.flags()
record = os.open(gate + "-samples", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
with weir.Member(train_steps=%d, batch_size=4, optimizer="adam", **settings) as m:
    w = m.param("w", (70, 300), array.array("f", [0.1] * 21000))
    b = m.param("b", (3,))
    signal.signal(signal.SIGTERM, lambda *_: m.leave_soon(0))
    for step in m:
        g = m.gradient(w)
        g.cast("B")[:] = bytes(84000)
        items = m.samples(step, 1000)
        os.write(record, b"%%d %%d %%d %%d %%d %%d %%d %%d\\n" %% (
            step.generation, step.step, step.position, step.n_samples, *items))
        for i, item in enumerate(items):
            g[i, item %% 300] = m.values(w)[i, item %% 300] - item / 1000
        m.push(b, array.array("f", [item, 1, 2]), samples=4)
        m.push(w, samples=4)
        print("step", step.step, "loss", step.step / 2, flush=True)
        if step.step == 20:  # the test waits for this step
            open(gate).read()
    print("bits", hashlib.sha256(bytes(m.values(w)) + bytes(m.values(b))).hexdigest())
    print(m.result)
""" % STEPS


def kept_bits(folder):
    """Returns the digest of the newest checkpoint's parameters, as the workers print it."""
    kept = checkpoint.read(folder)
    assert kept.step == STEPS and kept.job["optimizer"]["name"] == "adam"
    assert [len(kept.slots[name]) for name in ("w", "b")] == [2, 2]
    return hashlib.sha256(bytes(kept.tensors["w"]) + bytes(kept.tensors["b"])).hexdigest()


class Declared(unittest.TestCase):
    def test_declarations_match_header(self):
        header = "".join(
            re.sub(r"/\*.*?\*/", "", harness.read_source("libweir/" + name), flags=re.S)
            for name in ("weir.h", "weir_tables.h"))
        self.assertEqual(sorted(re.findall(r"\b(weir_\w+)\((?!\*)[^;{}]*\);", header)),
                         sorted(_library.FUNCTIONS))
        codes = {int(n) for n in re.findall(r"WEIR_E_\w+ = (-\d+)", header)}
        self.assertLess(set(_library.KINDS) - {_library.AGAIN}, codes)
        fields = re.search(r"struct weir_step \{(.*?)\};", header, re.S).group(1)
        self.assertEqual(re.findall(r"(\w+)(?:\[\d+\])?[,;]", fields),
                         [name for name, _ in _library.StepStruct._fields_])

    def test_settings_match_library(self):
        own = re.findall(r'^    (?:TEXT|PATH|NUMBER|YES_NO)\("(\w+)"',
                         harness.read_source("libweir/settings.c"), re.M)
        shared = re.findall(r'^FOR_(?:JOB|ALL)\("(\w+)"', harness.read_source("flags/table.inc"),
                            re.M)
        self.assertEqual(sorted(own + shared), sorted(weir.SETTINGS))
        line = ["--seed=3", "file", "--join", "--verbose", "--ps-hosts=a:1", "-x"]
        for how in {"own": ["verbose"]}, {"pass_on": True}:
            self.assertEqual(weir.flags(line, **how),
                             ({"seed": "3", "join": "true", "ps_hosts": "a:1"},
                              ["file", "--verbose", "-x"]))

    def test_unknown_flag_refused(self):
        """A mistyped setting would have no effect: it is refused, and the error names the intended
        one."""
        for flag, meant in (("--ps_host=a:1", "ps_hosts"), ("--lr=1", "learning_rate"),
                            ("--max_steps=5", "train_steps"), ("--tex=a", "text"),
                            ("--ps=a:1", "ps_hosts"), ("--momentum_factor=1", "momentum")):
            with self.assertRaisesRegex(weir.Invalid, "^unknown flag %s; did you mean --%s\\?; "
                                        r".* in weir.flags\(own=" % (flag.split("=")[0], meant)):
                weir.flags(["--seed=3", flag], own=["text"])
        with self.assertRaisesRegex(weir.Invalid, "^unknown flag --zebra; unknown flag --lion; "):
            weir.flags(["--zebra", "--lion=1"])
        with self.assertRaisesRegex(weir.Invalid, "^unknown flag --num_classes; .* weir.flags"):
            weir.flags(["--num_classes=10"])
        with weir.Member() as m, self.assertRaisesRegex(
                weir.Invalid, "no setting 'lr'; did you mean 'learning_rate'\\?;"):
            m.set("lr", 1)

    def test_torchrun_environment_sets_member(self):
        env = {"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "3"}
        with self.assertRaisesRegex(weir.Invalid, "WEIR_PS_HOSTS"):
            member.from_torchrun({}, env)
        env["WEIR_PS_HOSTS"] = "a:1"
        self.assertEqual(member.from_torchrun({"seed": 2}, env),
                         {"seed": 2, "ps_hosts": "a:1", "task_index": "1", "n_workers": "3"})
        given = {"task_index": 0, "ps_hosts": "b:1"}
        self.assertEqual(member.from_torchrun(given, env), given)

    def test_torchrun_without_servers_refused(self):
        """Several processes never train alone by mistake, whichever launcher has started them."""
        for env in ({"TORCHELASTIC_RUN_ID": "none", "RANK": "1", "WORLD_SIZE": "3"},
                    {"RANK": "0", "WORLD_SIZE": "3", "WEIR_PS_HOSTS": ""}):
            for settings in ({}, {"ps_hosts": ""}, {"task_index": 1}, {"worker_hosts": "a:1"}):
                with self.assertRaisesRegex(weir.Invalid, r"one of 3 processes, .*n_workers=1"):
                    member.from_torchrun(settings, env)
            self.assertEqual(member.from_torchrun({"n_workers": 1}, env), {"n_workers": 1})
            with mock.patch.dict(os.environ, env), self.assertRaises(weir.Invalid):
                weir.Member(train_steps=1)
        alone = {"RANK": "0", "WORLD_SIZE": "1"}
        self.assertEqual(member.from_torchrun({"seed": 2}, alone), {"seed": 2})


@unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
class Members(unittest.TestCase):
    def test_member_alone_trains_and_refuses_misuse(self):
        """A member trains by the rule, without servers; wrong calls are refused."""
        with weir.Member(optimizer="sgd", learning_rate=0.5, train_steps=2, seed=1) as m:
            w = m.param("w", (2, 3), array.array("f", range(6)))
            with self.assertRaisesRegex(weir.Invalid, "no values before"):
                m.values(w)
            step = m.next()
            self.assertEqual((step.step, step.n_samples, step.began), (0, 32, True))
            values = m.values(w)
            self.assertEqual(values.tolist(), [[0, 1, 2], [3, 4, 5]])
            with self.assertRaises(TypeError):
                values[0, 0] = 1  # memory of the library
            for wrong, why in ((array.array("d", [0] * 6), "float32"), ([0.0], "buffer protocol"),
                               (array.array("f", [0] * 5), "6 elements are needed")):
                with self.assertRaisesRegex(weir.Invalid, why):
                    m.push(w, wrong, samples=1)
            with self.assertRaisesRegex(weir.Invalid, "parameter 'w' was not pushed at step 0"):
                m.next()
            m.push(w, array.array("f", [2] * 6), samples=1)
            first = m.samples(m.next(), 64)
            m.push(w, samples=0)
            self.assertEqual(len(set(first)), 32)
            self.assertIsNone(m.next())
        self.assertEqual((m.result, values.tolist()), ("done", [[-1, 0, 1], [2, 3, 4]]))
        with self.assertRaisesRegex(weir.Invalid, "closed"):
            m.next()
        with self.assertRaisesRegex(weir.Invalid, "no setting 'rate'"):
            weir.Member(rate=1)

    def test_function_returns_first_values(self):
        """A function may return first values, and its exception is the cause of the error."""
        with weir.Member(optimizer="sgd", train_steps=1) as m:
            w = m.param("w", (2, 3), lambda: array.array("f", range(6)))
            m.next()
            self.assertEqual(m.values(w).tolist(), [[0, 1, 2], [3, 4, 5]])
        for broken, cause in ((lambda: {}["w"], KeyError), (lambda: array.array("f"), ValueError)):
            with weir.Member(train_steps=1) as m:
                m.param("w", (2, 3), broken)
                with self.assertRaisesRegex(weir.Invalid, "'w': the function that writes") as e:
                    m.next()
                self.assertIsInstance(e.exception.__cause__, cause)

    def test_unreachable_server_logged(self):
        """After 3 s a line on stderr names the server, also if the member would join a running job.
        If the program has set a function by weir.log(), that function receives the line instead."""
        address = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])
        code = ("import sys, weir\n%s\nwith weir.Member(ps_hosts=sys.argv[1], %s) as m:\n"
                "    m.param('w', (1,))\n    m.next()\n")
        show = "weir.log(lambda _, line: print(line, flush=True))"

        def start(log, how):
            process = subprocess.Popen([sys.executable, "-c", code % (log, how), address],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       env=harness.package_env())
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            return process
        for how in "n_workers=1, train_steps=2", "join=True":
            silent, shown, default = start("weir.log(None)", how), start(show, how), start("", how)
            line = r"waiting for ps:0 \(%s\), \d+ s so far: " % address
            self.assertRegex(default.stderr.readline(), "^weir: .*" + line)
            self.assertRegex(shown.stdout.readline(), line)
            for process in silent, shown:
                process.kill()
                self.assertEqual(process.stderr.read(), "")

    def test_missing_member_logged(self):
        """After 3 s a line on stderr names the missing member, as in the log of Weir's own
        workers."""
        code = ("import sys, weir\n"
                "with weir.Member(ps_hosts=sys.argv[1], n_workers=2, task_index=0,\n"
                "                 train_steps=2) as m:\n"
                "    m.param('w', (1,))\n    for _ in m:\n        m.push(0, samples=1)\n")
        with weir.Cluster(n_workers=0) as cluster:
            process = subprocess.Popen([sys.executable, "-c", code, cluster.ps_hosts[0]],
                                       stderr=subprocess.PIPE, text=True,
                                       env=harness.package_env())
            self.addCleanup(process.communicate)
            self.addCleanup(process.kill)
            self.assertRegex(process.stderr.readline(),
                             r"^weir: waiting for worker 1 \(never joined\), \d+ s so far$")
            with weir.Member(ps_hosts=cluster.ps_hosts[0], n_workers=2, task_index=1,
                             train_steps=2) as m:
                m.param("w", (1,))
                for _ in m:
                    m.push(0, samples=1)
            self.assertEqual(process.wait(20 * harness.PATIENCE), 0)
            self.assertEqual(process.stderr.read(), "")

    def test_close_ends_waiting_next(self):
        """Another thread, or a signal handler, closes the member while next() waits: next() ends,
        and the memory of a view stays."""
        for by in ("thread", "signal"):
            m = weir.Member(ps_hosts="%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0]),
                            n_workers=1)
            m.param("w", (1,))
            if by == "thread":
                closer = threading.Timer(0.1, m.close)
            else:
                before = signal.signal(signal.SIGUSR1, lambda *_, m=m: m.close())
                self.addCleanup(signal.signal, signal.SIGUSR1, before)
                closer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
            handle = weakref.ref(m._handle)
            closer.start()
            with self.assertRaisesRegex(weir.Invalid, "closed"):
                m.next(60)
            closer.join()
            self.assertIsNone(handle())  # the handle is freed, so its finalizer has run

    def test_leave_message_sent_with_views_in_use(self):
        """The member leaves while views are in use, so the servers exit, and the views keep their
        values. The same holds during a call of another thread."""
        with weir.Cluster(command=None) as cluster:
            with weir.Member(**cluster.settings(0), train_steps=1, optimizer="sgd",
                             learning_rate=1) as m:
                w = m.param("w", (2,))
                for _ in m:
                    kept = m.values(w)
                    m.gradient(w)[0] = 1
                    m.push(w, samples=1)
                handle, said = m._handle, []

                def pushes():
                    while "closed" not in " ".join(said[-1:]):
                        try:
                            m.push(w, samples=1)
                        except weir.Invalid as e:
                            said.append(str(e))
                thread = threading.Thread(target=pushes)
                thread.start()
                harness.until(lambda: said, "the thread pushes", 20)
                with handle:
                    m.close()
                    thread.join()
                    self.assertEqual(handle.goodbyes, [None])
                self.assertEqual((handle.goodbyes, handle.gone), ([], True))
            cluster.wait(20 * harness.PATIENCE)
            self.assertEqual(kept.tolist(), [-1, 0])

    def test_close_after_cancel_frees_memory(self):
        """close() cancels the waiting call of another thread. It frees the memory also if this call
        ends before close() continues."""
        m = weir.Member(ps_hosts="%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0]),
                        n_workers=1)
        m.param("w", (1,))
        handle, said = m._handle, []

        def waits():
            with self.assertRaisesRegex(weir.Invalid, "closed"):
                m.next(60)

        def cancel(pointer):
            handle.lib.cancel(pointer)
            thread.join()
            said.extend(handle.goodbyes)
        handle.lib = mock.Mock(wraps=handle.lib, cancel=handle.lib.weir_cancel, weir_cancel=cancel)
        thread = threading.Thread(target=waits)
        thread.start()
        harness.until(lambda: handle.calls, "the thread waits", 20)
        m.close()
        self.assertEqual((said, handle.goodbyes, handle.gone), ([None], [], True))

    def test_call_from_log_function_refused(self):
        """A call from the log's function is refused, and no call waits for it."""
        with weir.Member() as m:
            heard = []

            def line(_level, text):
                try:
                    heard.append(m.sample(10, 0))
                except weir.Invalid as e:
                    heard.append(str(e))
            weir.log(line)
            self.addCleanup(weir.log, None)
            with self.assertRaises(weir.Invalid):
                m.sample(-1, 0)
            self.assertIn("weir_log must not call this", heard[0])

    def test_close_from_log_function_deferred(self):
        """The log's function must not close a member. If it calls close(), or the collector finds a
        member during it, the next call from elsewhere closes the member."""
        with weir.Member() as m:
            closed, dropped = [weir.Member()], [weir.Member()]
            lib = closed[0]._handle.lib
            handle = weakref.ref(closed[0]._handle)

            def line(_level, _text):
                if closed:
                    closed.pop().close()
                    dropped.clear()
            weir.log(line)
            self.addCleanup(weir.log, None)
            with self.assertRaises(weir.Invalid):
                m.sample(-1, 0)
            self.assertEqual((len(member._late), handle().gone), (2, False))
            with mock.patch.object(lib, "weir_close", wraps=lib.weir_close) as freed:
                m.sample(10, 0)
            self.assertEqual((member._late, handle(), freed.call_count), ([], None, 2))

    def test_views_readable_at_exit(self):
        """Code that runs at the interpreter's exit, after the module's own exit handler, still
        reads views."""
        code = ("import atexit\nkept = []\natexit.register(lambda: print(kept[0][-1]))\n"
                "import weir\nm = weir.Member(train_steps=1)\nm.param('w', (1 << 20,))\n"
                "m.next()\nkept.append(m.values(0))")
        said = harness.check_output([sys.executable, "-c", code], timeout=20 * harness.PATIENCE,
                                    env=harness.package_env())
        self.assertEqual(said, "0.0\n")

    def test_exit_while_thread_waits(self):
        code = ("import threading, time, weir\n"
                "m = weir.Member(ps_hosts='%s:%d', n_workers=1)\nm.param('w', (1,))\n"
                "threading.Thread(target=m.next, daemon=True).start()\ntime.sleep(0.1)" %
                (harness.LOOPBACK, harness.free_ports(1)[0]))
        subprocess.run([sys.executable, "-c", code], check=True, stderr=subprocess.DEVNULL,
                       timeout=20 * harness.PATIENCE, env=harness.package_env())

    def test_forked_child_frees_member_without_wait(self):
        """In a forked process the garbage collector frees a member of the parent without a wait.
        Other calls with that member are refused, and the parent continues."""
        with weir.Cluster(command=None) as cluster:
            m = weir.Member(**cluster.settings(0), train_steps=2, optimizer="sgd")
            m.param("w", (1,))
            m.next(60)
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    signal.alarm(int(60 * harness.PATIENCE))
                    with self.assertRaisesRegex(weir.Invalid, "was forked from the one that"):
                        m.next(60)
                    del m
                    gc.collect()
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            for _ in range(2):
                m.push(0, array.array("f", [1]), samples=1)
                step = m.next(60)
            self.assertIsNone(step)
            m.close()
            cluster.wait(60)

    def test_gradient_kept_until_wait_or_next_step(self):
        """A gradient is kept until a wait has succeeded, or the next step has begun."""
        with weir.Member(train_steps=3) as m:
            w = m.param("w", (1,))
            for end in (lambda: m.wait(w), m.next):
                m.next()
                g = array.array("f", [1])
                m.push(w, g, samples=1)
                with mock.patch.object(m._handle, "await_", return_value=_library.REBASED):
                    self.assertFalse(m.wait(w))
                with self.assertRaises(BufferError):
                    g.append(1)
                end()
                g.append(1)

    def run_member(self, cluster, i, out):
        with weir.Member(**cluster.settings(i), train_steps=3, optimizer="sgd", learning_rate=1,
                         batch_size=8) as m:
            w = m.param("w", (2,))
            mean = m.param("mean", (), array.array("f", [8]), keep=0.5)
            m.fileno()
            samples = []
            for step in m:
                samples += m.samples(step, 48)
                m.push(mean, array.array("f", [i]), samples=8)
                m.push(w, array.array("f", [i, 2 * i]), samples=8)
                self.assertTrue(m.wait(w, 60))
            events = list(iter(m.next_event, None))
            out[i] = m.values(w).tolist(), m.values(mean)[0], samples, events[0].kind

    def test_cluster_of_two_trains(self):
        out = {}
        flags = ["--serve", "--metrics_port", str(harness.free_ports(1)[0])]
        with weir.Cluster(n_workers=2, ps_flags=flags) as cluster:
            self.assertEqual(cluster.status()["state"], "no job yet")
            threads = [threading.Thread(target=self.run_member, args=(cluster, i, out))
                       for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(cluster.status()["step"], 3)
            harness.until(lambda: cluster.progress().seconds, "the page shows the state", 20)
            now = cluster.progress()
            self.assertEqual((now.state, now.step, now.train_steps), ("done", 3, 3))
            self.assertEqual(len(now.seconds), len(now.images_per_s))
            self.assertLessEqual(now.seconds[-1], now.at)
            with weir.Member(**cluster.settings(), train_steps=4) as other:
                other.param("x", (1,))
                with self.assertRaises(weir.Timeout):
                    other.next(0)
                other.cancel()
                with self.assertRaises(weir.Cancelled):
                    other.next(60)
        with self.assertRaisesRegex(weir.Unavailable, cluster.ps_hosts[0]):
            cluster.status()
        self.assertEqual(out[0][:2], ([-1.5, -3], 1.4375))
        self.assertEqual(out[0][:2], out[1][:2])
        self.assertEqual(sorted(out[0][2] + out[1][2]), list(range(48)))
        self.assertEqual(out[0][3], "began")

    def test_cluster_of_two_regions_trains(self):
        """Two regions, each with one member, end with the same values, and read each sample
        once."""
        out = {}

        def run(i):
            with weir.Member(**cluster.settings(i), train_steps=4, optimizer="sgd",
                             learning_rate=1, batch_size=8) as m:
                w, read_ = m.param("w", (2,)), []
                for step in m:
                    read_ += m.samples(step, 64)
                    m.push(w, array.array("f", [2 * i, 4]), samples=8)
                out[i] = m.values(w).tolist(), read_
        with tempfile.TemporaryDirectory() as folder, weir.Cluster(
                regions=2, checkpoint_dir=os.path.join(folder, "new"), region_flags=[
                    "--region_steps=2", "--outer_optimizer=sgd",
                    "--outer_learning_rate=1"]) as cluster:
            self.assertEqual(cluster.settings(1)["ps_hosts"], cluster.ps_hosts[1])
            for wrong in (lambda: cluster.settings(2), lambda: cluster.status(2),
                          lambda: cluster.add_worker(["true"], region=-1),
                          lambda: cluster.add_ps(region=2), lambda: cluster.start_ps(2)):
                self.assertRaisesRegex(weir.Error, "no region", wrong)
            self.assertRaisesRegex(weir.Error, "parent stays", cluster.remove, "parent:0")
            threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20 * harness.PATIENCE)
                self.assertFalse(thread.is_alive())
            cluster.wait(20 * harness.PATIENCE)
            self.assertEqual(sorted(os.listdir(os.path.join(folder, "new"))),
                             ["parent", "region-0", "region-1"])
        self.assertEqual(out[0][0], [-4, -16])  # samples 0 and 2 in each step
        self.assertEqual(out[1][0], out[0][0])
        self.assertEqual(sorted(out[0][1] + out[1][1]), list(range(64)))

    def test_failed_worker_raises_with_its_last_lines(self):
        """The error has the last lines of the worker, and the worker's file has all its lines. The
        start of a worker truncates its file."""
        with tempfile.TemporaryDirectory() as folder:
            harness.write_file(os.path.join(folder, "worker-0.log"), "of another cluster")
            with weir.Cluster(command=[sys.executable, "-u", "-c", "import sys; print('first' + "
                                       "99 * '\\n'); sys.exit('no data')"],
                              folder=folder) as cluster:
                why = "(?s)worker:0: exit status 1; .*\n\nno data$"
                with self.assertRaisesRegex(weir.Error, why) as raised:
                    cluster.wait(60)
                self.assertNotIn("first", str(raised.exception))
                with self.assertRaises(weir.Timeout):
                    cluster.processes["ps:0"].wait(0)
                with self.assertRaisesRegex(weir.Error, "no program /none"):
                    cluster.start_worker(0, ["/none"])
                with self.assertRaisesRegex(weir.Error, "no worker:1; there are ps:0, worker:0"):
                    cluster.kill("worker:1")
            self.assertTrue(cluster.output("worker:0").startswith("first"))

    def test_port_of_killed_server_is_held(self):
        """The cluster holds the port also while no server listens."""
        with weir.Cluster(n_workers=0) as cluster, socket.socket() as other:
            cluster.kill("ps:0")
            with self.assertRaises(OSError):
                other.bind(("127.0.0.1", int(cluster.ps_hosts[0].split(":")[1])))
            cluster.start("ps:0")

    def test_late_worker_does_not_delay_end(self):
        """A worker that joins when the job is over does not delay its end."""
        code = ("import weir\nwith weir.Member(train_steps=1, **weir.flags()[0]) as m:\n"
                "    m.param('w', (1,))\n    for _ in m:\n        m.push(0, samples=1)\n")
        with weir.Cluster(command=[sys.executable, "-c", code]) as cluster:
            cluster.processes["ps:0"].wait(20 * harness.PATIENCE)
            cluster.add_worker()
            with mock.patch.object(weir.cluster, "LATE", 0):
                with self.assertWarnsRegex(UserWarning, "joined:0 joined after the end of the job"):
                    cluster.wait(20 * harness.PATIENCE)


    def test_only_workers_outside_the_job_end_with_it(self):
        """When the job ends, the cluster ends a late worker only if ps 0's log proves that this
        worker has not joined."""
        code = ["sh", "-c", "sleep 1000 & echo $! is it; wait"]  # the member is the shell's child
        with weir.Cluster(n_workers=0) as cluster:
            late, has = (cluster.add_worker(code) for _ in range(2))
            for p in late, has:
                cluster.wait_line(p.name, "is it", 20 * harness.PATIENCE)
                self.addCleanup(os.kill, int(p.output().split()[0]), signal.SIGKILL)
            line = "worker 1 (host:%s) joins at step 7 (generation 1.2)\n"
            joins = line % has.output().split()[0]
            with self.assertRaisesRegex(weir.Error, "joined:0 is not in the job"):
                cluster.remove(late.name)
            for said in "", "worker 0 joined from a:1\n" + line % 1 + joins:
                with mock.patch.object(cluster, "output", return_value=said):
                    cluster._end_late([late, has])
            self.assertTrue(late.runs() and has.runs())
            with self.assertWarnsRegex(UserWarning, late.name), mock.patch.object(
                    cluster, "output", return_value="worker 0 joined from a:1\n" + joins):
                cluster._end_late([late, has])
            self.assertEqual((late.runs(), has.runs()), (False, True))
            there = {"members": [{"index": 3, "address": "host:" + has.output().split()[0]}]}
            with mock.patch.object(cluster, "status", return_value=there), mock.patch.object(
                    weir.cluster, "_weirctl", side_effect=weir.Unavailable):
                self.assertRaises(weir.Unavailable, cluster.remove, has.name)
            self.assertTrue(has.counts)

    def test_watch_and_wait_line_time_out(self):
        """watch() and wait_line() end at their timeout also if no process counts any more, and if
        there is no pause between two polls."""
        with weir.Cluster(n_workers=0) as cluster:
            self.assertRaises(weir.Timeout, list, cluster.watch(every=0, timeout=0.1))
            cluster.processes["ps:0"].counts = False
            with self.assertRaisesRegex(weir.Timeout, "no log line that matches 'xyz'"):
                cluster.wait_line("ps:0", "xyz", 0.1)

    def test_worker_gets_path_signals_and_folder(self):
        """A worker has the PATH of env. It does not ignore the signals that Python ignores. Folders
        may be pathlib paths."""
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(shutil.which("grep"), os.path.join(folder, "ours"))
            with weir.Cluster(command=["ours", "SigIgn", "/proc/self/status"],
                              env={"PATH": folder}, folder=pathlib.Path(folder),
                              checkpoint_dir=pathlib.Path(folder, "kept")) as cluster:
                cluster.wait_line("worker:0", "\n", 20 * harness.PATIENCE)
                ignored = int(cluster.output("worker:0").split()[1], 16)
                self.assertTrue(os.path.isdir(os.path.join(folder, "kept")))
        self.assertEqual(cluster.progress().losses, [])  # works though the folder is removed
        for number in signal.SIGPIPE, signal.SIGXFSZ:
            self.assertFalse(ignored >> (number - 1) & 1)

    def test_interrupted_start_ends_all_processes(self):
        """After Ctrl-C while a process is being started, this process ends like the other ones."""
        made, interrupted = [], threading.Event()

        def interrupt(*_):
            if not interrupted.is_set():
                interrupted.set()
                raise KeyboardInterrupt

        def start(*args):
            while not interrupted.wait(0.05):
                os.kill(os.getpid(), signal.SIGUSR1)  # to the main thread
            time.sleep(0.2)  # the process would survive if the signal were handled now
            made.append(process(*args))
            return made[0]

        process = weir.cluster.Process
        self.addCleanup(signal.signal, signal.SIGUSR1, signal.signal(signal.SIGUSR1, interrupt))
        with mock.patch.object(weir.cluster, "Process", start):
            self.assertRaises(KeyboardInterrupt, weir.Cluster)
        self.assertFalse(made[0].runs())


class Courses(unittest.TestCase):
    """Reads the progress of a job from pages of ps 0."""

    def read(self, course, *history):
        page = {"members": [], "history": history, "step": 4, "job": {"train_steps": 9}}
        with mock.patch.object(progress, "page", return_value=page):
            course.read_page(0)

    def test_growing_point_replaces_its_parts(self):
        """A point that covers more steps than before replaces its earlier form, and the points that
        it combines."""
        course = progress.Course(100)
        self.read(course, [101, 1, 0.5, 10], [102, 2, 0.4, 20])
        self.read(course, [101, 1, 0.5, 10], [103, 3, 0.3, 30])
        now = course.progress(False)
        self.assertEqual((now.seconds, now.images_per_s), ([1, 3], [10, 30]))
        self.assertEqual((now.loss_steps, now.losses), ([1, 3], [0.5, 0.3]))
        self.read(course, [201, 1, 0.1, 40])  # the page of a restarted server
        self.assertEqual(course.progress(False).seconds, [1, 3, 101])

    def test_early_end_sets_number_of_steps(self):
        course = progress.Course(100)
        self.read(course)
        self.assertEqual((course.progress(False).step, course.progress(False).train_steps), (4, 9))
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            f.write('{"last_step": 5}')
            f.flush()
            course.read_summary(f.name)
        course.read_summary(f.name)
        self.assertEqual((course.progress(True).step, course.progress(True).train_steps), (5, 5))


@unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
class Orphans(harness.Test):
    """No process of a cluster is left, however the program that made the cluster ends. This holds
    also if a thread made the cluster and has ended."""

    def ended_by(self, number, status):
        code = ("import sys, threading, time, weir\nmade = []\n"
                "make = lambda: made.append(weir.Cluster(command=['sleep', '1000']))\n"
                "t = threading.Thread(target=make)\nt.start()\nt.join()\n"
                "with made[0] as cluster:\n    print(*(p.popen.pid for p in "
                "cluster.processes.values()), 'run')\n    cluster.wait()")
        p = self.start("program", [sys.executable, "-uc", code], env=harness.package_env())
        pids = p.wait_line("(.*) run$").group(1).split()
        harness.until(lambda: [harness.read_source("/proc/%s/comm" % pid)
                               for pid in pids] == ["ps\n", "sleep\n"], "the processes run")
        p.stop(number, status=status)
        harness.until(lambda: not any(os.path.exists("/proc/" + pid) for pid in pids),
                      "no process is left")

    def test_killed_program_leaves_no_process(self):
        self.ended_by(signal.SIGKILL, -signal.SIGKILL)

    def test_interrupted_program_leaves_no_process(self):
        self.ended_by(signal.SIGINT, -signal.SIGINT)


@unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
class Killed(harness.Test):
    def all_exited(self, cluster, gate):
        """Returns whether all workers have exited. Opens the gate for workers that wait at it."""
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            pass  # no worker waits there
        return not any(p.runs() for n, p in cluster.processes.items() if n != "ps:0")

    def run_job(self, name, disturb=lambda cluster: None):
        """Runs a job with a disturbance in the middle; returns the digest of the parameters that
        all workers end with."""
        gate, folder = (self.path(name + part) for part in ("-gate", ""))
        os.mkfifo(gate)
        with weir.Cluster(n_workers=2, command=[sys.executable, "-c", WORKER, gate],
                          checkpoint_dir=folder, ps_flags=["--save_steps=10"]) as cluster:
            for worker in (0, 1):
                cluster.wait_line("worker:%d" % worker, "step 20 ", 20 * harness.PATIENCE)
            disturb(cluster)
            harness.until(lambda: self.all_exited(cluster, gate), "all workers have exited", 60)
            *_, self.last = cluster.watch(timeout=60 * harness.PATIENCE)
            found = {bits for i in range(2)
                     for bits in re.findall(r"bits (\w+)", cluster.output("worker:%d" % i))}
            self.result = {n: cluster.output(n).split()[-1] for n in cluster.processes}
        self.assertEqual(len(found), 1)
        self.assertEqual(found, {kept_bits(folder)})
        recorded = [gate + "-samples"]  # each sample counts once (I6), though steps were repeated
        self.assertEqual(samples.wrong(recorded, STEPS), [])
        self.assertEqual(samples.wrong_items(recorded, 1000), [])
        return found

    def kill(self, cluster):
        for process in ("worker:1", "ps:0"):
            self.assertTrue(cluster.kill(process))
            self.assertFalse(cluster.kill(process))
        cluster.start_ps()
        cluster.start("worker:1")

    def test_bad_checkpoint_named(self):
        """An error names the cause: no checkpoint, a missing file, or a damaged one."""
        folder = self.path("kept")
        with weir.Cluster(n_workers=0, checkpoint_dir=folder) as cluster:
            with self.assertRaisesRegex(weir.Error, "kept has no checkpoint"):
                checkpoint.read(folder)
            with weir.Member(ps_hosts=cluster.ps_hosts[0], n_workers=1, task_index=0,
                             train_steps=1) as m:
                m.param("w", (2, 3))
                for _ in m:
                    m.push(0, samples=1)
            cluster.wait(20 * harness.PATIENCE)
        self.assertEqual(checkpoint.read(folder).tensors["w"].shape, (2, 3))
        part = checkpoint.newest(folder).replace(".json", "-0-of-1.safetensors")
        os.truncate(part, 100)
        with self.assertRaisesRegex(weir.Error, "damaged.*-0-of-1.safetensors does not have"):
            checkpoint.read(folder)
        os.remove(part)
        with self.assertRaisesRegex(weir.Error, "-0-of-1.safetensors: No such file"):
            checkpoint.read(folder)

    def add(self, cluster):
        for _ in range(2):
            cluster.add_worker()
        cluster.add_ps()
        for name in ("joined:0", "joined:1"):
            cluster.wait_line(name, "step", 20 * harness.PATIENCE)
        harness.until(lambda: [s["state"] for s in cluster.status()["servers"]] == ["here"] * 2,
                      "the server has joined")
        cluster.processes["joined:0"].popen.terminate()
        cluster.remove("joined:1", 20 * harness.PATIENCE)
        cluster.remove("joined-ps:0", 20 * harness.PATIENCE)
        self.assertEqual([n for n, p in cluster.processes.items() if not p.runs()][-2:],
                         ["joined:1", "joined-ps:0"])

    def test_killed_processes_change_no_bit(self):
        self.assertEqual(self.run_job("left"), self.run_job("killed", self.kill))
        self.assertEqual((self.last.state, self.last.step, self.last.loss_steps),
                         ("done", STEPS, list(range(STEPS))))
        self.assertEqual(self.last.losses, [step / 2 for step in range(STEPS)])

    def test_joined_and_removed_members_change_no_result(self):
        """A worker joins, and leaves on a signal. Another worker and a server join and are removed.
        The job continues."""
        self.run_job("joined", self.add)
        self.assertEqual((self.result["joined:0"], self.result["worker:0"]), ("left", "done"))

    def test_waiting_program_interrupted(self):
        """A program that waits for servers can be interrupted."""
        p = self.start("waits", [sys.executable, "-uc", "import weir\nm = weir.Member(ps_hosts='%s:"
                                 "%d', n_workers=1)\nm.param('w', (1,))\nprint('waits')\nm.next()" %
                                 (harness.LOOPBACK, harness.free_ports(1)[0])],
                       env=harness.package_env())
        p.wait_line("waits")
        p.stop(signal.SIGINT, status=-signal.SIGINT)
        self.assertIn("KeyboardInterrupt", p.output())


@unittest.skipIf(harness.SANITIZE, "the library is compiled into programs without a sanitizer")
class Wheel(harness.Test):
    def test_library_found_beside_programs(self):
        """PATH alone leads to programs that cmake --install put into a folder of their own."""
        env = {k: v for k, v in os.environ.items()
               if k not in ("WEIR_LIBRARY", "WEIR_PROGRAMS", "LD_LIBRARY_PATH")}
        for i, lib in enumerate(("lib", "lib/%s-linux-gnu" % os.uname().machine)):
            prefix = self.path(str(i))
            for folder in "bin", lib:
                os.makedirs(os.path.join(prefix, folder))
            os.symlink(_library.place(), os.path.join(prefix, lib, _library.NAME))
            shutil.copy(harness.program("weirctl"), os.path.join(prefix, "bin/weir-ps"))
            env["PATH"] = os.path.join(prefix, "bin")
            env["PYTHONPATH"] = harness.source("python")
            done = harness.run([sys.executable, "-m", "weir"], env=env)
            self.assertIn("%s, %s\n" % (weir.version(), os.path.join(prefix, lib, _library.NAME)),
                          done.stdout)

    def test_wheel_installed_by_pip_trains(self):
        """The wheel is complete: a Python without any other part of Weir trains with it."""
        where, site = (self.path(d) for d in ("installed", "site"))
        for name, to in (("ps", "bin/weir-ps"), ("worker", "bin/weir-worker"),
                         ("weir-task", "bin/weir-task"), ("weirctl", "bin/weirctl")):
            os.makedirs(os.path.dirname(os.path.join(where, to)), exist_ok=True)
            os.symlink(harness.program(name), os.path.join(where, to))
        os.makedirs(os.path.join(where, "lib"))
        os.symlink(os.environ["WEIR_LIBRARY"], os.path.join(where, "lib/libweir.so.0"))
        source = harness.source("python")
        before = sorted(os.listdir(source))
        subprocess.run([sys.executable, "-m", "pip", "-q", "install", "--no-build-isolation",
                        "--no-index", "--no-deps", "--target", site, source], check=True,
                       env={**os.environ, "WEIR_INSTALLED": where}, timeout=60 * harness.PATIENCE)
        self.assertEqual(sorted(os.listdir(source)), before)
        tags, = [name for name in os.listdir(site) if name.endswith(".dist-info")]
        with open(os.path.join(site, tags, "WHEEL"), encoding="utf-8") as f:
            self.assertRegex(f.read(), r"Tag: py3-none-linux_")
        code = ("import weir\nprint(weir.version())\n"
                "with weir.Cluster() as c, weir.Member(**c.settings(), train_steps=1) as m:\n"
                "    m.param('w', (1,))\n    m.next()\n    m.push(0, samples=1)\n    m.next()\n"
                "    print(m.result)")
        env = {k: v for k, v in os.environ.items() if not k.startswith("WEIR_")}
        said = harness.check_output([sys.executable, "-c", code], timeout=60 * harness.PATIENCE,
                                    env={**env, "PYTHONPATH": site})
        self.assertEqual(said.split(), [weir.__version__, "done"])


harness.main(__name__)
