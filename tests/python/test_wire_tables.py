"""A Python client trains a sparse table on a real ps, by the files of net/wire alone: the rows
follow from the gradients, and a repeated contribution counts once. Members whose jobs have other
tables, or settings that tables cannot have, are refused with a sentence."""
# label: cluster sanitize
import json
import struct

import unittest

import harness
import preload
from test_wire import Client, Stream

DIM, RATE = 4, 0.25
DENSE, BUCKET = 0, 1  # chunks: one of the parameter, one of the table's only bucket


def mix(key):
    """Returns rng_mix(key) of base/rng.h."""
    x = (key + 0x9e3779b97f4a7c15) % 2**64
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9 % 2**64
    x = (x ^ x >> 27) * 0x94d049bb133111eb % 2**64
    return x ^ x >> 31


def push(gradients, reads):
    """Returns the fields of a piece with gradients ({key: row}) and read keys."""
    keys = sorted(gradients)
    payload = struct.pack("<%dQ" % (len(keys) + len(reads)), *keys, *sorted(reads))
    payload += b"".join(struct.pack("<%df" % DIM, *gradients[k]) for k in keys)
    return {"payload": payload, "rows": len(keys), "reads": len(reads)}


class WireTables(Client):
    def pb_job(self, dim=DIM, n_workers=1, **changes):
        pb = self.pb
        job = pb.Job(n_workers=n_workers, sync_mode="sync", train_steps=3, seed=1,
                     chunk_bytes=4096, optimizer=pb.Optimizer(name="sgd", learning_rate=RATE))
        job.parameters.add(name="w", dims=[5])
        job.tables.add(name="ads", dim=dim, buckets=1, max_rows=1000, step_rows=100,
                       optimizer=pb.Optimizer(name="sgd", learning_rate=RATE), ftrl_beta=1,
                       init="zeros", admit_after=1, when_full="stop")
        job.MergeFrom(pb.Job(**changes))
        return job

    def open(self, n_workers=1):
        self.server_job = self.job(n_workers=n_workers)
        self.ps = self.server_job.start_ps(0)
        self.stub = self.connect(self.server_job.ps_hosts[0])

    def rows(self, answer, kind, step, expected):
        """Checks an answer's rows: [row of each read key]."""
        self.assertEqual(self.pb.Piece.Kind.Name(answer.kind), kind, answer.why)
        self.assertEqual((answer.chunk, answer.step, answer.rows),
                         (BUCKET, step, len(expected)))
        got = struct.unpack("<%df" % (DIM * len(expected)), answer.payload)
        self.assertEqual(got, tuple(x for row in expected for x in row))

    def test_rows_follow_from_gradients(self):
        self.open()
        reply = self.join_as(self.stub, self.pb_job())
        self.assertEqual(list(reply.server), [0, 0])
        stream = self.open_stream(self.stub, generation=reply.generation, member=0, incarnation=7)
        dense = struct.pack("<5f", 1, 2, 3, 4, 5)
        zeros = struct.pack("<5f", 0, 0, 0, 0, 0)
        stream.ask("INIT", DENSE, 0, dense)
        none, ones = [0.0] * DIM, [1.0, 2.0, 4.0, 8.0]
        moved = [-RATE * g for g in ones]
        self.rows(stream.ask("PULL", BUCKET), "VERSION", 0, [])
        self.rows(stream.ask("PULL", BUCKET, **push({}, [3, 9])), "VERSION", 0, [none, none])
        first = push({3: ones, 2**63 + 1: ones}, [3, 9, 2**63 + 1])
        self.rows(stream.ask("PUSH", BUCKET, 0, **first), "APPLIED", 1, [moved, none, moved])
        self.rows(stream.ask("PUSH", BUCKET, 0, **first), "DUPLICATE", 1, [moved, none, moved])
        stream.ask("PUSH", DENSE, 0, zeros)
        self.rows(stream.ask("PUSH", BUCKET, 1, **push({3: ones}, [3])), "APPLIED", 2,
                  [[2 * x for x in moved]])
        stream.ask("PUSH", DENSE, 1, zeros)
        self.rows(stream.ask("PUSH", BUCKET, 2, **push({}, [3])), "APPLIED", 3,
                  [[2 * x for x in moved]])
        stream.ask("PUSH", DENSE, 2, zeros)
        stream.close()
        self.stub.Leave(self.pb.LeaveRequest(member=0, incarnation=7, done=True),
                        timeout=10 * harness.PATIENCE)
        self.ps.wait()

    def open_two(self, **settings):
        """Starts two servers, which have one bucket each; returns them, the reply to the join, and
        the streams to them. settings: of the table."""
        server_job = self.job(n_workers=1, n_ps=2)
        servers = [server_job.start_ps(k) for k in range(2)]
        job = self.pb_job()
        job.tables[0].buckets = 2
        job.tables[0].MergeFrom(self.pb.Table(**settings))
        stubs = [self.connect(a) for a in server_job.ps_hosts]
        reply = self.join_as(stubs[0], job)
        self.join_as(stubs[1], job, generation=reply.generation, ps0=reply.ps0)
        self.assertNotEqual(reply.server[BUCKET], reply.server[BUCKET + 1])
        streams = [self.open_stream(s, generation=reply.generation, member=0, incarnation=7)
                   for s in stubs]
        return server_job, servers, reply, streams

    def test_weirctl_shows_the_part_of_each_server(self):
        """One bucket has more keys in its requests than the other."""
        server_job, servers, reply, streams = self.open_two()
        keys = [k for k in range(40) if mix(k) % 2 == 0]
        stream = streams[reply.server[BUCKET]]
        ones = [1.0] * DIM
        answer = stream.ask("PUSH", BUCKET, 0, **push({k: ones for k in keys}, keys[:3]))
        self.rows(answer, "APPLIED", 1, [[-RATE] * DIM] * 3)
        shown = json.loads(server_job.ctl("tables", "--json"))["tables"]
        self.assertEqual([(t["name"], t["dim"], t["buckets"]) for t in shown], [("ads", DIM, 2)])
        parts = {p["server"]: p for p in shown[0]["servers"]}
        full = parts[reply.server[BUCKET]]
        self.assertEqual((full["buckets"], full["rows"], full["keys"], full["hottest_bucket"]),
                         (1, len(keys), len(keys) + 3, 0))
        self.assertEqual(parts[reply.server[BUCKET + 1]]["rows"], 0)
        self.assertRegex(server_job.ctl("tables"), r"(?m)^ads +%d +1 +%d +0 " % (
            reply.server[BUCKET], len(keys)))
        self.assertIn("1 table in 2 buckets", server_job.ctl("status"))
        dense = 4 * 5  # bytes of the parameter
        for view in "status", "servers":
            harness.until(lambda: {s["index"]: s["bytes"] for s in json.loads(
                server_job.ctl(view, "--json"))["servers"]} == {
                    server: p["bytes"] + dense * (server == reply.server[DENSE])
                    for server, p in parts.items()}, "%s counts the rows" % view)
        for s in streams:
            s.cancel()
        self.kill(*servers)

    def test_weirctl_names_tables_with_expired_rows(self):
        for evict_after in 0, 5:
            server_job, servers, _, streams = self.open_two(evict_after=evict_after)
            shown = json.loads(server_job.ctl("tables", "--json"))["tables"]
            self.assertEqual(shown[0]["evict_after"], evict_after)
            lines = server_job.ctl("tables").splitlines()
            self.assertEqual("ads: ROWS also counts rows that have expired (evict_after=5) and are "
                             "not freed yet" in lines, evict_after == 5)
            for s in streams:
                s.cancel()
            self.kill(*servers)

    @unittest.skipIf(harness.SANITIZE, "the preloaded library precedes the sanitizer's")
    def test_weirctl_without_memory_names_the_cause(self):
        """Each of the allocations of weirctl fails in turn. It then exits with 138 after a line on
        stderr, or warns that a part of the answer is missing."""
        server_job, servers, _, streams = self.open_two()
        env = preload.env(self, preload.LACKING_MEMORY)
        for command in ["status"], ["tables", "--json"]:
            n_failed = 0
            for at in range(1, 1000):
                found = harness.capture([
                    harness.program("weirctl"), "--ps_hosts=" + server_job.ps_hosts[0], *command],
                    60, env={**env, "FAIL_AT": str(at)})
                if found.returncode == 0 and not found.stderr:
                    break
                n_failed += 1
                with self.subTest(command, at=at):
                    self.assertRegex(found.stderr, "memory")
                    if found.returncode == 0:  # a warning names the part that is missing
                        self.assertIn(" W ", " " + found.stderr)
                    else:
                        self.assertEqual(found.returncode, 138)
            else:
                self.fail("no run without a failed allocation")
            self.assertGreater(n_failed, 20)
        for at in range(1, 4):
            found = harness.capture([harness.program("ps"), "--ps_hosts=localhost:1"], 60,
                                    env={**env, "FAIL_AT": str(at)})
            self.assertEqual(found.returncode, 138)
            self.assertRegex(found.stderr, "out of memory for the command line")
        for s in streams:
            s.cancel()
        self.kill(*servers)

    def test_weirctl_does_not_wait_for_hanging_server(self):
        """The status does not wait for the rows of a server that hangs, whether ps 0 reports
        it as missing, or not yet. The server's memory is then that of its parameters."""
        server_job, servers, reply, streams = self.open_two()

        def show(reason):
            """Returns the entry of ps:1, after a check that a line names the reason."""
            shown = harness.capture([
                harness.program("weirctl"), "--ps_hosts=" + server_job.ps_hosts[0], "--json",
                "--timeout_s=3600", "servers"], 60)
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertRegex(shown.stderr, r"ps:1 \(%s\): its memory is shown without the rows of "
                             "tables: (%s)\n" % (server_job.ps_hosts[1], reason))
            return json.loads(shown.stdout)["servers"][1]
        with harness.paused(servers[1]):
            show("no answer|it is missing")
            harness.until(lambda: server_job.report("servers")[1]["state"] == "missing",
                          "ps:1 is missing")
            self.assertEqual(show("it is missing")["bytes"], 4 * 5 * (reply.server[DENSE] == 1))
        for s in streams:
            s.cancel()
        self.kill(*servers)

    def test_unsorted_keys_are_refused(self):
        self.open()
        reply = self.join_as(self.stub, self.pb_job())
        stream = Stream(self, self.stub, generation=reply.generation, member=0, incarnation=7)
        keys = struct.pack("<2Q", 9, 3) + struct.pack("<%df" % (2 * DIM), *range(2 * DIM))
        answer = stream.ask("PUSH", BUCKET, 0, keys, rows=2)
        self.assertEqual(self.pb.Piece.Kind.Name(answer.kind), "REFUSED")
        self.assertIn("table 'ads', bucket 0", answer.why)
        stream.cancel()
        self.kill(self.ps)

    def test_other_tables_are_refused(self):
        self.open(n_workers=2)
        self.join_as(self.stub, self.pb_job(n_workers=2))
        reply = harness.join(self.stub.Join, self.pb.JoinRequest(
            protocol=harness.PROTOCOL, member=1, incarnation=8,
            job=self.pb_job(dim=8, n_workers=2)))
        self.assertEqual(reply.answer, self.pb.JoinReply.REFUSED)
        self.assertIn("table 'ads': dim 4 on the servers, 8 on the worker", reply.why)
        self.kill(self.ps)

    def test_settings_for_whole_models_are_refused(self):
        self.open()
        job = self.pb_job(optimizer=self.pb.Optimizer(clip_norm=1))
        reply = harness.join(self.stub.Join, self.pb.JoinRequest(
            protocol=harness.PROTOCOL, member=0, incarnation=7, job=job))
        self.assertEqual(reply.answer, self.pb.JoinReply.REFUSED)
        self.assertIn("tables cannot be combined with clip_norm", reply.why)
        self.kill(self.ps)

    def test_region_refuses_tables(self):
        server_job = self.job(n_workers=1, n_ps=1)
        ps = server_job.start_ps(0, "--parent_hosts=127.0.0.1:2", "--regions=2")
        reply = harness.join(self.connect(server_job.ps_hosts[0]).Join, self.pb.JoinRequest(
            protocol=harness.PROTOCOL, member=0, incarnation=7, job=self.pb_job()))
        self.assertEqual(reply.answer, self.pb.JoinReply.REFUSED)
        self.assertIn("a region cannot train tables", reply.why)
        self.kill(ps)


harness.main(__name__)
