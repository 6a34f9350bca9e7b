/* tests/ps_bucket_undo_test.c - compares older versions of a bucket with a list of dictionaries,
 * one for each version, on a random schedule of changes, holds and releases. */
#include "base/rng.h"
#include "ps/rows/bucket.h"
#include "tests/check.h"
#include <stdlib.h>

enum { DIM = 3, N_KEYS = 300, N_VERSIONS = 250 };

/* marks[v][i]: first value of key i in version v; 0: the row is absent */
static float marks[N_VERSIONS + 1][N_KEYS];
static uint64_t keys[N_KEYS]; /* ascending */
static uint64_t drawn;

static uint64_t below(uint64_t n)
{
    return rng_below(rng_key(2, RNG_TEST, 0), drawn++, n);
}

static struct bucket *create(bool keeps_previous)
{
    struct bucket_config c = {.dim = DIM,
                              .init = {ROW_INIT_UNIFORM, 0.5f, 9},
                              .n_buckets = 1,
                              .max_rows = 1000000,
                              .keeps_previous = keeps_previous};
    struct bucket *b = NULL;
    optim_rows_defaults(OPTIM_ROWS_ADAM, &c.optimizer);
    assert_int_equal(bucket_create(&c, &b), ST_OK);
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = i == 0 ? 0 : rng_mix(i);
    keys[1] = UINT64_MAX;
    qsort(keys, N_KEYS, sizeof *keys, row_table_compare_keys);
    return b;
}

static void check_row(const struct bucket *b, size_t i, const struct row *row, const float *values,
                      float mark)
{
    float initial[DIM];
    if (!row != (mark == 0))
        fail_msg("key %zu: %s, mark %g", i, row ? "row" : "no row", (double)mark);
    if (row) { /* the slots belong to the row */
        assert_true(row->key == keys[i]);
        assert_true(row->data[0] == mark && row->data[3 * DIM - 1] == -mark);
        assert_true(values[0] == mark);
    } else {
        bucket_initial(&b->config, keys[i], initial);
        assert_memory_equal(values, initial, sizeof initial);
    }
}

/* Compares a version with its dictionary: all keys at once, and a part of them. */
static void compare(const struct bucket *b, uint64_t version)
{
    static struct row *rows[N_KEYS];
    static float values[N_KEYS][DIM];
    uint64_t *listed;
    size_t n_listed, n = 0, first = below(N_KEYS), count = below(N_KEYS - first);
    assert_int_equal(bucket_find(b, version, keys, N_KEYS, rows), ST_OK);
    assert_int_equal(bucket_read(b, version, keys, N_KEYS, values[0]), ST_OK);
    assert_int_equal(bucket_list_keys(b, version, &listed, &n_listed), ST_OK);
    for (size_t i = 0; i < N_KEYS; i++) {
        float mark = marks[version][i];
        check_row(b, i, rows[i], values[i], mark);
        if (mark != 0)
            assert_true(n < n_listed && listed[n++] == keys[i]);
    }
    assert_int_equal(n, n_listed);
    assert_int_equal(bucket_find(b, version, keys + first, count, rows), ST_OK);
    for (size_t i = 0; i < count; i++)
        assert_true(!rows[i] == (marks[version][first + i] == 0));
    free(listed);
}

/* Makes a version: about n changes or removals, in ascending order or, if `mixed`, removals first.
 */
static void make_version(struct bucket *b, uint64_t n, bool mixed)
{
    static struct row *rows[N_KEYS];
    char action[N_KEYS];
    size_t n_changes = 0, n_new = 0;
    uint64_t next = b->version + 1;
    memcpy(marks[next], marks[b->version], sizeof marks[next]);
    assert_int_equal(bucket_find(b, b->version, keys, N_KEYS, rows), ST_OK);
    for (size_t i = 0; i < N_KEYS; i++) {
        uint64_t any = below(N_KEYS * 4);
        action[i] = any >= 4 * n ? '-' : any >= n || !rows[i] ? 'c' : 'r';
        n_changes += action[i] != '-';
        n_new += action[i] == 'c' && !rows[i];
    }
    assert_int_equal(bucket_begin(b, n_changes, n_new), ST_OK);
    for (int pass = mixed ? 0 : 1; pass < 2; pass++)
        for (size_t i = 0; i < N_KEYS; i++)
            if (action[i] == 'r' && (!mixed || pass == 0)) {
                bucket_remove(b, rows[i]);
                marks[next][i] = 0;
            } else if (action[i] == 'c' && pass == 1) {
                struct row *row = bucket_change(b, keys[i], rows[i]);
                assert_true(row->step == next);
                marks[next][i] = row->data[0] = (float)next + (float)i / 1024;
                row->data[3 * DIM - 1] = -row->data[0];
            }
    bucket_end(b);
    assert_int_equal(b->version, next);
}

static void run_schedule(bool keeps_previous)
{
    struct bucket *b = create(keeps_previous);
    int held[N_VERSIONS + 1] = {0}, n_held = 0;
    memset(marks, 0, sizeof marks);
    for (int v = 1; v <= N_VERSIONS; v++) {
        make_version(b, below(4) == 0 ? below(N_KEYS) : below(20), below(2) == 0);
        uint64_t version = b->version - (keeps_previous ? below(2) : 0);
        if (below(5) == 0 && n_held < BUCKET_MAX_HOLDS) {
            assert_int_equal(bucket_hold(b, version), ST_OK);
            held[version]++;
            n_held++;
        }
        for (uint64_t h = 0; h <= b->version; h++)
            if (held[h] && below(15) == 0) {
                bucket_release(b, h);
                held[h]--;
                n_held--;
            }
        for (uint64_t h = 0; h <= b->version; h++) {
            bool is_kept = held[h] || h == b->version || (keeps_previous && h + 1 == b->version);
            assert_int_equal(bucket_is_readable(b, h), is_kept);
            if (is_kept)
                compare(b, h);
        }
    }
    bucket_destroy(b);
}

static void test_older_versions_match_their_dictionaries(void **state)
{
    for (int k = 0; k < 6; k++)
        run_schedule(k % 2 == 0);
}

static void test_versions_that_are_not_needed_are_refused(void **state)
{
    struct bucket *b = create(true);
    struct row *row;
    float values[DIM];
    uint64_t *listed;
    size_t n;
    assert_false(bucket_is_readable(b, 1));
    for (int v = 0; v < 3; v++)
        make_version(b, 10, false);
    assert_int_equal(bucket_find(b, 1, keys, 1, &row), ST_NOT_FOUND);
    assert_int_equal(bucket_read(b, 4, keys, 1, values), ST_NOT_FOUND);
    assert_int_equal(bucket_list_keys(b, 0, &listed, &n), ST_NOT_FOUND);
    assert_int_equal(bucket_hold(b, 1), ST_NOT_FOUND);
    for (int k = 0; k < BUCKET_MAX_HOLDS; k++)
        assert_int_equal(bucket_hold(b, 3), ST_OK);
    assert_int_equal(bucket_hold(b, 3), ST_BUSY);
    bucket_destroy(b);
}

/* A hold during which the same rows change in each version needs memory for each row about once. */
static void test_memory_of_a_hold_is_bounded(void **state)
{
    for (int keeps = 0; keeps < 2; keeps++) {
        struct bucket *b = create(keeps);
        memset(marks, 0, sizeof marks);
        for (int v = 0; v < 10; v++)
            make_version(b, N_KEYS, false);
        assert_int_equal(bucket_hold(b, b->version), ST_OK);
        size_t whole = N_KEYS * b->rows.row_bytes, most = 0;
        for (int v = 10; v < N_VERSIONS; v++) {
            make_version(b, N_KEYS / 8, false);
            size_t bytes = undo_bytes(&b->undo);
            most = bytes > most ? bytes : most;
        }
        compare(b, 10);
        if (most < whole / 2 || most > 3 * whole)
            fail_msg("%zu bytes, %zu bytes of rows", most, whole);
        bucket_release(b, 10);
        assert_true(undo_bytes(&b->undo) < whole);
        bucket_destroy(b);
    }
}

/* Rows that change in each version are recorded once for the hold, and once for the previous
 * version. */
static void test_hold_records_hot_rows_once(void **state)
{
    enum { HOT = 40 };
    for (size_t keeps = 0; keeps < 2; keeps++) {
        struct bucket *b = create(keeps);
        struct row *rows[HOT];
        for (int v = 0; v < 50; v++) {
            row_table_find(&b->rows, keys, HOT, rows);
            assert_int_equal(bucket_begin(b, HOT, v == 0 ? HOT : 0), ST_OK);
            for (size_t i = 0; i < HOT; i++)
                bucket_change(b, keys[i], rows[i]);
            bucket_end(b);
            if (v == 0)
                assert_int_equal(bucket_hold(b, 1), ST_OK);
            else if (v > 1)
                assert_int_equal(undo_keys(&b->undo, 1, NULL), HOT * (1 + keeps));
        }
        bucket_destroy(b);
    }
}

static void test_nothing_is_recorded_without_need(void **state)
{
    struct bucket *b = create(false);
    memset(marks, 0, sizeof marks);
    for (int v = 0; v < 5; v++)
        make_version(b, N_KEYS, false);
    assert_int_equal(undo_bytes(&b->undo), 0);
    bucket_destroy(b);
}

int main(void)
{
    return RUN_TESTS(test_older_versions_match_their_dictionaries,
                     test_versions_that_are_not_needed_are_refused,
                     test_memory_of_a_hold_is_bounded, test_hold_records_hot_rows_once,
                     test_nothing_is_recorded_without_need);
}
