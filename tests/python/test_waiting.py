"""The workers, weirctl, the status page and the metrics name the members for which a stalled job
waits. For a running job they name none."""
# label: cluster
import http.client
import json
import re

import harness
import regions

FLAGS = ["--batch_size=12", "--train_steps=100000", "--log_every=1", "--intra_op_threads=1"]
MS = "--fault_push_delay_ms=2"


class Looks:
    def page(self, port, path):
        c = http.client.HTTPConnection(harness.LOOPBACK, port, timeout=20 * harness.PATIENCE)
        c.request("GET", path)
        body = c.getresponse().read().decode()
        c.close()
        return body

    def until_status(self, job, good):
        def look():
            doc = job.report()
            return doc if good(doc) else None
        return harness.until(look, "the expected status")

    def waits_for(self, job, whom):
        return self.until_status(job, lambda d: d["waiting"] and
                                 re.fullmatch(whom, d["waiting"]["for"]))

    def waits_for_none(self, job):
        self.until_status(job, lambda d: d["state"] == "training" and d["waiting"] is None)


class Waiting(Looks, harness.Test):
    def test_worker_that_never_joined_named(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        port = harness.free_ports(1)[0]
        job.start_ps(0, "--metrics_port=%d" % port)
        own = harness.free_ports(1)[0]
        job.start_worker(0, MS, "--metrics_port=%d" % own, "--metrics_bind=" + harness.LOOPBACK)
        whom = r"worker 1 \(never joined\)"
        doc = self.waits_for(job, whom)
        self.assertEqual((doc["state"], doc["steps_per_s"]), ("waiting", 0))
        self.assertGreaterEqual(doc["waiting"]["seconds"], 3)
        text = job.ctl("status")
        self.assertRegex(text, r"(?m)^ps:0: generation 1\.1, waiting, step 0 of 100000 \(sync\); "
                               r"0\.0 steps/s")
        self.assertRegex(text, r"(?m)^waiting for %s, \d+ s so far$" % whom)
        self.assertRegex(text, r"(?m)^model small: \d+ parameters, \d+ elements in 1 chunk; ")
        self.assertRegex(job.ps[0].output(), "elements in 1 chunk; 2 workers, ")
        self.assertRegex(job.workers[0].output(), r"parameters in 1 chunk; 1 tower, ")
        page = json.loads(self.page(port, "/status.json"))
        self.assertEqual((page["state"], page["steps_per_s"], page["images_per_s"]),
                         ("waiting", 0, 0))
        self.assertRegex(page["waiting"], r"^waiting for %s, \d+ s so far$" % whom)
        self.assertRegex(self.page(port, "/healthz"), r"^ok: training, step 0; waiting for %s, "
                         r"\d+ s so far$" % whom)
        self.assertEqual(page["job"]["model"], "small")
        self.assertTrue(page["job"]["data"]["name"])
        self.assertRegex(self.page(port, "/metrics"),
                         r'(?m)^weir_ps_waiting_seconds\{for="%s"\} [0-9.]+$' % whom)
        job.workers[0].wait_line(r"waiting for %s, \d+ s so far$" % whom)
        metric = r'(?m)^weir_worker_waiting_seconds\{for="%s"\} [0-9.]+$' % whom
        harness.until(lambda: re.search(metric, self.page(own, "/metrics")),
                      "the worker's metrics name the worker that it waits for")
        self.assertRegex(self.page(own, "/healthz"), r"^ok: training, step 1; waiting for %s, "
                         r"\d+ s so far$" % whom)
        job.start_worker(1, MS).wait_line("training step 2 done")
        job.workers[0].wait_line(r"the wait for worker 1 \(never joined\) is over after \d+ s")
        doc = self.until_status(job, lambda d: d["state"] == "training")
        self.assertIsNone(doc["waiting"])
        self.until_status(job, lambda d: d["steps_per_s"] > 0)
        harness.until(lambda: "weir_ps_waiting_seconds{" not in self.page(port, "/metrics"),
                      "the metrics name no worker")
        job.kill()

    def test_dead_worker_named(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS)
        port = harness.free_ports(1)[0]
        job.start(["--metrics_port=%d" % port], [MS])
        harness.until(lambda: json.loads(self.page(port, "/status.json"))["members"] and
                      json.loads(self.page(port, "/status.json"))["members"][1]["images_per_s"],
                      "worker 1 reports its speed")
        job.workers[1].kill()
        whom = r"worker 1 \(no connection for \d+ s\)"
        doc = self.waits_for(job, whom)
        job.workers[0].wait_line(r"waiting for %s, \d+ s so far$" % whom)
        job.ps[0].wait_line(r"step \d+ waits for worker 1 \(.*\), \d+ s so far$")
        self.assertEqual((doc["state"], doc["steps_per_s"]), ("waiting", 0))
        self.assertRegex(self.page(port, "/metrics"),
                         r'(?m)^weir_ps_waiting_seconds\{for="worker 1"\} [0-9.]+$')
        dead = json.loads(self.page(port, "/status.json"))["members"][1]
        self.assertEqual((dead["state"], dead["images_per_s"], dead["memory_bytes"]),
                         ("missing", None, None))
        job.kill()

    def test_refused_worker_named(self):
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS + ["--local_steps=2"])
        job.start_ps(0)
        job.start_worker(0, MS)
        job.ps[0].wait_line("worker 0 joined")
        job.start_worker(1, "--seed=77").wait(60, 1)
        job.workers[0].wait_line(r"waiting for worker 1 \(refused \d+ s ago: another job: "
                                 r"--seed: .*\), \d+ s so far$")
        job.kill()

    def test_hanging_worker_named(self):
        job = self.started_job(n_ps=1, n_workers=2, model="small", flags=FLAGS, worker_flags=[MS])
        job.workers[1].wait_line("training step 2 done")
        with harness.paused(job.workers[1]):
            whom = r"worker 1 \(connected; its part of step \d+ is missing\)"
            job.workers[0].wait_line(r"waiting for %s, \d+ s so far$" % whom)
        self.waits_for_none(job)
        job.kill()

    def test_worker_of_missing_validation_part_named(self):
        """A worker that has evaluated its own part waits for the parts of the other workers. Here
        the evaluation is nearly all of a step, but the pause of worker 1 may begin outside of it.
        Then the test makes another pause."""
        job = self.started_job(n_ps=1, n_workers=3, model="small",
                               flags=[*FLAGS, "--validation_split=0.9", "--eval_every=1"])
        job.workers[1].wait_line("training step 2 done")
        whom = r"worker 1 \(connected; its part of (the validation at )?step \d+ is missing\)"
        line, n = r"(?m)waiting for %s, \d+ s so far$" % whom, 0
        over = "the wait for worker 1 "

        def look():
            return list(re.finditer(line, job.workers[0].output()))[n:]
        for n in range(20):
            with harness.paused(job.workers[1]):
                [found] = harness.until(look, "worker 0 names the missing worker")
                if found.group(1):
                    self.waits_for(job, whom)
                    job.workers[2].wait_line(line)
                    break
            # The next pause is a new wait only if worker 1 has sent its part before.
            harness.until(lambda n=n: job.workers[0].output().count(over) > n,
                          "the wait for worker 1 is over")
        self.assertTrue(found.group(1))
        self.waits_for_none(job)
        job.kill()

    def test_absent_servers_named(self):
        job = self.job(n_ps=2, n_workers=1, model="small", flags=FLAGS + ["--chunk_bytes=4096"])
        worker = job.start_worker(0, MS)
        worker.wait_line(r"waiting for ps:0 \(%s\), \d+ s so far: " % job.ps_hosts[0])
        job.start_ps(0)
        line = r"waiting for ps:1 \(%s, no connection\), \d+ s so far$" % job.ps_hosts[1]
        worker.wait_line(line)
        job.start_ps(1)
        worker.wait_line("training step 2 done")
        job.ps[1].kill()
        harness.until(lambda: len(re.findall("(?m)" + line, worker.output())) > 1,
                      "the dead server is named")
        job.kill()

    def test_hanging_server_named(self):
        """The connections of the hanging server stay up, but it does not answer."""
        job = self.job(n_ps=2, n_workers=1, model="small", flags=FLAGS + ["--chunk_bytes=4096"])
        job.start_servers()
        worker = job.start_worker(0, MS)
        worker.wait_line("training step 2 done")
        with harness.paused(job.ps[1]):
            worker.wait_line(r"waiting for ps:1 \(%s, no (answer|connection)\), \d+ s so far$" %
                             job.ps_hosts[1])
        worker.wait_line(r"the wait for ps:1 is over after \d+ s")
        self.assertNotIn("waiting for ps:0", worker.output())
        job.kill()

    def test_running_workers_name_no_member(self):
        """In async mode no worker waits for an absent worker. A worker in a long step, here a
        paused one, does not wait either."""
        job = self.job(n_ps=1, n_workers=2, model="small", flags=FLAGS + ["--sync_mode=async"])
        job.start_ps(0)
        worker = job.start_worker(0, MS)
        worker.wait_line("training step 2 done")
        self.until_status(job, lambda d: d["steps_per_s"] > 0)
        with harness.paused(worker):
            self.until_status(job, lambda d: d["steps_per_s"] == 0)
            self.assertIsNone(job.report()["waiting"])
        seen = len(worker.lines)
        harness.until(lambda: len(worker.lines) > seen + 10, "the worker trains again")
        self.waits_for_none(job)
        self.assertNotIn("waiting for", worker.output())
        job.kill()


class Region(Looks, regions.Test):
    def test_absent_member_of_parent_group_named(self):
        """The region's workers name the member of the parent group that they wait for, like the
        region's ps 0: another region, or the parent's server."""
        a, _ = self.begin(steps=100000, n_workers=1, late=(1,))
        parent = self.parents.ps_hosts[0]
        whom = r"region 1 \(never joined\) of the parent group \(%s\)" % parent
        a.workers[0].wait_line(r"waiting for %s, \d+ s so far$" % whom)
        self.waits_for(a, whom)
        self.regions[1].start(self.region_flags[1])
        a.workers[0].wait_line(r"\(global step: 100\)")
        self.parents.ps[0].kill()
        whom = r"ps:0 of the parent group \(%s, no connection\)" % parent
        a.workers[0].wait_line(r"waiting for %s, \d+ s so far$" % whom)
        self.waits_for(a, whom)
        for job in self.regions:
            job.kill()

    def test_parent_group_that_never_existed_named(self):
        a, = self.begin(steps=100000, n=1, n_workers=1, late=(0,))
        self.parents.ps[0].kill()
        a.start(self.region_flags[0])
        whom = r"ps:0 of the parent group \(%s, no connection\)" % self.parents.ps_hosts[0]
        a.workers[0].wait_line(r"waiting for %s, \d+ s so far$" % whom)
        self.waits_for(a, whom)
        a.kill()


harness.main(__name__)
