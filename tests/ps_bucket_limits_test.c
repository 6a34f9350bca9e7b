/* tests/ps_bucket_limits_test.c - compares admission, eviction and the bound of a bucket with a
 * plain dictionary for each version, on a random schedule of steps, holds and releases. The
 * dictionary follows the rules of docs/design/decisions/sparse-tables.md and has no sweeps. */
#include "base/rng.h"
#include "ps/rows/limits.h"
#include "ps/rows/merge.h"
#include "tests/check.h"
#include <stdlib.h>

enum { N_KEYS = 160, N_VERSIONS = 300 };

struct entry { /* state of a key; absent: all are 0 */
    uint64_t step;
    uint64_t count; /* pending: number of steps that contributed */
    bool has_row;
    float value; /* value of the row */
};
typedef struct entry version_entries[N_KEYS];

static version_entries versions[N_VERSIONS + 1];
static uint64_t keys[N_KEYS]; /* ascending */
static uint64_t drawn;

static uint64_t below(uint64_t n)
{
    return rng_below(rng_key(3, RNG_TEST, 0), drawn++, n);
}

static struct bucket *create(const struct bucket_config *limits)
{
    struct bucket_config c = *limits;
    struct bucket *b = NULL;
    c.dim = 1;
    c.init.kind = ROW_INIT_ZEROS;
    c.n_buckets = 1;
    optim_rows_defaults(OPTIM_ROWS_SGD, &c.optimizer);
    c.optimizer.common.learning_rate = 1;
    assert_int_equal(bucket_create(&c, &b), ST_OK);
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = rng_mix(i);
    qsort(keys, N_KEYS, sizeof *keys, row_table_compare_keys);
    memset(versions, 0, sizeof versions);
    return b;
}

static bool is_present(const struct bucket_config *c, const struct entry *e, uint64_t version)
{
    return e->step > 0 && (c->evict_after == 0 || e->step + c->evict_after >= version);
}

static uint64_t n_present(const struct bucket_config *c, const struct entry *all, uint64_t version)
{
    uint64_t n = 0;
    for (size_t i = 0; i < N_KEYS; i++)
        n += is_present(c, &all[i], version);
    return n;
}

/* Removes the oldest entry whose key has no gradient. Returns false if all keys have one. */
static bool evict_one(const struct bucket_config *c, struct entry *all, const bool *has_gradient,
                      uint64_t version)
{
    struct entry *oldest = NULL;
    for (size_t i = 0; i < N_KEYS; i++)
        if (is_present(c, &all[i], version) && !has_gradient[i] &&
            (!oldest || all[i].step < oldest->step))
            oldest = &all[i];
    if (oldest)
        *oldest = (struct entry){0};
    return oldest;
}

/* Makes the dictionary of `version`. Returns false if the bound refuses the step; *n becomes the
 * number of entries without eviction. */
static bool expect(const struct bucket_config *c, uint64_t version, const bool *has_gradient,
                   const float *gradients, uint64_t *n)
{
    struct entry *all = versions[version];
    memcpy(all, versions[version - 1], sizeof versions[version]);
    for (size_t i = 0; i < N_KEYS; i++) {
        struct entry *e = &all[i];
        if (!has_gradient[i])
            continue;
        if (!is_present(c, e, version - 1))
            *e = (struct entry){0};
        e->has_row |= ++e->count >= c->admit_after;
        if (e->has_row)
            e->value -= gradients[i];
        e->step = version;
    }
    *n = n_present(c, all, version);
    if (*n <= c->max_rows)
        return true;
    if (c->when_full == ROW_FULL_STOP)
        return false;
    while (n_present(c, all, version) > c->max_rows * 15 / 16)
        if (!evict_one(c, all, has_gradient, version))
            return false;
    return true;
}

static void compare(const struct bucket *b, uint64_t version)
{
    static struct row *rows[N_KEYS];
    static uint64_t counts[N_KEYS];
    float values[N_KEYS];
    assert_int_equal(bucket_find(b, version, keys, N_KEYS, rows), ST_OK);
    assert_int_equal(bucket_find_pending(b, version, keys, N_KEYS, counts), ST_OK);
    assert_int_equal(bucket_read(b, version, keys, N_KEYS, values), ST_OK);
    for (size_t i = 0; i < N_KEYS; i++) {
        const struct entry *e = &versions[version][i];
        bool is_here = is_present(&b->config, e, version), has_row = is_here && e->has_row;
        if (has_row != (rows[i] != NULL) || counts[i] != (is_here && !has_row ? e->count : 0))
            fail_msg("version %d of %d, key %zu: %s, %d steps pending; expected %s, %d",
                     (int)version, (int)b->version, i, rows[i] ? "row" : "no row", (int)counts[i],
                     has_row ? "row" : "no row", (int)e->count);
        assert_true(!rows[i] || rows[i]->step == e->step);
        assert_true(values[i] == (has_row ? e->value : 0));
    }
}

/* Makes a step with about n keys. Returns false if it was refused. */
static bool make_version(struct bucket *b, struct merge *m, uint64_t n, uint64_t span)
{
    bool has_gradient[N_KEYS] = {false};
    float gradients[N_KEYS], sent[N_KEYS];
    uint64_t sent_keys[N_KEYS], needed;
    struct merge_input in = {.weight = 1, .keys = sent_keys, .gradients = sent};
    for (uint64_t k = 0; k < n; k++)
        has_gradient[(below(span) + b->version) % N_KEYS] = true;
    for (size_t i = 0; i < N_KEYS; i++)
        if (has_gradient[i]) {
            gradients[i] = sent[in.n] = (float)(1 + below(8));
            sent_keys[in.n++] = keys[i];
        }
    bool is_made = expect(&b->config, b->version + 1, has_gradient, gradients, &needed);
    uint64_t version = b->version;
    enum status st = merge_run(m, b, 0, &in, 1, 1);
    assert_int_equal(st, is_made ? ST_OK : ST_RANGE);
    assert_int_equal(b->version, version + is_made);
    if (!is_made)
        assert_int_equal(merge_needed_rows(m), needed);
    return is_made;
}

/* Runs a schedule. Returns the number of refused steps. */
static int run_schedule(const struct bucket_config *limits)
{
    struct bucket *b = create(limits);
    struct merge *m = NULL;
    int held[N_VERSIONS + 1] = {0}, n_held = 0, n_refused = 0;
    assert_int_equal(merge_create(1, 1, &m), ST_OK);
    for (int v = 0; v < N_VERSIONS; v++) {
        n_refused += !make_version(b, m, below(20) == 0 ? below(120) : below(12), 20 + below(60));
        if (below(6) == 0 && n_held < BUCKET_MAX_HOLDS) {
            assert_int_equal(bucket_hold(b, b->version), ST_OK);
            held[b->version]++;
            n_held++;
        }
        for (uint64_t h = 0; h <= b->version; h++)
            if (held[h] && below(20) == 0) {
                bucket_release(b, h);
                held[h]--;
                n_held--;
            }
        for (uint64_t h = 0; h <= b->version; h++)
            if (bucket_is_readable(b, h))
                compare(b, h);
    }
    merge_destroy(m);
    bucket_destroy(b);
    return n_refused;
}

static void test_limits_match_the_dictionary(void **state)
{
    static const uint64_t most[] = {40, 64, N_KEYS};
    int n_refused[2] = {0};
    for (int k = 0; k < 48; k++) {
        struct bucket_config c = {.admit_after = k & 1 ? 3 : 0,
                                  .evict_after = k & 2 ? 9 : 0,
                                  .when_full = k & 4 ? ROW_FULL_EVICT : ROW_FULL_STOP,
                                  .keeps_previous = k & 8,
                                  .max_rows = most[k / 16]};
        int n = run_schedule(&c);
        n_refused[c.when_full == ROW_FULL_EVICT] += n;
        if (c.max_rows == N_KEYS)
            assert_int_equal(n, 0);
    }
    assert_true(n_refused[0] > n_refused[1]);
    assert_true(n_refused[1] > 0);
}

/* Entries that are absent in all readable versions are freed, although no step needs their place.
 */
static void test_sweeps_free_absent_rows(void **state)
{
    struct bucket_config c = {.evict_after = 5, .max_rows = 1000000, .keeps_previous = true};
    struct bucket *b = create(&c);
    struct merge *m = NULL;
    assert_int_equal(merge_create(1, 1, &m), ST_OK);
    for (int v = 0; v < 20; v++)
        assert_true(make_version(b, m, 60, N_KEYS));
    assert_int_equal(bucket_hold(b, b->version), ST_OK);
    uint32_t n = b->rows.n;
    uint64_t before = b->n_removed;
    for (int v = 0; v < 40; v++)
        assert_true(make_version(b, m, 0, N_KEYS));
    compare(b, 20);
    assert_true(b->rows.n > 0 && b->rows.n <= n); /* the hold needs some */
    bucket_release(b, 20);
    for (int v = 0; v < 40; v++)
        assert_true(make_version(b, m, 0, N_KEYS));
    assert_int_equal(b->rows.n, 0);
    assert_int_equal(b->n_removed - before, n);
    merge_destroy(m);
    bucket_destroy(b);
}

static void test_refusal_names_numbers_and_settings(void **state)
{
    struct bucket_config c = {.max_rows = 10, .number = 0};
    struct bucket *b = create(&c);
    char text[LIMITS_TEXT_BYTES];
    limits_text(b, 11, "ads", 250000, text);
    assert_string_equal(text, "table 'ads', bucket 0: 11 rows, at most 10 (max_rows=250000); set "
                              "evict_after or when_full=evict, or raise max_rows");
    b->config.when_full = ROW_FULL_EVICT;
    limits_text(b, 11, "ads", 250000, text);
    assert_string_equal(text, "table 'ads', bucket 0: 11 rows, at most 10 (max_rows=250000); too "
                              "many rows have a gradient in this step, raise max_rows");
    bucket_destroy(b);
}

int main(void)
{
    return RUN_TESTS(test_limits_match_the_dictionary, test_sweeps_free_absent_rows,
                     test_refusal_names_numbers_and_settings);
}
