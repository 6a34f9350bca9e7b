#!/usr/bin/python3
"""weirctl against running jobs: its output, its effects, and its errors."""
# label: cluster address
import glob
import json
import os
import re
import shlex
import socket
import subprocess
import time

import ckpt_folder
import harness

FLAGS = ["--batch_size=12", "--train_steps=100000", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--learning_rate=0.0012345678", "--log_every=1",
         "--intra_op_threads=1"]
RETRY = 138


class Weirctl(harness.Test):
    def ctl(self, hosts, *words, status=0, seconds=30):
        """Returns (stdout, stderr) of one call."""
        argv = [harness.program("weirctl")]
        if hosts:
            argv.append("--ps_hosts=" + ",".join(hosts))
        p = harness.capture(argv + list(words), seconds, stdin=subprocess.DEVNULL)
        self.assertEqual(p.returncode, status, "weirctl %s: %s%s" % (words, p.stdout, p.stderr))
        return p.stdout, p.stderr

    def json(self, hosts, *words, status=0):
        return json.loads(self.ctl(hosts, "--json", *words, status=status)[0])

    def await_json(self, job, words, condition, seconds=30):
        """Returns the first document for which the condition holds."""
        deadline = time.monotonic() + seconds * harness.PATIENCE
        while True:
            doc = self.json(job.ps_hosts, *words)
            if condition(doc):
                return doc
            self.assertLess(time.monotonic(), deadline, doc)

    def run_job(self, delays=(2, 2), ps_flags=(), n_ps=2):
        """Returns a job in the middle of training, which is killed at the end of the test. delays:
        delay in ms of each worker's pushes."""
        job = self.job(n_ps=n_ps, n_workers=len(delays), model="small", flags=FLAGS)
        job.start_servers(*ps_flags)
        for i, ms in enumerate(delays):
            job.start_worker(i, "--fault_push_delay_ms=%d" % ms)
        self.wait_lines(job.workers, "training step 2 done")
        self.at_end(job.kill)
        return job


class Shows(Weirctl):
    def test_status_shows_job(self):
        job = self.run_job()
        doc = self.await_json(job, ["status"], lambda d: d["step"] > 5 and d["steps_per_s"] > 0)
        self.assertEqual((doc["server"], doc["state"], doc["change"]), (0, "training", None))
        self.assertEqual(doc["generation"], harness.term(1))
        self.assertIn(doc["highest_step"] - doc["step"], (0, 1))
        self.assertEqual(doc["position"], doc["step"] * 24)
        self.assertIsNone(doc["checkpoints"])
        self.assertEqual((doc["job"]["workers"], doc["job"]["sync_mode"]), (2, "sync"))
        self.assertEqual((doc["job"]["train_steps"], doc["job"]["batch_size"]), (100000, 12))
        self.assertEqual(doc["job"]["optimizer"]["name"], "adam")
        self.assertEqual([m["index"] for m in doc["members"]], [0, 1])
        self.assertEqual([m["rank"] for m in doc["members"]], [0, 1])
        self.assertEqual([m["state"] for m in doc["members"]], ["training"] * 2)
        self.assertEqual([s["address"] for s in doc["servers"]], job.ps_hosts)
        self.assertEqual([s["state"] for s in doc["servers"]], ["here"] * 2)
        self.assertEqual(sum(s["bytes"] for s in doc["servers"]), 4 * doc["job"]["elements"])
        self.assertEqual(sum(s["chunks"] for s in doc["servers"]), doc["job"]["chunks"])
        for s in doc["servers"]:
            self.assertGreater(s["bytes"], 0)
            self.assertGreaterEqual(s["heard_s"], 0)
        self.assertEqual(self.json(job.ps_hosts, "members")["members"][1]["index"], 1)
        self.assertEqual(len(self.json(job.ps_hosts, "servers")["servers"]), 2)
        text = self.ctl(job.ps_hosts, "status")[0]
        self.assertRegex(text, r"ps:0: generation 1\.1, training, step \d+ of 100000 \(sync\)")
        self.assertRegex(text, r"(?m)^ +0 +0 +\S+ +training +\d+\.\d s +0$")
        self.assertIn("; adam, learning rate 0.0012345678; batches of 12", text)
        for i, host in enumerate(job.ps_hosts):
            self.assertRegex(text, r"(?m)^ +%d +%s +here " % (i, host))
        other = self.json(job.ps_hosts[1:], "status")  # about itself
        self.assertEqual((other["server"], other["state"]), (1, "training"))

    def test_slow_worker_shown_as_late(self):
        job = self.run_job(delays=(2, 250))
        # In some steps the fast worker may wait for a core, and be later than the slow one.
        doc = self.await_json(job, ["who-is-late"], lambda d: d["step"] >= 4 and
                              [m["index"] for m in d["members"]] == [1, 0] and
                              d["members"][0]["waited_for"]["steps"] >
                              d["members"][1]["waited_for"]["steps"] and
                              d["members"][0]["waited_for"]["seconds"] >= 0.25)
        late = doc["members"][0]
        self.assertGreater(late["waited_for_recently"]["steps"], 0)
        self.assertGreaterEqual(late["waited_for_recently"]["of_steps"],
                                late["waited_for_recently"]["steps"])
        # Each step lasts 250 ms. From 100 ms on the servers report the worker that they wait for.
        doc = self.await_json(job, ["who-is-late"],
                              lambda d: d["members"][0]["awaited_chunks"] > 0 and
                              d["members"][0]["index"] == 1)
        text = self.ctl(job.ps_hosts, "who-is-late")[0]
        self.assertRegex(text, r"(?m)^ +1 +\S+ +\d+\.\d s +\d+ ")

    def test_missing_member_shown(self):
        job = self.run_job()
        job.workers[1].kill()
        doc = self.await_json(job, ["members"],
                              lambda d: d["members"][1]["state"] == "missing")
        self.assertEqual(doc["members"][0]["state"], "training")
        self.assertGreaterEqual(doc["members"][1]["missing_s"], 0)

    def refused(self, doc, index):
        return [m["refused"] for m in doc["members"] if m["index"] == index][0]

    def test_refused_member_shown_with_reason(self):
        """If a worker is refused, the status shows its attempt to join and the reason of the
        refusal."""
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        job.start_ps(0)
        why = "another job: --batch_size: the servers have 12, the worker has 13"
        job.start_worker(0)
        job.ps[0].wait_line("worker 0 joined")
        job.start_worker(1, "--batch_size=13").wait(60, 1)
        job.ps[0].wait_line("worker 1 from .* refused: " + why)
        doc = self.json(job.ps_hosts, "status")
        self.assertEqual(doc["members"][1]["state"], "expected")
        self.assertIsNone(self.refused(doc, 0))
        self.assertTrue(self.refused(doc, 1)["why"].startswith(why), doc)
        self.assertGreaterEqual(self.refused(doc, 1)["ago_s"], 0)
        self.assertRegex(self.ctl(job.ps_hosts, "status")[0],
                         r"(?m)^worker 1 was refused \d\S* \S+ ago: " + why)
        job.ps[0].wait_line(r"waiting for worker 1 \(.*\) to join, \d+ s so far; worker 1 was "
                            r"refused \d+ s ago: " + why)
        job.start_worker(1, "--fault_push_delay_ms=2").wait_line("training step 2 done")
        self.assertIsNone(self.refused(self.json(job.ps_hosts, "members"), 1))
        self.assertEqual(len(re.findall("worker 1 from .* refused: ", job.ps[0].output())), 1)
        job.kill()

    def test_refused_worker_shown_without_job(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        job.start_ps(0, "--max_workers=1")
        job.start_worker(0).wait(60, 1)
        why = "the job has 2 workers, above --max_workers=1 of this server"
        doc = self.json(job.ps_hosts, "status")
        self.assertEqual((doc["state"], self.refused(doc, 0)["why"]), ("no job yet", why))
        self.assertRegex(self.ctl(job.ps_hosts, "status")[0],
                         r"(?m)^worker 0 was refused \d\S* \S+ ago: " + why)
        job.ps[0].stop()


class Checkpoints(Weirctl):
    def test_checkpoint_written_on_command(self):
        folder = self.path("it's $HOME")
        job = self.run_job(ps_flags=["--checkpoint_dir=" + folder, "--save_secs=100000"])
        self.assertEqual(glob.glob(os.path.join(folder, "weir-*.json")), [])
        out, _ = self.ctl(job.ps_hosts, "checkpoint", "--wait", seconds=60)
        self.assertRegex(out, "^done: checkpoint at step [0-9]+: " + re.escape(folder))
        step = int(out.split("step ")[1].split(":")[0])
        self.assertEqual(ckpt_folder.steps(folder), [step])
        doc = self.json(job.ps_hosts, "status")["checkpoints"]
        self.assertEqual((doc["folder"], doc["last_step"]), (folder, step))
        self.assertEqual((doc["wanted"], doc["given"]), (1, 1))
        self.assertEqual(self.json(job.ps_hosts, "checkpoint")["answer"], "accepted")
        self.await_json(job, ["status"], lambda d: d["checkpoints"]["given"] == 2)
        line = self.ctl(job.ps_hosts, "add", "ps", "127.0.0.1:9")[0]
        self.assertIn("--checkpoint_dir=" + folder, shlex.split(line))

    def test_next_checkpoint_shown(self):
        """The table has the step of the next checkpoint, and the instructions with which the
        workers compute."""
        folder = self.path("ckpt")
        job = self.run_job(n_ps=1, delays=(2,), ps_flags=["--checkpoint_dir=" + folder,
                                                          "--save_steps=70000"])
        line = "checkpoints: %s; last at step -; the next at step 70000" % folder
        text = harness.until(lambda: self.has_line(job, line), "the next checkpoint is shown")
        self.assertRegex(text, r"(?m)^computed with: \S.*, 1 thread; vector loops ")

    def test_next_checkpoint_by_time_shown(self):
        """The checkpoint of the last step is always ordered. The status does not show it as the
        next one if checkpoints depend on time."""
        folder = self.path("ckpt")
        job = self.run_job(n_ps=1, delays=(2,), ps_flags=["--checkpoint_dir=" + folder,
                                                          "--save_secs=5000"])
        kept = self.await_json(job, ["status"], lambda d: d["checkpoints"]["making_step"] and
                               d["state"] == "training")["checkpoints"]
        self.assertEqual(kept["making_step"], 100000)
        self.assertGreater(kept["next_s"], 0)
        self.assertLessEqual(kept["next_s"], 5000)
        m = re.search(r"(?m)^checkpoints: %s; last at step -; the next within (\d+) s$" %
                      re.escape(folder), self.ctl(job.ps_hosts, "status")[0])
        self.assertLessEqual(int(m.group(1)), 5000)
        job.kill()
        job = self.run_job(n_ps=1, delays=(2,), ps_flags=["--checkpoint_dir=" + folder + "2",
                                                          "--save_secs=5000",
                                                          "--save_steps=70000"])
        self.await_json(job, ["status"], lambda d: d["checkpoints"]["making_step"] and
                        d["state"] == "training")
        self.assertRegex(self.ctl(job.ps_hosts, "status")[0],
                         r"last at step -; the next at step 70000, or within \d+ s\n")

    def has_line(self, job, line):
        text = self.ctl(job.ps_hosts, "status")[0]
        return text if line in text.splitlines() else None

    def test_checkpoint_without_folder_refused(self):
        job = self.run_job(n_ps=1, delays=(2,))
        _, err = self.ctl(job.ps_hosts, "checkpoint", status=1)
        self.assertIn("refused: this job keeps no checkpoints", err)
        self.assertEqual(self.json(job.ps_hosts, "checkpoint", status=1)["answer"], "refused")


class Errors(Weirctl):
    def one_line(self, err, text):
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertIn(text, err)

    def test_unreachable_server_named(self):
        port = harness.free_ports(1)[0]
        _, err = self.ctl(["%s:%d" % (harness.LOOPBACK, port)], "status", status=RETRY)
        self.one_line(err, "ps:0 (%s:%d): not reachable: failed to connect: no program "
                           "listens at this address (Connection refused); if the job has ended, it "
                           "has no servers any more: " % (harness.LOOPBACK, port))

    def test_end_of_job_named_once(self):
        """The last of several unreachable servers has the remark that the job may have ended."""
        hosts = ["%s:%d" % (harness.LOOPBACK, port) for port in harness.free_ports(2)]
        _, err = self.ctl(hosts, "status", status=RETRY)
        first, second = err.splitlines()
        self.assertNotIn("if the job has ended", first)
        self.assertIn("if the job has ended", second)

    def test_host_without_address_named(self):
        """The line names the host and the cause, not the parts of the resolver."""
        _, err = self.ctl(["a..b:2222"], "--log_level=error", "status", status=RETRY)
        self.one_line(err, "ps:0 (a..b:2222): not reachable: the host name 'a..b' cannot be "
                           "resolved: ")
        job = self.job(n_ps=1, n_workers=1)
        job.ps_hosts = ["a..b:2222"]
        worker = job.start_worker(0)
        worker.wait_line(r"waiting for ps:0 \(a\.\.b:2222\), \d+ s so far: the host name 'a\.\.b' "
                         r"cannot be resolved: \w")
        worker.kill()
        self.assertNotIn("C-ares", err + worker.output())

    def test_silent_server_named(self):
        with socket.socket() as s:
            s.bind((harness.LOOPBACK, 0))
            s.listen(1)
            host = "%s:%d" % (harness.LOOPBACK, s.getsockname()[1])
            for words in (["status"], ["checkpoint"], ["drain", "1"]):
                _, err = self.ctl([host], "--timeout_s=1", *words, status=RETRY)
                self.one_line(err, "ps:0 (%s)" % host)

    def test_status_without_job(self):
        job = self.job()
        job.start_ps(0)
        self.assertRegex(self.ctl(job.ps_hosts, "status")[0], "^ps:0: no job yet; up ")
        doc = self.json(job.ps_hosts, "status")
        self.assertEqual((doc["state"], doc["job"], doc["step"]), ("no job yet", None, None))
        for words in (["members"], ["who-is-late"], ["checkpoint"], ["add", "worker"]):
            _, err = self.ctl(job.ps_hosts, *words, status=RETRY)
            self.one_line(err, "no job yet: the first worker has not joined")
        job.ps[0].stop()

    def test_status_from_other_server_without_ps_0(self):
        job = self.run_job()
        job.ps[0].kill()
        out, err = self.ctl(job.ps_hosts, "status")
        self.assertIn(job.ps_hosts[1] + " answers only for itself, since it is not ps:0", err)
        self.assertRegex(out, "^ps:1: generation ")
        _, err = self.ctl(job.ps_hosts, "remove-worker", "1", status=RETRY)
        self.one_line(err, "not reachable")

    def test_command_at_other_server_refused(self):
        job = self.run_job()
        _, err = self.ctl(job.ps_hosts[1:], "remove-worker", "1", status=1)
        self.one_line(err, "refused: only ps:0 accepts commands (%s)" % job.ps_hosts[0])

    def test_bad_command_lines_refused(self):
        hosts = ["127.0.0.1:1"]
        for words, text in ((["--json"], "a command is missing: status, members, "),
                            (["frobnicate"], "'frobnicate' is not a command; the commands are "
                             "status, members, servers, who-is-late, tables, checkpoint, "
                             "remove-worker INDEX, drain INDEX, stop, export, add worker, add ps "
                             "HOST:PORT"),
                            (["status", "now"], "status needs no operand; remove 'now'"),
                            (["stop", "0", "1"], "stop needs no operand; remove '0'"),
                            (["remove-worker"], "remove-worker: INDEX is missing: the worker's "
                             "number, which 'weirctl members' shows"),
                            (["drain"], "drain: INDEX is missing: the server's number, which "
                             "'weirctl servers' shows"),
                            (["drain", "1", "2"], "drain needs only one operand, INDEX; "
                             "remove '2'"),
                            (["drain", "x"], "drain: 'x' is not an index; write a number from 0"),
                            (["remove-worker", "-1"], "unknown flag -1"),
                            (["remove-worker", "4096"],
                             "remove-worker: '4096' is not an index; write a number from 0 to "),
                            (["add"], "add: an operand is missing; write 'add worker' or "),
                            (["add", "server"], "add: 'server' is not 'worker' or 'ps'; write "),
                            (["add", "worker", "a:1"], "add worker needs no operand; remove 'a:1'"),
                            (["add", "ps"], "add ps: HOST:PORT is missing: the address at which"),
                            (["add", "ps", "a:1", "b:1"],
                             "add ps needs only one operand, HOST:PORT; remove 'b:1'"),
                            (["add", "ps", "nowhere"], "nowhere"),
                            (["--frob", "status"], "unknown flag --frob")):
            self.one_line(self.ctl(hosts, *words, status=2)[1], text)
        self.one_line(self.ctl([], "status", status=2)[1], "--ps_hosts is missing")
        self.one_line(self.ctl([], "exprot", status=2)[1], "'exprot' is not a command; ")
        self.assertIn("who-is-late", self.ctl([], "--help")[0])


class Changes(Weirctl):
    def test_remove_worker_drops_worker(self):
        job = self.run_job(delays=(2, 2, 2))
        out, _ = self.ctl(job.ps_hosts, "remove-worker", "1")
        self.assertEqual(out, "accepted: worker 1 leaves at a later step\n")
        doc = self.await_json(job, ["status"], lambda d: d["generation"] == harness.term(2) and
                              d["state"] == "training")
        self.assertEqual([(m["index"], m["rank"]) for m in doc["members"]], [(0, 0), (2, 1)])
        job.workers[1].wait_line("it was removed from the job; start it again")
        job.workers[1].wait(30, 1)
        step = doc["step"]
        self.await_json(job, ["status"], lambda d: d["step"] > step + 3)
        self.assertEqual(self.json(job.ps_hosts, "status")["generation"], harness.term(2),
                         "the worker was admitted again")
        _, err = self.ctl(job.ps_hosts, "remove-worker", "1", status=1)
        self.assertIn("refused: there is no worker 1 in the job", err)
        job.start_worker(1, "--fault_push_delay_ms=2")  # a new process may join in its place
        self.await_json(job, ["members"], lambda d: len(d["members"]) == 3)

    def test_drain_removes_server(self):
        job = self.run_job()
        self.assertIn("accepted: ps:1", self.ctl(job.ps_hosts, "drain", "1")[0])
        job.ps[1].wait(60)  # exit code 0
        doc = self.await_json(job, ["status"], lambda d: len(d["servers"]) == 1)
        self.assertEqual(doc["servers"][0]["bytes"], 4 * doc["job"]["elements"])
        step = doc["step"]
        self.await_json(job, ["status"], lambda d: d["step"] > step + 3)
        for index, why in ((0, "cannot leave"), (1, "there is no ps:1")):
            _, err = self.ctl(job.ps_hosts, "drain", str(index), status=1)
            self.assertIn(why, err)

    def test_add_prints_command_that_joins(self):
        job = self.run_job()
        hosts = ",".join(job.ps_hosts)
        line = self.ctl(job.ps_hosts[:1], "add", "worker")[0]
        programs = os.path.realpath(harness.BIN)
        self.assertEqual(line, "%s/worker --join --ps_hosts=%s --data_dir=%s\n" %
                         (programs, hosts, os.path.realpath(self.data())))
        self.assertEqual(self.json(job.ps_hosts, "add", "ps", "10.0.0.9:2221"),
                         {"command": "%s/ps --join --ps_hosts=%s --address=10.0.0.9:2221" %
                                     (programs, hosts)})
        worker = self.start("joiner", [*line.split(), "--progress=lines"])
        self.await_json(job, ["members"], lambda d: [m["state"] for m in d["members"]] ==
                        ["training"] * 3)
        worker.kill()

    def at_relative_folder(self, here, name):
        """Returns a job in training, whose ps 0 has that folder of checkpoints as its flag."""
        job = self.job(n_ps=1, n_workers=1, model="small", flags=FLAGS)
        job.ps[0] = self.start_program("ps", "--job_name=ps", "--task_index=0",
                                       "--checkpoint_dir=" + name, *job.hosts(), name="ps:0",
                                       cwd=here)
        job.start_worker(0, "--fault_push_delay_ms=2")
        job.workers[0].wait_line("training step 2 done")
        return job

    def test_add_prints_absolute_or_no_folder(self):
        """The operator runs the printed command in another folder: it must name the same folder, or
        none."""
        here = os.path.realpath(self.dir())
        job = self.at_relative_folder(here, "k" * 240)
        line, told = self.ctl(job.ps_hosts, "add", "ps", "127.0.0.1:9")
        self.assertNotIn("--checkpoint_dir", line)
        self.assertIn("only a part of the path of ps:0's checkpoints is known", told)
        job.kill()
        job = self.at_relative_folder(here, "ck\u00fc")
        folder = os.path.join(here, "ck\u00fc")
        self.assertEqual(self.json(job.ps_hosts, "status")["checkpoints"]["folder"], folder)
        line = self.ctl(job.ps_hosts, "add", "ps", "127.0.0.1:9")[0]
        self.assertIn("--checkpoint_dir=" + folder, shlex.split(line))
        job.kill()

    def add_worker(self, *data):
        """Returns (command, notes) for a job whose worker had these flags."""
        argv = [harness.program("worker"), harness.models_dir("softmax"), "--model=softmax",
                "--progress=lines", "--train_steps=100000000", *data]
        job = self.job(n_ps=1, n_workers=1)
        job.start_ps(0)
        job.workers[0] = self.start("worker:0", argv + job.hosts())
        job.workers[0].wait_line("training step")
        got = self.ctl(job.ps_hosts, "add", "worker")
        job.kill()
        return got

    def test_add_without_common_folder_names_missing_flag(self):
        """The command names no folder that may differ on the new worker's host; a note names the
        missing flag."""
        line, told = self.add_worker("--data_dir=" + self.data(), "--data_shard=own")
        self.assertNotIn("--data", line)
        self.assertIn("each worker of this job has its own data: add --data_dir=",
                      told)
        path = os.path.realpath(self.data()) + "/%s-images-idx3-ubyte"
        labels = os.path.realpath(self.data()) + "/%s-labels-idx1-ubyte"
        line, told = self.add_worker(
            *("--%s_%s=%s" % (part, what, name % {"train": "train", "test": "t10k"}[part])
              for part in ("train", "test") for what, name in (("data", path), ("labels", labels))))
        self.assertNotIn("_data", line)
        self.assertIn("the first worker reads files (%s): add --train_data=FILE "
                      "--test_data=FILE, and the files of labels" % path % "train", told)
        line, told = self.add_worker("--train_data=" + path % "train",
                                     "--train_labels=" + labels % "train")
        self.assertNotIn("_data", line)
        self.assertIn("add --train_data=FILE, and the files of labels", told)


harness.main(__name__)
