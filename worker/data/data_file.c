/* worker/data/data_file.c - opens a file by mapping or unpacking it. Unpacked memory grows with the
 * bytes that gzip produces, so a small file cannot reserve much memory (I9). A file may have
 * several gzip members, whose bytes are concatenated. zlib checks each member's checksum and
 * length. Zeros may follow the last member; other bytes are an error. */
#include "worker/data/data_file.h"
#include "base/log.h"
#include "worker/data/data_guard.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { DEFLATE_MAX_RATIO = 1032, LEAST_ROOM = 65536, PIECE_BYTES = 1 << 30 };

static enum status map(int fd, uint64_t n, struct data_file *f)
{
    if (n == 0) {
        f->bytes = (const uint8_t *)"";
        return ST_OK;
    }
    void *at = mmap(NULL, (size_t)n, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) {
        enum status st = errno == ENOMEM ? ST_NOMEM : ST_IO;
        LOG_E("%s: cannot map it into memory: %s", f->path, strerror(errno));
        return st;
    }
    f->bytes = at;
    f->n = n;
    f->mapped = 1;
    data_guard_add(at, (size_t)n, f->path);
    return ST_OK;
}

/* Allocates memory for more than `have` bytes: at first for the unpacked size that the last 4 bytes
 * of the file contain, later two times the present size. */
static enum status grow(const struct data_file *packed, uint64_t have, uint8_t **to, uint64_t *room)
{
    const uint8_t *end = packed->bytes + packed->n;
    uint64_t more = *room * 2;
    if (have == 0 && packed->n >= 4) {
        more = (uint64_t)end[-4] | (uint64_t)end[-3] << 8 | (uint64_t)end[-2] << 16 |
               (uint64_t)end[-1] << 24;
        more = more / DEFLATE_MAX_RATIO <= packed->n ? more + 1 : 0;
    }
    more = more < LEAST_ROOM ? LEAST_ROOM : more;
    uint8_t *fresh = realloc(*to, (size_t)more);
    if (!fresh) {
        LOG_E(
            "%s: no memory for its %llu unpacked bytes; unpack the file with gunzip, then the worker maps it into memory instead",
            packed->path, (unsigned long long)more);
        return ST_NOMEM;
    }
    *to = fresh;
    *room = more;
    return ST_OK;
}

static bool is_member(const struct data_file *packed, uint64_t at)
{
    return packed->n - at >= 2 && packed->bytes[at] == 0x1f && packed->bytes[at + 1] == 0x8b;
}

/* Checks the bytes after the last gzip member. */
static enum status check_padding(const struct data_file *packed, uint64_t from)
{
    for (uint64_t at = from; at < packed->n; at++)
        if (packed->bytes[at] != 0) {
            LOG_E("%s: there are bytes after the end of its gzip data, from byte %llu on",
                  packed->path, (unsigned long long)from);
            return ST_CORRUPT;
        }
    return ST_OK;
}

static enum status inflate_all(z_stream *z, const struct data_file *packed, uint8_t **to,
                               uint64_t *n)
{
    enum status st = ST_OK;
    uint64_t room = 0, have = 0, used = 0;
    for (int code = Z_OK; code != Z_STREAM_END;) {
        if (have == room)
            TRY(grow(packed, have, to, &room));
        uint64_t left = packed->n - used, space = room - have;
        z->next_in = (uint8_t *)(uintptr_t)(packed->bytes + used);
        z->avail_in = (uInt)(left < PIECE_BYTES ? left : PIECE_BYTES);
        z->next_out = *to + have;
        z->avail_out = (uInt)(space < PIECE_BYTES ? space : PIECE_BYTES);
        uInt in = z->avail_in, out = z->avail_out;
        code = inflate(z, Z_NO_FLUSH);
        used += in - z->avail_in;
        have += out - z->avail_out;
        if (code == Z_STREAM_END && is_member(packed, used))
            code = inflateReset(z);
        if (code == Z_STREAM_END || code == Z_OK)
            continue;
        if (code == Z_BUF_ERROR && used == packed->n)
            LOG_E("%s: truncated: the end of its gzip data is missing", packed->path);
        else
            LOG_E("%s: corrupt gzip data near byte %llu: %s", packed->path,
                  (unsigned long long)used, z->msg ? z->msg : "invalid stream");
        return code == Z_MEM_ERROR ? ST_NOMEM : ST_CORRUPT;
    }
    TRY(check_padding(packed, used));
    *n = have;
done:
    return st;
}

static enum status unpack(struct data_file *f)
{
    enum status st = ST_OK;
    z_stream z = {0};
    uint8_t *to = NULL;
    uint64_t n = 0;
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) {
        LOG_E("%s: no memory to unpack it", f->path);
        return ST_NOMEM;
    }
    TRY(inflate_all(&z, f, &to, &n));
    if (n >= 2 && to[0] == 0x1f && to[1] == 0x8b) {
        LOG_E("%s: gzipped twice; unpack it once with gunzip", f->path);
        TRY(ST_CORRUPT);
    }
    data_guard_remove(f->bytes);
    munmap((void *)(uintptr_t)f->bytes, (size_t)f->n);
    f->bytes = n > 0 ? to : (const uint8_t *)"";
    f->n = n;
    f->mapped = 0;
    if (n > 0)
        to = NULL;
done:
    inflateEnd(&z);
    free(to);
    return st;
}

enum status data_file_open(const char *path, struct data_file **out)
{
    enum status st = ST_OK;
    struct stat info;
    struct data_file *f = calloc(1, sizeof *f);
    /* O_NONBLOCK: if the path is a pipe, open must not wait */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f)
        f->path = strdup(path);
    if (!f || !f->path) {
        LOG_E("%s: no memory to read it", path);
        TRY(ST_NOMEM);
    }
    if (fd < 0 || fstat(fd, &info) != 0) {
        LOG_E("cannot open %s: %s", path, strerror(errno));
        TRY(errno == ENOENT || errno == ENOTDIR ? ST_NOT_FOUND : status_of_errno(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        LOG_E("%s: not a regular file", path);
        TRY(ST_INVALID);
    }
    TRY(map(fd, (uint64_t)info.st_size, f));
    if (f->n >= 2 && f->bytes[0] == 0x1f && f->bytes[1] == 0x8b)
        TRY(unpack(f));
    *out = f;
    f = NULL;
done:
    if (fd >= 0)
        close(fd);
    data_file_close(f);
    return st;
}

void data_file_close(struct data_file *f)
{
    if (!f)
        return;
    if (f->mapped) {
        data_guard_remove(f->bytes);
        munmap((void *)(uintptr_t)f->bytes, (size_t)f->n);
    } else if (f->n > 0) {
        free((void *)(uintptr_t)f->bytes);
    }
    free(f->path);
    free(f);
}
