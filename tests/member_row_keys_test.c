/* tests/libweir_row_keys_test.c - compares the sorted keys of a call, the sums of repeated keys and
 * the rows that are read with plain loops over the call. */
#include "member/row_keys.h"
#include "tests/check.h"
#include <stdlib.h>
#include <string.h>

enum { DIM = 3, MOST = 5000 };

/* Returns a key of one of three kinds: small numbers, which repeat; hashed numbers; numbers that
 * differ only in their highest byte. */
static uint64_t make_key(int kind, int i)
{
    uint64_t random = rng_u64(rng_key(1, RNG_TEST, (uint64_t)kind), (uint64_t)i);
    return kind == 0 ? random % 700 : kind == 1 ? random : random << 56;
}

static void fill(int kind, int n, uint64_t *keys, float *gradients)
{
    for (int i = 0; i < n; i++) {
        keys[i] = make_key(kind, i);
        for (int d = 0; d < DIM; d++)
            gradients[i * DIM + d] = rng_uniform(7, (uint64_t)(i * DIM + d)) - 0.5f;
    }
}

/* Checks that each key of the call occurs once, in its bucket and in order. */
static void check_keys(const struct row_keys *k, const struct net_table *t, const uint64_t *keys,
                       size_t n)
{
    size_t n_places = 0;
    assert_int_equal(k->first[0], 0);
    assert_int_equal(k->first[t->n_buckets], k->n);
    for (int b = 0; b < t->n_buckets; b++)
        for (size_t u = k->first[b]; u < k->first[b + 1]; u++) {
            assert_int_equal(tables_bucket(t, k->keys[u]), b);
            assert_true(u == k->first[b] || k->keys[u - 1] < k->keys[u]);
            for (size_t i = k->start[u]; i < k->start[u + 1]; i++, n_places++) {
                assert_true(keys[k->order[i]] == k->keys[u]);
                assert_true(i == k->start[u] || k->order[i - 1] < k->order[i]);
            }
        }
    assert_int_equal(n_places, n);
}

/* Checks the sums against a loop over the call for each key. */
static void check_sums(const struct row_keys *k, const uint64_t *keys, const float *gradients,
                       size_t n)
{
    float *sums = calloc(k->n + 1, DIM * sizeof *sums);
    row_keys_sum(k, DIM, gradients, sums);
    for (size_t u = 0; u < k->n; u++) {
        float sum[DIM] = {0};
        bool is_first = true;
        for (size_t i = 0; i < n; i++) {
            if (keys[i] != k->keys[u])
                continue;
            for (int d = 0; d < DIM; d++)
                sum[d] = is_first ? gradients[i * DIM + (size_t)d]
                                  : sum[d] + gradients[i * DIM + (size_t)d];
            is_first = false;
        }
        assert_memory_equal(sum, sums + u * DIM, sizeof sum);
    }
    free(sums);
}

static void test_keys_of_a_call_are_sorted_and_summed(void **state)
{
    static const int sizes[] = {0, 1, 2, 63, 800, 3000};
    static uint64_t keys[MOST];
    static float gradients[MOST * DIM];
    for (int n_buckets = 1; n_buckets <= TABLES_MAX_BUCKETS; n_buckets *= 32) {
        const struct net_table t = {.name = "t", .dim = DIM, .n_buckets = n_buckets};
        struct row_keys k = {0};
        for (int kind = 0; kind < 3; kind++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                size_t n = (size_t)sizes[s];
                fill(kind, (int)n, keys, gradients);
                assert_int_equal(row_keys_set(&k, &t, n ? keys : NULL, n), ST_OK);
                assert_int_equal(k.n_given, n);
                check_keys(&k, &t, keys, n);
                check_sums(&k, keys, gradients, n);
            }
        row_keys_free(&k);
    }
}

/* The sum of equal keys depends on their order: it must be that of the call. */
static void test_sums_keep_the_order_of_the_call(void **state)
{
    const struct net_table t = {.name = "t", .dim = 1, .n_buckets = 4};
    const uint64_t keys[] = {9, 5, 9, 9, 5};
    const float gradients[] = {1e8f, 1, 1, -1e8f, -1}; /* (1e8 + 1) - 1e8 is 0 in float */
    float sums[2];
    struct row_keys k = {0};
    assert_int_equal(row_keys_set(&k, &t, keys, 5), ST_OK);
    row_keys_sum(&k, 1, gradients, sums);
    for (size_t u = 0; u < k.n; u++)
        assert_true(sums[u] == 0);
    row_keys_free(&k);
}

static void test_share_names_the_full_bucket(void **state)
{
    const struct net_table t = {.name = "t", .dim = 1, .n_buckets = 8};
    uint64_t keys[40];
    int n = 0;
    struct row_keys k = {0};
    for (uint64_t key = 0; n < 40; key++)
        if (tables_bucket(&t, key) == 5)
            keys[n++] = key;
    assert_int_equal(row_keys_set(&k, &t, keys, 40), ST_OK);
    assert_int_equal(row_keys_above(&k, &t, 40), -1);
    assert_int_equal(row_keys_above(&k, &t, 39), 5);
    assert_int_equal(row_keys_in(&k, 5), 40);
    assert_int_equal(row_keys_in(&k, 4), 0);
    row_keys_free(&k);
}

static void test_rows_go_to_all_places_of_their_key(void **state)
{
    const struct net_table t = {.name = "t", .dim = 2, .n_buckets = 1};
    const uint64_t keys[] = {7, 3, 7, 20}, has[] = {1, 3, 7, 9, 20};
    const float rows[] = {1, -1, 3, -3, 7, -7, 9, -9, 20, -20};
    const float expected[] = {7, -7, 3, -3, 7, -7, 20, -20};
    const struct row_source all = {5, has, rows}, fewer = {4, has, rows}, none = {0};
    float out[8] = {0};
    struct row_keys k = {0};
    assert_int_equal(row_keys_set(&k, &t, keys, 4), ST_OK);
    assert_true(row_keys_read(&k, 0, k.n, &all, 2, out));
    assert_memory_equal(out, expected, sizeof out);
    assert_false(row_keys_read(&k, 0, k.n, &fewer, 2, out)); /* 20 is missing */
    assert_false(row_keys_read(&k, 0, k.n, &none, 2, out));
    assert_true(row_keys_read(&k, 0, 2, &fewer, 2, out)); /* 3 and 7 only */
    assert_true(row_keys_read(&k, 1, 1, &none, 2, out));
    row_keys_free(&k);
}

static void test_equal_keys_are_recognized(void **state)
{
    const struct net_table t = {.name = "t", .dim = 1, .n_buckets = 4};
    uint64_t keys[] = {7, 3, 7, 20};
    struct row_keys k = {0};
    assert_false(row_keys_are(&k, keys, 0)); /* it was not set */
    assert_int_equal(row_keys_set(&k, &t, keys, 4), ST_OK);
    assert_true(row_keys_are(&k, keys, 4));
    assert_false(row_keys_are(&k, keys, 3));
    keys[3] = 21;
    assert_false(row_keys_are(&k, keys, 4));
    assert_int_equal(row_keys_set(&k, &t, NULL, 0), ST_OK);
    assert_true(row_keys_are(&k, NULL, 0));
    assert_false(row_keys_are(&k, keys, 4));
    row_keys_free(&k);
}

int main(void)
{
    return RUN_TESTS(test_keys_of_a_call_are_sorted_and_summed,
                     test_sums_keep_the_order_of_the_call, test_share_names_the_full_bucket,
                     test_rows_go_to_all_places_of_their_key, test_equal_keys_are_recognized);
}
