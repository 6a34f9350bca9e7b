/* files/durable.c - see durable.h. */
#include "files/durable.h"
#include "base/digest.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WRITE_BYTES = 64 << 20 }; /* at once: less than the kernel takes */

static enum status io_error(const char *path, const char *what)
{
    LOG_E("%s: cannot %s: %s", path, what, strerror(errno));
    return ST_IO;
}

enum status durable_begin(struct durable *f, const char *path)
{
    f->fd = -1;
    f->made = 0;
    f->bytes = 0;
    f->crc32c = 0;
    if ((size_t)snprintf(f->path, sizeof f->path, "%s", path) >= sizeof f->path ||
        (size_t)snprintf(f->temporary, sizeof f->temporary, "%s.%ld.tmp", path, (long)getpid()) >=
            sizeof f->temporary) {
        LOG_E("%s: the path is too long", path);
        return ST_IO;
    }
    f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0)
        return io_error(f->temporary, "create");
    f->made = 1;
    return ST_OK;
}

enum status durable_write(struct durable *f, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t done = write(f->fd, p, bytes < MAX_WRITE_BYTES ? bytes : MAX_WRITE_BYTES);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return io_error(f->temporary, "write");
        f->crc32c = digest_crc32c(f->crc32c, p, (size_t)done);
        f->bytes += (uint64_t)done;
        p += done;
        bytes -= (size_t)done;
    }
    return ST_OK;
}

/* Makes what happened to the folder's names durable. */
static enum status sync_folder(const char *path)
{
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) + 1 : 0;
    snprintf(dir, sizeof dir, "%.*s", n ? (int)n : 1, n ? path : ".");
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_error(dir, "open");
    /* A file system that cannot sync a folder says EINVAL. */
    enum status st = fsync(fd) != 0 && errno != EINVAL ? io_error(dir, "sync") : ST_OK;
    close(fd);
    return st;
}

enum status durable_commit(struct durable *f)
{
    if (fsync(f->fd) != 0)
        return io_error(f->temporary, "sync");
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0)
        return io_error(f->temporary, "close");
    if (rename(f->temporary, f->path) != 0)
        return io_error(f->path, "rename the finished file to this name");
    f->made = 0;
    return sync_folder(f->path);
}

void durable_end(struct durable *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
    if (f->made)
        unlink(f->temporary);
    f->made = 0;
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

enum status durable_remove(const char *path)
{
    if (unlink(path) != 0)
        return errno == ENOENT ? ST_OK : io_error(path, "remove");
    return sync_folder(path);
}
