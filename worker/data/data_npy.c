/* worker/data/data_npy.c - decodes npy files; data_array.h has their layout. The header is a Python
 * dict, but it always has the same three keys, and the value of each key always has the same form.
 * Other headers are refused. An unsupported dtype is logged with the NumPy call that converts
 * it. */
#include "base/log.h"
#include "worker/data/data_array.h"
#include <stdio.h>
#include <string.h>

enum { DESCR_BYTES = 64 };

/* The unread part of the header. */
struct text {
    const char *at, *end;
};

static void skip_blanks(struct text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t'))
        t->at++;
}

/* Skips blanks and then the character `c`. Returns false if the next character is not `c`. */
static bool skip_char(struct text *t, char c)
{
    skip_blanks(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool read_quoted(struct text *t, char *dst, int room)
{
    skip_blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    char quote = *t->at++;
    for (int n = 0; t->at < t->end && n < room - 1; n++) {
        char c = *t->at++;
        if (c == quote) {
            dst[n] = 0;
            return true;
        }
        if (c < ' ' || c > '~')
            return false;
        dst[n] = c;
    }
    return false;
}

static bool read_word(struct text *t, const char *word)
{
    size_t n = strlen(word);
    skip_blanks(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

static bool read_number(struct text *t, int64_t *out)
{
    int64_t v = 0;
    skip_blanks(t);
    if (t->at == t->end || *t->at < '0' || *t->at > '9')
        return false;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (v > INT64_MAX / 10 - 1)
            return false;
        v = v * 10 + (*t->at - '0');
    }
    if (t->at < t->end && *t->at == 'L') /* Python 2 */
        t->at++;
    *out = v;
    return true;
}

/* Copies the list of fields from the dtype of an array of records, cut to the size of dst. Returns
 * false, because such arrays are not supported. */
static bool read_fields(struct text *t, char dst[DESCR_BYTES])
{
    int n = 0, depth = 0;
    for (; t->at < t->end && n < DESCR_BYTES - 1; n++) {
        char c = *t->at++;
        dst[n] = c >= ' ' && c <= '~' ? c : '?';
        depth += (c == '[') - (c == ']');
        if (depth == 0) {
            n++;
            break;
        }
    }
    dst[n] = 0;
    return false;
}

/* Reads a shape such as (), (3,) or (3, 4). Returns false if it has too many dims. */
static bool read_shape(struct text *t, struct data_array *a)
{
    a->n_dims = 0;
    if (!skip_char(t, '('))
        return false;
    while (!skip_char(t, ')')) {
        if (a->n_dims == DATA_MAX_DIMS || !read_number(t, &a->dim[a->n_dims++]))
            return false;
        if (skip_char(t, ','))
            continue;
        return skip_char(t, ')');
    }
    return true;
}

/* Refuses an unsupported dtype. */
static enum status bad_type(const char *descr, const char *label)
{
    static const struct {
        char kind;
        const char *what, *fix;
    } known[] = {
        {'U', "texts",
         "replace each text by a number, as numpy.unique(a, return_inverse=True)[1] does"},
        {'S', "texts",
         "replace each text by a number, as numpy.unique(a, return_inverse=True)[1] does"},
        {'O', "Python objects",
         "if all rows have the same length, save numpy.array(a.tolist(), numpy.float32); if the values are texts, replace each text by a number, as numpy.unique(a, return_inverse=True)[1] does"},
        {'c', "complex numbers",
         "save their real and imaginary parts, as numpy.stack([a.real, a.imag], 1)"},
        {'M', "times", "save them as numbers, with a.astype(numpy.int64)"},
        {'m', "times", "save them as numbers, with a.astype(numpy.int64)"},
        {'V', "raw bytes", "save bfloat16 as a.astype(numpy.float32), others as a.view(DTYPE)"},
    };
    if (descr[0] == '[') {
        LOG_E(
            "%s: its rows are records of named fields (dtype %s), which are not supported; save numpy.lib.recfunctions.structured_to_unstructured(a), or one field, a['NAME']",
            label, descr);
        return ST_UNSUPPORTED;
    }
    for (size_t i = 0; descr[0] && i < sizeof known / sizeof *known; i++)
        if (descr[1] == known[i].kind) {
            LOG_E("%s: its values are %s (dtype '%s'), which are not supported; %s", label,
                  known[i].what, descr, known[i].fix);
            return ST_UNSUPPORTED;
        }
    LOG_E(
        "%s: its numbers are of dtype '%s'; supported are float64, float32, float16, bool and whole numbers: save samples and targets with a.astype(numpy.float32), class labels with a.astype(numpy.int64)",
        label, descr);
    return ST_UNSUPPORTED;
}

static enum status read_type(const char *descr, const char *label, struct data_array *a)
{
    static const char *const codes[DATA_N_TYPES] = {
        [DATA_U8] = "u1",  [DATA_I8] = "i1",  [DATA_U16] = "u2", [DATA_I16] = "i2",
        [DATA_U32] = "u4", [DATA_I32] = "i4", [DATA_U64] = "u8", [DATA_I64] = "i8",
        [DATA_F32] = "f4", [DATA_F64] = "f8", [DATA_F16] = "f2", [DATA_BF16] = NULL,
        [DATA_BOOL] = "b1"};
    for (int i = 0; strchr("<>|=", descr[0]) && descr[0] && i < DATA_N_TYPES; i++) {
        if (!codes[i] || strcmp(descr + 1, codes[i]) != 0)
            continue;
        a->type = (enum data_array_type)i;
        a->swapped = descr[0] == '>';
        return ST_OK;
    }
    return bad_type(descr, label);
}

static enum status bad_header(const char *label, const struct text *t, uint64_t header,
                              const uint8_t *bytes)
{
    LOG_E(
        "%s: its npy header does not parse at byte %llu (the header ends at %llu); save it again with numpy.save",
        label, (unsigned long long)(t->at - (const char *)bytes), (unsigned long long)header);
    return ST_CORRUPT;
}

/* Reads the dict: each key once, in any order. */
static bool read_dict(struct text *t, struct data_array *a, char descr[DESCR_BYTES], int *fortran)
{
    char key[32];
    unsigned seen = 0;
    if (!skip_char(t, '{'))
        return false;
    while (!skip_char(t, '}')) {
        int good, what;
        if (!read_quoted(t, key, sizeof key) || !skip_char(t, ':'))
            return false;
        skip_blanks(t);
        if (strcmp(key, "descr") == 0) {
            what = 1;
            good = t->at < t->end && *t->at == '[' ? read_fields(t, descr)
                                                   : read_quoted(t, descr, DESCR_BYTES);
        } else if (strcmp(key, "fortran_order") == 0) {
            what = 2;
            *fortran = read_word(t, "True");
            good = *fortran || read_word(t, "False");
        } else {
            what = 4;
            good = strcmp(key, "shape") == 0 && read_shape(t, a);
        }
        if (!good || (seen & (unsigned)what))
            return false;
        seen |= (unsigned)what;
        if (!skip_char(t, ',')) {
            if (!skip_char(t, '}'))
                return false;
            break;
        }
    }
    skip_blanks(t);
    return seen == 7 && t->at == t->end;
}

static enum status check_size(const struct data_array *a, uint64_t n, const char *label)
{
    char shape[128];
    int64_t elems = data_array_elems(a);
    if (elems < 0 || elems > INT64_MAX / 16) {
        LOG_E("%s: its header states %s numbers, more than any file can hold", label,
              data_array_shape(a, shape, sizeof shape));
        return ST_CORRUPT;
    }
    uint64_t wanted = a->offset + (uint64_t)elems * (uint64_t)data_array_type_bytes(a->type);
    if (n == wanted)
        return ST_OK;
    LOG_E("%s: %s: its header states %s of %s, %llu bytes in all, but there are %llu", label,
          n < wanted ? "truncated" : "bytes after its end",
          data_array_shape(a, shape, sizeof shape), data_array_type_name(a->type),
          (unsigned long long)wanted, (unsigned long long)n);
    return ST_CORRUPT;
}

enum status data_npy_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_array *out)
{
    enum status st = ST_OK;
    struct data_array a = {.n_dims = 0};
    char descr[DESCR_BYTES] = "";
    int fortran = 0;
    if (n < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0) {
        LOG_E("%s: %s", label,
              n < 10 ? "too short for an npy file" : "not an .npy file (wrong magic number)");
        return ST_CORRUPT;
    }
    uint64_t start = bytes[6] == 1 ? 10 : 12, length = bytes[8] | (uint64_t)bytes[9] << 8;
    if (bytes[6] < 1 || bytes[6] > 3) {
        LOG_E("%s: byte 6, the npy version, is %d; 1 to 3 are supported", label, bytes[6]);
        return ST_UNSUPPORTED;
    }
    if (start == 12 && n >= 12)
        length |= (uint64_t)bytes[10] << 16 | (uint64_t)bytes[11] << 24;
    if (n < start || length > n - start) {
        LOG_E(
            "%s: truncated: its npy header states %llu bytes from byte %llu on, but the file has %llu",
            label, (unsigned long long)length, (unsigned long long)start, (unsigned long long)n);
        return ST_CORRUPT;
    }
    struct text t = {(const char *)bytes + start, (const char *)bytes + start + length};
    if (!read_dict(&t, &a, descr, &fortran))
        return descr[0] == '[' ? bad_type(descr, label)
                               : bad_header(label, &t, start + length, bytes);
    TRY(read_type(descr, label, &a));
    if (fortran && a.n_dims > 1) {
        LOG_E(
            "%s: its numbers are stored column after column (fortran_order); save numpy.ascontiguousarray(a)",
            label);
        return ST_UNSUPPORTED;
    }
    a.offset = start + length;
    TRY(check_size(&a, n, label));
    a.data = bytes + a.offset;
    *out = a;
done:
    return st;
}
