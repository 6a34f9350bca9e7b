/* tests/fake_driver/usage.h - the memory that processes use on the fake cards. Processes that
 * compute by tests/emulation record it in the file WEIR_FAKE_GPUS.usage, beside the fakes' state,
 * and the fake NVML reads it. The memory of an ended process does not count. */
#ifndef TESTS_FAKE_DRIVER_USAGE_H
#define TESTS_FAKE_DRIVER_USAGE_H
#include "tests/fake_driver/state.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

enum { FAKE_MAX_USERS = 32 };

struct fake_usage {
    struct {
        int pid; /* 0: free */
        unsigned long long bytes[FAKE_MAX];
    } user[FAKE_MAX_USERS];
    int fd; /* locked descriptor, valid in the process that has opened it */
};

/* Opens the file, and locks it until it is closed. make: creates the file if it is missing. Returns
 * NULL if the file is missing. */
static inline struct fake_usage *fake_usage_open(int make)
{
    char path[4096];
    const char *state = getenv("WEIR_FAKE_GPUS");
    struct fake_usage *u = MAP_FAILED;
    snprintf(path, sizeof path, "%s.usage", state ? state : "");
    int fd = state ? open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0666) : -1;
    if (fd < 0)
        return NULL;
    if (flock(fd, LOCK_EX) == 0 && ftruncate(fd, sizeof *u) == 0)
        u = mmap(NULL, sizeof *u, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (u == MAP_FAILED) {
        close(fd);
        return NULL;
    }
    u->fd = fd;
    return u;
}

static inline void fake_usage_close(struct fake_usage *u)
{
    if (u == NULL)
        return;
    int fd = u->fd;
    munmap(u, sizeof *u);
    close(fd);
}

static inline int fake_usage_lives(const struct fake_usage *u, int user)
{
    return u->user[user].pid > 0 && kill(u->user[user].pid, 0) == 0;
}

static inline unsigned long long fake_usage_of(const struct fake_usage *u, int user, int card)
{
    return fake_usage_lives(u, user) ? u->user[user].bytes[card] : 0;
}

#endif
