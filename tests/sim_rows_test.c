/* tests/sim_rows_test.c - the simulator's reference for the rows of a bucket (sim/row_model.h):
 * simple cases with known results, and random steps compared with production's bucket. */
#include "base/rng.h"
#include "ps/rows/merge.h"
#include "tests/check.h"
#include "tests/sim/row_model.h"
#include <stdlib.h>

enum { K = ROW_MODEL_KEYS, N_STEPS = 60 };

static uint64_t keys[K]; /* ascending */
static uint64_t drawn;

static uint64_t below(uint64_t n)
{
    return rng_below(rng_key(5, RNG_TEST, 0), drawn++, n);
}

static struct bucket_config config(enum optim_rows_kind kind)
{
    struct bucket_config c = {
        .dim = ROW_MODEL_DIM, .n_buckets = 1, .max_rows = K, .keeps_previous = true};
    optim_rows_defaults(kind, &c.optimizer);
    c.optimizer.common.learning_rate = 0.5f;
    for (size_t i = 0; i < K; i++)
        keys[i] = rng_mix(i + 1);
    qsort(keys, K, sizeof *keys, row_table_compare_keys);
    return c;
}

/* Makes a step in which the keys from `first` on have the gradient (2, 4). */
static bool step(const struct bucket_config *c, struct row_model *m, int first, int n)
{
    struct row_sums s = {.scale = 0.5f, .rate = 1};
    for (int i = first; i < first + n; i++) {
        s.has[i] = true;
        s.sum[i][0] = 4;
        s.sum[i][1] = 8;
    }
    return row_model_step(c, keys, m, &s);
}

static bool is_row(const struct row_model *m, int i)
{
    return m->entry[i].step > 0 && m->entry[i].count == 0;
}

static void test_makes_and_updates_rows(void **state)
{
    struct bucket_config c = config(OPTIM_ROWS_SGD);
    struct row_model m = {0};
    float values[ROW_MODEL_DIM];
    c.init.kind = ROW_INIT_UNIFORM;
    c.init.scale = 1;
    row_model_values(&c, keys, &m, 3, values);
    assert_true(values[0] != 0 && values[0] != values[1]);
    float first = values[0];
    assert_true(step(&c, &m, 3, 1));
    assert_true(is_row(&m, 3) && !is_row(&m, 2) && !is_row(&m, 4));
    row_model_values(&c, keys, &m, 3, values);
    assert_true(values[0] == first - 1);
    assert_int_equal(m.entry[3].step, 1);
    c.init.kind = ROW_INIT_ZEROS;
    assert_true(step(&c, &m, 4, 2)); /* the row of key 3 stays */
    row_model_values(&c, keys, &m, 4, values);
    assert_true(values[0] == -1 && values[1] == -2);
    assert_int_equal(m.entry[3].step, 1);
    assert_int_equal(m.version, 2);
}

static void test_admits_and_expires(void **state)
{
    struct bucket_config c = config(OPTIM_ROWS_MOMENTUM);
    struct row_model m = {0};
    float values[ROW_MODEL_DIM];
    c.admit_after = 2;
    c.evict_after = 2;
    assert_true(step(&c, &m, 0, 1)); /* version 1 */
    assert_true(!is_row(&m, 0) && m.entry[0].count == 1);
    assert_true(step(&c, &m, 0, 1)); /* version 2 */
    row_model_values(&c, keys, &m, 0, values);
    assert_true(is_row(&m, 0) && values[0] == -1); /* only the second gradient counts */
    assert_true(step(&c, &m, 1, 1) && step(&c, &m, 2, 1));
    assert_true(is_row(&m, 0)); /* version 4 = 2 + evict_after */
    assert_true(step(&c, &m, 1, 1));
    assert_true(m.entry[0].step == 0); /* version 5 */
    assert_true(is_row(&m, 1));        /* steps 3 and 5 */
    assert_true(step(&c, &m, 3, 1) && step(&c, &m, 3, 1));
    assert_true(step(&c, &m, 2, 1)); /* version 8: the count of key 2, of version 4, has expired */
    assert_true(!is_row(&m, 2) && m.entry[2].count == 1);
}

static void test_keeps_the_bound(void **state)
{
    struct bucket_config c = config(OPTIM_ROWS_SGD);
    struct row_model m = {0};
    c.max_rows = 10;
    assert_true(step(&c, &m, 2, 4) && step(&c, &m, 6, 6));
    struct row_model before = m;
    assert_false(step(&c, &m, 0, 1));
    assert_memory_equal(&m, &before, sizeof m);
    c.when_full = ROW_FULL_EVICT;
    assert_true(step(&c, &m, 0, 1)); /* 11 rows, and 9 fit: the oldest two lowest keys go */
    assert_true(is_row(&m, 0) && !is_row(&m, 2) && !is_row(&m, 3) && is_row(&m, 4));
    assert_false(step(&c, &m, 12, 10)); /* more keys than 15/16 of the bound */
    c.evict_after = 1;
    assert_true(step(&c, &m, 1, 1) && step(&c, &m, 1, 1));
    c.when_full = ROW_FULL_STOP;
    assert_true(step(&c, &m, 12, 9)); /* absent rows make room */
}

/* Contributions of up to three members to the bucket. */
struct contribution {
    size_t n;
    uint64_t key[K];
    float gradient[K][ROW_MODEL_DIM], weight;
};

static void draw(struct contribution *c, struct row_sums *s)
{
    uint64_t first = below(K), width = 1 + below(5);
    *c = (struct contribution){.weight = (float)(1 << below(3))};
    for (int i = 0; i < K; i++) {
        if ((i + K - (int)first) % K >= (int)width || below(4) == 0)
            continue;
        for (int e = 0; e < ROW_MODEL_DIM; e++) {
            c->gradient[c->n][e] = (float)below(33) - 16;
            s->sum[i][e] += c->gradient[c->n][e] * c->weight;
        }
        s->has[i] = true;
        c->key[c->n++] = keys[i];
    }
}

static void compare(const struct bucket *b, const struct row_model *m)
{
    size_t dim = (size_t)b->config.dim;
    for (int i = 0; i < K; i++) {
        struct row *row;
        uint64_t count;
        assert_int_equal(bucket_find(b, m->version, &keys[i], 1, &row), ST_OK);
        assert_int_equal(bucket_find_pending(b, m->version, &keys[i], 1, &count), ST_OK);
        assert_int_equal(row != NULL, is_row(m, i));
        assert_int_equal(count, m->entry[i].step > 0 ? m->entry[i].count : 0);
        if (row) {
            assert_int_equal(row->step, m->entry[i].step);
            float values[ROW_MODEL_DIM];
            const float *want = m->entry[i].data;
            assert_memory_equal(bucket_values(b, row, values), want, dim * sizeof *want);
            assert_memory_equal(bucket_slots(b, row), want + dim, b->n_slots * sizeof *want);
        }
    }
}

static void run_random(const struct bucket_config *c)
{
    struct bucket *b;
    struct merge *merge;
    struct row_model m = {0}, before;
    assert_int_equal(bucket_create(c, &b), ST_OK);
    assert_int_equal(merge_create(3, c->dim, &merge), ST_OK);
    for (int i = 0; i < N_STEPS; i++) {
        struct row_sums s = {.rate = c->optimizer.kind == OPTIM_ROWS_FTRL || i % 2 ? 1 : 0.5f};
        struct contribution all[3];
        struct merge_input in[3];
        float weight = 0;
        for (int r = 0; r < 3; r++) {
            draw(&all[r], &s);
            in[r] = (struct merge_input){all[r].n, all[r].weight, all[r].key, all[r].gradient};
            weight += all[r].weight;
        }
        s.scale = 1 / weight;
        before = m;
        assert_true(row_model_step(c, keys, &m, &s));
        assert_int_equal(merge_keep(merge, 0, &in[0]), ST_OK);
        assert_int_equal(merge_keep(merge, 1, &in[1]), ST_OK);
        assert_int_equal(merge_run(merge, b, 2, &in[2], s.scale, s.rate), ST_OK);
        compare(b, &m);
        compare(b, &before);
    }
    merge_destroy(merge);
    bucket_destroy(b);
}

static void test_equals_production(void **state)
{
    for (int kind = 0; kind < OPTIM_ROWS_N_KINDS; kind++)
        for (uint64_t admit = 1; admit <= 3; admit++)
            for (uint64_t evict = 0; evict <= 4; evict++) {
                struct bucket_config c = config((enum optim_rows_kind)kind);
                c.init.kind = (enum row_init)(kind % ROW_INIT_N_KINDS);
                c.init.scale = 0.25f;
                c.dtype = (admit + evict) % 2 ? DTYPE_BF16 : DTYPE_F32;
                c.admit_after = admit;
                c.evict_after = evict;
                c.max_rows = 16 + below(9);
                c.when_full = ROW_FULL_EVICT;
                run_random(&c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_makes_and_updates_rows),
        cmocka_unit_test(test_admits_and_expires),
        cmocka_unit_test(test_keeps_the_bound),
        cmocka_unit_test(test_equals_production),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
