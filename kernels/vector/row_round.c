/* kernels/vector/row_round.c - see row_round.h. A number of bf16 is the upper half of a float. The
 * sum of the lower half and a random number of 16 bits carries into the upper half with the
 * probability lower half / 65536. */
#include "kernels/vector/row_round.h"
#include "base/rng.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/float_bits.h"

enum { BLOCK = 16 }; /* values that are rounded by one loop, whose length is constant */

uint64_t row_round_stream(const struct row_init_config *c, uint64_t key, uint64_t version)
{
    /* initial values have the lowest counters of the row */
    return rng_u64(rng_mix(c->key ^ rng_mix(key)), ~version);
}

/* Rounds a block. Returns 0 if a result is not finite. */
VECTOR_CLONES static uint32_t round_block(const float *values, const uint16_t *random,
                                          uint16_t *out)
{
    uint32_t is_finite = 1;
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < BLOCK; i++) {
        uint32_t bits = bits_of(values[i]);
        bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
        uint32_t code = is_nan ? bits >> 16 | 0x40u : (bits + random[i]) >> 16;
        is_finite &= (code & 0x7f80u) != 0x7f80u;
        out[i] = (uint16_t)code;
    }
    return is_finite;
}

bool row_round_bf16(uint64_t stream, const float *values, size_t n, void *out)
{
    uint32_t is_finite = 1;
    float block[BLOCK] = {0};
    uint16_t random[BLOCK], codes[BLOCK];
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t count = n - at < BLOCK ? n - at : BLOCK;
        for (size_t i = 0; i < BLOCK; i += 4) { /* machines are little endian (dtype.h) */
            uint64_t word = rng_u64(stream, (at + i) / 4);
            memcpy(random + i, &word, sizeof word);
        }
        if (count < BLOCK)
            memcpy(block, values + at, count * sizeof *block);
        is_finite &= round_block(count < BLOCK ? block : values + at, random, codes);
        memcpy((uint16_t *)out + at, codes, count * sizeof *codes);
    }
    return is_finite;
}
