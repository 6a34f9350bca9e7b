/* kernels/vector/finite.c - the searches of finite.h. Magnitudes are compared as integers, because
 * floats with the same sign have the same order as their bits. So the limit is an integer, and NaNs
 * are above every limit. The loops check a whole block without a branch, and search a block only if
 * it has a bad element. */
#include "kernels/vector/finite.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/packed.h"
#include <stdint.h>
#include <string.h>

enum { BLOCK = 4096 };

struct VECTOR_PACKED packed_bits {
    int32_t v;
};
struct VECTOR_PACKED packed_half {
    uint16_t v;
};

#define LARGER(a, b) ((a) > (b) ? (a) : (b))

/* Returns the largest magnitude. The loop needs two instructions per vector, so that this pass over
 * a chunk adds no noticeable time. It updates four maxima: with a single maximum, each vector would
 * wait for the previous one. */
#define LARGEST(name, type, array, magnitude)                                                      \
    VECTOR_CLONES static type name(const struct array *s, size_t n)                                \
    {                                                                                              \
        size_t quarter = n / 4;                                                                    \
        const struct array *s1 = s + quarter, *s2 = s1 + quarter, *s3 = s2 + quarter;              \
        type most = 0, most1 = 0, most2 = 0, most3 = 0;                                            \
        for (size_t i = 0; i < quarter; i++) {                                                     \
            type v = (type)(s[i].v & magnitude), v1 = (type)(s1[i].v & magnitude);                 \
            type v2 = (type)(s2[i].v & magnitude), v3 = (type)(s3[i].v & magnitude);               \
            most = LARGER(most, v);                                                                \
            most1 = LARGER(most1, v1);                                                             \
            most2 = LARGER(most2, v2);                                                             \
            most3 = LARGER(most3, v3);                                                             \
        }                                                                                          \
        for (size_t i = 4 * quarter; i < n; i++)                                                   \
            most = LARGER(most, (type)(s[i].v & magnitude));                                       \
        most = LARGER(most, most1);                                                                \
        most2 = LARGER(most2, most3);                                                              \
        return LARGER(most, most2);                                                                \
    }
LARGEST(largest, int32_t, packed_bits, INT32_MAX)
LARGEST(largest_half, int16_t, packed_half, INT16_MAX)

static size_t first_from(const struct packed_bits *s, size_t n, int32_t limit)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        if (largest(s + at, m) < limit)
            continue;
        while ((s[at].v & INT32_MAX) < limit)
            at++;
        return at;
    }
    return n;
}

static size_t first_half_from(const struct packed_half *s, size_t n, int16_t limit)
{
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        if (largest_half(s + at, m) < limit)
            continue;
        while ((int16_t)(s[at].v & INT16_MAX) < limit)
            at++;
        return at;
    }
    return n;
}

/* Searches elements of a format that has blocks. Decodes one block at a time. */
static size_t first_decoded_from(enum dtype d, const char *src, size_t n, int32_t limit)
{
    float decoded[DTYPE_BLOCK_MAX];
    const size_t stride = dtype_bytes(d, DTYPE_BLOCK_MAX);
    for (size_t at = 0; at < n; at += DTYPE_BLOCK_MAX, src += stride) {
        size_t m = n - at < DTYPE_BLOCK_MAX ? n - at : DTYPE_BLOCK_MAX;
        dtype_decode(d, decoded, src, m);
        size_t bad = first_from((const void *)decoded, m, limit);
        if (bad < m)
            return at + bad;
    }
    return n;
}

size_t finite_first_bad(enum dtype d, const void *src, size_t n)
{
    if (d == DTYPE_F32)
        return first_from(src, n, 0x7f800000);
    if (dtype_block(d) > 1)
        return first_decoded_from(d, src, n, 0x7f800000);
    return first_half_from(src, n, d == DTYPE_BF16 ? 0x7f80 : 0x7c00);
}

VECTOR_CLONES bool finite_all(const float *values, size_t n)
{
    const struct packed_bits *s = (const void *)values;
    uint32_t carry = 0;
    for (size_t i = 0; i < n; i++) /* an exponent of ones carries into the bit of the sign */
        carry |= ((uint32_t)s[i].v & 0x7f800000) + 0x00800000;
    return carry >> 31 == 0;
}

size_t finite_first_misfit(enum dtype d, const float *src, size_t n)
{
    /* bits, for each format, of the number halfway between its largest finite value and the next
     * power of two */
    static const int32_t limits[DTYPE_N_KINDS] = {
        [DTYPE_F32] = 0x7f800000,  [DTYPE_BF16] = 0x7f7f8000, [DTYPE_F16] = 0x477ff000,
        [DTYPE_INT8] = 0x7f7fff00, [DTYPE_INT4] = 0x7f7fff00, [DTYPE_TOPK] = 0x7f7f8000};
    return first_from((const void *)src, n, limits[d]);
}

size_t finite_first_above(enum dtype d, const void *src, size_t n, float limit)
{
    int32_t bits;
    uint16_t half[2];
    float down = limit;
    memcpy(&bits, &limit, sizeof bits);
    if (d == DTYPE_F32)
        return first_from(src, n, bits + 1);
    if (dtype_block(d) > 1)
        return first_decoded_from(d, src, n, bits + 1);
    dtype_encode(d, half, &down, 1); /* rounds to the nearest value, which may be above `limit` */
    dtype_decode(d, &down, half, 1);
    int16_t from = (int16_t)(half[0] + (down <= limit));
    int16_t infinite = d == DTYPE_BF16 ? 0x7f80 : 0x7c00;
    return first_half_from(src, n, from < infinite ? from : infinite);
}
