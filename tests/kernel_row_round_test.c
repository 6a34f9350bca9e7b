/* tests/kernel_row_round_test.c - random rounding of rows to bf16: results are neighbours of the
 * value, their mean is the value, and they depend on seed, table, key, version and element. */
#include "base/rng.h"
#include "kernels/vector/dtype.h"
#include "kernels/vector/row_round.h"
#include "tests/check.h"
#include <float.h>
#include <math.h>

enum { DIM = 7, ROUNDS = 40000 };

static const struct row_init_config table = {.key = 77};

/* Computes the neighbours of the value in double precision. The random number chooses one. */
static double reference(float value, uint32_t random)
{
    double size = fabs((double)value);
    double gap = size < ldexp(1, -126) ? ldexp(1, -133) : ldexp(1, ilogb(size) - 7);
    double low = floor(size / gap) * gap, high = low + gap;
    double part = (size - low) / gap * 65536; /* exact, and below 65536 */
    double rounded = floor(part) + random >= 65536 ? high : low;
    return copysign(rounded, (double)value);
}

static uint32_t random_of(uint64_t stream, size_t i)
{
    return rng_u64(stream, i / 4) >> 16 * (i % 4) & 0xffff;
}

static void results_follow_the_definition(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++) {
        float values[DIM], got[DIM];
        uint16_t codes[DIM];
        uint64_t stream = row_round_stream(&table, i, i % 5);
        for (size_t k = 0; k < DIM; k++) {
            int exponent = (int)rng_below(3, i * DIM + k, 270) - 147;
            values[k] = ldexpf(rng_uniform(4, i * DIM + k) * 2 - 1, exponent);
        }
        assert_true(row_round_bf16(stream, values, DIM, codes));
        dtype_decode(DTYPE_BF16, got, codes, DIM);
        for (size_t k = 0; k < DIM; k++)
            if ((double)got[k] != reference(values[k], random_of(stream, k)))
                fail_msg("%a became %a", (double)values[k], (double)got[k]);
    }
}

static void mean_of_many_roundings_is_the_value(void **state)
{
    const float values[DIM] = {1.001f, -1.001f, 0.3f, -7.77f, 1e-3f, 3.0f, 1 + 1 / 512.0f};
    double sum[DIM] = {0};
    for (uint64_t version = 0; version < ROUNDS; version++) {
        float got[DIM];
        uint16_t codes[DIM];
        row_round_bf16(row_round_stream(&table, 5, version), values, DIM, codes);
        dtype_decode(DTYPE_BF16, got, codes, DIM);
        for (int k = 0; k < DIM; k++)
            sum[k] += (double)got[k];
    }
    for (int k = 0; k < DIM; k++) {
        double value = (double)values[k], gap = fabs(value) / 128;
        /* five standard deviations of the mean; that of one rounding is at most half the gap */
        if (fabs(sum[k] / ROUNDS - value) > 2.5 * gap / sqrt(ROUNDS))
            fail_msg("%g became %.9g on average", value, sum[k] / ROUNDS);
    }
}

static void numbers_of_bf16_stay(void **state)
{
    for (uint32_t code = 0; code < 65536; code++) {
        uint16_t in = (uint16_t)code, out;
        float value;
        dtype_decode(DTYPE_BF16, &value, &in, 1);
        bool is_finite = row_round_bf16(code, &value, 1, &out);
        assert_int_equal(is_finite, isfinite(value) != 0);
        assert_int_equal(out, isnan(value) ? in | 0x40 : in);
    }
}

static void results_that_are_not_finite_are_reported(void **state)
{
    const float bad[] = {INFINITY, -INFINITY, NAN, -NAN};
    float values[DIM] = {1, 2, 3, 4, 5, 6, 7};
    uint16_t codes[DIM];
    int n_infinite = 0;
    for (int i = 0; i < 4; i++) {
        values[i] = bad[i];
        assert_false(row_round_bf16(9, values, DIM, codes));
        values[i] = 1;
    }
    values[6] = FLT_MAX;
    for (uint64_t stream = 0; stream < 200; stream++) {
        bool is_finite = row_round_bf16(stream, values, DIM, codes);
        bool is_infinite = codes[6] == 0x7f80;
        assert_int_equal(is_finite, !is_infinite);
        n_infinite += is_infinite;
    }
    assert_true(n_infinite > 190);         /* FLT_MAX is next to 2^128 */
    values[6] = ldexpf(255.0f / 128, 127); /* the largest number of bf16 */
    assert_true(row_round_bf16(9, values, DIM, codes));
}

/* Each of seed, table, key, version and element has its own random numbers. */
static void random_numbers_depend_on_all_of_their_sources(void **state)
{
    const struct row_init_config other = {.key = row_init_key(8, "ads")};
    const struct row_init_config first = {.key = row_init_key(7, "ads")};
    const struct row_init_config named = {.key = row_init_key(7, "adt")};
    const uint64_t streams[] = {row_round_stream(&first, 1, 1), row_round_stream(&other, 1, 1),
                                row_round_stream(&named, 1, 1), row_round_stream(&first, 2, 1),
                                row_round_stream(&first, 1, 2)};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < i; k++)
            assert_true(streams[i] != streams[k]);
    uint32_t seen[8];
    for (size_t i = 0; i < 8; i++) {
        seen[i] = random_of(streams[0], i);
        for (size_t k = 0; k < i; k++)
            assert_true(seen[i] != seen[k]);
    }
}

int main(void)
{
    return RUN_TESTS(results_follow_the_definition, mean_of_many_roundings_is_the_value,
                     numbers_of_bf16_stay, results_that_are_not_finite_are_reported,
                     random_numbers_depend_on_all_of_their_sources);
}
