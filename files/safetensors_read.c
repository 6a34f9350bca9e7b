/* files/safetensors_read.c - reads the format of safetensors.h. Every size is compared with the
 * size of the file before memory is allocated for it. Every entry is compared with its neighbours,
 * so that the tensors cover the data exactly. Parsed JSON needs at most about twenty times the
 * memory of its text, because the number of containers is limited before parsing. */
#include "base/digest.h"
#include "files/json_text.h"
#include "files/safetensors.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_BYTES = 1024, READ_BYTES = 1 << 20, LEAST_ENTRY = 16 };

struct safetensors_file {
    int fd, any;          /* any: tensors need not be float32 */
    uint64_t bytes, data; /* size of the file; offset of the data */
    json_t *root;         /* owns the entries' names */
    struct safetensors_entry *entries;
    int n_entries;
};

static enum status explain_corrupt(char why[SAFETENSORS_WHY_BYTES], const char *text)
{
    snprintf(why, SAFETENSORS_WHY_BYTES, "%s", text);
    return ST_CORRUPT;
}

static enum status no_memory(char why[SAFETENSORS_WHY_BYTES])
{
    snprintf(why, SAFETENSORS_WHY_BYTES, "cannot be read: %s", status_text(ST_NOMEM));
    return ST_NOMEM;
}

static enum status read_at(const struct safetensors_file *f, uint64_t at, void *dst, size_t bytes,
                           char why[SAFETENSORS_WHY_BYTES])
{
    char *p = dst;
    while (bytes > 0) {
        ssize_t n = pread(f->fd, p, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            enum status st = status_of_reading(errno);
            snprintf(why, SAFETENSORS_WHY_BYTES, "cannot be read: %s", strerror(errno));
            return st == ST_NOMEM ? st : ST_IO;
        }
        if (n == 0)
            return explain_corrupt(why, "ends too early");
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return ST_OK;
}

/* Returns whether the text has more containers than a header of its length can have. Brackets
 * within strings, such as names of classes, do not count. */
static bool is_too_dense(const char *text, size_t n)
{
    size_t containers = 0;
    int quoted = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '"')
            quoted = !quoted;
        else if (quoted)
            i += text[i] == '\\';
        else
            containers += text[i] == '{' || text[i] == '[';
    }
    return containers > 64 + n / LEAST_ENTRY;
}

#define SAVE_STATE "save the state dict with safetensors.torch.save_file"
#define SAVE_ARRAYS "save its arrays by their names with safetensors.numpy.save_file"

/* Returns the sentence for a zip archive whose first member has this name. */
static const char *zip_text(const char *member, size_t n)
{
    static const char torch[] = "data.pkl", array[] = ".npy";
    if (n >= sizeof torch - 1 && memcmp(member + n - (sizeof torch - 1), torch, 8) == 0)
        return "was written by torch.save, and is not read, because it may contain a program: " SAVE_STATE;
    if (n >= sizeof array - 1 && memcmp(member + n - (sizeof array - 1), array, 4) == 0)
        return "is an npz archive of NumPy, not a safetensors file: " SAVE_ARRAYS;
    return "is a zip archive, such as Keras' .keras files or those of torch.save, not a safetensors file: save the weights by their names with safetensors.numpy.save_file, or a state dict with safetensors.torch.save_file";
}

/* Returns a sentence about a file of another program, or NULL. The length of a safetensors header
 * may begin with the same bytes, but then JSON follows. */
static const char *other_format(const struct safetensors_file *f)
{
    enum { ZIP_NAME = 30, HEAD_BYTES = ZIP_NAME + 256 };
    unsigned char b[HEAD_BYTES] = {0};
    char ignored[SAFETENSORS_WHY_BYTES];
    size_t n = f->bytes < HEAD_BYTES ? (size_t)f->bytes : HEAD_BYTES;
    if (n < 9 || read_at(f, 0, b, n, ignored) != ST_OK || b[8] == '{')
        return NULL;
    if (b[0] == 0x80 && b[1] >= 2 && b[1] <= 5)
        return "was written by torch.save or pickle, and is not read, because it may contain a program: " SAVE_STATE;
    if (memcmp(b, "\x89HDF\r\n\x1a\n", 8) == 0)
        return "is an HDF5 file, such as Keras' .h5 files, not a safetensors file: " SAVE_ARRAYS;
    if (memcmp(b, "\x93NUMPY", 6) == 0)
        return "is a NumPy array without a name, not a safetensors file: " SAVE_ARRAYS;
    if (memcmp(b, "GGUF", 4) == 0)
        return "is a GGUF file, not a safetensors file: use the model's safetensors file";
    if (memcmp(b, "PK\3\4", 4) != 0)
        return NULL;
    size_t length = (size_t)b[26] | (size_t)b[27] << 8, room = n < ZIP_NAME ? 0 : n - ZIP_NAME;
    return zip_text((const char *)b + ZIP_NAME, length <= room ? length : 0);
}

static enum status read_header(struct safetensors_file *f, char why[SAFETENSORS_WHY_BYTES])
{
    uint64_t length;
    if (f->bytes < sizeof length)
        return explain_corrupt(why, "is too short for a safetensors file");
    enum status st = read_at(f, 0, &length, sizeof length, why);
    if (st != ST_OK)
        return st;
    const char *other = other_format(f);
    if (other) {
        explain_corrupt(why, other);
        return ST_UNSUPPORTED;
    }
    length = le64toh(length);
    if (length >= 2 && length <= SAFETENSORS_MAX_HEADER && length > f->bytes - sizeof length) {
        snprintf(why, SAFETENSORS_WHY_BYTES,
                 "is truncated, or not a safetensors file: its header would end at byte %" PRIu64
                 ", the file has %" PRIu64 " bytes",
                 length + sizeof length, f->bytes);
        return ST_CORRUPT;
    }
    if (length > f->bytes - sizeof length || length > SAFETENSORS_MAX_HEADER || length < 2)
        return explain_corrupt(
            why,
            "the length of its header is out of bounds: the file is damaged, or not a safetensors file");
    char *text = malloc((size_t)length);
    if (!text)
        return no_memory(why);
    f->data = sizeof length + length;
    TRY(read_at(f, sizeof length, text, (size_t)length, why));
    if (text[0] != '{' || is_too_dense(text, (size_t)length))
        TRY(explain_corrupt(why, "its header is not that of a safetensors file"));
    if (json_text_load(text, (size_t)length, &f->root) == ST_NOMEM)
        TRY(no_memory(why));
    if (!json_is_object(f->root))
        TRY(explain_corrupt(why, "its header does not parse as JSON"));
done:
    free(text);
    return st;
}

const char *safetensors_metadata(const struct safetensors_file *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->root, "__metadata__"), key));
}

static int read_offset(const json_t *offsets, size_t i, uint64_t *out)
{
    const json_t *number = json_array_get(offsets, i);
    json_int_t value = json_integer_value(number);
    *out = (uint64_t)value;
    return json_is_integer(number) && value >= 0;
}

static int read_shape(const json_t *json, struct shape *shape)
{
    if (!json_is_array(json) || json_array_size(json) > SHAPE_MAX_DIMS)
        return 0;
    shape->n_dims = (int)json_array_size(json);
    for (int i = 0; i < shape->n_dims; i++) {
        const json_t *dim = json_array_get(json, (size_t)i);
        if (!json_is_integer(dim))
            return 0;
        shape->dim[i] = json_integer_value(dim);
    }
    return shape_elems(shape) >= 0;
}

static enum status bad_entry(char why[SAFETENSORS_WHY_BYTES], const char *name, const char *what)
{
    snprintf(why, SAFETENSORS_WHY_BYTES, "tensor '%.200s' %s", name, what);
    return ST_CORRUPT;
}

/* Sets the entry's dtype. Returns false if the dtype is unknown. */
static bool read_dtype(const char *text, struct safetensors_entry *e)
{
    static const struct {
        const char *text;
        enum safetensors_dtype dtype;
        int bytes;
    } known[] = {{"F32", SAFETENSORS_F32, 4},      {"F64", SAFETENSORS_F64, 8},
                 {"F16", SAFETENSORS_F16, 2},      {"BF16", SAFETENSORS_BF16, 2},
                 {"I64", SAFETENSORS_I64, 8},      {"U64", SAFETENSORS_OTHER, 8},
                 {"I32", SAFETENSORS_OTHER, 4},    {"U32", SAFETENSORS_OTHER, 4},
                 {"I16", SAFETENSORS_OTHER, 2},    {"U16", SAFETENSORS_OTHER, 2},
                 {"I8", SAFETENSORS_OTHER, 1},     {"U8", SAFETENSORS_OTHER, 1},
                 {"BOOL", SAFETENSORS_OTHER, 1},   {"F8_E5M2", SAFETENSORS_OTHER, 1},
                 {"F8_E4M3", SAFETENSORS_OTHER, 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].text) == 0) {
            e->dtype = known[i].dtype;
            e->dtype_text = known[i].text;
            e->elem_bytes = known[i].bytes;
            return true;
        }
    e->dtype = SAFETENSORS_OTHER;
    e->dtype_text = text;
    return false;
}

static enum status read_entry(const struct safetensors_file *f, const char *name,
                              const json_t *json, struct safetensors_entry *e,
                              char why[SAFETENSORS_WHY_BYTES])
{
    uint64_t begin, end, room = f->bytes - f->data;
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *offsets = json_object_get(json, "data_offsets");
    *e = (struct safetensors_entry){.name = name};
    if (!dtype || !read_shape(json_object_get(json, "shape"), &e->shape) ||
        !json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !read_offset(offsets, 0, &begin) || !read_offset(offsets, 1, &end))
        return bad_entry(why, name, "has a malformed entry");
    bool known = read_dtype(dtype, e);
    if (!f->any && e->dtype != SAFETENSORS_F32) {
        snprintf(why, SAFETENSORS_WHY_BYTES, "tensor '%.200s' is of dtype %.20s, not F32", name,
                 dtype);
        return ST_UNSUPPORTED;
    }
    e->n_elems = shape_elems(&e->shape);
    /* the product is at most 2^43, as shape_elems limits n_elems */
    e->bytes = known ? (uint64_t)e->n_elems * (uint64_t)e->elem_bytes : end - begin;
    if (begin > end || end > room || end - begin != e->bytes)
        return bad_entry(why, name, "is not inside the file");
    e->offset = f->data + begin;
    char key[KEY_BYTES];
    if ((size_t)snprintf(key, sizeof key, "crc32c %s", name) >= sizeof key)
        return ST_OK;
    const char *crc = safetensors_metadata(f, key);
    char *rest = NULL;
    e->has_crc = crc != NULL;
    e->crc32c = crc ? (uint32_t)strtoul(crc, &rest, 16) : 0;
    if (crc && (strlen(crc) != 8 || *rest))
        return bad_entry(why, name, "has a malformed checksum");
    return ST_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* Returns the end of the last tensor according to the header; 0: unknown. */
static uint64_t promised_bytes(const struct safetensors_file *f)
{
    const char *name;
    json_t *json;
    uint64_t most = 0, end;
    json_object_foreach(f->root, name, json)
    {
        if (strcmp(name, "__metadata__") != 0 &&
            read_offset(json_object_get(json, "data_offsets"), 1, &end) && end > most)
            most = end;
    }
    return f->data + most;
}

static enum status read_entries(struct safetensors_file *f, char why[SAFETENSORS_WHY_BYTES])
{
    const char *name;
    json_t *json;
    uint64_t wanted = promised_bytes(f);
    if (wanted > f->bytes) {
        snprintf(why, SAFETENSORS_WHY_BYTES,
                 "is truncated: its header states %" PRIu64 " bytes in all, but there are %" PRIu64
                 "; copy it again",
                 wanted, f->bytes);
        return ST_CORRUPT;
    }
    f->entries = calloc(json_object_size(f->root) + 1, sizeof *f->entries);
    if (!f->entries)
        return no_memory(why);
    json_object_foreach(f->root, name, json)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        enum status st = read_entry(f, name, json, &f->entries[f->n_entries++], why);
        if (st != ST_OK)
            return st;
    }
    qsort(f->entries, (size_t)f->n_entries, sizeof *f->entries, by_place);
    uint64_t at = f->data;
    for (int i = 0; i < f->n_entries; i++) {
        if (f->entries[i].offset != at)
            return bad_entry(why, f->entries[i].name, "overlaps another tensor, or leaves a gap");
        at += f->entries[i].bytes;
    }
    if (at == f->bytes)
        return ST_OK;
    snprintf(why, SAFETENSORS_WHY_BYTES,
             "has extra bytes at its end: its header states %" PRIu64
             " bytes in all, but the file has %" PRIu64,
             at, f->bytes);
    return ST_CORRUPT;
}

static enum status open_file(struct safetensors_file *f, const char *path,
                             char why[SAFETENSORS_WHY_BYTES])
{
    struct stat s;
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0 || fstat(f->fd, &s) != 0) {
        enum status st = status_of_reading(errno);
        snprintf(why, SAFETENSORS_WHY_BYTES, "cannot be opened: %s", status_errno_text(errno));
        return f->fd < 0 || st == ST_NOMEM ? st : ST_IO;
    }
    if (!S_ISREG(s.st_mode))
        return explain_corrupt(why, "is not a regular file");
    f->bytes = (uint64_t)s.st_size;
    return ST_OK;
}

static enum status open_as(const char *path, int any, struct safetensors_file **out,
                           char why[SAFETENSORS_WHY_BYTES])
{
    enum status st = ST_OK;
    struct safetensors_file *f = calloc(1, sizeof *f);
    if (!f)
        return no_memory(why);
    f->any = any;
    TRY(open_file(f, path, why));
    TRY(read_header(f, why));
    TRY(read_entries(f, why));
    *out = f;
    f = NULL;
done:
    safetensors_close(f);
    return st;
}

enum status safetensors_open(const char *path, struct safetensors_file **out,
                             char why[SAFETENSORS_WHY_BYTES])
{
    return open_as(path, 0, out, why);
}

enum status safetensors_open_any(const char *path, struct safetensors_file **out,
                                 char why[SAFETENSORS_WHY_BYTES])
{
    return open_as(path, 1, out, why);
}

void safetensors_close(struct safetensors_file *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    json_decref(f->root);
    free(f->entries);
    free(f);
}

const struct safetensors_entry *safetensors_entries(const struct safetensors_file *f, int *n)
{
    *n = f->n_entries;
    return f->entries;
}

enum status safetensors_read(const struct safetensors_file *f, const struct safetensors_entry *e,
                             int64_t first, int64_t n, float *dst, char why[SAFETENSORS_WHY_BYTES])
{
    if (e->dtype != SAFETENSORS_F32)
        return explain_corrupt(why, "has a tensor that is not float32");
    return safetensors_read_raw(f, e, first, n, dst, why);
}

enum status safetensors_read_raw(const struct safetensors_file *f,
                                 const struct safetensors_entry *e, int64_t first, int64_t n,
                                 void *dst, char why[SAFETENSORS_WHY_BYTES])
{
    if (e->elem_bytes == 0)
        return bad_entry(why, e->name, "has an unknown dtype");
    if (first < 0 || n < 0 || first > e->n_elems || n > e->n_elems - first)
        return explain_corrupt(why, "does not have the requested elements");
    return read_at(f, e->offset + (uint64_t)first * (uint64_t)e->elem_bytes, dst,
                   (size_t)n * (size_t)e->elem_bytes, why);
}

static enum status sum_run(const struct safetensors_file *f, uint64_t at, uint64_t bytes,
                           uint32_t *crc, char why[SAFETENSORS_WHY_BYTES])
{
    enum status st = ST_OK;
    char *block = malloc(READ_BYTES);
    *crc = 0;
    if (!block)
        return no_memory(why);
    while (bytes > 0) {
        size_t n = bytes < READ_BYTES ? (size_t)bytes : READ_BYTES;
        TRY(read_at(f, at, block, n, why));
        *crc = digest_crc32c(*crc, block, n);
        at += n;
        bytes -= n;
    }
done:
    free(block);
    return st;
}

enum status safetensors_measure(const struct safetensors_file *f, struct safetensors_written *out,
                                char why[SAFETENSORS_WHY_BYTES])
{
    uint32_t crc;
    enum status st = sum_run(f, 0, f->data, &crc, why);
    if (st == ST_OK)
        *out = (struct safetensors_written){f->bytes, crc};
    return st;
}

enum status safetensors_check_header(const struct safetensors_file *f,
                                     const struct safetensors_written *whole,
                                     char why[SAFETENSORS_WHY_BYTES])
{
    struct safetensors_written is;
    if (whole->bytes != f->bytes) {
        snprintf(why, SAFETENSORS_WHY_BYTES, "has %llu bytes, not %llu",
                 (unsigned long long)f->bytes, (unsigned long long)whole->bytes);
        return ST_CORRUPT;
    }
    enum status st = safetensors_measure(f, &is, why);
    if (st == ST_OK && is.crc32c != whole->crc32c)
        return explain_corrupt(why, "has a header that does not match its checksum");
    for (int i = 0; i < f->n_entries && st == ST_OK; i++)
        if (!f->entries[i].has_crc)
            return bad_entry(why, f->entries[i].name, "has no checksum");
    return st;
}

enum status safetensors_check_entry(const struct safetensors_file *f,
                                    const struct safetensors_entry *e,
                                    char why[SAFETENSORS_WHY_BYTES])
{
    uint32_t crc;
    enum status st = sum_run(f, e->offset, e->bytes, &crc, why);
    if (st == ST_OK && (!e->has_crc || crc != e->crc32c))
        return bad_entry(why, e->name, "does not match its checksum");
    return st;
}

enum status safetensors_check(const struct safetensors_file *f,
                              const struct safetensors_written *whole,
                              char why[SAFETENSORS_WHY_BYTES])
{
    enum status st = whole ? safetensors_check_header(f, whole, why) : ST_OK;
    for (int i = 0; i < f->n_entries && st == ST_OK; i++)
        if (f->entries[i].has_crc)
            st = safetensors_check_entry(f, &f->entries[i], why);
    return st;
}
