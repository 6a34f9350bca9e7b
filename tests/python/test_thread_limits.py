#!/usr/bin/python3
"""Too few threads (ulimit -u, pids.max). If a program cannot start a thread, it exits by itself
with 138 and a line that has the limits, or works without this thread. A preloaded pthread_create
fails from the N-th thread on. The tests try each N from 0 on, until the program works."""
# label: cluster
import os
import signal
import sys
import unittest

import harness
import preload

# Root has no limit on threads.
FAILS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static atomic_int made;
long sysconf(int name)
{
    if (name == _SC_NPROCESSORS_CONF && getenv("CORES"))
        return atoi(getenv("CORES"));
    return ((long (*)(int))dlsym(RTLD_NEXT, "sysconf"))(name);
}
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*start)(void *), void *arg)
{
    if (atomic_fetch_add(&made, 1) >= atoi(getenv("THREADS")))
        return EAGAIN;
    return ((create *)dlsym(RTLD_NEXT, "pthread_create"))(t, a, start, arg);
}
"""
# The program's last grpc_shutdown() needs one more thread, and cannot start it.
FAILS_AT_END = preload.IS_OF_GRPC + r"""
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static atomic_int users, fails;
int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*start)(void *), void *arg)
{
    return fails ? EAGAIN : ((create *)dlsym(RTLD_NEXT, "pthread_create"))(t, a, start, arg);
}
static void *nothing(void *arg)
{
    return arg;
}
void grpc_init(void)
{
    users += !is_of_grpc(__builtin_return_address(0));
    ((void (*)(void))dlsym(RTLD_NEXT, "grpc_init"))();
}
void grpc_shutdown(void)
{
    pthread_t t;
    if (!is_of_grpc(__builtin_return_address(0)) && --users == 0) {
        fails = 1;
        ((create *)dlsym(RTLD_DEFAULT, "pthread_create"))(&t, 0, nothing, 0);
        pause(); /* for ever, as in gRPC without the thread */
    }
    ((void (*)(void))dlsym(RTLD_NEXT, "grpc_shutdown"))();
}
"""
MOST = 120  # more than any program here starts
WHY = "Resource temporarily unavailable; the limits on threads are .*raise the limit"


@unittest.skipIf(harness.SANITIZE, "the preloaded library precedes the sanitizer's")
class ThreadLimits(harness.Test):
    def env(self, n):
        return {**os.environ, "LD_PRELOAD": self.library, "THREADS": str(n)}

    def setUp(self):
        super().setUp()
        self.library = preload.library(self, FAILS)

    def check_refusal(self, process):
        self.assertEqual(process.status, 138, process.output())
        self.assertRegex(process.output(), WHY)

    def until_it_works(self, attempt):
        """Returns the least number of threads with which attempt(n) returns True."""
        for n in range(MOST):
            if attempt(n):
                self.assertGreater(n, 5, "the preload has no effect")
                return n
        raise harness.Failure("the program does not work with %d threads" % MOST)

    def test_server_works_or_exits_with_138(self):
        """Each server receives SIGTERM once it serves."""
        def attempt(n):
            job = self.job(n_workers=1)
            ps = job.start_ps(0, "--checkpoint_dir=" + self.path("ckpt-%d" % n), wait=False,
                              env=self.env(n))
            harness.until(lambda: ps.eof or "listening on" in ps.output(), "it serves or exits")
            if not ps.eof:
                ps.popen.send_signal(signal.SIGTERM)
            if ps.wait(60, None) == 143:
                return True
            self.check_refusal(ps)
            return False
        self.until_it_works(attempt)

    def test_server_on_many_cores_needs_all_grpc_threads(self):
        """gRPC starts a thread for each core, at most 32, and none of them may be missing."""
        job = self.job(n_workers=1)
        for n in (20, 40):
            ps = job.start_ps(0, wait=False, env={**self.env(n), "CORES": "64"})
            ps.ends(138, r"this process needs \d+ more threads, and can start \d+: " + WHY)

    def test_worker_works_or_exits_with_138(self):
        """All attempts, one after the other, are worker 0 of the same job. The last attempt trains
        to the end of the job."""
        job = self.job(n_workers=1, flags=["--train_steps=30", "--batch_size=20"])
        job.start_ps(0)

        def attempt(n):
            worker = job.start_worker(0, env=self.env(n))
            if worker.wait(60, None) == 0:
                return True
            self.check_refusal(worker)
            return False
        self.until_it_works(attempt)
        job.ps[0].wait(60)

    def test_worker_with_hanging_libraries_exits(self):
        """The worker exits by itself after 60 s, which the preloaded library shortens."""
        job = self.job(n_workers=1, flags=["--train_steps=3", "--batch_size=20"])
        job.start_ps(0)
        worker = job.start_worker(0, env={**os.environ, "LD_PRELOAD": preload.library(
            self, preload.HANGING_GRPC)})
        worker.wait_line("grpc_shutdown hangs")
        worker.ends(0, "a thread of this worker has not answered for 60 s: this process ends "
                    "without waiting for it")
        job.ps[0].wait(60)

    def test_worker_without_thread_at_its_end_keeps_its_result(self):
        """The worker has left the job, and the server ends. So the worker must not exit with 138,
        after which a supervisor would start it again."""
        job = self.job(n_workers=1, flags=["--train_steps=3", "--batch_size=20"])
        job.start_ps(0)
        worker = job.start_worker(0, env={**os.environ, "LD_PRELOAD": preload.library(
            self, FAILS_AT_END)})
        worker.ends(0, "a library cannot start a thread, which ends this process: " + WHY)
        job.ps[0].wait(60)

    def test_python_member_works_or_raises(self):
        """A member that cannot start its threads joins no job, and raises an error."""
        code = "import weir\nm = weir.Member(ps_hosts='%s', n_workers=1)\nm.param('w', (1,))\n" \
            "m.next()" % harness.free_ports(1)[0]
        code = code.replace("ps_hosts='", "ps_hosts='%s:" % harness.LOOPBACK)
        for n in (0, 1, 7):
            self.start("member", [sys.executable, "-B", "-c", code],
                       env=harness.package_env(**self.env(n))).ends(1, WHY)

    def test_weirctl_works_or_exits_with_138(self):
        job = self.job(n_workers=1)
        job.start_ps(0)

        def attempt(n):
            ctl = self.start_program("weirctl", "status", "--ps_hosts=" + job.ps_hosts[0],
                                     env=self.env(n))
            if ctl.wait(60, None) == 0:
                return True
            self.check_refusal(ctl)
            return False
        self.assertGreater(self.until_it_works(attempt), 0)
        job.ps[0].stop()


harness.main(__name__)
