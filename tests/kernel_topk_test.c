/* tests/kernel_topk_test.c - tests the encoding that keeps the largest floats of a block: the kept
 * values, compared with their definition; the layout, byte for byte; and the guarantees of error
 * feedback. */
#include "base/rng.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/float_bits.h"
#include "kernels/vector/topk.h"
#include "tests/check.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1100 };

static float number(uint64_t stream, size_t i)
{
    return rng_uniform(rng_key(stream, RNG_TEST, 0), i) * 2 - 1;
}

static uint32_t magnitude(float v)
{
    return bits_of(v) >> 16 & 0x7fff;
}

/* Returns true if value i of a block is among its k largest: fewer than k values are larger, or
 * equal and before value i. */
static int is_kept(const float *block, size_t m, size_t i, size_t k)
{
    size_t n = 0;
    for (size_t j = 0; j < m; j++)
        n += magnitude(block[j]) > magnitude(block[i]) ||
             (magnitude(block[j]) == magnitude(block[i]) && j < i);
    return n < k;
}

static float rounded(float v)
{
    unsigned char half[2];
    dtype_encode(DTYPE_BF16, half, &v, 1);
    dtype_decode(DTYPE_BF16, &v, half, 1);
    return v;
}

/* Compares one block with the definition: the values, their positions, and the decoded block. */
static void check_block(const unsigned char *block, const float *src, const float *decoded,
                        size_t m)
{
    const size_t k = (m + 31) / 32;
    size_t n = 0;
    for (size_t i = 0; i < m; i++) {
        int kept = is_kept(src, m, i, k);
        assert_memory_equal(&decoded[i], &(float){kept ? rounded(src[i]) : 0}, sizeof(float));
        if (!kept)
            continue;
        float value;
        dtype_decode(DTYPE_BF16, &value, block + 2 * n, 1);
        assert_true(value == rounded(src[i]));
        assert_int_equal(block[2 * k + n], i);
        n++;
    }
    assert_int_equal(n, k);
}

/* Every length; also with many equal values. */
static void test_reference(void **state)
{
    static float src[MOST], decoded[MOST + 1];
    static unsigned char codes[MOST];
    for (int coarse = 0; coarse < 2; coarse++) {
        for (size_t i = 0; i < MOST; i++)
            src[i] = coarse ? roundf(number(1, i) * 4) : number(1, i);
        for (size_t n = 0; n <= MOST; n += n < 600 ? 1 : 37) {
            size_t at = 1 + n % 4, bytes = topk_bytes(n); /* any alignment */
            memset(codes, 0xa5, sizeof codes);
            decoded[n] = 77;
            topk_encode(codes + at, src, NULL, n);
            topk_decode(decoded, codes + at, n);
            assert_true(decoded[n] == 77);
            assert_int_equal(codes[at - 1], 0xa5);
            assert_int_equal(codes[at + bytes], 0xa5);
            const unsigned char *block = codes + at;
            for (size_t first = 0; first < n; first += TOPK_BLOCK) {
                size_t m = n - first < TOPK_BLOCK ? n - first : TOPK_BLOCK;
                check_block(block, src + first, decoded + first, m);
                block += topk_bytes(m);
            }
            assert_ptr_equal(block, codes + at + bytes);
        }
    }
}

static void test_sizes(void **state)
{
    assert_int_equal(topk_bytes(0), 0);
    assert_int_equal(topk_bytes(1), 3);
    assert_int_equal(topk_bytes(32), 3);
    assert_int_equal(topk_bytes(33), 6);
    assert_int_equal(topk_bytes(256), 24);
    assert_int_equal(topk_bytes(512 + 40), 54);
    assert_int_equal(dtype_bytes(DTYPE_TOPK, 512 + 40), 54);
    assert_int_equal(dtype_block(DTYPE_TOPK), TOPK_BLOCK);
}

/* After all calls, the sent values plus the residual are the sum of the inputs, and each value was
 * sent at least one time. */
static void test_residual(void **state)
{
    enum { N = 700, CALLS = 400 };
    static float src[N], residual[N], decoded[N];
    static double given[N], sent[N];
    static unsigned char codes[N];
    for (int call = 0; call < CALLS; call++) {
        for (size_t i = 0; i < N; i++) {
            src[i] = rng_uniform(rng_key(3, RNG_TEST, (uint64_t)call), i);
            src[i] *= i % 50 ? 0.1f : 1; /* alone, the small ones would never be sent */
            given[i] += (double)src[i];
        }
        topk_encode(codes, src, residual, N);
        topk_decode(decoded, codes, N);
        for (size_t i = 0; i < N; i++)
            sent[i] += (double)decoded[i];
    }
    for (size_t i = 0; i < N; i++) {
        assert_true(fabs(given[i] - sent[i] - (double)residual[i]) < 1e-3);
        assert_true(sent[i] > 0);
        assert_true(fabsf(residual[i]) < 8); /* sum of about 20 inputs */
    }
}

/* The old value plus the received change has the same bits at the receiver as at the sender. */
static void test_change(void **state)
{
    enum { N = 300 };
    static float old[N], value[N], wanted[N], residual[N], holder[N], decoded[N];
    static unsigned char codes[N];
    for (size_t i = 0; i < N; i++) {
        old[i] = holder[i] = i == 9 ? -0.0f : number(5, i);
        wanted[i] = value[i] = old[i] + (i == 9 ? 0 : 0.01f * number(6, i));
    }
    topk_encode_change(codes, old, value, residual, N);
    topk_add(holder, codes, N);
    topk_decode(decoded, codes, N);
    assert_memory_equal(holder, value, sizeof holder);
    for (size_t i = 0; i < N; i++) {
        assert_memory_equal(&value[i], &(float){old[i] + decoded[i]}, sizeof(float));
        assert_true(fabsf(wanted[i] - value[i] - residual[i]) < 1e-6f);
    }
}

static void test_edges(void **state)
{
    static float src[TOPK_BLOCK + 40], decoded[TOPK_BLOCK + 40];
    static unsigned char codes[TOPK_BLOCK];
    const size_t n = TOPK_BLOCK + 40;
    const float bad[] = {INFINITY, -INFINITY, NAN};
    /* infinities and NaNs are always sent */
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < n; i++)
            src[i] = 1e30f;
        src[TOPK_BLOCK + 33] = bad[k];
        topk_encode(codes, src, NULL, n);
        assert_int_equal(finite_first_bad(DTYPE_TOPK, codes, n), TOPK_BLOCK + 33);
        assert_int_equal(finite_first_bad(DTYPE_TOPK, codes, TOPK_BLOCK), TOPK_BLOCK);
        assert_int_equal(finite_first_above(DTYPE_TOPK, codes, n, 2e30f), TOPK_BLOCK + 33);
    }
    /* the largest float exceeds bf16; finite_first_misfit() reports this before the encoding */
    src[TOPK_BLOCK + 33] = 1;
    src[7] = FLT_MAX;
    assert_int_equal(finite_first_misfit(DTYPE_TOPK, src, n), 7);
    topk_encode(codes, src, NULL, n);
    assert_int_equal(finite_first_bad(DTYPE_TOPK, codes, n), 7);
    /* bytes that no encoder writes: positions beyond the block, and one position twice */
    memset(codes, 0xff, sizeof codes);
    memset(codes, 0, 16);
    memset(codes + 24, 0, 4);
    topk_decode(decoded, codes, n);
    for (size_t i = 0; i < n; i++)
        assert_true(decoded[i] == 0);
}

int main(void)
{
    return RUN_TESTS(test_reference, test_sizes, test_residual, test_change, test_edges);
}
