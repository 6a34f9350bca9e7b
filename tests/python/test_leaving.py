#!/usr/bin/python3
"""SIGTERM to all workers, or to all programs, as from a scheduler. They exit at once, and restarted
programs resume at the last step, so that each sample is read once."""
# label: cluster sanitize waits long
import os
import signal

import harness
import samples

STEPS = 100
FLAGS = ["--train_steps=%d" % STEPS, "--batch_size=12", "--seed=3", "--eval_every=0",
         "--log_every=1", "--intra_op_threads=1", "--chunk_bytes=5120"]
SLOW = [*FLAGS, "--fault_push_delay_ms=8"]
# Messages of a process that could not exit in order: a worker whose grace period ended, or a server
# whose checkpoint failed.
GIVES_UP = r"SIGTERM: .* within \d+ s; stopping|given up: "


class Leaving(harness.Test):
    def job_of(self, n_ps, n_workers, *ps_flags):
        job = self.job(n_ps=n_ps, n_workers=n_workers, model="small", flags=SLOW)
        self.start_all(job, *ps_flags)
        job.workers[0].wait_line("training step 9 done")
        return job

    def start_all(self, job, *ps_flags):
        job.start_servers(*ps_flags)
        for k in range(len(job.workers)):
            job.start_worker(k, self.record())

    def terminate(self, processes, statuses, gives_up=GIVES_UP):
        for p in processes:
            p.popen.send_signal(signal.SIGTERM)
        for p in processes:
            self.assertIn(p.wait(status=None), statuses, p.name)
        for p in processes:
            self.assertNotRegex(p.output(), gives_up, p.name)

    def test_all_workers_leave_and_one_resumes(self):
        """All workers leave by a message, and the servers wait. A worker that is started again
        resumes the job."""
        for n_ps, n_workers in ((1, 1), (2, 3)):
            self.records = []
            job = self.job_of(n_ps, n_workers)
            self.terminate(job.workers, (0,))
            self.wait_lines(job.workers, r"left the job at step \d+")
            job.ps[0].wait_line(r"training waits at step \d+: 0 workers are present, "
                                "--min_workers=1")
            harness.until(lambda: "waiting for workers: training waits at step" in
                          job.ctl("status"), "weirctl reports the missing workers")
            job.start_worker(0, self.record())
            job.workers = job.workers[:1]
            summary = job.finish(120)[0]
            self.assertEqual(summary["global_step"], STEPS)
            self.assertEqual(samples.wrong(self.records, STEPS), [])

    def test_worker_and_server_log_same_step(self):
        """The worker and the server log the same step up to which the worker's contributions
        count."""
        for sync_mode in ("sync", "async"):
            job = self.started_job(n_ps=1, n_workers=2, model="small",
                                   flags=[*SLOW, "--train_steps=100000",
                                          "--sync_mode=" + sync_mode])
            job.workers[1].wait_line("training step 9 done")
            self.terminate(job.workers[1:], (0,))
            left = job.workers[1].wait_line(r"left the job at step (\d+), as worker 1").group(1)
            said = job.ps[0].wait_line(r"worker 1 \(.*\) leaves at step (\d+) ").group(1)
            if sync_mode == "sync":
                self.assertEqual(left, said)
            else: # training continues with the other worker's updates
                self.assertLessEqual(int(left), int(said))
            self.kill(job.workers[0], *job.ps)

    def test_worker_leaves_despite_min_workers(self):
        """One of two workers leaves at once, though the other must wait because of
        --min_workers."""
        job = self.job_of(2, 2, "--min_workers=2")
        self.terminate(job.workers[1:], (0,))
        job.ps[0].wait_line(r"training waits at step \d+: 1 worker is present, --min_workers=2")
        job.start_worker(1, self.record())
        job.finish(120)
        self.assertEqual(samples.wrong(self.records, STEPS), [])

    def test_killed_leaver_does_not_block_job(self):
        """A worker is killed at or before the step at which it should leave: the job does not wait
        for it."""
        job = self.job_of(2, 2)
        job.workers[1].popen.send_signal(signal.SIGSTOP)
        job.workers[0].popen.send_signal(signal.SIGTERM)
        job.ps[0].wait_line("worker 0 requests to leave")
        self.assertIn(job.workers[0].stop(signal.SIGKILL, status=None), (-signal.SIGKILL, 0))
        job.workers[1].popen.send_signal(signal.SIGCONT)
        job.workers[1].wait(60)
        self.wait_all(job.ps, 20)
        self.assertEqual(samples.wrong(self.records, STEPS), [])

    def test_sigterm_after_training_exits_with_0(self):
        """SIGTERM while a worker reports after its last step: it exits with 0, as without the
        signal."""
        for n_ps in (0, 1):
            job = self.job(n_ps=n_ps, n_workers=1, flags=FLAGS)
            figures = job.summary_path(0)
            os.mkfifo(figures) # no process reads it yet
            job.start()
            worker = job.workers[0]
            worker.wait_line("test accuracy: ")
            worker.popen.send_signal(signal.SIGTERM)
            worker.wait_line("SIGTERM: training has ended")
            self.assertIn(b"global_step", harness.read_bytes(figures))
            self.wait_all((worker, *job.ps), 20, 0)
            os.remove(figures)

    def test_sigterm_of_all_saves_and_restart_resumes(self):
        """All servers and workers receive SIGTERM together. They write a last checkpoint, from
        which restarted programs resume."""
        for n_ps, n_workers in ((1, 1), (2, 3)):
            self.records = []
            flags = ["--checkpoint_dir=" + self.path("ckpt-%d" % n_ps), "--save_steps=1000"]
            job = self.job_of(n_ps, n_workers, *flags)
            processes = [*job.ps, *job.workers]
            # ps:0 may have exited before a worker can report the leave.
            self.terminate(processes, (0, 143), "did not start .*; stopping|given up: ")
            for ps in job.ps:
                self.assertEqual(ps.status, 143)
            step = int(job.ps[0].wait_line(r"checkpoint at step (\d+): ").group(1))
            self.assertGreaterEqual(step, 8)  # the base of the worker's step 9
            first = self.records[:]
            self.start_all(job, *flags)
            job.ps[0].wait_line("resumes from step %d" % step)
            summaries = job.finish(120)
            self.assertEqual({s["global_step"] for s in summaries}, {STEPS})
            self.assertEqual(samples.wrong(self.cut(first, step) + self.records[n_workers:], STEPS),
                             [])

    def test_drain_of_ps_0_ignored(self):
        """--drain is a flag of all servers alike; ps 0 ignores it with a line."""
        flags = ["--checkpoint_dir=" + self.path("ckpt"), "--drain"]
        job = self.job_of(2, 1, *flags)
        job.ps[0].stop(status=143)
        job.ps[0].wait_line("--drain: ps:0 coordinates the job and cannot leave")
        job.ps[0].wait_line("checkpoint at step [0-9]+: ")
        self.kill(job.workers[0], job.ps[1])

    def test_exit_status_separates_restartable_errors(self):
        """ps exits with 138 if its port is in use, and with 1 after a permanent error, for example
        if it cannot make its checkpoint folder."""
        job = self.job(n_ps=1, n_workers=1)
        holder = job.start_ps(0)
        job.start_ps(0, wait=False).wait(20, 138)
        job.ps[0].wait_line("address in use")
        holder.stop(status=143)
        job.start_ps(0, "--checkpoint_dir=/proc/none", wait=False).wait(20, 1)
        job.start_ps(0, "--checkpoint_dir=" + self.dir(), "--restore=" + self.dir(),
                     wait=False).wait(20, 1)

    def cut(self, paths, step):
        """Copies the records without the steps after the checkpoint, because these are repeated."""
        out = []
        for path in paths:
            out.append(path + "-cut")
            with open(path, encoding="ascii") as f, open(out[-1], "w", encoding="ascii") as to:
                to.writelines(line for line in f if int(line.split()[1]) < step)
        return out


harness.main(__name__)
