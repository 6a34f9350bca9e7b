/* base/process.c - see process.h.
 *
 * The allocator settings double the throughput: gRPC receives data into malloc'd blocks of 64 KB.
 * By default glibc would return these blocks to the kernel, so each message would cause page faults
 * in new ones. */
#include "base/process.h"
#include "base/clock.h"
#include "base/rng.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static bool is_ours;
static struct {
    char line[512];
    int seconds;           /* time after which the process is ended; 0: not set */
    _Atomic int exit_code; /* exit code to end with; -1: not set */
} overdue = {.exit_code = -1};

void process_set_up(void)
{
    is_ours = true;
    signal(SIGXFSZ, SIG_IGN);
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_TOP_PAD, 64 << 20);
    mallopt(M_ARENA_MAX, 1);
}

bool process_is_ours(void)
{
    return is_ours;
}

/* Ends the process. It acquires no lock, since the thread that hangs may hold the log's lock. */
static void *end_late(void *arg)
{
    clock_sleep_ms(overdue.seconds * INT64_C(1000));
    ssize_t n = write(STDERR_FILENO, overdue.line, strlen(overdue.line));
    (void)n;
    _exit(atomic_load(&overdue.exit_code));
    return arg;
}

void process_set_exit_code(int exit_code)
{
    atomic_store(&overdue.exit_code, exit_code);
}

int process_exit_code(int otherwise)
{
    int exit_code = atomic_load(&overdue.exit_code);
    return exit_code < 0 ? otherwise : exit_code;
}

void process_end_within(int seconds, int exit_code, const char *what)
{
    sigset_t all, before, alarms;
    pthread_t thread;
    process_set_exit_code(exit_code);
    if (overdue.seconds)
        return;
    overdue.seconds = seconds;
    snprintf(overdue.line, sizeof overdue.line,
             "%.400s has not answered for %d s: this process ends without waiting for it\n", what,
             seconds);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&thread, NULL, end_late, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!err) {
        pthread_detach(thread);
        return;
    }
    signal(SIGALRM, SIG_DFL); /* SIGALRM's default action ends the process, without a log line */
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    alarm((unsigned)seconds);
}

uint64_t process_incarnation(void)
{
    uint64_t n = 0;
    while (n == 0)
        if (getrandom(&n, sizeof n, 0) < 0)
            n = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    return n;
}
