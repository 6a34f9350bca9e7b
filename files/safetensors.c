/* files/safetensors.c - writes the format of safetensors.h. The header precedes the data, but
 * contains their checksums. So the writer first writes a header with the bounds of all shapes and
 * with checksums of zeros, and then the data, which are read once. The final header is at most as
 * long, because a checksum has always 8 digits. Spaces fill it up to the same length, and it
 * replaces the first one. If all data are in memory and small, or the file is a pipe, the first
 * header is complete. */
#include "files/safetensors.h"
#include "base/digest.h"
#include "base/log.h"
#include "base/utf8.h"
#include "files/durable.h"
#include "files/json_put.h"
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CRC_KEY "crc32c "
enum { MAX_NAME = 1024 - sizeof CRC_KEY, PIECE_BYTES = 256 << 10 };

struct safetensors_writer {
    struct durable file;
    struct safetensors_content content; /* borrowed */
    struct note {                       /* properties of a tensor that the next header states */
        struct shape shape;
        uint32_t crc;
    } * notes;
    size_t header_bytes; /* including the length before the JSON */
    uint32_t header_crc;
    bool is_noted; /* the first header is complete */
    int n_added;
};

static size_t tensor_bytes(enum safetensors_dtype dtype, const struct shape *shape)
{
    static const size_t bytes[] = {
        [SAFETENSORS_F32] = 4, [SAFETENSORS_BF16] = 2, [SAFETENSORS_I64] = 8};
    return (size_t)shape_elems(shape) * bytes[dtype];
}

/* Returns false if a text of the header is not UTF-8, or a name is too long for its checksum's
 * key. */
static bool has_texts(const struct safetensors_content *c)
{
    bool ok = true;
    for (int i = 0; i < c->n_metadata; i++)
        for (int k = 0; k < 2; k++)
            ok &= utf8_is_valid(c->metadata[i][k], strlen(c->metadata[i][k]));
    for (int i = 0; i < c->n_tensors; i++) {
        size_t n = strlen(c->tensors[i].name);
        ok &= n <= MAX_NAME && utf8_is_valid(c->tensors[i].name, n);
    }
    return ok;
}

/* Sets shape and checksum of the next tensor in the header. */
static void note_tensor(struct safetensors_writer *w, const struct shape *shape, uint32_t crc)
{
    w->notes[w->n_added++] = (struct note){*shape, crc};
}

static void put_metadata(const struct safetensors_writer *w, struct json_put *p)
{
    const struct safetensors_content *c = &w->content;
    char crc[16];
    json_put(p, "{\"__metadata__\":{");
    for (int i = 0; i < c->n_metadata; i++) {
        json_put_string(p, c->metadata[i][0], "");
        json_put(p, ":");
        json_put_string(p, c->metadata[i][1], "");
        json_put(p, i + 1 < c->n_metadata || c->n_tensors > 0 ? "," : "");
    }
    for (int i = 0; i < c->n_tensors; i++) {
        json_put_string(p, CRC_KEY, c->tensors[i].name);
        snprintf(crc, sizeof crc, ":\"%08x\"%s", w->notes[i].crc, i + 1 < c->n_tensors ? "," : "");
        json_put(p, crc);
    }
    json_put(p, "}");
}

/* Appends a tensor's entry. *at is the offset of its data, and becomes the offset of their end. */
static void put_tensor(const struct safetensors_writer *w, int i, uint64_t *at, struct json_put *p)
{
    const struct safetensors_tensor *t = &w->content.tensors[i];
    const struct shape *shape = &w->notes[i].shape;
    json_put(p, ",");
    json_put_string(p, t->name, "");
    json_put(p, t->dtype == SAFETENSORS_I64    ? ":{\"dtype\":\"I64\",\"shape\":["
                : t->dtype == SAFETENSORS_BF16 ? ":{\"dtype\":\"BF16\",\"shape\":["
                                               : ":{\"dtype\":\"F32\",\"shape\":[");
    for (int k = 0; k < shape->n_dims; k++) {
        json_put(p, k > 0 ? "," : "");
        json_put_integer(p, shape->dim[k]);
    }
    json_put(p, "],\"data_offsets\":[");
    json_put_integer(p, (int64_t)*at);
    json_put(p, ",");
    *at += tensor_bytes(t->dtype, shape);
    json_put_integer(p, (int64_t)*at);
    json_put(p, "]}");
}

static void put_header(const struct safetensors_writer *w, struct json_put *p)
{
    uint64_t at = 0;
    put_metadata(w, p);
    for (int i = 0; i < w->content.n_tensors; i++)
        put_tensor(w, i, &at, p);
    json_put(p, "}");
}

/* Writes the beginning of the file: the length of the JSON, the JSON, and spaces as padding. */
static enum status write_header(struct safetensors_writer *w)
{
    bool is_first = w->header_bytes == 0;
    struct json_put text = {.bytes = NULL};
    enum status st = ST_NOMEM;
    json_put(&text, "        "); /* place of the length */
    put_header(w, &text);
    while (!text.failed && (text.n % 8 != 0 || text.n < w->header_bytes))
        json_put(&text, " ");
    if (text.failed) {
        LOG_E("%s: out of memory for the header", w->file.path);
    } else if (text.n - sizeof(uint64_t) > SAFETENSORS_MAX_HEADER) {
        LOG_E(
            "%s: the header would have %zu bytes for %d tensors, but readers accept at most %d; use fewer tensors (tables with fewer buckets), or shorter names",
            w->file.path, text.n - sizeof(uint64_t), w->content.n_tensors, SAFETENSORS_MAX_HEADER);
        st = ST_UNSUPPORTED;
    } else {
        uint64_t length = htole64(text.n - sizeof length);
        memcpy(text.bytes, &length, sizeof length);
        CHECK(is_first || text.n == w->header_bytes);
        w->header_bytes = text.n;
        w->header_crc = digest_crc32c(0, text.bytes, text.n);
        st = is_first ? durable_write(&w->file, text.bytes, text.n)
                      : durable_rewrite(&w->file, text.bytes, text.n);
    }
    free(text.bytes);
    return st;
}

/* Completes the header before the data are written. */
static enum status note_all(struct safetensors_writer *w)
{
    for (int i = 0; i < w->content.n_tensors; i++) {
        const struct safetensors_tensor *t = &w->content.tensors[i];
        if (!t->data) {
            LOG_E("%s: its tensors need a regular file, because they are not in memory together",
                  w->file.path);
            return ST_UNSUPPORTED;
        }
        note_tensor(w, &t->shape, digest_crc32c(0, t->data, tensor_bytes(t->dtype, &t->shape)));
    }
    w->n_added = 0;
    return ST_OK;
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
    w->notes = calloc((size_t)content->n_tensors + 1, sizeof *w->notes);
    if (!w->notes || !has_texts(content)) {
        LOG_E("%s: cannot write the header: out of memory, or a text that is not UTF-8 or too long",
              path);
        TRY(ST_NOMEM);
    }
    for (int i = 0; i < content->n_tensors; i++)
        w->notes[i].shape = content->tensors[i].shape;
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
    if (w->is_noted)
        w->n_added++;
    else
        note_tensor(w, shape, crc);
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
    free(w->notes);
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
