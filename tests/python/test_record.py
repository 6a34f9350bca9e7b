"""--record_samples: together the records of all workers have each sample of the data set once, in
order, also if a worker is killed or has several towers. samples.py finds faults in records."""
# label: cluster
import os

import harness
import samples

FLAGS = ["--batch_size=12", "--train_steps=40", "--log_every=1", "--intra_op_threads=1"]


class Record(harness.Test):
    def path(self, name):
        return os.path.join(self.dir(), "samples-%s" % name)

    def test_workers_record_each_sample_once(self):
        job = self.job(n_ps=2, n_workers=2, model="softmax",
                       flags=[*FLAGS, "--fault_push_delay_ms=20"])
        job.start_servers()
        job.start_worker(0, "--towers=3", "--record_samples=" + self.path(0))
        job.start_worker(1, "--record_samples=" + self.path(1))
        job.workers[1].wait_line("training step 7 done")
        job.restart_worker(1, "--record_samples=" + self.path(1))
        job.finish()
        paths = [self.path(0), self.path(1)]
        self.assertEqual(samples.wrong(paths, 40), [])
        rows = samples.read(paths)
        self.assertEqual(len(rows), 40 * 4)
        self.assertEqual(sum(r[3] for r in rows), 40 * 24)
        self.assertTrue(all(r[0] > 0 for r in rows))
        # Faults that the reader must find: a missing line, and a sample that was read twice.
        for name, change in (("gap", lambda lines: lines[:9] + lines[10:]),
                             ("twice", lambda lines: [*lines[:-1], lines[-2].replace(" 38 ",
                                                                                     " 39 ")])):
            with open(self.path(1), encoding="ascii") as f:
                lines = sorted(set(f), key=lambda line: int(line.split()[1]))
            harness.write_file(self.path(name), "".join(change(lines)))
            self.assertTrue(samples.wrong([self.path(0), self.path(name)], 40), name)

    def test_worker_alone_records_each_sample_once(self):
        self.run_worker(*FLAGS, "--record_samples=" + self.path("alone"))
        self.assertEqual(samples.wrong([self.path("alone")], 40), [])
        self.assertEqual({r[0] for r in samples.read([self.path("alone")])}, {0})

    def test_unwritable_records_end_worker(self):
        """The worker exits with 1 after a permanent error, and with 138 if the disk is full,
        because a restart may find room."""
        for path, why in ((self.dir(), "Is a directory"), (self.path("no") + "/x", "No such file")):
            worker = self.run_worker(*FLAGS, "--record_samples=" + path, status=1)
            self.assertRegex(worker.output(), "--record_samples: cannot open .*: " + why)
        if os.path.exists("/dev/full"):
            worker = self.run_worker(*FLAGS, "--record_samples=/dev/full", status=138)
            self.assertRegex(worker.output(), "--record_samples: cannot write /dev/full: No space")


harness.main(__name__)
