"""--trace: the files of ps and workers agree in names, numbers and times. bench/trace_merge
combines them in one file."""
# label: cluster sanitize
import json
import os
import subprocess
import sys

import harness

STEPS, WORKERS = 20, 2
MERGE = harness.source("bench/trace_merge")


def load(path):
    return harness.read_json(path)


class Trace(harness.Test):
    def paths(self):
        return [self.path(name + ".json") for name in ("ps0", "w0", "w1")]

    def run_job(self):
        job = self.job(model="lenet5", flags=["--batch_size=10", "--train_steps=%d" % STEPS,
                                              "--intra_op_threads=1", "--eval_every=10"])
        ps, *workers = self.paths()
        job.start_ps(0, "--trace=" + ps)
        for i, path in enumerate(workers):
            job.start_worker(i, "--trace=" + path)
        job.finish(120)
        return [load(path) for path in self.paths()]

    def spans(self, trace):
        """Returns [(cat, name, args, begin, end)] of a trace; every begin has its end."""
        out, begun = [], {}
        for e in trace["traceEvents"]:
            if e["ph"] == "X":
                out.append((e["cat"], e["name"], e["args"], e["ts"], e["ts"] + e["dur"]))
            elif e["ph"] in "be":
                key = (e["cat"], e["id2"]["local"], e["name"])
                if e["ph"] == "b":
                    self.assertNotIn(key, begun)
                    begun[key] = e
                else:
                    b = begun.pop(key)
                    out.append((b["cat"], b["name"], b["args"], b["ts"], e["ts"]))
        self.assertEqual(begun, {})
        self.assertTrue(all(end >= begin for *_, begin, end in out))
        return out

    def test_names_and_numbers_of_traces_agree(self):
        traces = self.run_job()
        spans = [self.spans(t) for t in traces]
        for trace, process in zip(traces, ("ps:0", "worker:0", "worker:1")):
            self.assertEqual(trace["otherData"]["process"], process)
            self.assertEqual(trace["otherData"]["lost_events"], 0)
        for s in spans[1:]:
            names = {name for _, name, *_ in s}
            wanted = {"load batch", "evaluate", "request", "send frame", "receive chunk"}
            for layer in ("c1", "f6"):
                wanted |= {way + " " + layer for way in
                           ("forward", "backward", "parameters of", "hand out")}
            self.assertLessEqual(wanted, names)
            for way in ("forward c1", "backward c1", "hand out c1"):
                steps = [args["step"] for _, name, args, *_ in s if name == way]
                self.assertEqual(steps, list(range(STEPS)))
        names = {name for _, name, *_ in spans[0]}
        self.assertLessEqual({"aggregate", "apply", "send frame", "receive chunk"}, names)
        self.check_chunks(*spans)

    def check_chunks(self, ps, *workers):
        """Checks that each chunk's update of each step lies within the request of every worker."""
        applied = {(a["chunk"], a["step"]): (begin, end)
                   for _, name, a, begin, end in ps if name == "apply"}
        chunks = {chunk for chunk, _ in applied}
        self.assertEqual(set(applied), {(c, s) for c in chunks for s in range(STEPS)})
        added = sorted((a["chunk"], a["step"]) for _, name, a, *_ in ps if name == "aggregate")
        self.assertEqual(added, sorted(list(applied) * WORKERS))
        for spans in workers:
            asked = {}
            for _, name, a, begin, end in spans:
                if name == "request" and a["step"] < STEPS:
                    asked.setdefault((a["chunk"], a["step"]), []).append((begin, end))
            for key, (begin, end) in applied.items():
                self.assertTrue(any(b <= begin and end <= e for b, e in asked[key]),
                                "%s: applied at %s, requests %s" % (key, (begin, end), asked[key]))

    def test_merged_trace_is_complete(self):
        traces = self.run_job()
        merged = self.path("job.json")
        done = subprocess.run([sys.executable, "-B", MERGE, "--json", "-o", merged,
                               *self.paths()], stdout=subprocess.PIPE, text=True, check=True)
        events = load(merged)["traceEvents"]
        self.assertEqual(len(events), sum(len(t["traceEvents"]) for t in traces))
        names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
        self.assertEqual(sorted(names.values()), ["ps:0", "worker:0", "worker:1"])
        figures = {row["process"]: row for row in json.loads(done.stdout)}
        self.assertIsNone(figures["ps:0"]["hidden"])
        self.assertGreater(figures["ps:0"]["by_category"]["apply"], 0)
        for task in range(WORKERS):
            row = figures["worker:%d" % task]
            self.assertTrue(0 < row["hidden"] <= 1, row)
            by = row["by_category"]
            self.assertTrue(0 < by["compute"] + by["wait"] + by["push"] <= row["seconds"] * 1.01 +
                            by["receive"], row)

    def test_merged_hosts_have_distinct_numbers(self):
        """bench/trace_merge shifts the times of another host, and replaces the numbers of its
        processes and threads if the first host has the same numbers."""
        paths = [self.path(name) for name in ("a.json", "b.json", "m.json")]
        hosts = ((paths[0], "a", 5000000, 10.0), (paths[1], "b", 2000000, 20.0))
        for path, host, wall, ts in hosts:
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"traceEvents": [{"ph": "M", "pid": 7, "name": "process_name",
                                            "args": {"name": host}},
                                           {"ph": "X", "pid": 7, "tid": 1, "ts": ts, "dur": 1.0,
                                            "cat": "compute", "name": "x", "args": {}}],
                           "otherData": {"process": host, "host": host, "lost_events": 0,
                                         "wall_minus_clock_ns": wall}}, f)
        subprocess.run([sys.executable, "-B", MERGE, "-o", paths[2], *paths[:2]],
                       stdout=subprocess.DEVNULL, check=True)
        events = load(paths[2])["traceEvents"]
        self.assertEqual([(e["pid"], e.get("tid"), e.get("ts")) for e in events],
                         [(7, None, None), (7, 1, 10.0), (8, None, None), (8, 2, 20.0 - 3000.0)])

    def test_trace_written_after_sigterm(self):
        path = self.paths()[1]
        worker = self.start_program("worker", "--model=softmax", "--models_dir=" + harness.MODELS,
                                    "--progress=lines", "--data_dir=" + self.data(),
                                    "--train_steps=100000000", "--trace=" + path)
        worker.wait_line(r"global step")
        worker.stop()
        self.assertTrue(any(name.startswith("forward") for _, name, *_ in self.spans(load(path))))

    def test_unwritable_trace_refused(self):
        bad = "--trace=" + self.path("no/such/folder.json")
        worker = self.run_worker(bad, status=1)
        self.assertIn("cannot be written: No such file or directory", worker.output())
        job = self.job()
        ps = job.start_ps(0, bad, wait=False)
        self.assertIn("cannot be written: No such file or directory", ps.wait_output(20, 1))

    def test_trace_on_full_disk_ends_with_1(self):
        """Training is done: the status is 1, because a restart by a scheduler would not help."""
        if not os.path.exists("/dev/full"):
            self.skipTest("there is no /dev/full")
        worker = self.run_worker("--train_steps=2", "--trace=/dev/full", status=138)
        self.assertIn("could not be written completely: No space left", worker.output())


harness.main(__name__)
