"""The modes besides plain sync with 16-bit numbers, with delay compensation, and without servers.
Log lines and a server's summary name the slow workers of the steps."""
# label: cluster address waits
import os
import re
import tempfile

import harness
import test_modes


class Figures(test_modes.Case):
    def test_delay_compensation_trains(self):
        for mode in ("--sync_mode=async", "--sync_mode=ssp --staleness=4"):
            job = self.start_job([*mode.split(), "--train_steps=240", "--delay_compensation=0.5"],
                                 n_ps=2)
            self.check(job, 240, applied=1)

    def test_modes_train_in_16_bits(self):
        """Gradients in bf16, parameters in fp16: every mode trains, and its workers end with the
        same bits."""
        for mode in (["--sync_mode=async", "--delay_compensation=0.5"],
                     ["--sync_mode=ssp", "--staleness=2"], ["--replicas_to_aggregate=2"]):
            job = self.start_job([*mode, "--train_steps=240", "--wire_dtype=bf16,fp16"], n_ps=2)
            self.check(job, 240)

    def test_worker_alone_same_bits_in_all_modes(self):
        """Without servers all modes are equal."""
        digests = set()
        for mode in ([], ["--sync_mode=async"], ["--sync_mode=ssp", "--staleness=3"]):
            path = self.path("alone.json")
            self.run_worker(*test_modes.QUICK, *mode, "--train_steps=40", "--summary_json=" + path)
            digests.add(harness.read_json(path)["parameters_sha256"])
        self.assertEqual(len(digests), 1)

    def test_stragglers_logged_and_in_summary(self):
        path = self.path("ps.json")
        job = self.start_job(["--train_steps=40", "--log_every=1"], slow=1,
                             ps_flags=["--log_stragglers", "--straggler_ms=5",
                                       "--summary_json=" + path])
        for step in (5, 15, 25):
            job.workers[1].wait_line("training step %d done" % step)
            with harness.paused(job.workers[1]):
                harness.wait_still(job.workers[0], job.workers[2])  # lasts a second at least
        self.check(job, 40, applied=3)
        text = job.ps[0].output()
        lines = re.findall(r"step (\d+) waited (\d+) ms for worker (\d) \(([^)]*)\)", text)
        for step, ms, worker, host in lines:
            self.assertLess(int(step), 40)
            self.assertGreaterEqual(int(ms), 5)
            self.assertEqual(host, job.worker_hosts[int(worker)])
        for_slow = [int(ms) for _, ms, worker, _ in lines if worker == "1"]
        self.assertGreaterEqual(len([ms for ms in for_slow if ms >= 1000]), 3)
        self.assertRegex(text, r"worker 1 \([^)]*\) was the last in \d+ steps; the other workers "
                         r"waited \d+\.\d+ s for it")
        s = harness.read_json(path)
        self.assertEqual((s["role"], s["task_index"], s["steps"]), ("ps", 0, 40))
        self.assertEqual(s["received_bytes"], 4 * 7850 * (3 * 40 + 1))
        self.assertEqual([w["worker"] for w in s["workers"]], [0, 1, 2])
        self.assertEqual(sum(w["times_last"] for w in s["workers"]), 40)
        self.assertGreaterEqual(s["workers"][1]["times_last"], len(for_slow))
        self.assertGreaterEqual(s["workers"][1]["seconds_waited_for"], sum(for_slow) / 1000)
        self.assertLessEqual(s["workers"][1]["seconds_waited_for"], s["seconds"])
        self.assertGreater(s["sent_bytes"], s["received_bytes"])

    def test_stragglers_not_logged_by_default(self):
        job = self.start_job(["--train_steps=10"], n_workers=2, slow=1)
        self.check(job, 10, least=0)
        self.assertNotIn(" waited ", job.ps[0].output().replace("workers waited", ""))

    def test_summary_without_folder_fails_at_the_end(self):
        """The folder of the summary is removed while the job runs: the server reports the error at
        the end, and fails."""
        folder = tempfile.mkdtemp(prefix="weir-test-")
        job = self.job(n_ps=1, n_workers=1, flags=[*test_modes.QUICK, "--train_steps=2"])
        job.start_ps(0, "--summary_json=" + os.path.join(folder, "all.json"))
        os.rmdir(folder)
        job.start_worker(0).wait()
        self.assertIn("--summary_json", job.ps[0].wait_output(status=1))


harness.main(__name__)
