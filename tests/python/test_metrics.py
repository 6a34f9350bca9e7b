#!/usr/bin/python3
"""--metrics_port of a real job: the answers to a scraper, a probe and a browser during training,
and the message if the port is in use. promtool checks them if it is installed."""
# label: cluster
import http.client
import json
import re
import shutil
import socket
import subprocess

import harness

FLAGS = ["--batch_size=12", "--train_steps=100000", "--log_every=1", "--intra_op_threads=1"]
RULES = harness.source("examples/prometheus")
VALUE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\S+)$')


def families(text):
    """Returns {(name, labels): value}. Checks that each value stands below the HELP and TYPE of its
    family."""
    values, types, family = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line.split()[2] == family and family not in types, line
            types[family] = line.split()[3]
        else:
            name, labels, value = VALUE.match(line).groups()
            bare = re.sub("_(bucket|sum|count)$", "", name)
            assert family in (name, bare), line
            assert (types[family] == "histogram") == (name != family), line
            assert (types[family] == "counter") == name.endswith("_total"), line
            assert (name, labels) not in values, line
            values[name, labels] = float(value)
    return values


class Metrics(harness.Test):
    def get(self, port, path, method="GET"):
        c = http.client.HTTPConnection(harness.LOOPBACK, port, timeout=20 * harness.PATIENCE)
        c.request(method, path)
        answer = c.getresponse()
        body = answer.read().decode()
        c.close()
        return answer.status, body

    def metrics(self, port):
        status, text = self.get(port, "/metrics")
        self.assertEqual(status, 200)
        return families(text), text

    def until_metric(self, port, key, good):
        return harness.until(lambda: good(self.metrics(port)[0].get(key, -1)), key)

    def test_metrics_of_a_job_served(self):
        job = self.job(model="small", flags=FLAGS)
        ps, one = harness.free_ports(2)
        job.start_ps(0, "--metrics_port=%d" % ps, "--checkpoint_dir=" + self.dir() + "/ckpt")
        status, why = self.get(ps, "/healthz")
        self.assertEqual((status, why.split(":")[0].strip()), (503, "no job yet"))
        job.start_worker(0)
        job.start_worker(1, "--metrics_port=%d" % one, "--fault_push_delay_ms=60")
        job.workers[1].wait_line("training step 3 done")
        late = ("weir_ps_worker_waited_seconds_total", 'worker="1"')
        self.until_metric(ps, late, lambda v: v > 0.05)
        self.until_metric(ps, ("weir_ps_loss", None), lambda v: v > 0)
        self.until_metric(ps, ("weir_ps_samples_total", None), lambda v: v >= 24)
        values, text = self.metrics(ps)
        self.assertGreater(values[late], values[late[0], 'worker="0"'])
        self.assertEqual(values["weir_ps_state", 'state="training"'], 1)
        self.assertEqual(values["weir_ps_members", 'state="training"'], 2)
        self.assertEqual(values["weir_ps_ready", None], 1)
        self.assertEqual(values["weir_ps_samples_total", None],
                         24 * values["weir_ps_steps_total", None])
        self.assertGreater(values["weir_ps_received_bytes_total", None], 0)
        self.assertGreater(values["weir_ps_checkpoint_disk_size_bytes", None], 0)
        self.assertGreater(values["process_resident_memory_bytes", None], 1e6)
        self.assertEqual(self.get(ps, "/healthz")[0], 200)
        self.check_page(ps)
        values, worker_text = self.metrics(one)
        self.assertGreater(values["weir_worker_steps_total", None], 0)
        self.assertEqual(values["weir_worker_step_seconds_count", None],
                         values["weir_worker_steps_total", None])
        self.assertEqual(values["weir_worker_phase", 'phase="training"'], 1)
        self.assertIn(self.get(one, "/healthz")[0], (200, 503))
        job.workers[1].kill()
        self.until_metric(ps, ("weir_ps_worker_present", 'worker="1"'), lambda v: v == 0)
        self.kill(job.workers[0], job.ps[0])
        self.are_documented(text + worker_text)
        self.promtool(text, worker_text)  # the last check, because it may skip the test

    def are_documented(self, text):
        doc = harness.read_source("docs/reference/metrics.md")
        for name in re.findall(r"# TYPE (\S+)", text):
            self.assertRegex(doc, "`%s[`{]" % name)

    def check_page(self, port):
        status, page = self.get(port, "/")
        self.assertEqual(status, 200)
        self.assertEqual(re.findall(r"https?://[^\"' ]+", page), ["http://www.w3.org/2000/svg"])
        doc = json.loads(self.get(port, "/status.json")[1])
        self.assertEqual([m["index"] for m in doc["members"]], [0, 1])
        self.assertEqual((doc["state"], doc["ready"]), ("training", True))
        self.assertGreater(doc["members"][1]["late_s"], 0)
        self.assertGreater(doc["members"][1]["memory_bytes"], 1e6)
        self.assertGreater(doc["history"][-1][1], 0)
        self.assertTrue(any(p[2] for p in doc["history"]))
        self.assertEqual(self.get(port, "/status.json", "POST")[0], 405)
        self.assertEqual(self.get(port, "/metrics", "HEAD"), (200, ""))

    def promtool(self, *texts):
        if not shutil.which("promtool"):
            self.skipTest("promtool is not installed (apt-get install prometheus); all else passed")
        def run(*words, text=None):
            p = subprocess.run(["promtool", *words], input=text, capture_output=True, text=True)
            self.assertEqual((p.returncode, p.stderr), (0, ""), (words, p.stdout))
        for text in texts:
            run("check", "metrics", text=text)
        run("check", "rules", RULES + "/alerts.yml")
        run("check", "config", RULES + "/prometheus.yml")
        run("test", "rules", RULES + "/alerts_test.yml")

    def test_metrics_port_in_use_reported(self):
        taken = socket.create_server((harness.LOOPBACK, 0))
        ps = [harness.program("ps"), "--ps_hosts=%s:%d" % (harness.LOOPBACK,
                                                           harness.free_ports(1)[0])]
        p = self.start("ps", ps + ["--metrics_port=%d" % taken.getsockname()[1]])
        p.wait_line(r"--metrics_port: cannot listen on \S+: the port is in use")
        p.wait(status=138)
        p = self.start("ps", ps + ["--metrics_bind=127.0.0.1"])
        p.wait_line(r"--metrics_bind needs --metrics_port")
        p.wait(status=2)
        p = self.run_worker("--metrics_port=1", "--metrics_bind=192.0.2.1", status=1)
        p.wait_line(r"--metrics_port: cannot listen on 192.0.2.1:1: .*; set --metrics_bind to "
                    "an address")
        taken.close()


harness.main(__name__)
