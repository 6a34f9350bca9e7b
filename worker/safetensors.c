/* worker/safetensors.c - writes parameters in the safetensors format.
 * The flat block already is the file's data section: little-endian floats, tensor after tensor
 * without gaps; only the JSON in front has to be made. A reader never sees half a file: it is
 * written under another name and renamed when it is safely on the disk. */
#include "worker/safetensors.h"
#include "base/log.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static json_t *describe_param(const struct net_param *p)
{
    json_t *shape = json_array();
    int failed = !shape;
    for (int i = 0; i < p->shape.n_dims; i++)
        failed |= json_array_append_new(shape, json_integer(p->shape.dim[i])) != 0;
    int64_t begin = p->first * (int64_t)sizeof(float);
    int64_t end = begin + p->n_elems * (int64_t)sizeof(float);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
                              "data_offsets", (json_int_t)begin, (json_int_t)end);
    if (failed) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

/* The JSON with its length in front and spaces behind, as the file begins; *bytes: all of it. */
static enum status make_header(const char *path, const struct chunks *chunks,
                               const char *const (*metadata)[2], int n_meta, char **header,
                               size_t *bytes)
{
    enum status st = ST_OK;
    json_t *root = json_object(), *meta = json_object();
    char *text = NULL, *data = NULL;
    int failed = !root || !meta;
    for (int i = 0; i < n_meta; i++)
        failed |= json_object_set_new(meta, metadata[i][0], json_string(metadata[i][1])) != 0;
    if (n_meta > 0)
        failed |= json_object_set(root, "__metadata__", meta) != 0;
    for (int i = 0; i < chunks->n_params; i++)
        failed |= json_object_set_new(root, chunks->params[i].name,
                                      describe_param(&chunks->params[i])) != 0;
    text = failed ? NULL : json_dumps(root, JSON_COMPACT);
    size_t n = text ? strlen(text) : 0, padded = (n + 7) / 8 * 8;
    data = malloc(8 + padded);
    if (!text || !data) {
        LOG_E("%s: no memory for the file's header, or its metadata are not UTF-8", path);
        TRY(ST_NOMEM);
    }
    uint64_t length = htole64(padded);
    memcpy(data, &length, 8);
    memcpy(data + 8, text, n);
    memset(data + 8 + n, ' ', padded - n);
    *header = data;
    *bytes = 8 + padded;
    data = NULL;
done:
    free(data);
    free(text);
    json_decref(meta);
    json_decref(root);
    return st;
}

static enum status io_error(const char *path, const char *what)
{
    LOG_E("%s: cannot %s: %s", path, what, strerror(errno));
    return ST_IO;
}

static enum status write_all(int fd, const char *path, const void *data, size_t bytes)
{
    const char *p = data;
    while (bytes > 0) {
        ssize_t done = write(fd, p, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return io_error(path, "write");
        p += done;
        bytes -= (size_t)done;
    }
    return ST_OK;
}

/* Makes the rename itself durable. */
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

enum status safetensors_write(const char *path, const struct chunks *chunks, const float *flat,
                              const char *const (*metadata)[2], int n_meta)
{
    char temporary[PATH_MAX];
    char *header = NULL;
    size_t header_bytes;
    int fd = -1, made = 0;
    enum status st;
    if (htole32(1) != 1) {
        LOG_E("%s: safetensors files are only written on little-endian machines", path);
        return ST_UNSUPPORTED;
    }
    if (snprintf(temporary, sizeof temporary, "%s.%ld.tmp", path, (long)getpid()) >=
        (int)sizeof temporary) {
        LOG_E("%s: the path is too long", path);
        return ST_IO;
    }
    TRY(make_header(path, chunks, metadata, n_meta, &header, &header_bytes));
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        TRY(io_error(temporary, "create"));
    made = 1;
    TRY(write_all(fd, temporary, header, header_bytes));
    TRY(write_all(fd, temporary, flat, (size_t)chunks->n_elems * sizeof *flat));
    if (fsync(fd) != 0)
        TRY(io_error(temporary, "sync"));
    if (rename(temporary, path) != 0)
        TRY(io_error(path, "rename the finished file to this name"));
    made = 0;
    TRY(sync_folder(path));
done:
    if (fd >= 0)
        close(fd);
    if (made)
        unlink(temporary);
    free(header);
    return st;
}
