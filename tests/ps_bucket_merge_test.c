/* tests/ps_bucket_merge_test.c - compares merged contributions with a dictionary that adds them in
 * rank order, key by key, for rows of floats and of bf16. All orders of arrival must lead to the
 * same bits (invariant I2), and rows without a gradient must keep theirs. */
#include "base/rng.h"
#include "kernels/vector/float_bits.h"
#include "ps/rows/merge.h"
#include "tests/check.h"
#include <math.h>
#include <stdlib.h>

enum { DIM = 5, N_KEYS = 400, MEMBERS = 4, MANY = 33, STEPS = 6 };

struct expected { /* a row of the dictionary */
    bool exists;
    uint64_t step;
    float data[3 * DIM];
};

struct contribution {
    size_t n;
    float weight;
    char keys[N_KEYS * sizeof(uint64_t) + 1]; /* begin at byte 1, like gradients */
    char gradients[N_KEYS * DIM * sizeof(float) + 1];
    float of_key[N_KEYS][DIM];
    bool has_key[N_KEYS];
};

static uint64_t keys[N_KEYS]; /* ascending */

static struct bucket *create(enum optim_rows_kind kind, float clip_value, enum dtype dtype)
{
    struct bucket_config c = {.dim = DIM,
                              .dtype = dtype,
                              .init = {ROW_INIT_UNIFORM, 0.5f, 9},
                              .n_buckets = 1,
                              .max_rows = 1000000,
                              .keeps_previous = true};
    struct bucket *b = NULL;
    optim_rows_defaults(kind, &c.optimizer);
    c.optimizer.common.clip_value = clip_value;
    assert_int_equal(bucket_create(&c, &b), ST_OK);
    for (size_t i = 0; i < N_KEYS; i++)
        keys[i] = rng_mix(i);
    qsort(keys, N_KEYS, sizeof *keys, row_table_compare_keys);
    return b;
}

/* Returns a number whose size varies, so that the order of a sum changes its bits. */
static float number(uint64_t stream, uint64_t i)
{
    float u = rng_uniform(rng_key(stream, RNG_TEST, 0), 2 * i) * 2 - 1;
    return u * (float)(1u << rng_below(rng_key(stream, RNG_TEST, 0), 2 * i + 1, 12));
}

/* Fills the contribution of a member in a step, with about `part` of 100 keys. */
static void fill(struct contribution *c, uint64_t step, uint64_t rank, uint64_t part)
{
    uint64_t stream = rng_key(step * 1000 + rank, RNG_TEST, 1);
    c->n = 0;
    c->weight = 0.25f + (float)rank / 8;
    for (size_t i = 0; i < N_KEYS; i++) {
        c->has_key[i] = rng_below(stream, i, 100) < part;
        if (!c->has_key[i])
            continue;
        for (size_t k = 0; k < DIM; k++)
            c->of_key[i][k] = number(stream, i * DIM + k);
        memcpy(c->keys + 1 + c->n * sizeof *keys, &keys[i], sizeof *keys);
        memcpy(c->gradients + 1 + c->n * sizeof c->of_key[i], c->of_key[i], sizeof c->of_key[i]);
        c->n++;
    }
}

static struct merge_input input_of(const struct contribution *c)
{
    return (struct merge_input){c->n, c->weight, c->keys + 1, c->gradients + 1};
}

/* Rounds new values as row_round.h states. */
static void round_values(const struct bucket_config *c, uint64_t key, uint64_t version,
                         float *values)
{
    uint64_t stream = rng_u64(rng_mix(c->init.key ^ rng_mix(key)), ~version);
    for (size_t k = 0; k < DIM; k++) {
        uint32_t bits = bits_of(values[k]);
        uint64_t random = rng_u64(stream, k / 4) >> 16 * (k % 4);
        values[k] = float_of((bits + (random & 0xffff)) & 0xffff0000u);
    }
}

/* Updates the dictionary by the contributions in the order of `ranks`. */
static void expect(const struct bucket *b, const struct contribution *all, const int *ranks, int n,
                   float scale, struct expected *rows)
{
    struct optim_rows_step step;
    uint64_t version = b->version + 1;
    optim_rows_begin(&b->config.optimizer, version, 1, &step);
    for (size_t i = 0; i < N_KEYS; i++) {
        struct expected *row = &rows[i];
        float sum[DIM];
        bool has_sum = false;
        for (int r = 0; r < n; r++) {
            const struct contribution *c = &all[ranks[r]];
            if (!c->has_key[i] || !(c->weight > 0))
                continue;
            for (size_t k = 0; k < DIM; k++) {
                float product = c->weight * c->of_key[i][k];
                sum[k] = has_sum ? sum[k] + product : product;
            }
            has_sum = true;
        }
        if (!has_sum)
            continue;
        if (!row->exists)
            bucket_initial(&b->config, keys[i], row->data);
        row->exists = true;
        row->step = version;
        optim_rows_run(&step, &(struct optim_run){.n = DIM,
                                                  .sum = sum,
                                                  .weight = 1,
                                                  .scale = scale,
                                                  .old = row->data,
                                                  .slots = row->data + DIM,
                                                  .new_slots = row->data + DIM,
                                                  .slot_stride = DIM,
                                                  .new_ = row->data});
        if (b->config.dtype == DTYPE_BF16)
            round_values(&b->config, keys[i], version, row->data);
    }
}

/* Returns true if all rows have the bits of the dictionary. */
static bool is_equal(const struct bucket *b, const struct expected *expected)
{
    static struct row *rows[N_KEYS];
    bool equal = true;
    row_table_find(&b->rows, keys, N_KEYS, rows);
    for (size_t i = 0; i < N_KEYS; i++) {
        const float *data = expected[i].data;
        float room[DIM];
        assert_int_equal(rows[i] != NULL, expected[i].exists);
        if (rows[i])
            equal &= rows[i]->step == expected[i].step &&
                     memcmp(bucket_values(b, rows[i], room), data, sizeof room) == 0 &&
                     memcmp(bucket_slots(b, rows[i]), data + DIM, b->n_slots * sizeof *data) == 0;
    }
    return equal;
}

/* Sends the contributions in the order of `order`; the last one is read in place. */
static void arrive(struct merge *m, struct bucket *b, const struct contribution *all,
                   const int *order, int n, float scale)
{
    for (int k = 0; k + 1 < n; k++) {
        struct merge_input in = input_of(&all[order[k]]);
        assert_int_equal(merge_keep(m, order[k], &in), ST_OK);
    }
    struct merge_input last = input_of(&all[order[n - 1]]);
    assert_int_equal(merge_run(m, b, order[n - 1], &last, scale, 1), ST_OK);
}

/* Sets order to permutation number `p` of n numbers. */
static void permute(int *order, int n, uint64_t p)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(p % (uint64_t)(i + 1)), swapped = order[i];
        p /= (uint64_t)(i + 1);
        order[i] = order[k];
        order[k] = swapped;
    }
}

static void check_orders(enum optim_rows_kind kind, float clip_value, enum dtype dtype)
{
    static struct contribution all[MEMBERS];
    static const int ranks[MEMBERS] = {0, 1, 2, 3}, reversed[MEMBERS] = {3, 2, 1, 0};
    const float scale = 1 / 1.75f;
    for (uint64_t p = 0; p < 24; p++) { /* each permutation of four is the order of some step */
        struct expected rows[N_KEYS] = {0}, other[N_KEYS] = {0};
        struct bucket *b = create(kind, clip_value, dtype);
        struct merge *m = NULL;
        assert_int_equal(merge_create(MEMBERS, DIM, &m), ST_OK);
        for (uint64_t s = 0; s < STEPS; s++) {
            int order[MEMBERS];
            for (uint64_t r = 0; r < MEMBERS; r++)
                fill(&all[r], s, r, s % 3 == 2 ? 90 : 20);
            permute(order, MEMBERS, (p + s) % 24);
            expect(b, all, ranks, MEMBERS, scale, rows);
            expect(b, all, reversed, MEMBERS, scale, other);
            arrive(m, b, all, order, MEMBERS, scale);
            assert_int_equal(b->version, s + 1);
            assert_true(is_equal(b, rows));
        }
        /* the order of a sum matters, but rounding to bf16 can hide it */
        assert_true(dtype == DTYPE_BF16 || !is_equal(b, other));
        merge_destroy(m);
        bucket_destroy(b);
    }
}

static void test_all_orders_of_arrival_lead_to_the_same_bits(void **state)
{
    for (enum dtype d = DTYPE_F32; d <= DTYPE_BF16; d++) {
        for (int kind = 0; kind < OPTIM_ROWS_N_KINDS; kind++)
            check_orders((enum optim_rows_kind)kind, 0, d);
        check_orders(OPTIM_ROWS_ADAGRAD, 1.5f, d);
    }
}

static void test_many_members_are_added_in_rank_order(void **state)
{
    static struct contribution all[MANY];
    static struct expected rows[N_KEYS];
    struct bucket *b = create(OPTIM_ROWS_ADAM, 0, DTYPE_F32);
    struct merge *m = NULL;
    int ranks[MANY], order[MANY];
    memset(rows, 0, sizeof rows);
    permute(ranks, MANY, 0);
    for (int i = 0; i < MANY; i++)
        ranks[i] = i;
    assert_int_equal(merge_create(MANY, DIM, &m), ST_OK);
    for (uint64_t s = 0; s < 12; s++) {
        for (uint64_t r = 0; r < MANY; r++)
            fill(&all[r], s, r, (r + s) % 4 == 0 ? 0 : (r * 7) % 60);
        permute(order, MANY, rng_mix(s));
        expect(b, all, ranks, MANY, 0.05f, rows);
        arrive(m, b, all, order, MANY, 0.05f);
        assert_true(is_equal(b, rows));
    }
    merge_destroy(m);
    bucket_destroy(b);
}

static void test_contribution_of_weight_0_changes_no_row(void **state)
{
    static struct contribution all[2];
    static struct expected rows[N_KEYS];
    static const int ranks[2] = {0, 1};
    struct bucket *b = create(OPTIM_ROWS_MOMENTUM, 0, DTYPE_F32);
    struct merge *m = NULL;
    memset(rows, 0, sizeof rows);
    assert_int_equal(merge_create(2, DIM, &m), ST_OK);
    for (uint64_t s = 0; s < 3; s++) { /* weights of 0: of one member, of the other, of both */
        fill(&all[0], s, 0, 50);
        fill(&all[1], s, 1, 50);
        all[0].weight = s != 1 ? 0.0f : 0.7f;
        all[1].weight = s != 0 ? 0.0f : 0.3f;
        expect(b, all, ranks, 2, 1, rows);
        arrive(m, b, all, ranks, 2, 1);
        assert_int_equal(b->version, s + 1);
        assert_true(is_equal(b, rows));
    }
    merge_destroy(m);
    bucket_destroy(b);
}

static void test_repeated_copy_replaces_the_first(void **state)
{
    static struct contribution all[MEMBERS], other;
    static struct expected rows[N_KEYS];
    static const int ranks[MEMBERS] = {0, 1, 2, 3};
    struct bucket *b = create(OPTIM_ROWS_SGD, 0, DTYPE_F32);
    struct merge *m = NULL;
    memset(rows, 0, sizeof rows);
    assert_int_equal(merge_create(MEMBERS, DIM, &m), ST_OK);
    for (uint64_t s = 0; s < 4; s++) {
        for (uint64_t r = 0; r < MEMBERS; r++)
            fill(&all[r], s, r, 30);
        fill(&other, 77, 1, s % 2 ? 10 : 80);
        struct merge_input wrong = input_of(&other);
        assert_int_equal(merge_keep(m, 1, &wrong), ST_OK);
        assert_int_equal(merge_keep(m, 2, &wrong), ST_OK);
        if (s == 2) { /* copies are forgotten, and the step begins again */
            merge_clear(m);
            assert_int_equal(merge_keep(m, 3, &wrong), ST_OK);
        }
        expect(b, all, ranks, MEMBERS, 1, rows);
        arrive(m, b, all, ranks, MEMBERS, 1);
        assert_true(is_equal(b, rows));
    }
    expect(b, all, ranks, 1, 1, rows); /* no copy of the step before counts again */
    arrive(m, b, all, ranks, 1, 1);
    assert_true(is_equal(b, rows));
    merge_destroy(m);
    bucket_destroy(b);
}

/* Each contribution alone makes a version (async), and the previous version stays readable. */
static void test_single_contributions_make_versions(void **state)
{
    static struct contribution c;
    static struct expected rows[N_KEYS];
    static float before[N_KEYS][DIM], now[N_KEYS][DIM];
    struct bucket *b = create(OPTIM_ROWS_FTRL, 0, DTYPE_F32);
    struct merge *m = NULL;
    memset(rows, 0, sizeof rows);
    assert_int_equal(merge_create(3, DIM, &m), ST_OK);
    for (uint64_t s = 0; s < 9; s++) {
        const int rank = (int)(s % 3), first = 0;
        fill(&c, s, s % 3, 25);
        assert_int_equal(bucket_read(b, b->version, keys, N_KEYS, before[0]), ST_OK);
        expect(b, &c, &first, 1, 0.5f, rows);
        struct merge_input in = input_of(&c);
        assert_int_equal(merge_run(m, b, rank, &in, 0.5f, 1), ST_OK);
        assert_true(is_equal(b, rows));
        assert_int_equal(bucket_read(b, s, keys, N_KEYS, now[0]), ST_OK);
        assert_memory_equal(now, before, sizeof now);
    }
    /* memory for the pass is kept, and does not grow */
    size_t bytes = merge_bytes(m);
    struct merge_input in = input_of(&c);
    assert_int_equal(merge_run(m, b, 0, &in, 0.5f, 1), ST_OK);
    assert_int_equal(merge_bytes(m), bytes);
    merge_destroy(m);
    bucket_destroy(b);
}

static void test_the_factor_of_the_learning_rate_reaches_rows(void **state)
{
    static struct contribution c;
    static float rows[3][N_KEYS * DIM], initial[N_KEYS * DIM];
    static const float rates[3] = {1, 0.5f, 0};
    bool changed = false;
    for (int k = 0; k < 3; k++) {
        struct bucket *b = create(OPTIM_ROWS_SGD, 0, DTYPE_F32);
        struct merge *m = NULL;
        fill(&c, 1, 0, 100);
        struct merge_input in = input_of(&c);
        assert_int_equal(merge_create(1, DIM, &m), ST_OK);
        assert_int_equal(bucket_read(b, 0, keys, N_KEYS, initial), ST_OK);
        assert_int_equal(merge_run(m, b, 0, &in, 1, rates[k]), ST_OK);
        assert_int_equal(bucket_read(b, 1, keys, N_KEYS, rows[k]), ST_OK);
        merge_destroy(m);
        bucket_destroy(b);
    }
    assert_memory_equal(rows[2], initial, sizeof initial);
    for (size_t i = 0; i < N_KEYS * DIM; i++) {
        float whole = rows[0][i] - initial[i], half = rows[1][i] - initial[i];
        assert_true(fabsf(2 * half - whole) <= 1e-5f * (1 + fabsf(whole)));
        changed |= whole != 0;
    }
    assert_true(changed);
}

/* Makes 1000 updates that are often below half the distance of two numbers of bf16. Returns the
 * mean of all values. */
static double mean_of_small_updates(enum optim_rows_kind kind, enum dtype dtype)
{
    static float gradients[N_KEYS * DIM], values[N_KEYS * DIM];
    struct bucket *b = create(kind, 0, dtype);
    struct merge *m = NULL;
    double sum = 0;
    b->config.init.kind = ROW_INIT_ZEROS;
    b->config.optimizer.common.learning_rate =
        kind == OPTIM_ROWS_SGD || kind == OPTIM_ROWS_ADAM ? 1e-4f : 2e-3f;
    b->config.optimizer.common.momentum = kind == OPTIM_ROWS_MOMENTUM ? 0.5f : 0;
    assert_int_equal(merge_create(1, DIM, &m), ST_OK);
    for (size_t i = 0; i < N_KEYS * DIM; i++)
        gradients[i] = -1;
    const struct merge_input in = {N_KEYS, 1, keys, gradients};
    for (int s = 0; s < 1000; s++)
        assert_int_equal(merge_run(m, b, 0, &in, 1, 1), ST_OK);
    assert_int_equal(bucket_read(b, b->version, keys, N_KEYS, values), ST_OK);
    for (size_t i = 0; i < N_KEYS * DIM; i++)
        sum += (double)values[i];
    merge_destroy(m);
    bucket_destroy(b);
    return sum / (N_KEYS * DIM);
}

static void test_rounding_to_bf16_loses_no_small_updates(void **state)
{
    for (int kind = 0; kind < OPTIM_ROWS_N_KINDS; kind++) {
        double whole = mean_of_small_updates((enum optim_rows_kind)kind, DTYPE_F32);
        double half = mean_of_small_updates((enum optim_rows_kind)kind, DTYPE_BF16);
        if (!(whole > 0.05 && fabs(half / whole - 1) < 0.01))
            fail_msg("%s: %g in bf16, %g in fp32", optim_rows_name((enum optim_rows_kind)kind),
                     half, whole);
    }
}

/* A sum of squares, and a value that bf16 cannot hold, are reported as they are for floats. */
static void test_rows_of_bf16_that_are_not_finite_are_reported(void **state)
{
    const float large[] = {3e38f, 3.4028e38f, 1e30f};
    uint64_t key = 0;
    for (int i = 0; i < 3; i++) {
        struct bucket *b = create(i < 2 ? OPTIM_ROWS_SGD : OPTIM_ROWS_ADAGRAD, 0, DTYPE_BF16);
        struct merge *m = NULL;
        float gradients[2 * DIM] = {[DIM] = -large[i]};
        const struct merge_input in = {2, 1, keys, gradients};
        b->config.optimizer.common.learning_rate = 1;
        assert_int_equal(merge_create(1, DIM, &m), ST_OK);
        assert_int_equal(merge_run(m, b, 0, &in, 1, 1), ST_OK);
        assert_int_equal(merge_not_finite(m, &key), i > 0);
        assert_true(i == 0 || key == keys[1]);
        merge_destroy(m);
        bucket_destroy(b);
    }
}

int main(void)
{
    return RUN_TESTS(
        test_all_orders_of_arrival_lead_to_the_same_bits, test_many_members_are_added_in_rank_order,
        test_contribution_of_weight_0_changes_no_row, test_repeated_copy_replaces_the_first,
        test_single_contributions_make_versions, test_the_factor_of_the_learning_rate_reaches_rows,
        test_rounding_to_bf16_loses_no_small_updates,
        test_rows_of_bf16_that_are_not_finite_are_reported);
}
