#!/usr/bin/python3
"""Weir's own workers and Python programs with the package `weir` train in one job, also in that of
a region. A program must describe the same parameters as the worker, and is refused otherwise."""
# label: cluster
import array
import hashlib
import shutil
import unittest

import harness
import regions
import samples

harness.use_package()
import weir  # noqa: E402

MODELS = {"softmax": (("softmax/weights", (10, 784)), ("softmax/biases", (10,))),
          "mlp": (("hid/weights", (24, 784)), ("hid/biases", (24,)), ("sm/weights", (10, 24)),
                  ("sm/biases", (10,)))}


@unittest.skipIf(harness.SANITIZE, "the library is loaded into a Python without a sanitizer")
class Mixed(regions.Test):
    def member(self, job, model, task, **settings):
        m = weir.Member(ps_hosts=",".join(job.ps_hosts), n_workers=len(job.workers),
                        task_index=task, **settings)
        self.addCleanup(m.close)
        for name, shape in MODELS[model]:
            m.param(name, shape)
        return m

    def train(self, m, model):
        """Trains to the end with contributions that have no gradient; returns the samples of its
        steps."""
        rows = []
        while (step := m.next(60 * harness.PATIENCE)) is not None:
            rows.append((step.generation, step.step, step.position, step.n_samples))
            for param in range(len(MODELS[model])):
                m.push(param, samples=step.n_samples)
        self.assertEqual(m.result, "done")
        return rows

    def test_worker_and_program_share_job(self):
        """The worker or the program may join first. Both end with the same bits, and no sample is
        read twice."""
        for own_first in (True, False):
            path = "%s/samples-%d" % (self.dir(), own_first)
            job = self.job(n_workers=2, flags=["--train_steps=30", "--batch_size=10",
                                               "--seed=3", "--record_samples=" + path])
            job.workers.pop()
            job.start_ps()
            settings = {"train_steps": 30, "batch_size": 10, "seed": 3}
            job.workers.append(None)
            other = weir.Member(ps_hosts=job.ps_hosts[0], n_workers=2, task_index=1, **settings)
            other.param("own/weights", (10, 784))
            m = self.member(job, "softmax", 1, **settings)
            if own_first:
                # The program has joined with its description of the job, and waits for worker 0.
                with self.assertRaises(weir.Timeout):
                    m.next(0.2)
                job.start_worker(0)
            else:
                job.start_worker(0).wait_line("vector loops")
                with self.assertRaisesRegex(weir.Refused, "parameter 0: named 'softmax/weights' on "
                                            "the servers, 'own/weights' on the worker"):
                    other.next(60 * harness.PATIENCE)
            other.close()
            rows = self.train(m, "softmax")
            bits = b"".join(bytes(m.values(param)) for param in range(2))
            m.close()
            job.workers[0].wait(60)
            job.ps[0].wait(60)
            self.assertEqual(job.summary(0)["parameters_sha256"],
                             hashlib.sha256(bits).hexdigest())
            harness.write_file(path + "-own", "".join("%d %d %d %d\n" % row for row in rows))
            self.assertEqual(samples.wrong([path, path + "-own"], 30), [])

    def test_worker_resumes_where_parameters_lacked_gradients(self):
        """A program's parameters lack gradients in some steps. From its checkpoint a worker without
        servers, stopped once, trains to the same bits as one with servers."""
        flags = ["--train_steps=16", "--batch_size=10", "--seed=3", "--optimizer=adam",
                 "--hidden_units=24", "--intra_op_threads=1", "--log_every=1"]
        first, with_servers, alone = (self.path(name) for name in ("first", "servers", "alone"))
        job = self.job(n_workers=1, model="mlp", flags=flags)
        job.start_servers("--checkpoint_dir=" + first)
        m = self.member(job, "mlp", 0, train_steps=16, batch_size=10, seed=3, optimizer="adam")
        for _ in range(6):
            step = m.next(60 * harness.PATIENCE)
            for param in range(4):
                lacks = param == 0 and step.step > 2 or param == 1 and step.step % 2
                m.push(param, None if lacks else array.array("f", [
                    0.01 * (1 + k % 7) for k in range(m.values(param).nbytes // 4)]), samples=10)
        m.next(60 * harness.PATIENCE)
        self.terminate(job.ps, 60, 143)
        m.close()
        for folder in (with_servers, alone):
            shutil.copytree(first, folder)
        want, = self.started_job(n_workers=1, model="mlp", flags=flags, ps_flags=[
            "--checkpoint_dir=" + with_servers]).finish(120)
        summary = self.path("alone.json")
        flags += ["--checkpoint_dir=" + alone, "--summary_json=" + summary]
        worker = self.start_alone("--fault_push_delay_ms=20", *flags, model="mlp")
        worker.wait_line("training step 9 done")
        worker.stop(seconds=60)
        self.start_alone(*flags, model="mlp").wait(60)
        got = harness.read_json(summary)
        self.assertLess(got["local_steps"], 8)
        self.assertEqual(got["parameters_sha256"], want["parameters_sha256"])

    def test_worker_and_program_share_region(self):
        """The program's positions lie between those of the other region."""
        paths = [self.dir() + "/samples-%d" % i for i in range(3)]
        self.begin(late=(0, 1), steps=30)
        rows = []
        for job, flags in zip(self.regions, self.region_flags):
            job.start_ps(0, *flags)
        own = self.member(self.regions[1], "mlp", 1, train_steps=30, batch_size=10, seed=3,
                          learning_rate=0.01)
        workers = [self.regions[i].start_worker(k, "--record_samples=" + path)
                   for (i, k), path in zip(((0, 0), (0, 1), (1, 0)), paths)]
        while (step := own.next(60 * harness.PATIENCE)) is not None:
            self.assertEqual((step.stride, step.n_regions), (2, 2))
            rows.append((step.generation, step.step, step.position, step.n_samples))
            for param in range(4):
                own.push(param, samples=step.n_samples)
        own.close()
        self.wait_all((*workers, *(job.ps[0] for job in self.regions), self.parents.ps[0]), 60)
        shas = [job.summary(0)["parameters_sha256"] for job in self.regions]
        self.assertEqual(shas[0], shas[1])
        read = samples.last(samples.read(paths)) | samples.last(rows)
        numbers = [n for r in read for n in range(r[2], r[2] + 2 * r[3], 2)]
        self.assertEqual(len(numbers), len(set(numbers)))
        self.assertEqual(len(numbers), 30 * 2 * 2 * 10)


harness.main(__name__)
