/* worker/data/data_idx.c - decodes IDX files; data_array.h has their layout. */
#include "base/log.h"
#include "worker/data/data_array.h"

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static enum status read_type(const uint8_t *bytes, const char *label, enum data_array_type *out)
{
    static const struct {
        uint8_t code;
        enum data_array_type type;
    } known[] = {
        {0x08, DATA_U8}, {0x09, DATA_I8}, {0x0b, DATA_I16}, {0x0c, DATA_I32}, {0x0d, DATA_F32}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        if (bytes[2] == known[i].code) {
            *out = known[i].type;
            return ST_OK;
        }
    }
    LOG_E(
        "%s: byte 2, the type of its numbers, is 0x%02x; supported are 0x08 uint8, 0x09 int8, 0x0b int16, 0x0c int32 and 0x0d float32",
        label, bytes[2]);
    return ST_UNSUPPORTED;
}

static enum status check_length(uint64_t n, uint64_t total, const char *label)
{
    if (n == total)
        return ST_OK;
    if (n < total)
        LOG_E("%s: truncated: its header states %llu bytes, but there are %llu", label,
              (unsigned long long)total, (unsigned long long)n);
    else
        LOG_E("%s: bytes after its end: its header states %llu bytes, but there are %llu", label,
              (unsigned long long)total, (unsigned long long)n);
    return ST_CORRUPT;
}

enum status data_idx_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            struct data_array *out)
{
    enum status st = ST_OK;
    struct data_array a = {.swapped = 1};
    if (n >= 4 && (bytes[0] != 0 || bytes[1] != 0)) {
        LOG_E("%s: not an IDX file (it begins with 0x%08x instead of two bytes of 0)", label,
              big_endian(bytes));
        return ST_CORRUPT;
    }
    if (n >= 4 && (bytes[3] < 1 || bytes[3] > DATA_MAX_DIMS)) {
        LOG_E("%s: byte 3, the number of its dimensions, is %d; it must be from 1 to %d", label,
              bytes[3], DATA_MAX_DIMS);
        return ST_CORRUPT;
    }
    uint64_t header = n >= 4 ? 4 + 4 * (uint64_t)bytes[3] : 4;
    if (n < header) {
        LOG_E("%s: %s: the file has %llu bytes, fewer than the %llu of its IDX header", label,
              n ? "truncated" : "empty", (unsigned long long)n, (unsigned long long)header);
        return ST_CORRUPT;
    }
    TRY(read_type(bytes, label, &a.type));
    a.n_dims = bytes[3];
    for (int i = 0; i < a.n_dims; i++)
        a.dim[i] = big_endian(bytes + 4 + 4 * i);
    int64_t elems = data_array_elems(&a);
    if (elems < 0 || elems > INT64_MAX / 16) {
        char shape[128];
        LOG_E("%s: its header states %s numbers, more than any file can hold", label,
              data_array_shape(&a, shape, sizeof shape));
        return ST_CORRUPT;
    }
    TRY(check_length(n, header + (uint64_t)elems * (uint64_t)data_array_type_bytes(a.type), label));
    a.data = bytes + header;
    a.offset = header;
    *out = a;
done:
    return st;
}
