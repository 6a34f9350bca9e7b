/* kernels/vector/quant.c - encodes and decodes the blocks of quant.h. All loops use 32-bit lanes,
 * which every width of vector registers supports; the order of the values in a word (quant.h) was
 * chosen for these lanes. */
#include "kernels/vector/quant.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/float_bits.h"
#include "kernels/vector/packed.h"
#include <stdint.h>
#include <string.h>

struct VECTOR_PACKED packed_word {
    uint32_t v;
};

/* a block of smaller magnitudes becomes zeros; 127 / smallest is finite */
static const float smallest = 0x1p-100f;
/* adding this number to a value below 2^22 rounds the value to an integer */
static const float round_bits = 0x1.8p23f;

static size_t n_words(int bits, size_t m)
{
    size_t each = 32 / (size_t)bits;
    return (m + each - 1) / each;
}

size_t quant_bytes(int bits, size_t n)
{
    size_t whole = n / QUANT_BLOCK, rest = n % QUANT_BLOCK;
    size_t bytes = whole * 4 * (1 + n_words(bits, QUANT_BLOCK));
    return rest == 0 ? bytes : bytes + 4 * (1 + n_words(bits, rest));
}

/* Returns the bits of the largest magnitude. Magnitudes have the same order as their bits, and
 * values that are not finite are the largest. */
static inline __attribute__((always_inline)) int32_t largest_of(const float *v)
{
    int32_t most = 0;
    for (size_t i = 0; i < QUANT_BLOCK; i++) {
        int32_t a = (int32_t)(bits_of(v[i]) & INT32_MAX);
        most = most > a ? most : a;
    }
    return most;
}

/* Encodes a block. v: the values, then zeros up to QUANT_BLOCK; afterwards it holds the rounding
 * errors. w: number of words. */
static inline __attribute__((always_inline)) void encode_block(int bits, size_t w, float *v,
                                                               struct packed_word *dst)
{
    int32_t code[QUANT_BLOCK];
    const int top = (1 << (bits - 1)) - 1, each = 32 / bits;
    const uint32_t mask = (1u << bits) - 1;
    float most = float_of((uint32_t)largest_of(v)), scale = 0, inverse = 0;
    if (most >= smallest) {
        scale = most / (float)top;
        inverse = (float)top / most;
    }
    if (bits_of(most) >= 0x7f800000u) {
        scale = most;
        inverse = 0;
    }
    dst[0].v = bits_of(scale);
    for (size_t i = 0; i < QUANT_BLOCK; i++) {
        float rounded = v[i] * inverse + round_bits;
        code[i] = (int32_t)bits_of(rounded);
        v[i] -= (rounded - round_bits) * scale;
    }
    for (size_t j = 0; j < w; j++) {
        uint32_t word = 0;
        for (int k = 0; k < each; k++)
            word |= ((uint32_t)code[j + (size_t)k * w] & mask) << (k * bits);
        dst[1 + j].v = word;
    }
}

static inline __attribute__((always_inline)) void
encode_blocks(int bits, struct packed_word *dst, const float *src, float *residual, size_t n)
{
    const size_t w = QUANT_BLOCK * (size_t)bits / 32;
    float v[QUANT_BLOCK];
    size_t at = 0;
    for (; at + QUANT_BLOCK <= n; at += QUANT_BLOCK, dst += 1 + w) {
        if (residual) {
            for (size_t i = 0; i < QUANT_BLOCK; i++)
                v[i] = src[at + i] + residual[at + i];
        } else {
            memcpy(v, src + at, sizeof v);
        }
        encode_block(bits, w, v, dst);
        if (residual)
            memcpy(residual + at, v, sizeof v);
    }
    size_t rest = n - at;
    if (rest == 0)
        return;
    memset(v, 0, sizeof v);
    for (size_t i = 0; i < rest; i++)
        v[i] = residual ? src[at + i] + residual[at + i] : src[at + i];
    encode_block(bits, n_words(bits, rest), v, dst);
    if (residual)
        memcpy(residual + at, v, rest * sizeof *v);
}

VECTOR_CLONES static void encode_8(struct packed_word *dst, const float *src, float *residual,
                                   size_t n)
{
    encode_blocks(8, dst, src, residual, n);
}

VECTOR_CLONES static void encode_4(struct packed_word *dst, const float *src, float *residual,
                                   size_t n)
{
    encode_blocks(4, dst, src, residual, n);
}

void quant_encode(int bits, void *dst, const float *src, float *residual, size_t n)
{
    (bits == 8 ? encode_8 : encode_4)(dst, src, residual, n);
}

/* Decodes m values from w words: value j + k * w is value k of word j. old: values to which the
 * decoded ones are added; NULL: none. */
static inline __attribute__((always_inline)) void decode_block(int bits, size_t w, float *dst,
                                                               const float *old,
                                                               const struct packed_word *src,
                                                               size_t m)
{
    const int each = 32 / bits;
    float scale = float_of(src[0].v);
    for (int k = 0; k < each; k++) {
        size_t first = (size_t)k * w, end = first + w < m ? first + w : m;
        VECTOR_INDEPENDENT
        for (size_t i = first; i < end; i++) {
            int32_t word = (int32_t)(src[1 + i - first].v << (32 - bits - k * bits));
            float value = (float)(word >> (32 - bits)) * scale;
            dst[i] = old ? old[i] + value : value;
        }
    }
}

static inline __attribute__((always_inline)) void
decode_blocks(int bits, float *dst, const float *old, const struct packed_word *src, size_t n)
{
    const size_t w = QUANT_BLOCK * (size_t)bits / 32;
    size_t at = 0;
    for (; at + QUANT_BLOCK <= n; at += QUANT_BLOCK, src += 1 + w)
        decode_block(bits, w, dst + at, old ? old + at : NULL, src, QUANT_BLOCK);
    if (at < n)
        decode_block(bits, n_words(bits, n - at), dst + at, old ? old + at : NULL, src, n - at);
}

VECTOR_CLONES static void decode_8(float *dst, const struct packed_word *src, size_t n)
{
    decode_blocks(8, dst, NULL, src, n);
}

VECTOR_CLONES static void decode_4(float *dst, const struct packed_word *src, size_t n)
{
    decode_blocks(4, dst, NULL, src, n);
}

/* Adds decoded int8 values to `old`. dst may be old. */
VECTOR_CLONES static void add_8(float *dst, const float *old, const struct packed_word *src,
                                size_t n)
{
    decode_blocks(8, dst, old, src, n);
}

VECTOR_CLONES static void add_4(float *dst, const float *old, const struct packed_word *src,
                                size_t n)
{
    decode_blocks(4, dst, old, src, n);
}

VECTOR_CLONES static void subtract(float *dst, const float *value, const float *old, size_t n)
{
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        dst[i] = value[i] - old[i];
}

void quant_add(int bits, float *dst, const void *src, size_t n)
{
    (bits == 8 ? add_8 : add_4)(dst, dst, src, n);
}

void quant_encode_change(int bits, void *dst, const float *old, float *value, float *residual,
                         size_t n)
{
    subtract(value, value, old, n);
    quant_encode(bits, dst, value, residual, n);
    (bits == 8 ? add_8 : add_4)(value, old, dst, n);
}

void quant_decode(int bits, float *dst, const void *src, size_t n)
{
    (bits == 8 ? decode_8 : decode_4)(dst, src, n);
}
