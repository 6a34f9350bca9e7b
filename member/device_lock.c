/* member/device_lock.c - acquires flock(2) locks on files, see device_lock.h. */
#include "member/device_lock.h"
#include "base/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { MAX_ROUNDS = 16, RETRY_MS = 20 };

const char *device_lock_default_dir(void)
{
    struct stat s;
    int shared = stat("/run/lock", &s) == 0 && S_ISDIR(s.st_mode) &&
                 (s.st_mode & (S_ISVTX | S_IWOTH | S_IXOTH)) == (S_ISVTX | S_IWOTH | S_IXOTH);
    return shared ? "/run/lock" : "/tmp";
}

int device_lock_path(const char *dir, const char *key, char *out, size_t size)
{
    int n = snprintf(out, size, "%s/weir-gpu-%s.lock", dir, key);
    if (n < 0 || (size_t)n >= size)
        return 0;
    /* Old drivers name MIG instances MIG-GPU-<uuid>/1/0, but no file name may contain '/'. */
    for (char *p = out + strlen(dir) + 1; *p; p++)
        if (*p == '/')
            *p = '_';
    return 1;
}

/* Creates the file in a folder without hard links. Until fchmod, which corrects the effect of the
 * umask, other users may be refused. */
static int create_in_place(const char *path)
{
    int fd = open(path, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
    if (fd < 0)
        return errno;
    fchmod(fd, 0444);
    close(fd);
    return 0;
}

/* Creates the file, which is readable for all users from the moment when it exists: it first has
 * another name. (The umask belongs to all threads, so it stays.) Returns 0, or an errno. */
static int create_file(const char *path)
{
    char aside[PATH_MAX];
    if (snprintf(aside, sizeof aside, "%s-XXXXXX", path) >= (int)sizeof aside)
        return ENAMETOOLONG;
    int fd = mkostemp(aside, O_CLOEXEC);
    if (fd < 0)
        return errno;
    int failed = fchmod(fd, 0444) != 0 || link(aside, path) != 0 ? errno : 0;
    unlink(aside);
    close(fd);
    bool no_links = failed == EPERM || failed == EOPNOTSUPP || failed == ENOSYS || failed == EINVAL;
    return no_links ? create_in_place(path) : failed;
}

/* Opens the file without O_CREAT first, because fs.protected_regular forbids O_CREAT for another
 * user's file in a folder with the sticky bit. O_NONBLOCK: a pipe at this path must not block. */
static int open_file(const char *path)
{
    for (int round = 0; round < MAX_ROUNDS; round++) {
        int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (fd >= 0 || errno != ENOENT)
            return fd;
        int failed = create_file(path);
        if (failed && failed != EEXIST) {
            errno = failed;
            return -1;
        }
    }
    return -1;
}

int device_lock_holder(const struct stat *s)
{
    char line[256];
    int found = 0;
    FILE *f = fopen("/proc/locks", "re");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL) {
        int pid = 0;
        unsigned major_id = 0, minor_id = 0;
        unsigned long long inode = 0;
        if (sscanf(line, "%*s FLOCK %*s %*s %d %x:%x:%llu", &pid, &major_id, &minor_id, &inode) ==
                4 &&
            inode == s->st_ino && major_id == major(s->st_dev) && minor_id == minor(s->st_dev))
            found = pid;
    }
    if (f != NULL)
        fclose(f);
    return found > 0 ? found : 0;
}

static enum status cannot(const char *path, const char *because, char *why)
{
    snprintf(why, DEVICE_WHY_SIZE, "it cannot be reserved (%.150s: %.60s)", path, because);
    return ST_IO;
}

/* Tries once to acquire the lock. ST_UNAVAILABLE: the file was removed between open and lock; the
 * caller tries again. */
static enum status try_acquire(const char *path, int how, int *out, char *why)
{
    struct stat own, there;
    int fd = open_file(path);
    if (fd < 0)
        return cannot(path, strerror(errno), why);
    enum status st = ST_OK;
    if (fstat(fd, &own) != 0 || !S_ISREG(own.st_mode)) {
        st = cannot(path, "is not a regular file", why);
    } else if (flock(fd, how | LOCK_NB) != 0) {
        st = errno == EWOULDBLOCK ? ST_BUSY : cannot(path, strerror(errno), why);
        int pid = st == ST_BUSY ? device_lock_holder(&own) : 0;
        if (pid)
            snprintf(why, DEVICE_WHY_SIZE, "process %d has reserved it", pid);
        else if (st == ST_BUSY)
            snprintf(why, DEVICE_WHY_SIZE, "another process has reserved it");
    } else if (lstat(path, &there) != 0 || there.st_ino != own.st_ino ||
               there.st_dev != own.st_dev) {
        st = ST_UNAVAILABLE;
    }
    if (st == ST_OK)
        *out = fd;
    else
        close(fd);
    return st;
}

static enum status acquire(const char *dir, const char *key, int how, int *fd, char *why)
{
    char path[PATH_MAX];
    why[0] = '\0';
    if (!device_lock_path(dir, key, path, sizeof path))
        return cannot(dir, "the path is too long", why);
    for (int round = 0; round < MAX_ROUNDS; round++) {
        enum status st = try_acquire(path, how, fd, why);
        if (st != ST_UNAVAILABLE)
            return st;
    }
    return cannot(path, "another program keeps removing it", why);
}

enum status device_lock_acquire(const char *dir, const char *key, int *fd, char *why)
{
    return acquire(dir, key, LOCK_EX, fd, why);
}

enum status device_lock_acquire_shared(const char *dir, const char *key, int *fd, char *why)
{
    return acquire(dir, key, LOCK_SH, fd, why);
}

enum status device_lock_wait(const char *dir, const char *key, int ms, int *fd)
{
    char why[DEVICE_WHY_SIZE];
    int64_t deadline = clock_deadline_ns(ms);
    for (;;) {
        enum status st = device_lock_acquire(dir, key, fd, why);
        if (st != ST_BUSY || clock_now_ns() >= deadline)
            return st;
        /* flock has no timeout. */
        nanosleep(&(struct timespec){0, RETRY_MS * 1000000L}, NULL);
    }
}

void device_lock_release(int fd)
{
    if (fd >= 0)
        close(fd);
}
