/* kernels/vector/topk.c - encodes and decodes the blocks of topk.h. Magnitudes have the same order
 * as their bits read as integers, and values that are not finite are the largest. The k-th largest
 * magnitude is found bit by bit, by counting. */
#include "kernels/vector/topk.h"
#include "kernels/vector/clones.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/float_bits.h"
#include <stdint.h>
#include <string.h>

enum {
    MOST_KEPT = TOPK_BLOCK / TOPK_SHARE,
    KEY_BITS = 15,
    GROUP = 16,
    BLOCK_BYTES = 3 * MOST_KEPT
};

static size_t n_kept(size_t m)
{
    return (m + TOPK_SHARE - 1) / TOPK_SHARE;
}

static size_t rest_of(size_t n, size_t at)
{
    return n - at < TOPK_BLOCK ? n - at : TOPK_BLOCK;
}

size_t topk_bytes(size_t n)
{
    return n / TOPK_BLOCK * BLOCK_BYTES + 3 * n_kept(n % TOPK_BLOCK);
}

static inline __attribute__((always_inline)) int32_t count_from(const int32_t *keys, int32_t least)
{
    int32_t n = 0;
    for (size_t i = 0; i < TOPK_BLOCK; i++)
        n += keys[i] >= least;
    return n;
}

/* Writes the upper bits of all magnitudes to keys and returns the k-th largest. *n_larger: number
 * of keys above it. */
VECTOR_CLONES static int32_t find_threshold(const float *v, int32_t k, int32_t *keys,
                                            int32_t *n_larger)
{
    for (size_t i = 0; i < TOPK_BLOCK; i++)
        keys[i] = (int32_t)(bits_of(v[i]) >> 16 & 0x7fff);
    int32_t threshold = 0;
    for (int bit = KEY_BITS - 1; bit >= 0; bit--) {
        int32_t higher = threshold | 1 << bit;
        threshold = count_from(keys, higher) >= k ? higher : threshold;
    }
    *n_larger = count_from(keys, threshold + 1);
    return threshold;
}

static inline __attribute__((always_inline)) int32_t largest_of(const int32_t *keys)
{
    int32_t most = 0;
    for (size_t i = 0; i < GROUP; i++)
        most = keys[i] > most ? keys[i] : most;
    return most;
}

/* Encodes a block. v: the values, then zeros up to TOPK_BLOCK; afterwards it holds the values that
 * are not sent. */
static void encode_block(unsigned char *dst, float *v, size_t m)
{
    int32_t keys[TOPK_BLOCK], n_larger;
    const size_t k = n_kept(m);
    int32_t threshold = find_threshold(v, (int32_t)k, keys, &n_larger);
    /* number of values equal to the threshold that are kept */
    int32_t equals = (int32_t)k - n_larger;
    float kept[MOST_KEPT + 1];
    /* memory for one position more than are kept, because the loop writes each position before it
     * decides whether to keep it */
    unsigned char *places = dst + 2 * k, place[MOST_KEPT + 1];
    size_t n = 0;
    for (size_t i = 0; i < m; i++) {
        if (i % GROUP == 0 && largest_of(keys + i) < threshold) {
            i += GROUP - 1; /* most groups contain no value that is kept */
            continue;
        }
        int is_equal = keys[i] == threshold;
        kept[n] = v[i];
        place[n] = (unsigned char)i;
        n += (size_t)((keys[i] > threshold) | (is_equal & (equals > 0)));
        equals -= is_equal;
    }
    dtype_encode(DTYPE_BF16, dst, kept, k);
    dtype_decode(DTYPE_BF16, kept, dst, k);
    memcpy(places, place, k);
    for (size_t i = 0; i < k; i++)
        v[place[i]] -= kept[i];
}

void topk_encode(void *dst, const float *src, float *residual, size_t n)
{
    float v[TOPK_BLOCK];
    unsigned char *to = dst;
    for (size_t at = 0; at < n; at += TOPK_BLOCK, to += BLOCK_BYTES) {
        size_t m = rest_of(n, at);
        memset(v + m, 0, (TOPK_BLOCK - m) * sizeof *v);
        memcpy(v, src + at, m * sizeof *v);
        for (size_t i = 0; residual && i < m; i++)
            v[i] += residual[at + i];
        encode_block(to, v, m);
        if (residual)
            memcpy(residual + at, v, m * sizeof *v);
    }
}

static void decode_block(float *v, const unsigned char *src, size_t m)
{
    const size_t k = n_kept(m);
    float kept[MOST_KEPT];
    memset(v, 0, m * sizeof *v);
    dtype_decode(DTYPE_BF16, kept, src, k);
    for (size_t i = 0; i < k; i++)
        if (src[2 * k + i] < m)
            v[src[2 * k + i]] = kept[i];
}

/* Sets dst to old plus the decoded block. dst may be old. Zeros are added, too, so that the bits
 * are the same as if the block were decoded first and then added. */
static void add(float *dst, const float *old, const void *src, size_t n)
{
    float v[TOPK_BLOCK];
    const unsigned char *from = src;
    for (size_t at = 0; at < n; at += TOPK_BLOCK, from += BLOCK_BYTES) {
        size_t m = rest_of(n, at);
        decode_block(v, from, m);
        VECTOR_INDEPENDENT
        for (size_t i = 0; i < m; i++)
            dst[at + i] = old[at + i] + v[i];
    }
}

void topk_add(float *dst, const void *src, size_t n)
{
    add(dst, dst, src, n);
}

void topk_encode_change(void *dst, const float *old, float *value, float *residual, size_t n)
{
    VECTOR_INDEPENDENT
    for (size_t i = 0; i < n; i++)
        value[i] -= old[i];
    topk_encode(dst, value, residual, n);
    add(value, old, dst, n);
}

void topk_decode(float *dst, const void *src, size_t n)
{
    const unsigned char *from = src;
    for (size_t at = 0; at < n; at += TOPK_BLOCK, from += BLOCK_BYTES)
        decode_block(dst + at, from, rest_of(n, at));
}
