/* worker/data/dataset_idx.c - decodes IDX files, gzipped or plain.
 * The header is read and judged first; then exactly the memory is taken that it speaks of, and only
 * if the file can hold that much (deflate never packs better than 1032 to 1), so that a small file
 * cannot make us take much (I9). gzip's checksum and length are checked by zlib; what follows the
 * end of the gzip data, or of the IDX data, is an error, not ignored. */
#include "worker/data/dataset_idx.h"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { DEFLATE_MAX_RATIO = 1032, INPUT_BYTES = 65536 };

/* A file that is read front to back, unpacked on the way. */
struct source {
    int fd;
    const char *label;
    int gzipped, ended; /* ended: the end of the gzip data has come */
    z_stream z;         /* next_in, avail_in: what was read and is not yet used */
    uint8_t in[INPUT_BYTES];
};

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static enum status wrong_magic(const char *label, int n_dims, const uint8_t *data)
{
    uint32_t magic = big_endian(data), wanted = 0x800u + (uint32_t)n_dims;
    const char *kind = n_dims == 3 ? "images" : "labels";
    if (magic == 0x801 || magic == 0x803)
        LOG_E("%s: holds %s (magic 0x%08x), but %s (0x%08x) are wanted: are the files swapped?",
              label, magic == 0x803 ? "images" : "labels", magic, kind, wanted);
    else if (data[0] == 0x1f && data[1] == 0x8b)
        LOG_E("%s: gzipped twice; unpack it once with gunzip", label);
    else
        LOG_E("%s: not an IDX file of %s: magic 0x%08x, wanted 0x%08x", label, kind, magic, wanted);
    return ST_CORRUPT;
}

/* Judges the header; *total: the bytes that the file must have. */
static enum status decode_header(const uint8_t *data, size_t bytes, int n_dims, const char *label,
                                 uint32_t dims[3], uint64_t *total)
{
    size_t header = 4 + 4 * (size_t)n_dims;
    if (bytes >= 4 && big_endian(data) != 0x800u + (uint32_t)n_dims)
        return wrong_magic(label, n_dims, data);
    if (bytes < header) {
        LOG_E("%s: %s: %zu bytes, an IDX header has %zu", label, bytes ? "truncated" : "empty",
              bytes, header);
        return ST_CORRUPT;
    }
    uint32_t d[3] = {0, 1, 1};
    for (int i = 0; i < n_dims; i++)
        d[i] = big_endian(data + 4 + 4 * i);
    if (d[0] == 0 || d[0] > DATASET_MAX_ITEMS) {
        LOG_E("%s: its header says %u items; there must be from 1 to %d", label, d[0],
              DATASET_MAX_ITEMS);
        return ST_CORRUPT;
    }
    if (d[1] == 0 || d[1] > DATASET_IDX_MAX_SIDE || d[2] == 0 || d[2] > DATASET_IDX_MAX_SIDE) {
        LOG_E("%s: its header says images of %ux%u; they must be from 1x1 to %dx%d", label, d[1],
              d[2], DATASET_IDX_MAX_SIDE, DATASET_IDX_MAX_SIDE);
        return ST_CORRUPT;
    }
    *total = header + (uint64_t)d[0] * d[1] * d[2];
    memcpy(dims, d, sizeof d);
    return ST_OK;
}

static enum status wrong_length(const char *label, uint64_t total, uint64_t bytes)
{
    if (bytes < total)
        LOG_E("%s: truncated: its header promises %llu bytes, there are %llu", label,
              (unsigned long long)total, (unsigned long long)bytes);
    else
        LOG_E("%s: bytes behind its end: its header promises %llu bytes, there are more", label,
              (unsigned long long)total);
    return ST_CORRUPT;
}

enum status dataset_decode_idx(const uint8_t *data, size_t bytes, int n_dims, const char *label,
                               uint32_t dims[3], const uint8_t **payload)
{
    uint64_t total;
    uint32_t d[3];
    enum status st;
    TRY(decode_header(data, bytes, n_dims, label, d, &total));
    if (bytes != total)
        TRY(wrong_length(label, total, bytes));
    memcpy(dims, d, sizeof d);
    *payload = data + 4 + 4 * n_dims;
done:
    return st;
}

/* Makes avail_in > 0, unless the file has ended. */
static enum status source_fill(struct source *s)
{
    if (s->z.avail_in > 0)
        return ST_OK;
    ssize_t got;
    do {
        got = read(s->fd, s->in, sizeof s->in);
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        LOG_E("%s: cannot read: %s", s->label, strerror(errno));
        return ST_IO;
    }
    s->z.next_in = s->in;
    s->z.avail_in = (uInt)got;
    return ST_OK;
}

static enum status inflate_some(struct source *s)
{
    int code = inflate(&s->z, Z_NO_FLUSH);
    if (code == Z_STREAM_END)
        s->ended = 1;
    else if (code == Z_MEM_ERROR) {
        LOG_E("%s: no memory to unpack it", s->label);
        return ST_NOMEM;
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
        LOG_E("%s: corrupt gzip data: %s", s->label, s->z.msg ? s->z.msg : "invalid stream");
        return ST_CORRUPT;
    }
    return ST_OK;
}

/* Reads up to n bytes; *got < n only at the end. */
static enum status source_read(struct source *s, uint8_t *dst, size_t n, size_t *got)
{
    enum status st = ST_OK;
    size_t have = 0;
    while (have < n && !s->ended) {
        TRY(source_fill(s));
        if (s->z.avail_in == 0)
            break;
        size_t room = n - have < INPUT_BYTES ? n - have : INPUT_BYTES;
        if (s->gzipped) {
            s->z.next_out = dst + have;
            s->z.avail_out = (uInt)room;
            TRY(inflate_some(s));
            have += room - s->z.avail_out;
        } else {
            room = room < s->z.avail_in ? room : s->z.avail_in;
            memcpy(dst + have, s->z.next_in, room);
            s->z.next_in += room;
            s->z.avail_in -= (uInt)room;
            have += room;
        }
    }
    *got = have;
done:
    return st;
}

/* The payload has been read in full: does the file end here, and well? */
static enum status source_finish(struct source *s, uint64_t total)
{
    uint8_t more;
    size_t got;
    enum status st;
    TRY(source_read(s, &more, 1, &got));
    if (got > 0)
        TRY(wrong_length(s->label, total, total + 1));
    if (!s->gzipped)
        goto done;
    if (!s->ended) {
        LOG_E("%s: truncated: the end of its gzip data is missing", s->label);
        TRY(ST_CORRUPT);
    }
    TRY(source_fill(s));
    if (s->z.avail_in > 0) {
        LOG_E("%s: bytes behind the end of its gzip data", s->label);
        TRY(ST_CORRUPT);
    }
done:
    return st;
}

static enum status source_open(struct source *s, int fd, const char *label, uint64_t *file_bytes)
{
    struct stat info;
    enum status st;
    memset(s, 0, offsetof(struct source, in));
    s->fd = fd;
    s->label = label;
    if (fstat(fd, &info) != 0) {
        LOG_E("%s: %s", label, strerror(errno));
        return ST_IO;
    }
    if (!S_ISREG(info.st_mode)) {
        LOG_E("%s: not a regular file", label);
        return ST_INVALID;
    }
    *file_bytes = (uint64_t)info.st_size;
    TRY(source_fill(s));
    s->gzipped = s->z.avail_in >= 2 && s->in[0] == 0x1f && s->in[1] == 0x8b;
    if (s->gzipped && inflateInit2(&s->z, 16 + MAX_WBITS) != Z_OK) {
        LOG_E("%s: no memory to unpack it", label);
        return ST_NOMEM;
    }
done:
    return st;
}

static enum status load(struct source *s, uint64_t file_bytes, int n_dims, uint32_t dims[3],
                        uint8_t **file)
{
    uint8_t header[DATASET_IDX_MAX_HEADER], *data = NULL;
    size_t header_bytes = 4 + 4 * (size_t)n_dims, got;
    uint64_t total;
    enum status st;
    TRY(source_read(s, header, header_bytes, &got));
    TRY(decode_header(header, got, n_dims, s->label, dims, &total));
    if (!s->gzipped && total > file_bytes)
        TRY(wrong_length(s->label, total, file_bytes));
    if (total / DEFLATE_MAX_RATIO > file_bytes) {
        LOG_E(
            "%s: truncated: its header promises %llu bytes, more than %llu bytes of gzip data can "
            "hold",
            s->label, (unsigned long long)total, (unsigned long long)file_bytes);
        TRY(ST_CORRUPT);
    }
    data = malloc(total);
    if (!data) {
        LOG_E("%s: no memory for its %llu bytes", s->label, (unsigned long long)total);
        TRY(ST_NOMEM);
    }
    memcpy(data, header, header_bytes);
    TRY(source_read(s, data + header_bytes, total - header_bytes, &got));
    if (got + header_bytes < total)
        TRY(wrong_length(s->label, total, got + header_bytes));
    TRY(source_finish(s, total));
    *file = data;
    data = NULL;
done:
    free(data);
    return st;
}

enum status dataset_idx_load(int fd, int n_dims, const char *label, uint8_t **file,
                             uint32_t dims[3], const uint8_t **payload)
{
    struct source *s = malloc(sizeof *s);
    uint64_t file_bytes;
    enum status st;
    if (!s) {
        LOG_E("%s: no memory to read it", label);
        return ST_NOMEM;
    }
    TRY(source_open(s, fd, label, &file_bytes));
    TRY(load(s, file_bytes, n_dims, dims, file));
    *payload = *file + 4 + 4 * n_dims;
done:
    if (s->gzipped)
        inflateEnd(&s->z);
    free(s);
    return st;
}
