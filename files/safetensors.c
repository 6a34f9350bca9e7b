/* files/safetensors.c - writes the format of safetensors.h. The header holds the checksums and
 * precedes the data, so the data are read twice: once for the checksums, once to write them. */
#include "files/safetensors.h"
#include "base/digest.h"
#include "base/log.h"
#include "files/durable.h"
#include <endian.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 1024 };

static size_t tensor_bytes(const struct safetensors_tensor *t)
{
    return (size_t)shape_elems(&t->shape) * sizeof(float);
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
    *at += tensor_bytes(t);
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
                              "data_offsets", (json_int_t)begin, (json_int_t)*at);
    if (failed) {
        json_decref(entry);
        return NULL;
    }
    return entry;
}

static int add_checksum(json_t *metadata, const struct safetensors_tensor *t)
{
    char key[KEY_BYTES], value[16];
    if ((size_t)snprintf(key, sizeof key, "crc32c %s", t->name) >= sizeof key)
        return 0;
    snprintf(value, sizeof value, "%08x", digest_crc32c(0, t->data, tensor_bytes(t)));
    return json_object_set_new(metadata, key, json_string(value)) == 0;
}

static char *header_text(const struct safetensors_content *c)
{
    json_t *root = json_object(), *metadata = json_object();
    uint64_t at = 0;
    int failed = !root || !metadata;
    for (int i = 0; i < c->n_metadata; i++)
        failed |=
            json_object_set_new(metadata, c->metadata[i][0], json_string(c->metadata[i][1])) != 0;
    failed |= json_object_set(root, "__metadata__", metadata) != 0;
    for (int i = 0; i < c->n_tensors && !failed; i++)
        failed = !add_checksum(metadata, &c->tensors[i]) ||
                 json_object_set_new(root, c->tensors[i].name,
                                     describe_tensor(&c->tensors[i], &at)) != 0;
    char *text = failed ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(metadata);
    json_decref(root);
    return text;
}

/* Writes the beginning of the file: the length of the JSON, the JSON, and spaces as padding. */
static enum status write_header(struct durable *f, const struct safetensors_content *c,
                                uint32_t *crc)
{
    enum status st = ST_OK;
    static const char padding[] = "       ";
    char *text = header_text(c);
    size_t n = text ? strlen(text) : 0, padded = (n + 7) / 8 * 8;
    if (!text || n > SAFETENSORS_MAX_HEADER) {
        LOG_E(
            "%s: cannot write the header: out of memory, too many tensors, or metadata that are not UTF-8",
            f->path);
        st = ST_NOMEM;
        goto done;
    }
    uint64_t length = htole64(padded);
    *crc = digest_crc32c(0, &length, sizeof length);
    *crc = digest_crc32c(*crc, text, n);
    *crc = digest_crc32c(*crc, padding, padded - n);
    TRY(durable_write(f, &length, sizeof length));
    TRY(durable_write(f, text, n));
    TRY(durable_write(f, padding, padded - n));
done:
    free(text);
    return st;
}

enum status safetensors_write(const char *path, const struct safetensors_content *content,
                              struct safetensors_written *out)
{
    struct durable f;
    uint32_t crc;
    if (htole32(1) != 1) {
        LOG_E("%s: cannot write a safetensors file on a big-endian machine", path);
        return ST_UNSUPPORTED;
    }
    enum status st = durable_begin(&f, path);
    if (st != ST_OK)
        return st;
    TRY(write_header(&f, content, &crc));
    for (int i = 0; i < content->n_tensors; i++)
        TRY(durable_write(&f, content->tensors[i].data, tensor_bytes(&content->tensors[i])));
    TRY(durable_commit(&f));
    if (out)
        *out = (struct safetensors_written){f.bytes, crc};
done:
    durable_end(&f);
    return st;
}
