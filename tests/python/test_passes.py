"""Each sample of each pass is read once (I6), also if a dead worker is dropped at once and returns,
and if another number of workers resumes from a checkpoint."""
# label: cluster
import re

import harness
import samples

def wait_generation(test, job, n, workers, more=""):
    """Waits until a generation with so many workers has begun, and worker 0 makes steps in it. n:
    least number of the generation in ps:0's first life, or a pattern of its name. The generation
    must also be later than the one of the previous call. On a busy machine more generations may
    begin than the test causes: a late worker is dropped, and admitted again."""
    w, name = job.workers[0], n
    if not isinstance(n, str):
        first = max(n, job.generation + 1)
        name = r"1\.(?:%s)" % "|".join("%d" % k for k in range(first, first + 20))
    m = w.wait_line(r"generation (%s) from step \d+: %d workers?, %s" % (name, workers, more))
    begins, job.generation = m.group(0), int(m.group(1).split(".")[1])
    with w.changed:
        begun = max(i for i, line in enumerate(w.lines) if begins in line)
        test.assertTrue(w.changed.wait_for(
            lambda: sum("done (global" in line for line in w.lines[begun:]) >= 5,
            20 * harness.PATIENCE), "no steps after: " + begins)


class Samples(harness.Test):
    FLAGS = ["--batch_size=12", "--seed=3", "--intra_op_threads=1", "--log_every=1",
             "--fault_push_delay_ms=8"]

    def test_worker_timeout_0_reads_each_sample_once(self):
        """--worker_timeout=0: a worker that dies is dropped at once, and admitted when it
        returns."""
        steps = 250
        job = self.job(n_ps=2, n_workers=3, flags=[*self.FLAGS, "--train_steps=%d" % steps])
        job.start_servers("--worker_timeout=0")
        for i in range(3):
            job.start_worker(i, self.record())
        job.workers[0].wait_line("training step 5 done")
        for n, i in enumerate((1, 2, 1)):
            job.workers[i].kill()
            wait_generation(self, job, 2 * n + 2, 2)
            job.start_worker(i, self.record())
            wait_generation(self, job, 2 * n + 3, 3)
        job.finish(90)
        self.assertEqual(samples.wrong(self.records, steps), [])
        self.assertNotIn("generation 1.8", job.ps[0].output())

    def test_other_number_of_workers_reads_each_sample_once(self):
        """A job of 3 workers is killed, and resumes with 2, then with 4. Each time the first sample
        is the one after the last sample of the checkpoint."""
        ckpt = ["--checkpoint_dir=" + self.path("ckpt"), "--save_steps=10"]
        rows, begun = set(), 0
        # Checkpoints may be some steps later than `steps`, because a disk may be slow.
        for n_workers, steps in ((3, 10), (2, 50), (4, 90)):
            job = self.job(n_ps=2, n_workers=n_workers, flags=[*self.FLAGS, "--train_steps=90"])
            job.start_servers(*ckpt)
            for i in range(n_workers):
                job.start_worker(i, self.record())
            if steps < 90:
                job.brake_from(steps + 2)
                job.ps[0].wait_line(r"I .* checkpoint at step (%d\d|[6-8]\d): " % (steps // 10))
                self.kill(*job.ps, *job.workers)
            else:
                job.finish(60)
            end = max(int(m) for m in re.findall(r"checkpoint at step (\d+): ",
                                                 job.ps[0].output()))
            part = {r for r in samples.read(self.records[-n_workers:]) if begun <= r[1] < end}
            self.assertEqual(len(part), n_workers * (end - begun))
            rows |= part
            begun = end
        path = self.write("all", "".join("%d %d %d %d\n" % row for row in rows))
        self.assertEqual(samples.wrong([path], 90), [])


harness.main(__name__)
