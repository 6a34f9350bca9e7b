/* files/safetensors.c - writes the format of safetensors.h. The header precedes the data, but
 * contains their checksums. So the writer first writes a header with the bounds of all shapes and
 * with checksums of zeros, and then the data, which are read once. The final header is at most as
 * long, because a checksum has always 8 digits. Spaces fill it up to the same length, and it
 * replaces the first one. If all data are in memory and small, or the file is a pipe, the first
 * header is complete. */
#include "files/safetensors.h"
#include "base/digest.h"
#include "base/log.h"
#include "files/durable.h"
#include <endian.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 1024, PIECE_BYTES = 256 << 10 };

struct safetensors_writer {
    struct durable file;
    struct safetensors_content content; /* borrowed */
    json_t *root, *metadata;
    size_t header_bytes; /* including the length before the JSON */
    uint32_t header_crc;
    bool is_noted; /* the first header is complete */
    uint64_t at;   /* offset of the next tensor's data */
    int n_added;
};

static size_t tensor_bytes(enum safetensors_dtype dtype, const struct shape *shape)
{
    return (size_t)shape_elems(shape) *
           (dtype == SAFETENSORS_I64 ? sizeof(int64_t) : sizeof(float));
}

static const char *crc_key(const char *tensor, char key[KEY_BYTES])
{
    return (size_t)snprintf(key, KEY_BYTES, "crc32c %s", tensor) < KEY_BYTES ? key : NULL;
}

/* Returns the tensor's entry of the header. *at is the offset of the tensor's data, and becomes
 * the offset of their end. Returns NULL if memory ran out. */
static json_t *describe_tensor(const struct safetensors_tensor *t, uint64_t *at)
{
    json_t *shape = json_array();
    int failed = !shape;
    for (int i = 0; i < t->shape.n_dims; i++)
        failed |= json_array_append_new(shape, json_integer(t->shape.dim[i])) != 0;
    uint64_t begin = *at;
    *at += tensor_bytes(t->dtype, &t->shape);
    json_t *entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->dtype == SAFETENSORS_I64 ? "I64" : "F32",
                  "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)*at);
    if (failed) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

/* Makes the JSON of the header, with the shapes of the content and checksums of zeros. */
static bool describe(struct safetensors_writer *w)
{
    const struct safetensors_content *c = &w->content;
    char key[KEY_BYTES];
    uint64_t at = 0;
    w->root = json_object();
    w->metadata = json_object();
    bool ok = w->root && w->metadata;
    for (int i = 0; i < c->n_metadata; i++)
        ok &= json_object_set_new(w->metadata, c->metadata[i][0], json_string(c->metadata[i][1])) ==
              0;
    ok &= json_object_set(w->root, "__metadata__", w->metadata) == 0;
    for (int i = 0; i < c->n_tensors && ok; i++)
        ok = crc_key(c->tensors[i].name, key) &&
             json_object_set_new(w->metadata, key, json_string("00000000")) == 0 &&
             json_object_set_new(w->root, c->tensors[i].name,
                                 describe_tensor(&c->tensors[i], &at)) == 0;
    return ok;
}

/* Sets shape, offsets and checksum of the next tensor in the JSON. */
static enum status note_tensor(struct safetensors_writer *w, const struct shape *shape,
                               uint32_t crc)
{
    const struct safetensors_tensor *t = &w->content.tensors[w->n_added++];
    json_t *entry = json_object_get(w->root, t->name);
    json_t *offsets = json_object_get(entry, "data_offsets");
    char key[KEY_BYTES], value[16];
    for (int i = 0; i < shape->n_dims; i++)
        json_integer_set(json_array_get(json_object_get(entry, "shape"), (size_t)i),
                         (json_int_t)shape->dim[i]);
    json_integer_set(json_array_get(offsets, 0), (json_int_t)w->at);
    w->at += tensor_bytes(t->dtype, shape);
    json_integer_set(json_array_get(offsets, 1), (json_int_t)w->at);
    snprintf(value, sizeof value, "%08x", crc);
    if (json_string_set(json_object_get(w->metadata, crc_key(t->name, key)), value) == 0)
        return ST_OK;
    LOG_E("%s: cannot write the header: out of memory", w->file.path);
    return ST_NOMEM;
}

/* Writes the beginning of the file: the length of the JSON, the JSON, and spaces as padding. */
static enum status write_header(struct safetensors_writer *w)
{
    bool is_first = w->header_bytes == 0;
    uint64_t length;
    char *text = json_dumps(w->root, JSON_COMPACT), *header = NULL;
    size_t n = text ? strlen(text) : 0;
    if (is_first)
        w->header_bytes = sizeof length + (n + 7) / 8 * 8;
    CHECK(sizeof length + n <= w->header_bytes);
    if (text && n <= SAFETENSORS_MAX_HEADER)
        header = malloc(w->header_bytes);
    enum status st = ST_NOMEM;
    if (header) {
        length = htole64(w->header_bytes - sizeof length);
        memset(header, ' ', w->header_bytes);
        memcpy(header, &length, sizeof length);
        memcpy(header + sizeof length, text, n);
        w->header_crc = digest_crc32c(0, header, w->header_bytes);
        st = is_first ? durable_write(&w->file, header, w->header_bytes)
                      : durable_rewrite(&w->file, header, w->header_bytes);
    } else {
        LOG_E("%s: cannot write the header: out of memory, or too many tensors", w->file.path);
    }
    free(text);
    free(header);
    return st;
}

/* Completes the header before the data are written. */
static enum status note_all(struct safetensors_writer *w)
{
    enum status st = ST_OK;
    for (int i = 0; i < w->content.n_tensors && st == ST_OK; i++) {
        const struct safetensors_tensor *t = &w->content.tensors[i];
        if (!t->data) {
            LOG_E("%s: its tensors need a regular file, because they are not in memory together",
                  w->file.path);
            return ST_UNSUPPORTED;
        }
        st =
            note_tensor(w, &t->shape, digest_crc32c(0, t->data, tensor_bytes(t->dtype, &t->shape)));
    }
    w->n_added = 0;
    return st;
}

/* Returns true if it costs less to read the data twice than to write the header twice. */
static bool is_small(const struct safetensors_content *content)
{
    size_t bytes = 0;
    for (int i = 0; i < content->n_tensors; i++)
        bytes += tensor_bytes(content->tensors[i].dtype, &content->tensors[i].shape);
    return bytes <= PIECE_BYTES;
}

/* Begins the file. notes: `content` has all data, and the first header contains their checksums. */
static enum status begin(const char *path, const struct safetensors_content *content, bool notes,
                         struct safetensors_writer **out)
{
    if (htole32(1) != 1) {
        LOG_E("%s: cannot write a safetensors file on a big-endian machine", path);
        return ST_UNSUPPORTED;
    }
    struct safetensors_writer *w = calloc(1, sizeof *w);
    if (!w) {
        LOG_E("%s: out of memory", path);
        return ST_NOMEM;
    }
    enum status st = durable_begin(&w->file, path);
    if (st != ST_OK) {
        free(w);
        return st;
    }
    w->content = *content;
    if (!describe(w)) {
        LOG_E("%s: cannot write the header: out of memory, or a text that is not UTF-8 or too long",
              path);
        TRY(ST_NOMEM);
    }
    w->is_noted = w->file.in_place || notes;
    if (w->is_noted)
        TRY(note_all(w));
    TRY(write_header(w));
    *out = w;
    w = NULL;
done:
    safetensors_end(w);
    return st;
}

enum status safetensors_begin(const char *path, const struct safetensors_content *content,
                              struct safetensors_writer **out)
{
    return begin(path, content, false, out);
}

enum status safetensors_add(struct safetensors_writer *w, const struct shape *shape,
                            const void *data)
{
    CHECK(w->n_added < w->content.n_tensors);
    const struct safetensors_tensor *t = &w->content.tensors[w->n_added];
    const char *p = data;
    uint32_t crc = 0;
    CHECK(shape->n_dims == t->shape.n_dims);
    for (int i = 0; i < shape->n_dims; i++)
        CHECK(shape->dim[i] >= 0 && shape->dim[i] <= t->shape.dim[i]);
    for (size_t n, left = tensor_bytes(t->dtype, shape); left > 0; left -= n, p += n) {
        n = left < PIECE_BYTES ? left : PIECE_BYTES;
        crc = w->is_noted ? 0 : digest_crc32c(crc, p, n);
        enum status st = durable_write(&w->file, p, n);
        if (st != ST_OK)
            return st;
    }
    if (!w->is_noted)
        return note_tensor(w, shape, crc);
    w->n_added++;
    return ST_OK;
}

enum status safetensors_commit(struct safetensors_writer *w, struct safetensors_written *out)
{
    enum status st = ST_OK;
    CHECK(w->n_added == w->content.n_tensors);
    if (!w->is_noted)
        TRY(write_header(w));
    TRY(durable_commit(&w->file));
    if (out)
        *out = (struct safetensors_written){w->file.bytes, w->header_crc};
done:
    return st;
}

void safetensors_end(struct safetensors_writer *w)
{
    if (!w)
        return;
    durable_end(&w->file);
    json_decref(w->metadata);
    json_decref(w->root);
    free(w);
}

enum status safetensors_write(const char *path, const struct safetensors_content *content,
                              struct safetensors_written *out)
{
    struct safetensors_writer *w;
    enum status st = begin(path, content, is_small(content), &w);
    if (st != ST_OK)
        return st;
    for (int i = 0; i < content->n_tensors; i++)
        TRY(safetensors_add(w, &content->tensors[i].shape, content->tensors[i].data));
    TRY(safetensors_commit(w, out));
done:
    safetensors_end(w);
    return st;
}
