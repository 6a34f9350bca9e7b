/* tests/worker_rows_test.c - compares the bags of a table, the sums of their gradients and the
 * messages to the buckets with plain loops: empty cells, repeated keys, several towers, the keys of
 * the next step. The exchange is an imitation whose rows follow from key and version. */
#include "net/wire/tables.h"
#include "tests/capture.h"
#include "tests/check.h"
#include "worker/train/table_step.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DIM = 3, BUCKETS = 4, FIRST = 5, CHUNKS = FIRST + BUCKETS, TOWERS = 3, MOST = 4096 };

struct exchange {
    int64_t version[CHUNKS], pending[CHUNKS];
    size_t n[CHUNKS];
    uint64_t keys[CHUNKS][MOST];
    float rows[CHUNKS][MOST * DIM];
    int n_pulls, n_pushes;
    bool ended; /* requests return ST_REBASED */
    struct {
        int64_t step;
        size_t n;
        uint64_t keys[MOST];
        float gradients[MOST * DIM], weight;
    } pushed[CHUNKS];
};

static float value_of(uint64_t key, int64_t version, size_t d)
{
    return (float)(rng_uniform(key * 8 + (uint64_t)version, d) - 0.5f);
}

static enum status request(struct exchange *x, int chunk, int64_t version, const uint64_t *reads,
                           size_t n)
{
    if (x->ended)
        return ST_REBASED;
    assert_in_range(chunk, FIRST, CHUNKS - 1);
    assert_int_equal(x->pending[chunk], -1);
    assert_true(n <= MOST);
    x->pending[chunk] = version;
    x->n[chunk] = n;
    if (n > 0)
        memcpy(x->keys[chunk], reads, n * sizeof *reads);
    return ST_OK;
}

static enum status fake_push_rows(void *ctx, int chunk, int64_t step, const struct net_rows *rows,
                                  float weight)
{
    struct exchange *x = ctx;
    enum status st = request(x, chunk, step + 1, rows->reads, rows->n_reads);
    if (st != ST_OK)
        return st;
    x->pushed[chunk].step = step;
    x->pushed[chunk].n = rows->n;
    x->pushed[chunk].weight = weight;
    memcpy(x->pushed[chunk].keys, rows->keys, rows->n * sizeof *rows->keys);
    memcpy(x->pushed[chunk].gradients, rows->gradients, rows->n * DIM * sizeof(float));
    x->n_pushes++;
    return ST_OK;
}

static enum status fake_pull_rows(void *ctx, int chunk, int64_t step, const uint64_t *reads,
                                  size_t n)
{
    struct exchange *x = ctx;
    x->n_pulls++;
    return request(x, chunk, step > x->version[chunk] ? step : x->version[chunk], reads, n);
}

static const float *fake_rows(void *ctx, int chunk, const uint64_t **keys, size_t *n)
{
    struct exchange *x = ctx;
    *keys = x->keys[chunk];
    *n = x->n[chunk];
    return x->rows[chunk];
}

static enum status fake_wait(void *ctx, int first, int n, int64_t step, int64_t deadline_ns)
{
    struct exchange *x = ctx;
    for (int c = first; c < first + n; c++) {
        if (x->pending[c] < 0)
            continue;
        x->version[c] = x->pending[c];
        x->pending[c] = -1;
        for (size_t i = 0; i < x->n[c] * DIM; i++)
            x->rows[c][i] = value_of(x->keys[c][i / DIM], x->version[c], i % DIM);
    }
    for (int c = first; c < first + n; c++)
        assert_true(x->version[c] >= step);
    return ST_OK;
}

static int64_t fake_version(void *ctx, int chunk)
{
    return ((struct exchange *)ctx)->version[chunk];
}

static void fake_flush(void *ctx)
{
}

static const struct updates_ops ops = {
    .push_rows = fake_push_rows,
    .pull_rows = fake_pull_rows,
    .rows = fake_rows,
    .flush = fake_flush,
    .wait = fake_wait,
    .version = fake_version,
};

struct rig {
    struct exchange x;
    struct updates updates;
    struct net_table table;
    struct table_step *step;
    bool mean;
    /* [0]: bags of the present step; [1]: bags of the next one */
    uint64_t keys[2][TOWERS][MOST];
    uint32_t first[2][TOWERS][MOST];
    struct bags bags[2][TOWERS];
};

static struct rig *rig_create(bool mean, bool own_pace, int64_t step_rows)
{
    struct rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->table = (struct net_table){.name = "ads",
                                  .dim = DIM,
                                  .n_buckets = BUCKETS,
                                  .step_rows = step_rows,
                                  .first_chunk = FIRST};
    r->updates = (struct updates){&ops, &r->x};
    r->mean = mean;
    for (int c = 0; c < CHUNKS; c++)
        r->x.pending[c] = -1;
    struct table_step_config cfg = {.updates = &r->updates,
                                    .table = &r->table,
                                    .mean = mean,
                                    .n_towers = TOWERS,
                                    .own_pace = own_pace};
    assert_int_equal(table_step_create(&cfg, &r->step), ST_OK);
    return r;
}

static void rig_free(struct rig *r)
{
    table_step_destroy(r->step);
    free(r);
}

/* Fills the bags of a step: cells of `most` keys at most, with keys below `n_names`. most 1: each
 * cell has one key, and there are no indices. */
static void fill(struct rig *r, int slot, int64_t step, size_t most, uint64_t n_names)
{
    for (int t = 0; t < TOWERS; t++) {
        uint64_t stream = rng_key((uint64_t)step, RNG_TEST, (uint64_t)t), at = 0;
        struct bags *b = &r->bags[slot][t];
        *b = (struct bags){.n_cells = t == 1 && step == 2 ? 0 : 40 + 7 * (size_t)t,
                           .keys = r->keys[slot][t],
                           .first = most > 1 ? r->first[slot][t] : NULL};
        for (size_t c = 0; c < b->n_cells; c++) {
            size_t n = most > 1 ? (size_t)rng_below(stream, at++, most + 1) : 1;
            r->first[slot][t][c] = (uint32_t)b->n_keys;
            for (size_t k = 0; k < n; k++)
                r->keys[slot][t][b->n_keys++] = rng_below(stream, at++, n_names);
        }
        r->first[slot][t][b->n_cells] = (uint32_t)b->n_keys;
    }
}

static float weight_of(int tower)
{
    return (float)(40 + 7 * tower) / (float)(40 * TOWERS + 21);
}

static float grad_of(int tower, size_t i)
{
    return rng_uniform(rng_key(3, RNG_TEST, (uint64_t)tower), i) - 0.5f;
}

/* Compares a tower's bags with sums in double. */
static void check_output(const struct rig *r, int tower, int64_t version, const float *out)
{
    const struct bags *b = &r->bags[0][tower];
    for (size_t c = 0; c < b->n_cells; c++) {
        size_t from = r->first[0][tower][c], to = r->first[0][tower][c + 1];
        for (size_t d = 0; d < DIM; d++) {
            double sum = 0;
            for (size_t k = from; k < to; k++)
                sum += (double)value_of(b->keys[k], version, d);
            if (r->mean && to > from)
                sum /= (double)(to - from);
            assert_true(fabs(sum - (double)out[c * DIM + d]) < 1e-6);
        }
    }
}

/* Adds the gradients of a key in the order of the towers, as floats and as doubles. Returns the
 * number of places of the key. */
static int add_gradients(const struct rig *r, uint64_t key, float *sum, double *exact)
{
    int n = 0;
    for (int t = 0; t < TOWERS; t++) {
        const struct bags *b = &r->bags[0][t];
        for (size_t c = 0; c < b->n_cells; c++) {
            size_t from = r->first[0][t][c], to = r->first[0][t][c + 1];
            float factor = weight_of(t) * (r->mean ? 1 / (float)(to - from) : 1);
            for (size_t k = from; k < to; k++) {
                for (size_t d = 0; d < DIM && b->keys[k] == key; d++) {
                    float g = grad_of(t, c * DIM + d);
                    sum[d] = n == 0 ? factor * g : sum[d] + factor * g;
                    exact[d] +=
                        (double)weight_of(t) * (double)g / (r->mean ? (double)(to - from) : 1);
                }
                n += b->keys[k] == key;
            }
        }
    }
    return n;
}

/* Checks the contributions of a step: each key once, in its bucket, with the sum of its gradients;
 * and that no key is missing. */
static void check_pushes(const struct rig *r, int64_t step, float weight)
{
    size_t n_places = 0, n_keys = 0;
    for (int b = 0; b < BUCKETS; b++) {
        assert_int_equal(r->x.pushed[FIRST + b].step, step);
        assert_true(r->x.pushed[FIRST + b].weight == weight);
        for (size_t i = 0; i < r->x.pushed[FIRST + b].n; i++) {
            const uint64_t *key = &r->x.pushed[FIRST + b].keys[i];
            float sum[DIM] = {0};
            double exact[DIM] = {0};
            assert_int_equal(tables_bucket(&r->table, *key), b);
            assert_true(i == 0 || key[-1] < key[0]);
            n_places += (size_t)add_gradients(r, *key, sum, exact);
            for (size_t d = 0; d < DIM; d++) {
                float pushed = r->x.pushed[FIRST + b].gradients[i * DIM + d];
                assert_true(pushed == sum[d]);
                assert_true(fabs(exact[d] - (double)pushed) < 1e-5);
            }
        }
    }
    for (int t = 0; t < TOWERS; t++)
        n_keys += r->bags[0][t].n_keys;
    assert_int_equal(n_places, n_keys);
}

/* Runs the forward of a step on all towers, the last one first: the order of calls must not change
 * any bits. */
static void forward(struct rig *r, int64_t step)
{
    const struct crew crew = {0};
    for (int t = TOWERS - 1; t >= 0; t--)
        table_step_set(r->step, t, &r->bags[0][t]);
    assert_int_equal(table_step_read(r->step, step), ST_OK);
    for (int t = TOWERS - 1; t >= 0; t--) {
        const float *out;
        assert_int_equal(table_step_output(r->step, t, &crew, &out), ST_OK);
        check_output(r, t, r->x.version[FIRST], out);
    }
}

static void backward(struct rig *r)
{
    const struct crew crew = {0};
    float *sums;
    size_t n;
    for (int t = TOWERS - 1; t >= 0; t--) {
        float *grads = table_step_grads(r->step, t);
        for (size_t i = 0; i < r->bags[0][t].n_cells * DIM; i++)
            grads[i] = grad_of(t, i);
        table_step_spread(r->step, t, &crew, weight_of(t));
    }
    assert_int_equal(table_step_sum(r->step, &sums, &n), ST_OK);
}

/* Makes the bags of the next step the present ones. */
static void advance(struct rig *r)
{
    memcpy(r->keys[0], r->keys[1], sizeof r->keys[0]);
    memcpy(r->first[0], r->first[1], sizeof r->first[0]);
    for (int t = 0; t < TOWERS; t++) {
        r->bags[0][t] = r->bags[1][t];
        r->bags[0][t].keys = r->keys[0][t];
        r->bags[0][t].first = r->bags[1][t].first ? r->first[0][t] : NULL;
    }
}

static void run(bool mean, size_t most, uint64_t n_names)
{
    struct rig *r = rig_create(mean, false, 1000);
    int n_first = 0;
    fill(r, 0, 0, most, n_names);
    for (int64_t step = 0; step < 5; step++) {
        fill(r, 1, step + 1, most, n_names);
        forward(r, step);
        n_first = step == 0 ? r->x.n_pulls : n_first;
        backward(r);
        for (int t = 0; t < TOWERS; t++)
            table_step_set_next(r->step, t, &r->bags[1][t]);
        assert_int_equal(table_step_push(r->step, step, 100, 5), ST_OK);
        check_pushes(r, step, 5);
        advance(r);
    }
    /* only the first step has sent pulls, because each push has named the keys of the next step */
    assert_in_range(n_first, 1, BUCKETS);
    assert_int_equal(r->x.n_pulls, n_first);
    assert_int_equal(r->x.n_pushes, 5 * BUCKETS);
    rig_free(r);
}

static void test_bags_and_gradients_equal_plain_loops(void **state)
{
    for (int mean = 0; mean < 2; mean++) {
        run(mean, 1, 1000);
        run(mean, 1, 20);
        run(mean, 3, 50);
        run(mean, 6, 5);
    }
}

/* A crew calls with any ranges, also with some that begin and end within a row. */
static void test_ranges_do_not_change_bags(void **state)
{
    enum { CELLS = 20000 };
    const struct bags_rule rule = {DIM, true};
    const struct crew crew = {0};
    uint32_t *first = calloc(CELLS + 1, sizeof *first);
    float *rows = calloc(2 * CELLS * DIM, sizeof *rows), *out = calloc(CELLS * DIM, sizeof *out);
    assert_true(first && rows && out);
    struct bags b = {.n_cells = CELLS, .first = first};
    for (size_t c = 0; c < CELLS; c++) {
        b.n_keys += c % 3;
        first[c + 1] = (uint32_t)b.n_keys;
    }
    assert_true(b.n_cells * DIM > CREW_RANGE && CREW_RANGE % DIM != 0);
    for (size_t i = 0; i < b.n_keys * DIM; i++)
        rows[i] = rng_uniform(4, i);
    bags_sum(&b, &rule, &crew, rows, out);
    for (size_t c = 0; c < CELLS; c++)
        for (size_t d = 0; d < DIM; d++) {
            const float *row = rows + first[c] * DIM + d;
            float expected = c % 3 == 0 ? 0 : c % 3 == 1 ? row[0] : (row[0] + row[DIM]) / 2;
            assert_true(out[c * DIM + d] == expected);
        }
    bags_spread(&b, &rule, &crew, 2, out, rows);
    for (size_t c = 0; c < CELLS; c++)
        for (size_t k = first[c]; k < first[c + 1]; k++)
            for (size_t d = 0; d < DIM; d++)
                assert_true(rows[k * DIM + d] == out[c * DIM + d] * 2 / (float)(c % 3));
    free(first);
    free(rows);
    free(out);
}

/* A step whose keys no push has named sends pulls, and so does each step of async. */
static void test_steps_without_named_keys_pull(void **state)
{
    struct rig *r = rig_create(false, true, 1000);
    for (int64_t step = 0; step < 3; step++) {
        fill(r, 0, step, 2, 50);
        forward(r, step);
        backward(r);
        for (int t = 0; t < TOWERS; t++)
            table_step_set_next(r->step, t, t == 0 ? NULL : &r->bags[0][t]);
        assert_int_equal(table_step_push(r->step, step, 2, 1), ST_OK);
        assert_int_equal(r->x.n_pulls, BUCKETS * (step + 1));
    }
    assert_int_equal(r->x.n_pushes, BUCKETS * 2); /* the buckets had both updates of the job */
    rig_free(r);
}

/* Before a bucket's first answer of a generation, no push is possible. */
static void test_end_of_generation_is_returned(void **state)
{
    struct rig *r = rig_create(false, true, 1000);
    fill(r, 0, 0, 2, 50);
    forward(r, 0);
    backward(r);
    r->x.version[FIRST + 2] = -1;
    assert_int_equal(table_step_push(r->step, 0, 100, 1), ST_REBASED);
    assert_int_equal(r->x.n_pushes, 2);
    r->x.version[FIRST + 2] = 0;
    r->x.ended = true;
    assert_int_equal(table_step_push(r->step, 0, 100, 1), ST_REBASED);
    rig_free(r);
}

static void test_too_many_keys_are_refused(void **state)
{
    struct rig *r = rig_create(false, false, 4);
    fill(r, 0, 0, 1, 1000000);
    for (int t = 0; t < TOWERS; t++)
        table_step_set(r->step, t, &r->bags[0][t]);
    assert_int_equal(CAPTURE(table_step_read(r->step, 0)), ST_INVALID);
    assert_non_null(strstr(capture_text, "table 'ads', bucket 0: "));
    assert_non_null(strstr(capture_text, " keys in one step, at most 23; raise step_rows=4 or "
                                         "buckets=4 of the table, or lower --batch_size"));
    assert_int_equal(r->x.n_pulls, 0);
    rig_free(r);
}

int main(void)
{
    return RUN_TESTS(test_bags_and_gradients_equal_plain_loops, test_ranges_do_not_change_bags,
                     test_steps_without_named_keys_pull, test_end_of_generation_is_returned,
                     test_too_many_keys_are_refused);
}
