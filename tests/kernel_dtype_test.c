/* tests/kernel_dtype_test.c - compares the wire's number formats with references in double
 * precision. */
#include "base/rng.h"
#include "kernels/vector/dtype.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_CODES = 65536, N_RANDOM = 1 << 20 };

/* Precision with the hidden bit, exponents of the smallest and the largest normal value. */
static const struct format {
    enum dtype d;
    int p, e_min, e_max;
} formats[] = {{DTYPE_BF16, 8, -126, 127}, {DTYPE_F16, 11, -14, 15}};
enum { N_FORMATS = sizeof formats / sizeof *formats };

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static unsigned infinity_of(const struct format *f)
{
    return (unsigned)(f->e_max - f->e_min + 2) << (f->p - 1);
}

/* Returns the value of a finite code without its sign. */
static double value_of(const struct format *f, unsigned code)
{
    int exponent = (int)(code >> (f->p - 1));
    double fraction = code & ((1u << (f->p - 1)) - 1);
    if (exponent == 0)
        return ldexp(fraction, f->e_min - f->p + 1);
    return ldexp(fraction + ldexp(1, f->p - 1), exponent - 1 + f->e_min - f->p + 1);
}

/* Returns the code of a number. rint() of a double rounds to even, and is exact. */
static unsigned code_of(const struct format *f, float x)
{
    unsigned sign = signbit(x) ? 0x8000u : 0;
    double a = fabs((double)x);
    if (isinf(x))
        return sign | infinity_of(f);
    int e = a > 0 && ilogb(a) > f->e_min ? ilogb(a) : f->e_min;
    if (e > f->e_max)
        return sign | infinity_of(f);
    double ulps = rint(ldexp(a, f->p - 1 - e));
    return sign | (unsigned)((e - f->e_min) * (1 << (f->p - 1)) + (int)ulps);
}

static void check_code(const struct format *f, float x, unsigned code)
{
    unsigned infinite = infinity_of(f), quiet = 1u << (f->p - 2);
    if (isnan(x)) {
        if ((code & 0x7fffu) <= infinite || !(code & quiet) || (code >> 15) != bits_of(x) >> 31)
            fail_msg("%s of NaN %08x: %04x", dtype_name(f->d), bits_of(x), code);
    } else if (code != code_of(f, x)) {
        fail_msg("%s of %a: %04x, not %04x", dtype_name(f->d), (double)x, code, code_of(f, x));
    }
}

static void check_encode(const struct format *f, const float *src, size_t n)
{
    uint16_t *codes = malloc(n * sizeof *codes);
    dtype_encode(f->d, codes, src, n);
    for (size_t i = 0; i < n; i++)
        check_code(f, src[i], codes[i]);
    free(codes);
}

static void test_decode(void **state)
{
    static uint16_t codes[N_CODES];
    static float out[N_CODES];
    for (unsigned c = 0; c < N_CODES; c++)
        codes[c] = (uint16_t)c;
    for (int k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        dtype_decode(f->d, out, codes, N_CODES);
        for (unsigned c = 0; c < N_CODES; c++) {
            unsigned a = c & 0x7fffu;
            assert_int_equal(signbit(out[c]) != 0, c >> 15);
            if (a < infinity_of(f))
                assert_true(fabs((double)out[c]) == value_of(f, a));
            else
                assert_true(a == infinity_of(f) ? isinf(out[c]) : isnan(out[c]));
            if (f->d == DTYPE_F16 && isnan(out[c]))
                assert_true(bits_of(out[c]) & 0x400000u);
        }
        /* exact values are unchanged; NaNs become quiet ones */
        check_encode(f, out, N_CODES);
        uint16_t *again = malloc(N_CODES * sizeof *again);
        dtype_encode(f->d, again, out, N_CODES);
        for (unsigned c = 0; c < N_CODES; c++)
            if (!isnan(out[c]))
                assert_int_equal(again[c], c);
        free(again);
    }
}

/* Tests around every code's value and around the midpoints between it and the next: a value, and
 * the floats before and after it. */
static void test_encode_edges(void **state)
{
    enum { AROUND = 12 };
    float *src = malloc(N_CODES / 2 * AROUND * sizeof *src);
    for (int k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        size_t n = 0;
        for (unsigned c = 0; c < infinity_of(f); c++) {
            double low = value_of(f, c);
            double next = c + 1 < infinity_of(f) ? value_of(f, c + 1) : ldexp(1, f->e_max + 1);
            float at[] = {(float)low, (float)((low + next) / 2)};
            for (int i = 0; i < 2; i++)
                for (int sign = -1; sign <= 1; sign += 2) {
                    float v = sign < 0 ? -at[i] : at[i];
                    src[n++] = v;
                    src[n++] = nextafterf(v, INFINITY);
                    src[n++] = nextafterf(v, -INFINITY);
                }
        }
        check_encode(f, src, n);
    }
    free(src);
}

static void test_encode_numbers(void **state)
{
    static const uint32_t special[] = {
        0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x7f800000,
        0xff800000, 0x7f7fffff, 0xff7fffff, 0x7f800001, 0xff800001, 0x7fbfffff, 0x7fc00000,
        0xffc00000, 0x7fffffff, 0xffffffff, 0x7f80ffff, 0x33000000, 0x33000001, 0x32ffffff,
        0x477fefff, 0x477ff000, 0x477fffff, 0x47800000, 0x387fc000, 0x387fe000, 0x38800000,
    };
    enum { N_SPECIAL = sizeof special / sizeof *special };
    float *src = malloc((N_RANDOM + N_SPECIAL) * sizeof *src);
    for (size_t i = 0; i < N_SPECIAL; i++)
        src[i] = float_of(special[i]);
    for (size_t i = 0; i < N_RANDOM; i++) {
        /* any bits; every second number is in the range of fp16's exponents */
        uint32_t u = (uint32_t)(rng_uniform(rng_key(1, RNG_TEST, 0), 2 * i) * 65536) << 16 |
                     (uint32_t)(rng_uniform(rng_key(1, RNG_TEST, 0), 2 * i + 1) * 65536);
        src[N_SPECIAL + i] = float_of(i % 2 ? u : (u & 0x83ffffffu) + (100u << 23));
    }
    for (int k = 0; k < N_FORMATS; k++)
        check_encode(&formats[k], src, N_RANDOM + N_SPECIAL);
    free(src);
}

/* Tests every length, at every alignment of bytes within a vector: only the n elements are written,
 * each with the same bits as if it were converted alone. */
static void test_lengths(void **state)
{
    enum { MOST = 70, SHIFTS = 5 };
    float src[MOST], out[MOST + 1], one;
    unsigned char codes[MOST * sizeof(float) + SHIFTS + 1];
    uint32_t alone;
    for (size_t i = 0; i < MOST; i++)
        src[i] = (rng_uniform(rng_key(2, RNG_TEST, 0), i) * 2 - 1) * ldexpf(1, (int)(i % 60) - 30);
    for (int d = 0; d < DTYPE_N_KINDS; d++) {
        if (dtype_block((enum dtype)d) > 1) /* tested by kernel_quant_test and kernel_topk_test */
            continue;
        size_t size = dtype_bytes((enum dtype)d, 1);
        for (size_t n = 0; n <= MOST; n++)
            for (size_t shift = 0; shift < SHIFTS; shift++) {
                memset(codes, 0xa5, sizeof codes);
                out[n] = 77;
                dtype_encode((enum dtype)d, codes + shift, src, n);
                dtype_decode((enum dtype)d, out, codes + shift, n);
                for (size_t i = 0; i < n; i++) {
                    dtype_encode((enum dtype)d, &alone, &src[i], 1);
                    assert_memory_equal(codes + shift + i * size, &alone, size);
                    dtype_decode((enum dtype)d, &one, &alone, 1);
                    assert_memory_equal(&out[i], &one, sizeof one);
                }
                assert_true(out[n] == 77);
                for (size_t i = 0; i < shift; i++)
                    assert_int_equal(codes[i], 0xa5);
                for (size_t i = shift + n * size; i < sizeof codes; i++)
                    assert_int_equal(codes[i], 0xa5);
            }
    }
}

static void test_names(void **state)
{
    char all[64] = "";
    for (int d = 0; d < DTYPE_N_KINDS; d++) {
        strcat(all, d ? "|" : "");
        strcat(all, dtype_name((enum dtype)d));
    }
    assert_string_equal(all, DTYPE_NAMES);
    assert_int_equal(dtype_bytes(DTYPE_F32, 1), 4);
    assert_int_equal(dtype_bytes(DTYPE_BF16, 1), 2);
    assert_int_equal(dtype_bytes(DTYPE_F16, 1), 2);
}

int main(void)
{
    return RUN_TESTS(test_decode, test_encode_edges, test_encode_numbers, test_lengths, test_names);
}
