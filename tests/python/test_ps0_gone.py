#!/usr/bin/python3
"""Recovers jobs whose machine of ps 0 is lost for good (docs/guide/failures.md), with the
checkpoint folder and without it."""
# label: cluster waits long
import os
import re
import shutil
import signal
import unittest

import ckpt_folder
import harness
import namespaces
import preload

FLAGS = ["--batch_size=12", "--train_steps=60", "--seed=5", "--chunk_bytes=5120",
         "--optimizer=adam", "--log_every=1", "--intra_op_threads=1"]
SLOW = [*FLAGS, "--fault_push_delay_ms=6"]
# The first claim of a folder makes the file $HOLD_CLAIMS, and waits until that file is removed.
HOLDS_CLAIMS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int link(const char *from, const char *to)
{
    static int was_held;
    const char *held = getenv("HOLD_CLAIMS");
    if (strstr(to, "/lease-") && !was_held++)
        for (close(open(held, O_CREAT, 0600)); access(held, F_OK) == 0;)
            usleep(1000);
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "link"))(from, to);
}
"""
WHY_NOT = namespaces.why_not(bridge=True)
class Ps0Gone(harness.Test):
    def folder(self, name="ckpt"):
        return self.path(name)

    def ckpt(self, *more, name="ckpt"):
        return ["--checkpoint_dir=" + self.folder(name), "--save_steps=8", *more]

    def lose_ps0(self):
        """Returns a job of two servers and two workers with a checkpoint, whose ps 0 is lost."""
        job = self.started_job(n_ps=2, n_workers=2, model="small", flags=SLOW, ps_flags=self.ckpt())
        job.ps[0].wait_line(r"checkpoint at step [1-9]\d: ")
        job.ps[0].kill()
        return job

    def check(self, job):
        job.finish(120, self.undisturbed_digest(n_workers=2, model="small", flags=FLAGS))

    def test_ps_0_restored_at_another_address(self):
        """The folder still exists, but the address of ps 0 does not. All programs are started with
        another --ps_hosts."""
        old = self.lose_ps0()
        old.ps[1].wait_line(r"waiting for ps:0 \(")
        self.terminate((*old.workers, old.ps[1]), 60, 143)
        job = self.job(n_ps=2, n_workers=2, model="small", flags=FLAGS)
        job.ps_hosts[1] = old.ps_hosts[1]
        job.worker_hosts = old.worker_hosts
        job.start(self.ckpt())
        step = ckpt_folder.steps(self.folder())[-1]
        job.ps[0].wait_line("resumes from step %d" % step)
        self.check(job)

    def test_lost_folder_restarts_from_first_step(self):
        """The folder at the same path is empty. ps 0 reports that, and the living members begin
        again with it at the first step."""
        job = self.lose_ps0()
        shutil.rmtree(self.folder())
        job.start_ps(0, *self.ckpt())
        job.ps[0].wait_line(re.escape(self.folder()) + " has no checkpoint: the job, which "
                            "began before this ps:0 started, begins again at step 0")
        job.workers[0].wait_line("going back from step [0-9]+ to step 0")
        self.check(job)
        self.assertNotIn("claimed from " + job.ps_hosts[0], job.ps[0].output())
        self.assertEqual(ckpt_folder.steps(self.folder())[-1], 60)

    def test_copy_of_a_checkpoint_restored(self):
        """The folder is lost, but a copy of one checkpoint is put in its place before ps 0 starts:
        the living members resume from it."""
        job = self.lose_ps0()
        copy = self.new_folder("copy")
        kept = [f[3] for f in ckpt_folder.find(self.folder()) if f[0] == 8]
        self.assertEqual(len(kept), 3)  # two servers' files and the manifest
        for path in kept:
            shutil.copy2(path, copy)
        shutil.rmtree(self.folder())
        shutil.copytree(copy, self.folder())
        job.start_ps(0, *self.ckpt())
        job.ps[0].wait_line("resumes from step 8")
        job.workers[0].wait_line("going back from step [0-9]+ to step 8")
        self.check(job)
        self.assertNotIn("begins again at step 0", job.ps[0].output())

    def test_folder_of_running_job_refused(self):
        """A ps 0 at another address, and a worker alone, are refused in the folder of a job whose
        ps 0 answers; the job continues. A program with --take_over becomes the owner. A killed ps 0
        does not block the folder: test_ps_0_restored_at_another_address."""
        old = self.job(n_ps=1, n_workers=1, model="small", flags=[*SLOW, "--train_steps=100000"])
        old.start(self.ckpt())
        old.workers[0].wait_line("training step 5 done")
        new = self.job(n_ps=1, n_workers=1, model="small", flags=FLAGS)
        ps = new.start_ps(0, *self.ckpt(), wait=False)
        alone = self.start_program("worker", *new.flags, *self.ckpt(), name="alone")
        for refused in (ps, alone):
            refused.wait(60, 1)
            self.assertRegex(refused.output(), "--checkpoint_dir: %s belongs to a running job, "
                             "whose ps:0 answers at %s: stop its owner first, or use another "
                             "folder; with --take_over" % (self.folder(), old.ps_hosts[0]))
        ps = new.start_ps(0, *self.ckpt("--take_over"))
        ps.wait_line("--take_over: %s is claimed from ps:0 at %s, which is running" %
                     (self.folder(), old.ps_hosts[0]))
        old.ps[0].ends(1, new.ps_hosts[0] + " has since claimed this folder")
        self.kill_any(ps, old.workers[0])

    def held_claim(self, job, *more):
        """Starts ps 0 of a job, which waits before it claims the folder. Returns ps 0, and the file
        whose removal ends the wait."""
        held = self.path("held")
        ps = job.start_ps(0, *self.ckpt(*more), wait=False,
                          env=preload.env(self, HOLDS_CLAIMS, HOLD_CLAIMS=held))
        harness.until(lambda: os.path.exists(held), "ps 0 claims the folder")
        return ps, held

    def test_later_of_two_claims_loses(self):
        """Two jobs begin in one folder: the job whose claim is later ends, although it had found
        the folder free."""
        late, early = [self.job(n_ps=1, n_workers=1, model="small", flags=FLAGS) for _ in range(2)]
        second, held = self.held_claim(late)
        early.start(self.ckpt())
        os.unlink(held)
        self.assertRegex(second.wait_output(60, 138), "%s: %s claimed this folder at the same" %
                         (self.folder(), early.ps_hosts[0]))
        early.finish(120)

    def test_ps_0_replaced_before_first_worker_ends(self):
        """A ps 0 whose folder is claimed by another while it waits for its first worker exits."""
        old, new = [self.job(n_ps=1, n_workers=1, model="small", flags=FLAGS) for _ in range(2)]
        old.start_ps(0, *self.ckpt())
        ps = new.start_ps(0, *self.ckpt("--take_over"))
        old.ps[0].ends(1, new.ps_hosts[0] + " has since claimed this folder")
        self.kill_any(ps)

    def test_claim_resumes_from_last_checkpoint_of_old_owner(self):
        """The old owner writes another checkpoint after the new ps 0 has read the folder, and
        before it claims the folder. The new ps 0 resumes from that checkpoint."""
        old = self.job(n_ps=1, n_workers=1, model="small", flags=SLOW)
        old.start(self.ckpt("--keep_checkpoint_max=1"))
        old.ps[0].wait_line("checkpoint at step 8: ")
        new = self.job(n_ps=1, n_workers=1, model="small", flags=FLAGS)
        ps, held = self.held_claim(new, "--take_over")
        old.finish(120)
        os.unlink(held)
        ps.wait_line("found a checkpoint at step 60: ")
        new.start_worker(0)
        summary, = new.finish(120)
        self.assertEqual((summary["global_step"], summary["parameters_sha256"]),
                         (60, old.summary(0)["parameters_sha256"]))

    def test_folder_of_job_that_shuts_down_retried(self):
        """The last checkpoint of the old job waits for ps:1. A new ps 0 that starts during the wait
        exits with 138, for a retry."""
        old = self.job(n_ps=2, n_workers=1, model="small", flags=[*SLOW, "--train_steps=100000"])
        old.start(self.ckpt())
        old.workers[0].wait_line("training step 5 done")
        new = self.job(n_ps=1, n_workers=1, model="small", flags=FLAGS)
        with harness.paused(old.ps[1]):
            old.ps[0].popen.send_signal(signal.SIGTERM)
            harness.until(lambda: " stopped, step" in old.ctl("status", check=False),
                          "ps:0 waits for ps:1")
            self.assertIn("belongs to a job whose ps:0, at %s, is shutting down" % old.ps_hosts[0],
                          new.start_ps(0, *self.ckpt(), wait=False).wait_output(60, 138))
        self.kill_any(*old.ps, *old.workers)

    def test_replaced_ps_0_changes_nothing_in_folder(self):
        """A ps 0 was paused and replaced. When it continues, it does not change the list of
        servers, which its successor reads at a restart."""
        old = self.job(n_ps=2, n_workers=1, model="small", flags=SLOW)
        # Without --save_steps no checkpoint is being written when this ps 0 is paused.
        old.start(["--checkpoint_dir=" + self.folder()])
        old.workers[0].wait_line("training step 5 done")
        new = self.job(n_ps=1, n_workers=1, model="small", flags=FLAGS)
        with harness.paused(old.ps[0]):
            new.start(self.ckpt())
            new.finish(60)
            new.ps[0].wait_line("claimed from " + old.ps_hosts[0])
            servers = os.path.join(self.folder(), "servers")
            self.assertIn(new.ps_hosts[0], harness.read_text(servers))
            drain = self.start_program("ps", "--leave=1", "--ps_hosts=" + old.ps_hosts[0],
                                       name="drain")
        drain.wait(30, None)  # ps 0 exits before or after it has made a plan without ps:1
        old.ps[0].ends(1, "has since claimed this folder")
        self.assertNotIn(old.ps_hosts[0], harness.read_text(servers))
        self.kill_any(*old.workers, old.ps[1])

    @unittest.skipIf(WHY_NOT, WHY_NOT)
    def test_machine_of_ps_0_replaced_at_same_address(self):
        """Another machine replaces that of ps 0, with its address and its folder. No other program
        is restarted."""
        net = namespaces.Network(3, test=self)
        job = self.job(n_ps=2, n_workers=2, model="small", flags=SLOW)
        job.ps_hosts = [net.address(0) + ":2221", net.address(1) + ":2221"]
        job.worker_hosts = ["%s:%d" % (net.address(1), port) for port in (2223, 2224)]
        job.start_ps(1, *self.ckpt(), wait=False, prefix=net.hosts[1].enter)
        job.brake_from(25)
        job.start_workers(prefix=net.hosts[1].enter)
        job.start_ps(0, *self.ckpt(), prefix=net.hosts[0].enter)
        job.ps[0].wait_line(r"checkpoint at step [1-9]\d: ")
        net.link(0, False)
        job.ps[0].kill()
        net.hosts[2].ip("address add %s/24 dev up0" % net.address(0))
        job.start_ps(0, *self.ckpt(), prefix=net.hosts[2].enter)
        job.ps[0].wait_line("resumes from step", 60)
        job.ps[1].wait_line("was restarted; training continues from the step that it announces", 60)
        self.check(job)


harness.main(__name__)
