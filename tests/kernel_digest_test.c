/* tests/kernel_digest_test.c - tests the digest of floats: its definition, and which changes it
 * notices. */
#include "base/rng.h"
#include "kernels/vector/digest.h"
#include "kernels/vector/float_bits.h"
#include "tests/check.h"
#include <stdlib.h>

enum { N = 4096 + 13 };
static float x[N];

static int fill(void **state)
{
    for (size_t i = 0; i < N; i++)
        x[i] = rng_uniform(rng_key(1, RNG_TEST, 0), i) - 0.5f;
    return 0;
}

/* The weight of an element is the digest of a block of zeros in which this element has the bits of
 * the integer 1. */
static uint64_t weight(size_t i)
{
    static float block[N];
    block[i] = float_of(1);
    uint64_t w = vector_digest(block, N);
    block[i] = 0;
    return w;
}

static void test_it_is_a_sum_of_weighted_bits(void **state)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < N; i++)
        sum += weight(i) * bits_of(x[i]);
    assert_true(sum == vector_digest(x, N));
    assert_true(vector_digest(x, 0) == 0);
    for (size_t n = 1; n < 40; n++)
        assert_true(vector_digest(x, n) - vector_digest(x, n - 1) ==
                    weight(n - 1) * bits_of(x[n - 1]));
}

static int compare(const void *a, const void *b)
{
    uint64_t l = *(const uint64_t *)a, r = *(const uint64_t *)b;
    return l < r ? -1 : l > r;
}

static void test_weights_are_different(void **state)
{
    uint64_t *w = calloc(N, sizeof *w);
    assert_non_null(w);
    for (size_t i = 0; i < N; i++)
        w[i] = weight(i);
    qsort(w, N, sizeof *w, compare);
    assert_true(w[0] > 0 && w[N - 1] <= UINT32_MAX);
    for (size_t i = 1; i < N; i++)
        assert_true(w[i] != w[i - 1]);
    free(w);
}

static void test_changes_are_noticed(void **state)
{
    uint64_t want = vector_digest(x, N);
    for (size_t i = 0; i < N; i += 7)
        for (int bit = 0; bit < 32; bit++) {
            float old = x[i];
            x[i] = float_of(bits_of(old) ^ 1u << bit);
            assert_true(vector_digest(x, N) != want);
            x[i] = old;
        }
    for (size_t i = 1; i < N; i++) {
        float first = x[0], other = x[i];
        x[0] = other;
        x[i] = first;
        assert_true(vector_digest(x, N) != want || bits_of(first) == bits_of(other));
        x[0] = first;
        x[i] = other;
    }
    assert_true(vector_digest(x, N) == want);
}

int main(void)
{
    return RUN_GROUP(fill, NULL, test_it_is_a_sum_of_weighted_bits, test_weights_are_different,
                     test_changes_are_noticed);
}
