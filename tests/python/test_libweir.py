#!/usr/bin/python3
"""A training loop of its own, over libweir by ctypes, with real servers. The tests cover all modes,
members that join and leave (each sample is read once), servers that restart without checkpoints,
and refusals."""
# label: cluster
import os
import re
import signal
import sys
import unittest

import certs
import harness

LIBRARY = os.path.join(os.path.dirname(harness.BIN), "lib/libweir.so.0")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ctypes_trainer.py")
STEP = re.compile(r"^step (\d+) of \d+ position (\d+) n (\d+) generation (\d+) members (\d+)")
TRIES = 10  # a busy machine may miss a job's middle


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Libweir(harness.Test):
    def setUp(self):
        super().setUp()
        self.hosts = "%s:%d" % (harness.LOOPBACK, harness.free_ports(1)[0])

    def ps(self, *flags):
        ps = self.start_program("ps", "--ps_hosts=" + self.hosts, *flags, ready=True)
        ps.wait_ready()
        return ps

    def trainer(self, name, *settings, pause_ms=0, width=40):
        return self.start(name, [sys.executable, "-B", SCRIPT, LIBRARY, str(pause_ms), str(width),
                                 "ps_hosts=" + self.hosts, *settings])

    def members(self, *settings, n=2, **kwargs):
        return [self.trainer("trainer:%d" % i, "n_workers=%d" % n, "task_index=%d" % i, *settings,
                             **kwargs) for i in range(n)]

    def done(self, processes):
        """Waits until the processes have ended; returns the digest of all of them, which is the
        same."""
        self.wait_all(processes, 60)
        found = {p.wait_line("^done (.*)").group(1) for p in processes}
        self.assertEqual(len(found), 1, found)
        return found.pop()

    def test_library_leaves_host_unchanged(self):
        """Alone, and in a job, the library changes no allocators, signals, threads or files of the
        host."""
        host = os.path.join(os.path.dirname(harness.BIN), "tests/guest_host")
        ps = self.ps("--serve")
        for servers in ([], ["ps_hosts", self.hosts, "n_workers", "1", "task_index", "0"]):
            p = self.start("host", [host, LIBRARY, "train_steps", "5", *servers])
            p.wait(120, None)
            self.assertEqual(p.status, 0, p.output())
            p.wait_line("^host: left as it was")
        ps.stop(signal.SIGTERM, status=143)

    def test_modes_train(self):
        for settings in (("sync_mode=async", "optimizer=sgd"),
                         ("sync_mode=ssp", "staleness=2", "wire_dtype=fp16"),
                         ("wire_dtype=auto", "wire_step_ms=50"),
                         ("local_steps=5", "wire_dtype=int8", "optimizer=sgd"),
                         ("local_steps=5", "own_local_steps=true", "outer_optimizer=sgd")):
            with self.subTest(settings):
                ps = self.ps()
                members = self.members("train_steps=20", "batch_size=4", *settings, width=2000)
                self.wait_all(members, 60)
                self.done(members)
                ps.wait(60)

    def test_member_alone_same_bits_as_with_servers(self):
        """A member without servers ends with the same bits as a single member with servers."""
        settings = ("optimizer=adam", "train_steps=10", "batch_size=4")
        ps = self.ps()
        want = self.done(self.members(*settings, n=1))
        ps.wait(60)
        script = [sys.executable, "-B", SCRIPT, LIBRARY, "0", "40", *settings]
        self.assertEqual(self.done([self.start("alone", script)]), want)

    def test_tls_and_token_accepted(self):
        own = certs.for_job(self.path("certs"))
        token = self.write("token", "ps,worker %s\n" % ("secret" * 6))
        os.chmod(token, 0o600)
        ps = self.ps(*own.flags("ps"), "--token_file=" + token)
        shown = [flag[2:] for flag in own.flags("worker")]
        other = self.members("train_steps=5", *shown, n=1)[0]
        other.wait_line("error -[0-9]: .*(token|role)")
        other.wait(60, status=1)
        self.done(self.members("train_steps=5", *shown, "token_file=" + token, n=1))
        ps.wait(60)

    def run_from_nothing(self, kill):
        """Runs without checkpoints: a killed server has lost all steps, and training starts from
        the first."""
        servers = [self.ps()]
        members = self.members("train_steps=200", "batch_size=4", pause_ms=2)
        if kill:
            members[0].wait_line("^step 20 ")
            servers[0].stop(signal.SIGKILL, status=None)
            if servers[0].status != -signal.SIGKILL:
                return None
            servers.append(self.ps())
        sha = self.done(members)
        servers[-1].wait(60)
        if kill:
            steps = re.findall(r"^step (\d+) ", members[0].output(), re.M)
            self.assertEqual(steps.count("5"), 2)
        return sha

    def test_job_without_checkpoint_restarts_from_nothing(self):
        want = self.run_from_nothing(False)
        self.assertEqual(next(filter(None, (self.run_from_nothing(True) for _ in range(TRIES)))),
                         want)

    def test_late_member_finds_end_of_job_in_folder(self):
        """After the job's end a late member finds the end in the servers' folder; a member of
        another job does not."""
        folder = self.path("checkpoints")
        settings = ("train_steps=5", "n_workers=1", "task_index=0", "checkpoint_dir=" + folder)
        ps = self.ps("--checkpoint_dir=" + folder)
        self.done([self.trainer("trainer", *settings)])
        ps.wait(60)
        other = self.trainer("other", *settings, "seed=1")
        late = self.trainer("late", *settings)
        late.wait(60)
        self.assertEqual(late.lines[-1], "over")
        other.kill()

    def test_joining_and_leaving_members_read_each_sample_once(self):
        """One member joins, one leaves. The samples of each step that counts, or of each round of
        local steps, begin where those of the previous step or round end."""
        for local_steps in (1, 4):
            with self.subTest(local_steps):
                self.join_and_leave(local_steps)

    def join_and_leave(self, local_steps):
        ps = self.ps("--worker_timeout=60")
        members = self.members("train_steps=1000000", "batch_size=4", "seed=3",
                               "local_steps=%d" % local_steps, pause_ms=2)
        members[0].wait_line("^step 10 ")
        members.append(self.trainer("joiner", "join=true", pause_ms=2))
        members[2].wait_line("^step .* members 3$")
        members[1].stop(signal.SIGTERM, status=0)
        self.assertEqual(members[1].lines[-1], "left")
        generation = int(members[2].wait_line("^step .*generation (\\d+) members 2$").group(1))
        last = int(members[0].wait_line("^step (\\d+) .*generation %d " % generation).group(1)) + 5
        self.wait_lines((members[0], members[2]), "^step %d " % last)
        self.kill(members[0], members[2], ps)
        self.check_samples(members, last // local_steps, local_steps)

    def check_samples(self, members, n_rounds, local_steps):
        taken = {}  # step: generation: positions
        for m in members:
            for line in list(m.lines):
                found = STEP.match(line)
                if found:
                    step, position, n, generation, _ = map(int, found.groups())
                    taken.setdefault(step, {}).setdefault(generation, []).append((position, n))
        expected = 0
        for i in range(n_rounds):
            steps = [taken[step] for step in range(i * local_steps, (i + 1) * local_steps)]
            counts = max(max(step) for step in steps)
            for position, n in sorted(at for step in steps for at in step[counts]):
                self.assertEqual(position, expected, "round %d: %s" % (i, steps))
                expected += n

    def test_bad_settings_refused(self):
        ps = self.ps()
        first = self.members("train_steps=1000000", "batch_size=4", "data_samples=100",
                             "data_checksum=7", n=1, pause_ms=2)[0]
        first.wait_line("^step 3 ")
        for word, settings, width in (
                (r"parameter 0 'wide': shape 40 on the servers, 41 on the worker", ["join=true"],
                 41),
                (r"--learning_rate: the servers have",
                 ["n_workers=1", "task_index=0", "learning_rate=0.5"], 40),
                (r"another data set: training samples: .* 100 in .* 5 in",
                 ["join=true", "data_samples=5", "data_checksum=7"], 40),
                (r"another data set: CRC-32C of the training samples",
                 ["join=true", "data_samples=100", "data_checksum=6"], 40)):
            other = self.trainer("other", *settings, width=width)
            other.ends(1, r"error -2: ps:0 .* refused this worker: .*" + word)
        self.kill(first, ps)


harness.main(__name__)
