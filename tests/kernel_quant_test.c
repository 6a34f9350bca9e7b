/* tests/kernel_quant_test.c - tests the encoding of floats as integers with a scale for each block:
 * its values, compared with double precision; its layout, byte for byte; and the guarantees of
 * error feedback. */
#include "base/rng.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/quant.h"
#include "tests/check.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1100 };

static float number(uint64_t stream, size_t i)
{
    float u = rng_uniform(rng_key(stream, RNG_TEST, 0), i) * 2 - 1;
    return ldexpf(u, (int)(i / QUANT_BLOCK * 31 % 40) - 30);
}

static int code_at(int bits, const unsigned char *block, size_t m, size_t i)
{
    size_t each = 32 / (size_t)bits, w = (m + each - 1) / each;
    uint32_t word;
    memcpy(&word, block + 4 + 4 * (i % w), sizeof word);
    word >>= (int)(i / w) * bits;
    int code = (int)(word & ((1u << bits) - 1)), half = 1 << (bits - 1);
    return code >= half ? code - 2 * half : code;
}

/* Scale and codes are as the header defines them, for every length. */
static void test_reference(void **state)
{
    static float src[MOST], decoded[MOST + 1];
    static unsigned char codes[2 * MOST + 32];
    for (size_t i = 0; i < MOST; i++)
        src[i] = number(1, i);
    for (int bits = 8; bits >= 4; bits -= 4) {
        const int top = bits == 8 ? 127 : 7;
        for (size_t n = 0; n <= MOST; n += n < 600 ? 1 : 37) {
            size_t at = 1 + n % 4, bytes = quant_bytes(bits, n); /* any alignment */
            memset(codes, 0xa5, sizeof codes);
            decoded[n] = 77;
            quant_encode(bits, codes + at, src, NULL, n);
            quant_decode(bits, decoded, codes + at, n);
            assert_true(decoded[n] == 77);
            assert_int_equal(codes[at - 1], 0xa5);
            assert_int_equal(codes[at + bytes], 0xa5);
            const unsigned char *block = codes + at;
            for (size_t first = 0; first < n; first += QUANT_BLOCK) {
                size_t m = n - first < QUANT_BLOCK ? n - first : QUANT_BLOCK;
                float scale, most = 0;
                for (size_t i = 0; i < m; i++)
                    most = fmaxf(most, fabsf(src[first + i]));
                memcpy(&scale, block, sizeof scale);
                assert_true(scale == most / (float)top);
                for (size_t i = 0; i < m; i++) {
                    int code = code_at(bits, block, m, i);
                    double exact = (double)src[first + i] / (double)most * top;
                    assert_in_range(code + top, 0, 2 * top);
                    assert_true(fabs(exact - code) <= 0.5 + 1e-4);
                    assert_true(decoded[first + i] == (float)code * scale);
                }
                block += quant_bytes(bits, m);
            }
            assert_ptr_equal(block, codes + at + bytes);
        }
    }
}

static void test_sizes(void **state)
{
    assert_int_equal(quant_bytes(8, 0), 0);
    assert_int_equal(quant_bytes(8, 256), 260);
    assert_int_equal(quant_bytes(4, 256), 132);
    assert_int_equal(quant_bytes(8, 257), 268);
    assert_int_equal(quant_bytes(4, 257), 140);
    assert_int_equal(quant_bytes(4, 512 + 9), 2 * 132 + 12);
}

/* After any number of calls, the sent values plus the residual are the sum of the inputs. */
static void test_residual(void **state)
{
    enum { N = 700, CALLS = 200 };
    static float src[N], residual[N], decoded[N];
    static double given[N], sent[N];
    static unsigned char codes[2 * N];
    for (int bits = 8; bits >= 4; bits -= 4) {
        memset(residual, 0, sizeof residual);
        memset(given, 0, sizeof given);
        memset(sent, 0, sizeof sent);
        for (int call = 0; call < CALLS; call++) {
            for (size_t i = 0; i < N; i++) {
                src[i] = rng_uniform(rng_key(3, RNG_TEST, (uint64_t)call), i) * 2 - 1;
                src[i] *= i % 50 ? 0.01f : 1; /* alone, the small ones would be rounded to 0 */
                given[i] += (double)src[i];
            }
            quant_encode(bits, codes, src, residual, N);
            quant_decode(bits, decoded, codes, N);
            for (size_t i = 0; i < N; i++)
                sent[i] += (double)decoded[i];
        }
        for (size_t i = 0; i < N; i++) {
            assert_true(fabs(given[i] - sent[i] - (double)residual[i]) < 1e-4);
            assert_true(fabsf(residual[i]) <= 1.2f / (bits == 8 ? 127 : 7) / 2 * 1.2f);
        }
    }
}

/* A residual is added before the scale is chosen. */
static void test_residual_counts(void **state)
{
    float src[3] = {1, 0, -1}, residual[3] = {1, 0, 0}, decoded[3];
    unsigned char codes[16];
    quant_encode(8, codes, src, residual, 3);
    quant_decode(8, decoded, codes, 3);
    assert_true(fabsf(decoded[0] - 2) < 1e-6f);
    assert_true(fabsf(residual[0]) < 1e-6f);
    assert_true(fabsf(decoded[2] + residual[2] + 1) < 1e-6f);
}

static void test_edges(void **state)
{
    static float src[QUANT_BLOCK + 5], decoded[QUANT_BLOCK + 5], residual[QUANT_BLOCK + 5];
    static unsigned char codes[2 * QUANT_BLOCK + 64];
    const size_t n = QUANT_BLOCK + 5;
    for (int bits = 8; bits >= 4; bits -= 4) {
        enum dtype d = bits == 8 ? DTYPE_INT8 : DTYPE_INT4;
        /* values too small for a scale are sent as zeros, and kept in the residual */
        for (size_t i = 0; i < n; i++)
            src[i] = i % 2 ? 0x1p-120f : -0x1p-149f;
        memset(residual, 0, sizeof residual);
        quant_encode(bits, codes, src, residual, n);
        quant_decode(bits, decoded, codes, n);
        for (size_t i = 0; i < n; i++) {
            assert_true(decoded[i] == 0);
            assert_true(residual[i] == src[i]);
        }
        /* the largest floats */
        for (size_t i = 0; i < n; i++)
            src[i] = i % 3 ? FLT_MAX / 2 : -FLT_MAX / 2;
        quant_encode(bits, codes, src, NULL, n);
        quant_decode(bits, decoded, codes, n);
        assert_int_equal(finite_first_bad(d, codes, n), n);
        for (size_t i = 0; i < n; i++)
            assert_true(fabsf(decoded[i] / src[i] - 1) < 1e-6f);
        /* infinities and NaNs are detected, in their block */
        const float bad[] = {INFINITY, -INFINITY, NAN};
        for (int k = 0; k < 3; k++) {
            for (size_t i = 0; i < n; i++)
                src[i] = 1;
            src[QUANT_BLOCK + 2] = bad[k];
            quant_encode(bits, codes, src, NULL, n);
            assert_int_equal(finite_first_bad(d, codes, n), QUANT_BLOCK);
            assert_int_equal(finite_first_bad(d, codes, QUANT_BLOCK), QUANT_BLOCK);
        }
    }
}

static void test_above(void **state)
{
    float src[300];
    unsigned char codes[400];
    for (size_t i = 0; i < 300; i++)
        src[i] = i == 280 ? 7 : 1;
    quant_encode(4, codes, src, NULL, 300);
    assert_int_equal(finite_first_above(DTYPE_INT4, codes, 300, 7), 300);
    assert_int_equal(finite_first_above(DTYPE_INT4, codes, 300, 6.5f), 280);
    assert_int_equal(finite_first_above(DTYPE_INT4, codes, 300, 0.5f), 0);
}

int main(void)
{
    return RUN_TESTS(test_reference, test_sizes, test_residual, test_residual_counts, test_edges,
                     test_above);
}
