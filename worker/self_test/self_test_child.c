/* worker/self_test/self_test_child.c - forks, receives the result through a pipe, and kills a child
 * that is too slow. */
#include "worker/self_test/self_test_child.h"
#include "base/clock.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { END_MS = 5000 }; /* longer than a killed process needs to exit */

/* Makes the kernel kill this child when its parent ends. In a container the parent may be process
 * 1. */
static void die_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
}

static _Noreturn void child_main(void (*f)(const void *arg, void *result), const void *arg,
                                 void *result, size_t size, int fd)
{
    f(arg, result);
    for (size_t at = 0; at < size;) {
        ssize_t n = write(fd, (const char *)result + at, size - at);
        if (n < 0 && errno != EINTR)
            _exit(1);
        at += n > 0 ? (size_t)n : 0;
    }
    _exit(0); /* does not call the libraries' exit handlers, because they may hang, too */
}

/* Receives the result. Returns 1 if the result is complete, 0 if the child exited before it had
 * sent all of it, -1 if the child is too slow. */
static int receive(int fd, char *result, size_t size, int64_t deadline)
{
    for (size_t at = 0; at < size;) {
        int64_t left_ms = (deadline - clock_now_ns() + 999999) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left_ms <= 0)
            return -1;
        if (poll(&p, 1, (int)left_ms) <= 0)
            continue;
        ssize_t n = read(fd, result + at, size - at);
        if (n == 0 || (n < 0 && errno != EINTR))
            return 0;
        at += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* Waits for the child. Returns its exit status; -1: the process still hangs in the driver, and this
 * process does not wait any longer. */
static int collect(pid_t pid)
{
    int status = -1, fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int ended = fd < 0 || poll(&p, 1, END_MS) > 0;
    if (fd >= 0)
        close(fd);
    if (ended && waitpid(pid, &status, 0) != pid)
        return -1;
    return status;
}

enum status self_test_child_run(void (*f)(const void *arg, void *result), const void *arg,
                                void *result, size_t size, int seconds, char *why)
{
    int fd[2] = {-1, -1};
    int64_t deadline = clock_deadline_ns((int64_t)seconds * 1000);
    why[0] = '\0';
    if (pipe(fd) != 0) {
        snprintf(why, SELF_TEST_WHY_SIZE, "cannot create a pipe: %s", strerror(errno));
        return ST_NOMEM;
    }
    fflush(NULL);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        die_with(parent);
        close(fd[0]);
        child_main(f, arg, result, size, fd[1]);
    }
    close(fd[1]);
    if (pid < 0) {
        snprintf(why, SELF_TEST_WHY_SIZE, "cannot create a process: %s", strerror(errno));
        close(fd[0]);
        return ST_NOMEM;
    }
    int came = receive(fd[0], result, size, deadline);
    close(fd[0]);
    if (came != 0)
        /* the child is not needed any more: its result is complete, or will never be */
        kill(pid, SIGKILL);
    int status = collect(pid);
    if (came > 0)
        return ST_OK;
    if (came < 0)
        snprintf(why, SELF_TEST_WHY_SIZE, "it does not answer within %d s", seconds);
    else if (status != -1 && WIFSIGNALED(status))
        snprintf(why, SELF_TEST_WHY_SIZE, "the driver or a library crashed (signal %d, %s)",
                 WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(why, SELF_TEST_WHY_SIZE, "the process that tested it ended (status %d)",
                 status == -1 ? -1 : WEXITSTATUS(status));
    return came < 0 ? ST_DEADLINE : ST_INTERNAL;
}
