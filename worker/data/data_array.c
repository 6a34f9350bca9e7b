/* worker/data/data_array.c - checks the types and shapes of arrays and reads their numbers, for
 * all file formats. */
#include "worker/data/data_array.h"
#include "base/log.h"
#include "kernels/vector/dtype.h"
#include <endian.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    int bytes;
} types[DATA_N_TYPES] = {
    [DATA_U8] = {"uint8", 1},    [DATA_I8] = {"int8", 1},     [DATA_U16] = {"uint16", 2},
    [DATA_I16] = {"int16", 2},   [DATA_U32] = {"uint32", 4},  [DATA_I32] = {"int32", 4},
    [DATA_U64] = {"uint64", 8},  [DATA_I64] = {"int64", 8},   [DATA_F32] = {"float32", 4},
    [DATA_F64] = {"float64", 8}, [DATA_F16] = {"float16", 2}, [DATA_BF16] = {"bfloat16", 2},
    [DATA_BOOL] = {"bool", 1},
};

const char *data_array_type_name(enum data_array_type type)
{
    return types[type].name;
}

int data_array_type_bytes(enum data_array_type type)
{
    return types[type].bytes;
}

bool data_array_type_is_float(enum data_array_type type)
{
    return type == DATA_F32 || type == DATA_F64 || type == DATA_F16 || type == DATA_BF16;
}

bool data_array_type_is_plain(enum data_array_type type)
{
    return data_array_type_is_float(type) || type == DATA_BOOL;
}

void data_array_log_converted(const struct data_array *a, const char *path, const char *what)
{
    if (data_array_type_is_plain(a->type) && a->type != DATA_F32)
        LOG_I("%s: its %s are %s, which are converted to float32 as they are read", path, what,
              data_array_type_name(a->type));
}

static int64_t elems_from(const struct data_array *a, int first)
{
    int64_t n = 1;
    for (int i = first; i < a->n_dims; i++) {
        if (a->dim[i] < 0 || (a->dim[i] > 0 && n > ((int64_t)1 << 62) / a->dim[i]))
            return -1;
        n *= a->dim[i];
    }
    return n;
}

int64_t data_array_elems(const struct data_array *a)
{
    return elems_from(a, 0);
}

int64_t data_array_row_elems(const struct data_array *a)
{
    return elems_from(a, 1);
}

const char *data_array_shape(const struct data_array *a, char *dst, uint64_t bytes)
{
    size_t n = (size_t)snprintf(dst, bytes, "(");
    for (int i = 0; i < a->n_dims && n < bytes; i++)
        n += (size_t)snprintf(dst + n, bytes - n, "%s%lld", i ? ", " : "", (long long)a->dim[i]);
    if (n < bytes)
        snprintf(dst + n, bytes - n, ")");
    return dst;
}

static uint64_t load(const struct data_array *a, int64_t i)
{
    int bytes = types[a->type].bytes;
    const uint8_t *p = a->data + i * bytes;
    uint64_t v = 0;
    for (int k = 0; k < bytes; k++)
        v |= (uint64_t)p[a->swapped ? bytes - 1 - k : k] << (8 * k);
    return v;
}

int64_t data_array_integer(const struct data_array *a, int64_t i)
{
    uint64_t v = load(a, i);
    switch (a->type) {
    case DATA_I8:
        return (int8_t)v;
    case DATA_I16:
        return (int16_t)v;
    case DATA_I32:
        return (int32_t)v;
    case DATA_I64:
        return (int64_t)v;
    case DATA_BOOL:
        return v != 0;
    default:
        return v > INT64_MAX ? INT64_MAX : (int64_t)v;
    }
}

double data_array_plain(const struct data_array *a, int64_t i)
{
    uint64_t bits = load(a, i);
    uint32_t word = (uint32_t)bits;
    uint16_t half = (uint16_t)bits;
    double wide;
    float value;
    if (a->type == DATA_BOOL)
        return bits != 0;
    if (a->type == DATA_F64) {
        memcpy(&wide, &bits, sizeof wide);
        return wide;
    }
    if (a->type == DATA_F32)
        memcpy(&value, &word, sizeof value);
    else
        dtype_decode(a->type == DATA_F16 ? DTYPE_F16 : DTYPE_BF16, &value, &half, 1);
    return (double)value;
}

void data_array_floats(const struct data_array *a, int64_t i, int64_t n, float *dst)
{
    if (a->type == DATA_U8) {
        const uint8_t *p = a->data + i;
        for (int64_t k = 0; k < n; k++)
            dst[k] = (float)p[k] / 255.0f;
        return;
    }
    if (a->type != DATA_F32) {
        for (int64_t k = 0; k < n; k++)
            dst[k] = data_array_type_is_plain(a->type)
                         ? (float)data_array_plain(a, i + k)
                         : (float)data_array_integer(a, i + k) / 255.0f;
        return;
    }
    memcpy(dst, a->data + i * 4, (size_t)n * sizeof *dst);
    if (a->swapped != (__BYTE_ORDER == __BIG_ENDIAN)) {
        for (int64_t k = 0; k < n; k++) {
            uint32_t bits;
            memcpy(&bits, &dst[k], sizeof bits);
            bits = __builtin_bswap32(bits);
            memcpy(&dst[k], &bits, sizeof bits);
        }
    }
}
