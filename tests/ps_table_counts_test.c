/* tests/ps_table_counts_test.c - figures on the tables of a store: they are those of its buckets,
 * and the hottest bucket is the one with the most keys in its requests. */
#include "ps/store/table_counts.h"
#include "tests/bucket_rig.h"
#include "tests/check.h"

enum { STEPS = 12, N_TABLES = 2 };

static struct rig r;

/* Pushes of all members to all buckets of one step. Returns the keys of the requests to `chunk`. */
static uint64_t push_step(int64_t step, int chunk)
{
    static struct rig_push push[RIG_MEMBERS], reads;
    static const float weights[RIG_MEMBERS] = {0.25f, 0.375f, 0.5f};
    const struct rig_push *const all[RIG_MEMBERS] = {&push[0], &push[1], &push[2]};
    uint64_t n = 0;
    for (int c = RIG_DENSE; c < RIG_DENSE + RIG_BUCKETS; c++) {
        for (int m = 0; m < RIG_MEMBERS; m++)
            bucket_rig_fill(&r, c, m, step, c == 2 ? 60 : 8, &push[m]); /* chunk 2 is hot */
        bucket_rig_fill_reads(&r, c, 5, 7, &reads);
        bucket_rig_expect(&r, c, all, weights, RIG_MEMBERS);
        for (int m = 0; m < RIG_MEMBERS; m++) {
            assert_int_equal(bucket_rig_push(&r, c, m, step, &push[m], &reads), PIECE_NONE);
            if (c == chunk)
                n += push[m].n + reads.n;
        }
    }
    return n;
}

/* Checks the figures that buckets have by themselves. */
static void check_buckets(const struct net_status_table *t, int first, int n)
{
    uint64_t rows = 0, pending = 0, removed = 0;
    for (int c = first; c < first + n; c++) {
        rows += r.expected[c]->rows.n;
        pending += r.expected[c]->pending.n;
        removed += r.expected[c]->n_removed;
    }
    assert_int_equal(t->n_buckets, n);
    assert_int_equal(t->rows, rows);
    assert_int_equal(t->pending, pending);
    assert_int_equal(t->removed, removed);
    assert_true(t->bytes > rows * sizeof(float));
}

static void figures_are_those_of_the_buckets(void **state)
{
    struct net_status_table t[N_TABLES];
    const struct rig_config config = {.kind = OPTIM_ROWS_ADAGRAD,
                                      .max_rows = 4,
                                      .when_full = ROW_FULL_EVICT,
                                      .admit_after = 2,
                                      .evict_after = 3};
    uint64_t cold = 0, hot = 0, words = 0;
    bucket_rig_open(&r, &config);
    store_count_tables(r.store, t);
    assert_int_equal(t[0].n_buckets, 2);
    assert_int_equal(t[0].rows + t[0].pending + t[0].keys, 0);
    assert_float_equal(net_status_table_imbalance(&t[0]), 1, 0);
    for (int64_t step = 0; step < STEPS; step++) {
        static struct rig_push again;
        hot += push_step(step, 2);
        for (int m = 0; m < RIG_MEMBERS; m++) {
            bucket_rig_fill(&r, 1, m, step, 8, &again);
            cold += again.n + 7;
            bucket_rig_fill(&r, RIG_WORDS, m, step, 8, &again);
            words += again.n + 7;
        }
    }
    store_count_tables(r.store, t);
    check_buckets(&t[0], RIG_DENSE, 2);
    check_buckets(&t[1], RIG_WORDS, 1);
    assert_true(t[1].pending > 0 && t[1].removed > 0 && t[0].rows > 0);
    assert_int_equal(t[0].hottest, 1); /* chunk 2 */
    assert_int_equal(t[0].hottest_keys, hot);
    assert_int_equal(t[0].keys, hot + cold);
    assert_float_equal(net_status_table_imbalance(&t[0]), 2.0 * (double)hot / (double)(hot + cold),
                       1e-9);
    assert_int_equal(t[1].keys, words);
    assert_float_equal(net_status_table_imbalance(&t[1]), 1, 0);
    bucket_rig_close(&r);
}

int main(void)
{
    return RUN_TESTS(figures_are_those_of_the_buckets);
}
