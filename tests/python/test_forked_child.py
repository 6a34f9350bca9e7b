#!/usr/bin/python3
"""A member has forked a child, as PyTorch's DataLoader does, and the child outlives the member. The
child keeps neither the member's connection nor its shared memory, so a restarted member is admitted
at once."""
# label: cluster
import os
import re
import sys
import unittest

import harness

MEMBER = """
import os, signal, sys, weir
settings, (role,) = weir.flags()
with weir.Member(n_workers=1, task_index=0, train_steps=20, batch_size=4, **settings) as m:
    w = m.param("w", (5000,))
    for step in m:
        m.gradient(w).cast("B")[:] = bytes(20000)
        if role == "first" and step.step == 5:
            child = os.fork()
            if child == 0:
                print("child", os.getpid(), flush=True)
                for fd in 1, 2:
                    os.dup2(os.open(os.devnull, os.O_RDWR), fd)
                while True:
                    signal.pause()
            print("forked", flush=True)
            signal.pause()
        m.push(w, samples=4)
        print("step", step.step, flush=True)
"""


@unittest.skipIf(harness.SANITIZE, "Python is compiled without a sanitizer")
class ForkedChild(harness.Test):
    def start_member(self, job, role):
        return self.start(role, [sys.executable, "-B", "-c", MEMBER, role,
                                 "--ps_hosts=" + job.ps_hosts[0]], env=harness.package_env())

    def resources(self, pid):
        """Returns the files that a process has open or mapped."""
        folder = "/proc/%s/fd" % pid
        fds = [os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)]
        return fds, harness.read_text("/proc/%s/maps" % pid)

    def test_restarted_member_admitted_beside_old_child(self):
        job = self.job(n_workers=1)
        ps = job.start_ps(0)
        first = self.start_member(job, "first")
        child = first.wait_line(r"child (\d+)").group(1)
        first.wait_line("forked")
        fds, maps = self.resources(first.popen.pid)
        shared = any("weir-payloads" in fd for fd in fds)
        n_sockets = sum("socket:" in fd for fd in fds)
        first.kill()
        own_fds, own_maps = self.resources(child)
        self.assertTrue(shared and "weir-payloads" in maps, "shared memory was in use")
        self.assertFalse("weir-payloads" in " ".join(own_fds) + own_maps, "the child has it too")
        self.assertLess(sum("socket:" in fd for fd in own_fds), n_sockets)
        second = self.start_member(job, "second")
        second.wait(60)
        ps.ends(0, "worker 0 joined from .*, in place of an earlier process")
        self.assertFalse(re.search("another process is already worker 0", second.output() +
                                   ps.output()),
                         second.output())


harness.main(__name__)
