/* base/threads.c - see threads.h.
 *
 * gRPC (1.51), OpenMP and drivers call pthread_create by name, and the loader finds the program's
 * own definition before libc's. gRPC does not check the result: without the thread, timers, calls
 * and grpc_shutdown would wait for ever. The function here decides by its caller's address whether
 * a library or the program has called it. A program that loads libweir has no such definition:
 * there only threads_reserve() checks the limit.
 *
 * The kernel still counts a thread for a moment after pthread_join has returned. So a failure is
 * final only after several attempts, and threads_reserve() waits until its own threads are gone. */
#include "base/threads.h"
#include "base/cgroup.h"
#include "base/log.h"
#include "base/process.h"
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ATTEMPTS = 10, PAUSE_MS = 10, TEXT_BYTES = 400 };

typedef int create_function(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                            void *arg);

static double group_pids(const char *dir, int v2)
{
    char line[32];
    double n = 0;
    return cgroup_read_line(dir, "pids.max", line, sizeof line) && sscanf(line, "%lf", &n) == 1
               ? n
               : 0; /* "max" */
}

/* Appends to the text. */
static void add(char text[TEXT_BYTES], const char *form, double limit)
    __attribute__((format(printf, 2, 0)));

static void add(char text[TEXT_BYTES], const char *form, double limit)
{
    size_t at = strlen(text);
    snprintf(text + at, TEXT_BYTES - at, form, limit);
}

const char *threads_error(int err)
{
    static const struct cgroup_limit pids = {"pids", {"/pids", NULL}, group_pids};
    static _Thread_local char text[TEXT_BYTES];
    double group = cgroup_least(&pids, "/proc/self/cgroup", "/sys/fs/cgroup");
    struct rlimit l;
    snprintf(text, sizeof text, "%s; the limits on threads are ", strerror(err));
    if (getrlimit(RLIMIT_NPROC, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
        add(text, "%.0f for all programs of this user (ulimit -u), ", (double)l.rlim_cur);
    if (group > 0)
        add(text, "%.0f for this container or control group (pids.max), ", group);
    if (getrlimit(RLIMIT_AS, &l) == 0 && l.rlim_cur != RLIM_INFINITY)
        add(text, "%.0f KB for the addresses of this process, stacks included (ulimit -v), ",
            (double)l.rlim_cur / 1024);
    size_t at = strlen(text);
    snprintf(
        text + at, sizeof text - at,
        "and that of the machine (kernel.threads-max): raise the limit that is reached, or end other programs");
    return text;
}

__attribute__((unused)) static bool is_library(const void *caller)
{
    static const int own; /* variable whose address is inside this program */
    Dl_info a, b;
    return !dladdr(caller, &a) || !dladdr(&own, &b) || a.dli_fbase != b.dli_fbase;
}

/* Returns libc's pthread_create, which the function in this file replaces. The copy of this file in
 * libweir replaces nothing, because there the loader finds the host program's symbols first. */
static create_function *find_next(void)
{
    void *first = dlsym(RTLD_DEFAULT, "pthread_create");
    if (first == (void *)pthread_create)
        first = dlsym(RTLD_NEXT, "pthread_create");
    return (create_function *)first;
}

static int start_thread(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                        void *arg)
{
    /* cached, because each lookup acquires the loader's lock */
    static _Atomic(create_function *) found;
    create_function *next = atomic_load(&found);
    if (!next)
        atomic_store(&found, next = find_next());
    int err = next(thread, attr, start, arg);
    for (int i = 1; err == EAGAIN && i < ATTEMPTS; i++) {
        poll(NULL, 0, PAUSE_MS);
        err = next(thread, attr, start, arg);
    }
    return err;
}

/* Clang's sanitizers put their own pthread_create into the program, which must see all threads.
 * GCC's sanitizers are libraries, which the loader searches after the program. */
#if defined(__clang__)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZERS_OWN 1
#endif
#endif
#ifndef HAS_SANITIZERS_OWN
int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attr,
                   void *(*start)(void *), void *restrict arg)
{
    const void *caller = __builtin_return_address(0);
    if (!process_is_ours())
        return find_next()(thread, attr, start, arg);
    int err = start_thread(thread, attr, start, arg);
    if (err && is_library(caller)) {
        LOG_E("a library cannot start a thread, which ends this process: %s", threads_error(err));
        log_flush(LOG_END_MS);
        _exit(process_exit_code(EXIT_RETRY));
    }
    return err;
}
#endif

struct gate {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool is_open;
};

struct probe {
    pthread_t thread;
    pid_t tid; /* kernel's id of the thread; valid after the thread has ended */
    struct gate *gate;
};

static void *wait_at_gate(void *arg)
{
    struct probe *p = arg;
    p->tid = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&p->gate->lock);
    while (!p->gate->is_open)
        pthread_cond_wait(&p->gate->opened, &p->gate->lock);
    pthread_mutex_unlock(&p->gate->lock);
    return NULL;
}

/* Waits until the kernel no longer counts the thread, since libraries do not retry. */
static void end_probe(const struct probe *p)
{
    pthread_join(p->thread, NULL);
    for (int i = 1; i < ATTEMPTS && syscall(SYS_tgkill, getpid(), p->tid, 0) == 0; i++)
        poll(NULL, 0, PAUSE_MS);
}

enum status threads_reserve(int n)
{
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    struct probe *probes = calloc((size_t)n + 1, sizeof *probes);
    int made = 0, err = probes ? 0 : ENOMEM;
    while (!err && made < n) {
        probes[made].gate = &gate;
        err = start_thread(&probes[made].thread, NULL, wait_at_gate, &probes[made]);
        made += err == 0;
    }
    pthread_mutex_lock(&gate.lock);
    gate.is_open = true;
    pthread_cond_broadcast(&gate.opened);
    pthread_mutex_unlock(&gate.lock);
    for (int i = 0; i < made; i++)
        end_probe(&probes[i]);
    free(probes);
    if (!err)
        return ST_OK;
    LOG_E("this process needs %d more threads, and can start %d: %s", n, made, threads_error(err));
    return ST_NOMEM;
}
