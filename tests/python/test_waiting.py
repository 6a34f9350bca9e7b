"""A job that stands looks like one: whom it waits for is said by the workers, weirctl, the status
page and the metrics, and a job that goes on says nothing of the kind."""
# label: cluster
import http.client
import json
import os
import re
import subprocess

import harness

FLAGS = ["--batch_size=12", "--train_steps=100000", "--log_every=1", "--intra_op_threads=1"]
MS = "--fault_push_delay_ms=2"


class Waiting(harness.Test):
    def kill(self, job):
        for process in job.workers + job.ps:
            if process.status is None:
                process.stop(harness.signal.SIGKILL, status=-harness.signal.SIGKILL)

    def page(self, port, path):
        c = http.client.HTTPConnection(harness.LOOPBACK, port, timeout=20 * harness.PATIENCE)
        c.request("GET", path)
        body = c.getresponse().read().decode()
        c.close()
        return body

    def status(self, job, *words):
        return subprocess.run([os.path.join(harness.BIN, "weirctl"),
                               "--ps_hosts=" + ",".join(job.ps_hosts), *words, "status"],
                              capture_output=True, text=True, check=True,
                              timeout=60 * harness.PATIENCE).stdout

    def until_status(self, job, good):
        def look():
            doc = json.loads(self.status(job, "--json"))
            return doc if good(doc) else None
        return harness.until(look, "a status as it should be")

    def waits_for(self, job, whom):
        return self.until_status(job, lambda d: d["waiting"] and
                                 re.fullmatch(whom, d["waiting"]["for"]))

    def test_a_worker_that_never_joined(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        port = harness.free_ports(1)[0]
        job.start_ps(0, "--metrics_port=%d" % port)
        job.start_worker(0, MS)
        whom = r"worker 1 \(never joined\)"
        doc = self.waits_for(job, whom)
        self.assertEqual((doc["state"], doc["steps_per_s"]), ("waiting", 0))
        self.assertGreaterEqual(doc["waiting"]["seconds"], 3)
        text = self.status(job)
        self.assertRegex(text, r"(?m)^ps:0: generation 1\.1, waiting, step 0 of 100000 \(sync\); "
                               r"0\.0 steps/s")
        self.assertRegex(text, r"(?m)^waiting for %s, \d+ s$" % whom)
        self.assertRegex(text, r"(?m)^model small: \d+ parameters, ")
        page = json.loads(self.page(port, "/status.json"))
        self.assertEqual((page["state"], page["steps_per_s"], page["images_per_s"]),
                         ("waiting", 0, 0))
        self.assertRegex(page["waiting"], r"^waiting for %s, \d+ s$" % whom)
        self.assertEqual(page["job"]["model"], "small")
        self.assertTrue(page["job"]["data"]["name"])
        self.assertRegex(self.page(port, "/metrics"),
                         r'(?m)^weir_ps_waiting_seconds\{for="%s"\} [0-9.]+$' % whom)
        job.start_worker(1, MS).wait_line("training step 2 done")
        doc = self.until_status(job, lambda d: d["state"] == "training")
        self.assertIsNone(doc["waiting"])
        self.until_status(job, lambda d: d["steps_per_s"] > 0)
        harness.until(lambda: "weir_ps_waiting_seconds{" not in self.page(port, "/metrics"),
                      "the metrics name no worker any more")
        self.kill(job)

    def test_a_worker_that_died(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        port = harness.free_ports(1)[0]
        job.start_ps(0, "--metrics_port=%d" % port)
        for i in range(2):
            job.start_worker(i, MS)
        harness.until(lambda: json.loads(self.page(port, "/status.json"))["members"] and
                      json.loads(self.page(port, "/status.json"))["members"][1]["images_per_s"],
                      "worker 1 reports its speed")
        job.workers[1].stop(harness.signal.SIGKILL, status=-harness.signal.SIGKILL)
        doc = self.waits_for(job, r"worker 1 \(no connection for \d+ s\)")
        self.assertEqual((doc["state"], doc["steps_per_s"]), ("waiting", 0))
        dead = json.loads(self.page(port, "/status.json"))["members"][1]
        self.assertEqual((dead["state"], dead["images_per_s"], dead["memory_bytes"]),
                         ("missing", None, None))
        self.kill(job)


if __name__ == "__main__":
    harness.main()
