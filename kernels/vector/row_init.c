/* kernels/vector/row_init.c - see row_init.h. Initial values need only additions and one
 * multiplication, so that their bits are equal on all hosts. */
#include "kernels/vector/row_init.h"
#include "base/rng.h"
#include <string.h>

uint64_t row_init_key(uint64_t seed, const char *table)
{
    return rng_key(seed, RNG_ROWS, rng_text(table, strlen(table)));
}

/* Returns the sum of the twelve 16-bit numbers of counter `i`, minus its mean. The standard
 * deviation is 65536 (1 - 2^-33). */
static float centred_sum(uint64_t stream, size_t i)
{
    int32_t sum = -12 * 65535 / 2;
    for (uint64_t k = 0; k < 3; k++) {
        uint64_t bits = rng_u64(stream, 3 * i + k);
        sum += (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                         (bits >> 48));
    }
    return (float)sum;
}

void row_init_values(const struct row_init_config *c, uint64_t key, size_t dim, float *values)
{
    uint64_t stream = rng_mix(c->key ^ rng_mix(key));
    if (c->kind == ROW_INIT_ZEROS) {
        memset(values, 0, dim * sizeof *values);
        return;
    }
    for (size_t i = 0; i < dim; i++)
        values[i] = c->kind == ROW_INIT_UNIFORM ? (rng_uniform(stream, i) * 2 - 1) * c->scale
                                                : centred_sum(stream, i) * (c->scale * 0x1p-16f);
}

void row_init_rounded(const struct row_init_config *c, enum dtype dtype, uint64_t key, size_t dim,
                      float *values)
{
    uint16_t rounded[64];
    row_init_values(c, key, dim, values);
    for (size_t i = 0, n; dtype == DTYPE_BF16 && i < dim; i += n) {
        n = dim - i < 64 ? dim - i : 64;
        dtype_encode(dtype, rounded, values + i, n);
        dtype_decode(dtype, values + i, rounded, n);
    }
}
