/* base/process.c - see process.h.
 *
 * The allocator settings are worth a factor of two: gRPC receives into malloc'd blocks of 64 KB,
 * which glibc by default gives back to the kernel and faults in again, message after message. */
#include "base/process.h"
#include "base/clock.h"
#include "base/rng.h"
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static bool is_ours;
static struct {
    char line[512];
    int exit_code;
} overdue;

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

/* Calls nothing that a signal handler may not call. */
static void end_now(int signo)
{
    (void)signo;
    ssize_t n = write(STDERR_FILENO, overdue.line, strlen(overdue.line));
    (void)n;
    _exit(overdue.exit_code);
}

void process_end_within(int seconds, int exit_code, const char *what)
{
    struct sigaction action = {.sa_handler = end_now};
    sigset_t set;
    int is_first = !overdue.line[0];
    overdue.exit_code = exit_code;
    if (!is_first)
        return;
    snprintf(overdue.line, sizeof overdue.line,
             "%s has not answered for %d s: this process ends without waiting for it\n", what,
             seconds);
    sigaction(SIGALRM, &action, NULL);
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
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
