/* tests/fault_io.c - see fault_io.h. Records what is not durable yet: files whose bytes are not
 * synced, and names that were changed since the last sync of their folder. Until the folder is
 * synced, a hard link keeps the previous file of a changed name. */
#include "tests/fault_io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 64, MAX_NAMES = 64 };

int __real_open(const char *path, int flags, ...);
ssize_t __real_write(int fd, const void *data, size_t n);
int __real_fsync(int fd);
int __real_close(int fd);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_link(const char *from, const char *to);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_open(const char *path, int flags, ...);
ssize_t __wrap_write(int fd, const void *data, size_t n);
int __wrap_fsync(int fd);
int __wrap_close(int fd);
int __wrap_rename(const char *from, const char *to);
int __wrap_unlink(const char *path);
int __wrap_link(const char *from, const char *to);
int __wrap_mkdir(const char *path, mode_t mode);

struct file {
    int fd; /* -1: closed */
    int is_folder, synced;
    char path[PATH_MAX];
};

struct name {            /* a changed name that is not synced yet */
    char from[PATH_MAX]; /* old name; empty: the change is not a rename */
    char to[PATH_MAX];
    char old[PATH_MAX]; /* a link to the previous file of the name; empty: there was none */
    int is_new;         /* a new link, not a rename */
    int is_folder;      /* a created folder */
};

static struct {
    const char *folder;
    enum fault_kind kind;
    int at, err, n_calls;
    struct file files[MAX_FILES];
    int n_files;
    struct name names[MAX_NAMES];
    int n_names, n_links;
} s;

void fault_io_set(const char *folder, enum fault_kind kind, int at, int err)
{
    s.folder = folder;
    s.kind = kind;
    s.at = at;
    s.err = err;
    s.n_calls = s.n_files = s.n_names = 0;
}

int fault_io_count(void)
{
    return s.n_calls;
}

static int watched(const char *path)
{
    return s.folder && strncmp(path, s.folder, strlen(s.folder)) == 0;
}

static struct file *file_of(int fd)
{
    for (int i = 0; i < s.n_files; i++)
        if (s.files[i].fd == fd)
            return &s.files[i];
    return NULL;
}

void fault_io_stop(void)
{
    for (int i = 0; i < s.n_files && s.kind >= FAULT_POWER; i++)
        if (!s.files[i].is_folder && !s.files[i].synced && truncate(s.files[i].path, 3) != 0 &&
            errno != ENOENT)
            perror("fault_io: truncate");
    for (int i = s.n_names - 1; i >= 0; i--) {
        struct name *n = &s.names[i];
        if (s.kind == FAULT_POWER) {
            if (n->from[0])
                __real_rename(n->to, n->from);
            if (n->is_new)
                __real_unlink(n->to);
            if (n->is_folder) { /* deletes it with all its contents */
                char lost[PATH_MAX + 8];
                snprintf(lost, sizeof lost, "%s.lost", n->to);
                __real_rename(n->to, lost);
            }
            if (n->old[0])
                __real_rename(n->old, n->to);
        } else if (n->old[0]) {
            __real_unlink(n->old);
        }
    }
    _exit(FAULT_EXIT);
}

/* Returns true if this call must fail. */
static int comes_to_grief(void)
{
    int n = ++s.n_calls;
    if (s.kind == FAULT_PAUSED && n == s.at)
        raise(SIGSTOP);
    if (s.kind <= FAULT_PAUSED || s.at == 0 || n < s.at || (n > s.at && s.kind != FAULT_ERRORS))
        return 0;
    if (s.kind >= FAULT_KILLED)
        fault_io_stop();
    errno = s.err;
    return 1;
}

static struct file *add_file(int fd, const char *path, int is_folder)
{
    struct file *f = NULL;
    for (int i = 0; i < s.n_files && !f; i++)
        if (strcmp(s.files[i].path, path) == 0 || (s.kind < FAULT_POWER && s.files[i].fd < 0))
            f = &s.files[i];
    if (!f && s.n_files == MAX_FILES)
        abort();
    if (!f)
        f = &s.files[s.n_files++];
    *f = (struct file){.fd = fd, .is_folder = is_folder};
    snprintf(f->path, sizeof f->path, "%s", path);
    return f;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    int mode = flags & O_CREAT ? va_arg(ap, int) : 0;
    va_end(ap);
    int is_folder = (flags & O_DIRECTORY) != 0;
    if (!watched(path) || !(is_folder || flags & O_CREAT))
        return __real_open(path, flags, mode);
    if (comes_to_grief())
        return -1;
    int fd = __real_open(path, flags, mode);
    if (fd >= 0)
        add_file(fd, path, is_folder);
    return fd;
}

ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    struct file *f = file_of(fd);
    if (!f)
        return __real_write(fd, data, n);
    f->synced = 0;
    if (s.kind == FAULT_FULL && ++s.n_calls >= s.at) {
        errno = s.err;
        return -1;
    }
    int dies = s.at == s.n_calls + 1 && s.kind >= FAULT_ERROR && n > 1;
    if (dies && s.kind != FAULT_ERRORS && __real_write(fd, data, n / 2) < 0)
        abort();
    return comes_to_grief() ? -1 : __real_write(fd, data, n);
}

/* Makes the names in this folder durable, but not those of folders below it. */
static void keep_names(const char *folder)
{
    int n = 0;
    size_t bytes = strlen(folder);
    for (int i = 0; i < s.n_names; i++) {
        const char *to = s.names[i].to;
        int is_in = strncmp(to, folder, bytes) == 0 && strrchr(to, '/') == to + bytes;
        if (is_in && s.names[i].old[0])
            __real_unlink(s.names[i].old);
        if (!is_in)
            s.names[n++] = s.names[i];
    }
    s.n_names = n;
}

int __wrap_fsync(int fd)
{
    struct file *f = file_of(fd);
    if (!f)
        return __real_fsync(fd);
    if (comes_to_grief())
        return -1;
    f->synced = 1;
    if (f->is_folder)
        keep_names(f->path);
    return 0; /* no real sync: the files need not survive a crash of this machine */
}

int __wrap_close(int fd)
{
    struct file *f = file_of(fd);
    if (!f)
        return __real_close(fd);
    f->fd = -1;
    int fails = comes_to_grief(), st = __real_close(fd);
    return fails ? -1 : st;
}

static void note_name(const char *from, const char *to)
{
    if (s.kind < FAULT_POWER)
        return;
    if (s.n_names == MAX_NAMES)
        abort();
    struct name *n = &s.names[s.n_names++];
    n->is_new = n->is_folder = 0;
    snprintf(n->from, sizeof n->from, "%s", from);
    snprintf(n->to, sizeof n->to, "%s", to);
    if ((size_t)snprintf(n->old, sizeof n->old, "%s/.old-%d", s.folder, s.n_links++) >=
            sizeof n->old ||
        __real_link(to, n->old) != 0)
        n->old[0] = 0;
}

int __wrap_rename(const char *from, const char *to)
{
    if (!watched(to))
        return __real_rename(from, to);
    if (comes_to_grief())
        return -1;
    note_name(from, to);
    for (int i = 0; i < s.n_files; i++)
        if (strcmp(s.files[i].path, from) == 0)
            snprintf(s.files[i].path, sizeof s.files[i].path, "%s", to);
    return __real_rename(from, to);
}

int __wrap_link(const char *from, const char *to)
{
    if (!watched(to))
        return __real_link(from, to);
    if (comes_to_grief())
        return -1;
    if (__real_link(from, to) != 0)
        return -1;
    note_name("", to);
    /* a new name: a power failure removes it */
    if (s.kind >= FAULT_POWER) {
        struct name *n = &s.names[s.n_names - 1];
        __real_unlink(n->old);
        n->old[0] = 0;
        n->is_new = 1;
    }
    return 0;
}

int __wrap_unlink(const char *path)
{
    if (!watched(path))
        return __real_unlink(path);
    if (comes_to_grief())
        return -1;
    note_name("", path);
    return __real_unlink(path);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    if (!watched(path))
        return __real_mkdir(path, mode);
    if (comes_to_grief())
        return -1;
    if (__real_mkdir(path, mode) != 0)
        return -1;
    note_name("", path);
    if (s.kind >= FAULT_POWER) {
        s.names[s.n_names - 1].old[0] = 0;
        s.names[s.n_names - 1].is_folder = 1;
    }
    return 0;
}
