/* tests/ps_bucket_test.c - compares the rows of a bucket with a plain dictionary, on a random
 * schedule, and checks initial values and the checks of keys. */
#include "base/rng.h"
#include "ps/rows/bucket.h"
#include "tests/check.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 5, N_KEYS = 3000, ROUNDS = 400 };

static uint64_t drawn;

static uint64_t below(uint64_t n)
{
    return rng_below(rng_key(1, RNG_TEST, 0), drawn++, n);
}

static struct bucket_config config_of(enum row_init init)
{
    struct bucket_config c = {.dim = DIM,
                              .init = {init, 0.5f, row_init_key(7, "ads")},
                              .n_buckets = 1,
                              .max_rows = 1000000};
    optim_rows_defaults(OPTIM_ROWS_ADAGRAD, &c.optimizer);
    return c;
}

static struct bucket *create(enum row_init init)
{
    struct bucket_config c = config_of(init);
    struct bucket *b = NULL;
    assert_int_equal(bucket_create(&c, &b), ST_OK);
    return b;
}

/* Key i: some are dense, some random, with both ends of the range. */
static uint64_t key_of(size_t i)
{
    if (i < 2)
        return i == 0 ? 0 : UINT64_MAX;
    return i % 2 ? i : rng_mix(i);
}

/* The dictionary: mark of each key's row; 0: the key has no row. */
static float marks[N_KEYS];

/* Compares all rows with the dictionary, by a search in an order of its own. */
static void compare(const struct bucket *b)
{
    static uint64_t keys[N_KEYS];
    static struct row *rows[N_KEYS];
    size_t n = 0, stride = 2 * below(1000) + 1;
    while (stride % 3 == 0 || stride % 5 == 0) /* N_KEYS has the factors 2, 3 and 5 */
        stride += 2;
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = key_of(i * stride % N_KEYS);
    row_table_find(&b->rows, keys, N_KEYS, rows);
    for (size_t i = 0; i < N_KEYS; i++) {
        float mark = marks[i * stride % N_KEYS];
        n += mark != 0;
        if (!rows[i] != (mark == 0) || (rows[i] && rows[i]->data[0] != mark))
            fail_msg("key %zu: %s, mark %g", i * stride % N_KEYS, rows[i] ? "row" : "no row",
                     (double)mark);
        assert_true(!rows[i] || rows[i]->key == keys[i]);
    }
    assert_int_equal(b->rows.n, n);
    uint32_t cursor = 0;
    for (size_t i = 0; i < n; i++)
        assert_non_null(row_table_next(&b->rows, &cursor));
    assert_null(row_table_next(&b->rows, &cursor));
}

static void change(struct bucket *b, size_t i, bool adds)
{
    uint64_t key = key_of(i);
    struct row *row;
    row_table_find(&b->rows, &key, 1, &row);
    if (!adds && row) {
        row_table_remove(&b->rows, row);
        marks[i] = 0;
    } else if (adds && !row) {
        assert_int_equal(bucket_begin(b, 1, 1), ST_OK);
        row = bucket_change(b, key, NULL);
        bucket_end(b);
        marks[i] = row->data[0] = 1 + (float)drawn;
    }
}

static void test_rows_match_a_dictionary(void **state)
{
    struct bucket *b = create(ROW_INIT_UNIFORM);
    memset(marks, 0, sizeof marks);
    compare(b);
    for (int round = 0; round < ROUNDS; round++) {
        /* phases in which the table fills, and phases in which it empties */
        uint64_t adds = round / 50 % 2 ? 25 : 75;
        for (int k = 0; k < 100; k++)
            change(b, below(N_KEYS), below(100) < adds);
        compare(b);
    }
    /* numbers of removed rows are used again */
    size_t bytes = bucket_bytes(b);
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < N_KEYS; i++)
            change(b, i, round % 2);
        compare(b);
    }
    assert_true(bucket_bytes(b) < 2 * bytes);
    bucket_destroy(b);
}

static uint64_t unshift(uint64_t x, int shift)
{
    uint64_t result = x;
    for (int k = shift; k < 64; k += shift)
        result = x ^ (result >> shift);
    return result;
}

static uint64_t unmultiply(uint64_t x, uint64_t factor)
{
    uint64_t inverse = factor;
    for (int k = 0; k < 6; k++)
        inverse *= 2 - factor * inverse;
    return x * inverse;
}

/* Returns the key that has this hash (inverts rng_mix). */
static uint64_t key_with_hash(uint64_t hash)
{
    uint64_t x = unmultiply(unshift(hash, 31), 0x94d049bb133111ebu);
    x = unmultiply(unshift(x, 27), 0xbf58476d1ce4e5b9u);
    return unshift(x, 30) - 0x9e3779b97f4a7c15u;
}

/* An entry has only a part of the hash, so these keys differ only in their rows. */
static void test_keys_with_equal_entries_are_distinguished(void **state)
{
    enum { N = 3 };
    struct bucket *b = create(ROW_INIT_ZEROS);
    uint64_t hash = 0x123456789abcdef0u, keys[N];
    struct row *rows[N], *added;
    for (int i = 0; i < N; i++) {
        keys[i] = key_with_hash(hash ^ (uint64_t)i << 40);
        assert_true(rng_mix(keys[i]) == (hash ^ (uint64_t)i << 40));
    }
    assert_int_equal(bucket_begin(b, 2, 2), ST_OK);
    bucket_change(b, keys[0], NULL);
    row_table_find(&b->rows, keys, N, rows);
    assert_true(rows[0] && !rows[1] && !rows[2]);
    added = bucket_change(b, keys[2], NULL);
    row_table_find(&b->rows, keys, N, rows);
    assert_true(rows[0] && rows[0] != added && !rows[1] && rows[2] == added);
    row_table_remove(&b->rows, added);
    row_table_find(&b->rows, keys, N, rows);
    assert_true(rows[0] && rows[0] != added && !rows[1] && !rows[2]);
    bucket_destroy(b);
}

static void test_memory_of_rows_is_bounded(void **state)
{
    struct bucket_config c = config_of(ROW_INIT_ZEROS);
    struct bucket *b = NULL;
    c.dim = 16;
    assert_int_equal(bucket_create(&c, &b), ST_OK);
    for (size_t i = 0; i < 300000; i++) {
        assert_int_equal(bucket_begin(b, 1, 1), ST_OK);
        bucket_change(b, rng_mix(i), NULL);
        if (i > 20000 && (double)bucket_bytes(b) > 160.0 * (double)b->rows.n)
            fail_msg("%zu bytes for %u rows", bucket_bytes(b), b->rows.n);
    }
    bucket_destroy(b);
}

static void test_reads_create_nothing(void **state)
{
    struct bucket *b = create(ROW_INIT_NORMAL);
    uint64_t key = 42;
    size_t bytes = bucket_bytes(b);
    float values[1000][DIM], expected[DIM];
    char unaligned[1000 * sizeof key + 1];
    for (size_t i = 0; i < 1000; i++)
        memcpy(unaligned + 1 + i * sizeof key, &(uint64_t){i * i}, sizeof key);
    assert_int_equal(bucket_read(b, 0, unaligned + 1, 1000, values[0]), ST_OK);
    for (size_t i = 0; i < 1000; i++) {
        bucket_initial(&b->config, i * i, expected);
        assert_memory_equal(values[i], expected, sizeof expected);
    }
    assert_int_equal(b->rows.n, 0);
    assert_int_equal(bucket_bytes(b), bytes);
    assert_int_equal(bucket_read(b, 0, &key, 1, values[0]), ST_OK);
    assert_int_equal(bucket_begin(b, 2, 1), ST_OK);
    struct row *row = bucket_change(b, 43, NULL); /* its memory is used again */
    for (size_t i = 0; i < 2 * DIM; i++)
        row->data[i] = 3;
    bucket_remove(b, row);
    row = bucket_change(b, key, NULL);
    assert_memory_equal(row->data, values[0], sizeof values[0]);
    for (size_t i = DIM; i < 2 * DIM; i++)
        assert_true(row->data[i] == 0);
    row->data[2] = 9;
    bucket_end(b);
    assert_int_equal(bucket_read(b, 1, &key, 1, values[1]), ST_OK);
    assert_true(values[1][2] == 9);
    bucket_destroy(b);
}

static void test_initial_values_depend_on_seed_table_key_and_element(void **state)
{
    enum { N = 4 };
    float v[N * DIM], again[DIM];
    struct bucket_config c = config_of(ROW_INIT_UNIFORM);
    bucket_initial(&c, 1, v);
    bucket_initial(&c, 2, v + 1 * DIM);
    c.init.key = row_init_key(7, "adt");
    bucket_initial(&c, 1, v + 2 * DIM);
    c.init.key = row_init_key(8, "ads");
    bucket_initial(&c, 1, v + 3 * DIM);
    for (int i = 0; i < N * DIM; i++)
        for (int k = 0; k < i; k++)
            assert_true(v[i] != v[k]);
    c = config_of(ROW_INIT_UNIFORM);
    c.number = 1; /* neither the bucket nor their number matters */
    c.n_buckets = 2;
    bucket_initial(&c, 1, again);
    assert_memory_equal(again, v, sizeof again);
    c.init.kind = ROW_INIT_ZEROS;
    bucket_initial(&c, 1, again);
    for (int i = 0; i < DIM; i++)
        assert_true(again[i] == 0);
}

/* Compares mean, variance, and extremes of a million values with those of the distribution. */
static void test_initial_values_have_their_distribution(void **state)
{
    for (enum row_init init = ROW_INIT_UNIFORM; init <= ROW_INIT_NORMAL; init++) {
        struct bucket_config c = config_of(init);
        double sum = 0, squares = 0, largest = 0, n = 200000.0 * DIM;
        for (uint64_t key = 0; key < 200000; key++) {
            float v[DIM];
            bucket_initial(&c, key, v);
            for (int i = 0; i < DIM; i++) {
                sum += (double)v[i];
                squares += (double)v[i] * (double)v[i];
                largest = fmax(largest, fabs((double)v[i]));
            }
        }
        double deviation = init == ROW_INIT_UNIFORM ? 0.5 / sqrt(3) : 0.5;
        assert_true(fabs(sum / n) < 5 * deviation / sqrt(n));
        assert_true(fabs(sqrt(squares / n) / deviation - 1) < 0.01);
        assert_true(init == ROW_INIT_UNIFORM ? largest > 0.4999 && largest <= 0.5
                                             : largest > 4 * 0.5 && largest < 6 * 0.5);
    }
}

static void test_text_keys_differ(void **state)
{
    static const char *const texts[] = {"", "a", "b", "aa", "abcdefgh", "abcdefghi", "abcdefgi"};
    enum { N = sizeof texts / sizeof *texts };
    for (size_t i = 0; i < N; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(rng_text(texts[i], strlen(texts[i])) !=
                        rng_text(texts[k], strlen(texts[k])));
    assert_true(rng_text("a", 1) != rng_text("a", 2)); /* a zero byte is part of a text */
}

static void test_keys_of_a_message_are_checked(void **state)
{
    struct bucket_config c = config_of(ROW_INIT_ZEROS);
    struct bucket *b = NULL;
    uint64_t keys[4];
    size_t n = 0, at = 99;
    c.number = 3;
    c.n_buckets = 8;
    assert_int_equal(bucket_create(&c, &b), ST_OK);
    for (uint64_t key = 0; n < 4; key++)
        if (rng_mix(key) % 8 == 3)
            keys[n++] = key;
    assert_null(bucket_check_keys(b, keys, 4, &at));
    assert_null(bucket_check_keys(b, keys, 0, &at));
    uint64_t repeated[3] = {keys[0], keys[1], keys[1]}, falling[2] = {keys[1], keys[0]};
    uint64_t foreign[2] = {keys[0], keys[0] + 1};
    while (rng_mix(foreign[1]) % 8 == 3)
        foreign[1]++;
    assert_string_equal(bucket_check_keys(b, repeated, 3, &at), "the keys are not ascending");
    assert_int_equal(at, 2);
    assert_string_equal(bucket_check_keys(b, falling, 2, &at), "the keys are not ascending");
    assert_string_equal(bucket_check_keys(b, foreign, 2, &at), "a key belongs to another bucket");
    assert_int_equal(at, 1);
    bucket_destroy(b);
}

/* The bound holds for rows that end within 8 bytes, and for the fullest and the emptiest index. */
static void test_bound_of_bytes_holds(void **state)
{
    enum { N = 98400, SLAB = 64 << 10 }; /* the index has just been doubled */
    static const struct {
        int dim;
        enum dtype dtype;
        enum optim_rows_kind kind;
    } cases[] = {{2, DTYPE_BF16, OPTIM_ROWS_SGD},
                 {16, DTYPE_BF16, OPTIM_ROWS_ROWWISE_ADAGRAD},
                 {5, DTYPE_F32, OPTIM_ROWS_SGD},
                 {4, DTYPE_F32, OPTIM_ROWS_ADAGRAD}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bucket_config c = config_of(ROW_INIT_ZEROS);
        struct bucket *b;
        c.dim = cases[i].dim;
        c.dtype = cases[i].dtype;
        optim_rows_defaults(cases[i].kind, &c.optimizer);
        assert_int_equal(bucket_create(&c, &b), ST_OK);
        assert_int_equal(bucket_begin(b, 1, N), ST_OK);
        for (uint64_t key = 0; key < N; key++)
            bucket_change(b, key, NULL);
        bucket_end(b);
        double most = bucket_most_bytes((size_t)c.dim, c.dtype, cases[i].kind, N);
        assert_true((double)bucket_bytes(b) <= most + SLAB);
        bucket_destroy(b);
    }
}

int main(void)
{
    return RUN_TESTS(test_rows_match_a_dictionary, test_keys_with_equal_entries_are_distinguished,
                     test_memory_of_rows_is_bounded, test_reads_create_nothing,
                     test_initial_values_depend_on_seed_table_key_and_element,
                     test_initial_values_have_their_distribution, test_text_keys_differ,
                     test_keys_of_a_message_are_checked, test_bound_of_bytes_holds);
}
