/* worker/data/data_guard.c - the handler of SIGBUS. It may interrupt any code, so it reads the list
 * without a lock: an entry's address is written last, and the entry is valid only while its address
 * is not 0. */
#include "worker/data/data_guard.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct place {
    const char *path;
    size_t bytes;
    _Atomic uintptr_t at; /* 0: free */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards changes of the list */
static struct place places[DATA_GUARD_MAX];
static int installed;
static struct sigaction before;

/* Writes the line with one call, so that no other line is mixed with it. */
static void log_fault(const char *path)
{
    static const char before_it[] = "E worker: ";
    static const char behind_it[] =
        ": cannot be read any more: it was truncated during use, or its disk failed; restore the file and restart the worker\n";
    char line[4096 + 256];
    size_t n = strnlen(path, 4096), at = sizeof before_it - 1;
    memcpy(line, before_it, at);
    memcpy(line + at, path, n);
    memcpy(line + at + n, behind_it, sizeof behind_it - 1);
    ssize_t written = write(STDERR_FILENO, line, at + n + sizeof behind_it - 1);
    (void)written;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    uintptr_t where = (uintptr_t)info->si_addr;
    for (int i = 0; i < DATA_GUARD_MAX; i++) {
        uintptr_t at = atomic_load(&places[i].at);
        if (at == 0 || where < at || where - at >= places[i].bytes)
            continue;
        log_fault(places[i].path);
        _exit(1);
    }
    (void)context;
    /* the handler returns to the same instruction, which raises the signal again */
    sigaction(number, &before, NULL);
}

void data_guard_add(const void *at, size_t bytes, const char *path)
{
    pthread_mutex_lock(&lock);
    if (!installed) {
        struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
        sigemptyset(&action.sa_mask);
        installed = sigaction(SIGBUS, &action, &before) == 0;
    }
    for (int i = 0; i < DATA_GUARD_MAX; i++) {
        if (atomic_load(&places[i].at) != 0)
            continue;
        places[i].path = path;
        places[i].bytes = bytes;
        atomic_store(&places[i].at, (uintptr_t)at);
        break;
    }
    pthread_mutex_unlock(&lock);
}

void data_guard_remove(const void *at)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DATA_GUARD_MAX; i++)
        if (atomic_load(&places[i].at) == (uintptr_t)at)
            atomic_store(&places[i].at, 0);
    pthread_mutex_unlock(&lock);
}
