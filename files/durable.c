/* files/durable.c - see durable.h. If the file system supports O_DIRECT, whole blocks are written
 * to the disk without the page cache: a copy to the page cache needs nine times the CPU time, and
 * no program will read the blocks soon. */
#include "files/durable.h"
#include "base/clock.h"
#include "base/log.h"
#include "files/target.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, BLOCK_ALIGN = 4096 };
enum { MOST_TRIES = 8 }; /* attempts to write a file whose temporary file another process removes */

static enum status io_error(const char *path, const char *what)
{
    int err = errno;
    LOG_E("%s: cannot %s: %s", path, what, status_errno_text(err));
    return status_of_writing(err);
}

/* Chooses a random name. A process id is not enough: machines and containers that share a folder
 * may have equal ids. */
static int name_temporary(struct durable *f)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint64_t)clock_now_ns();
    return (size_t)snprintf(f->temporary, sizeof f->temporary, "%s.%ld-%016" PRIx64 ".tmp", f->path,
                            (long)getpid(), random) < sizeof f->temporary;
}

/* Opens a new file in the folder of f->path or, in place, the device or FIFO itself. Returns 0
 * if that failed; errno has the reason. */
static int open_file(struct durable *f)
{
    if (f->in_place) {
        snprintf(f->temporary, sizeof f->temporary, "%s", f->path);
        f->fd = open(f->path, O_WRONLY | O_APPEND | O_NOCTTY | O_CLOEXEC);
    } else if (name_temporary(f)) {
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        f->made = f->fd >= 0;
    } else {
        errno = ENAMETOOLONG;
    }
    return f->fd >= 0;
}

static enum status begin_file(struct durable *f, const struct target *to)
{
    f->fd = -1;
    f->made = 0;
    f->bytes = 0;
    f->filled = 0;
    f->direct = 0;
    f->in_place = to->in_place;
    memcpy(f->path, to->path, sizeof f->path);
    f->block = aligned_alloc(BLOCK_ALIGN, BLOCK_BYTES);
    if (!f->block) {
        LOG_E("%s: out of memory for a block of the file", f->path);
        return ST_NOMEM;
    }
    if (open_file(f))
        return ST_OK;
    enum status st = io_error(f->temporary, f->in_place ? "open" : "create");
    free(f->block);
    return st;
}

enum status durable_begin(struct durable *f, const char *path)
{
    struct target to;
    errno = target_find(path, &to);
    return errno ? io_error(path, "write") : begin_file(f, &to);
}

int durable_try(const char *path)
{
    struct target to;
    struct durable f = {.fd = -1};
    int err = target_find(path, &to);
    if (err)
        return err;
    if (to.in_place)
        return access(to.path, W_OK) == 0 ? 0 : errno;
    memcpy(f.path, to.path, sizeof f.path);
    if (!open_file(&f))
        return errno;
    durable_end(&f);
    return 0;
}

static void set_direct(struct durable *f, int on)
{
    int flags = fcntl(f->fd, F_GETFL);
    flags = on ? flags | O_DIRECT : flags & ~O_DIRECT;
    f->direct = fcntl(f->fd, F_SETFL, flags) == 0 && on;
}

static enum status write_all(struct durable *f, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t done = write(f->fd, p, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0 && errno == EINVAL && f->direct) {
            set_direct(f, 0); /* the bytes that a short write has not written are not aligned */
            continue;
        }
        if (done < 0)
            return io_error(f->temporary, "write");
        p += done;
        bytes -= (size_t)done;
    }
    return ST_OK;
}

/* Writes to the file the bytes that are collected in the block. */
static enum status flush_block(struct durable *f)
{
    size_t n = f->filled;
    if (!f->in_place) /* O_DIRECT would make a pipe write in packets */
        set_direct(f, n == BLOCK_BYTES);
    f->filled = 0;
    return write_all(f, f->block, n);
}

enum status durable_write(struct durable *f, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        size_t n = BLOCK_BYTES - f->filled < bytes ? BLOCK_BYTES - f->filled : bytes;
        memcpy((char *)f->block + f->filled, p, n);
        f->bytes += n;
        f->filled += n;
        p += n;
        bytes -= n;
        enum status st = f->filled == BLOCK_BYTES ? flush_block(f) : ST_OK;
        if (st != ST_OK)
            return st;
    }
    return ST_OK;
}

enum status durable_rewrite(struct durable *f, const void *data, size_t bytes)
{
    CHECK(!f->in_place && bytes <= f->bytes);
    if (f->filled == f->bytes) { /* all bytes are still in the block */
        memcpy(f->block, data, bytes);
        return ST_OK;
    }
    enum status st = flush_block(f);
    if (st != ST_OK)
        return st;
    if (lseek(f->fd, 0, SEEK_SET) != 0)
        return io_error(f->temporary, "seek");
    set_direct(f, 0);
    return write_all(f, data, bytes);
}

enum status durable_sync_name(const char *path)
{
    char plain[PATH_MAX], dir[PATH_MAX] = "";
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    snprintf(plain, sizeof plain, "%.*s", (int)n, path);
    target_folder(plain, dir);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == EACCES)
        return ST_OK; /* the process may create files in this folder, but may not open it for
                       * fsync */
    if (fd < 0)
        return io_error(dir, "open");
    /* fsync fails with EINVAL on a file system that cannot sync a folder: this counts as
     * success. */
    enum status st = fsync(fd) != 0 && errno != EINVAL ? io_error(dir, "sync") : ST_OK;
    close(fd);
    return st;
}

enum status durable_commit(struct durable *f)
{
    enum status st = flush_block(f);
    if (st != ST_OK)
        return st;
    if (fsync(f->fd) != 0 && !(f->in_place && (errno == EINVAL || errno == EROFS)))
        return io_error(f->temporary, "sync"); /* a pipe or a terminal cannot be synced */
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0)
        return io_error(f->temporary, "close");
    if (f->in_place)
        return ST_OK;
    if (rename(f->temporary, f->path) != 0)
        return io_error(f->path, "rename the finished file to this name");
    f->made = 0;
    return durable_sync_name(f->path);
}

void durable_end(struct durable *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    if (f->made)
        unlink(f->temporary);
    f->made = 0;
    free(f->block);
    f->block = NULL;
}

enum status durable_put(const char *path, const void *data, size_t bytes)
{
    struct durable f;
    enum status st = durable_begin(&f, path);
    if (st != ST_OK)
        return st;
    TRY(durable_write(&f, data, bytes));
    TRY(durable_commit(&f));
done:
    durable_end(&f);
    return st;
}

/* Links the finished temporary file to its name. ST_BUSY: the name is in use. ST_NOT_FOUND, unless
 * this is the last try: another process has removed the temporary file. */
static enum status commit_new(struct durable *f, bool is_last_try)
{
    enum status st = flush_block(f);
    if (st != ST_OK)
        return st;
    if (fsync(f->fd) != 0)
        return io_error(f->temporary, "sync");
    if (link(f->temporary, f->path) == 0) /* durable_end removes the temporary name */
        return durable_sync_name(f->path);
    if (errno == EEXIST)
        return ST_BUSY;
    if (errno == ENOENT && !is_last_try)
        return ST_NOT_FOUND;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
        return io_error(f->path, "link the finished file to this name");
    int fd = open(f->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno == EEXIST ? ST_BUSY : io_error(f->path, "create");
    close(fd);
    return durable_commit(f);
}

static enum status try_put_new(const struct target *to, const void *data, size_t bytes,
                               bool is_last_try)
{
    struct durable f;
    enum status st = begin_file(&f, to);
    if (st != ST_OK)
        return st;
    TRY(durable_write(&f, data, bytes));
    TRY(commit_new(&f, is_last_try));
done:
    durable_end(&f);
    return st;
}

enum status durable_put_new(const char *path, const void *data, size_t bytes)
{
    struct target to = {.in_place = 0}; /* a dangling link counts as a file */
    if ((size_t)snprintf(to.path, sizeof to.path, "%s", path) >= sizeof to.path) {
        errno = ENAMETOOLONG;
        return io_error(path, "write");
    }
    enum status st = ST_NOT_FOUND;
    for (int i = 1; i <= MOST_TRIES && st == ST_NOT_FOUND; i++)
        st = try_put_new(&to, data, bytes, i == MOST_TRIES);
    return st;
}

enum status durable_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        return errno == ENOENT ? ST_NOT_FOUND : io_error(from, "rename");
    return durable_sync_name(to);
}

enum status durable_take_away(const char *path)
{
    if (unlink(path) != 0)
        return errno == ENOENT ? ST_NOT_FOUND : io_error(path, "remove");
    return durable_sync_name(path);
}

enum status durable_remove(const char *path)
{
    enum status st = durable_take_away(path);
    return st == ST_NOT_FOUND ? ST_OK : st;
}
