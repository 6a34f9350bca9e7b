#!/usr/bin/python3
"""async, ssp and backup workers while workers and servers join, leave, die and return. After each
change training continues, the programs exit with 0, the model learns, and each mode keeps its
guarantee."""
# label: cluster waits long
import signal

import harness
import samples
import test_modes
from test_passes import wait_generation

MLP = ["--batch_size=20", "--learning_rate=0.01", "--seed=3", "--intra_op_threads=1",
       "--log_every=1", "--hidden_units=32", "--chunk_bytes=16384"]
BRISK, SLOW = "--fault_push_delay_ms=2", "--fault_push_delay_ms=10"
STALENESS = 2


class Changes(harness.Test):
    def setUp(self):
        super().setUp()
        self.joiners = []

    def ckpt(self, *more):
        return ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=20", *more]

    def begin(self, mode, steps, held):
        """Worker 2 is slow, and may be held after some steps; worker 0 logs all events."""
        job = self.job(n_ps=2, n_workers=3, model="mlp",
                       flags=[*MLP, *mode, "--train_steps=%d" % steps])
        job.start_servers(*self.ckpt("--worker_timeout=1"))
        job.brake_from(steps * 2 // 3, lambda: self.joiners)
        for i in (2, 1, 0):
            record = [self.record(i)]
            if held and i == 2:
                job.hold(test_modes.HELD_AT, into=self.records[-1], task=i)
                record = []
            job.start_worker(i, SLOW if i == 2 else BRISK, *record)
        return job

    def all_changes(self, mode, steps, before, held=False):
        """A worker joins, a server joins, and both leave. A worker is dropped and returns. A
        server, and then ps 0, are killed and return. before: a check of the job before the
        changes."""
        job = self.begin(mode, steps, held)
        self.wait_lines(job.workers, "training step 3 done")
        before(job)
        if held:
            job.gate.open()
        joiner = job.join_worker("joiner", "--data_dir=" + self.data(), "--progress=lines",
                                 "--intra_op_threads=1", BRISK, self.record("joiner"))
        self.joiners.append(joiner)
        wait_generation(self, job, 2, 4, "2 servers")
        third = job.join_ps(*self.ckpt())
        wait_generation(self, job, 3, 4, "3 servers")
        joiner.stop(signal.SIGTERM, status=0)
        wait_generation(self, job, 4, 3, "3 servers")
        job.drain(2)
        third.wait(30)
        wait_generation(self, job, 5, 3, "2 servers")
        self.kill(job.workers[1])
        wait_generation(self, job, 6, 2, "2 servers")
        job.start_worker(1, BRISK, self.record(1))
        wait_generation(self, job, 7, 3, "2 servers")
        job.restart_ps(1, *self.ckpt())
        wait_generation(self, job, 8, 3, "2 servers")
        job.restart_ps(0, *self.ckpt("--worker_timeout=1"))
        # Generation 2.1 has two servers only if the last checkpoint has them.
        wait_generation(self, job, r"2\.1|2\.2", 3, "2 servers")
        summaries = job.finish(90)
        for s in summaries:
            self.assertEqual(s["global_step"], steps)
            self.assertEqual(s["parameters_sha256"], summaries[0]["parameters_sha256"])
            self.assertGreaterEqual(s["test_accuracy"], 0.85)
        if held:
            job.gate.close()
        return summaries

    def steps_begun(self, name):
        """Returns {generation: steps that this worker began}."""
        out = {}
        for path in self.records:
            if "/samples-%s-" % name in path:
                for g, *_ in samples.read([path]):
                    out[g] = out.get(g, 0) + 1
        return out

    def ahead(self):
        """Returns {generation: number of steps by which worker 0 was ahead of the slow one}."""
        fast, slow = self.steps_begun(0), self.steps_begun(2)
        return {g: n - slow[g] for g, n in fast.items() if g in slow}

    def test_async_survives_all_changes(self):
        self.all_changes(["--sync_mode=async"], 3000, lambda job: test_modes.run_away(
            job.workers[0], job.workers[2], 30))

    def test_ssp_survives_all_changes(self):
        """The bound holds, plus one step that a worker may have begun already, and one that the end
        of a generation released."""
        self.all_changes(["--sync_mode=ssp", "--staleness=%d" % STALENESS], 1200,
                         lambda job: test_modes.stay_near(self, job.workers[:2], job.workers[2],
                                                          STALENESS), held=True)
        ahead = self.ahead()
        self.assertGreaterEqual(len([g for g in ahead if g < harness.term(0, 2)]), 8, ahead)
        self.assertLessEqual(max(ahead.values()), STALENESS + 2, ahead)

    def test_backup_workers_survive_all_changes(self):
        summaries = self.all_changes(["--replicas_to_aggregate=2"], 1000, lambda job:
                                     test_modes.run_away(job.workers[0], job.workers[2], 30))
        self.assertGreater(summaries[2]["exchange"]["stale"], 0)


harness.main(__name__)
