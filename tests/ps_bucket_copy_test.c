/* tests/ps_bucket_copy_test.c - copies of a bucket, whole and in parts, while further versions are
 * made. A bucket that is filled from a copy, and one that goes back to an older version, make the
 * same bits as the original. Parts that do not fit are refused, and change nothing. */
#include "base/rng.h"
#include "ps/rows/bucket_copy.h"
#include "ps/rows/limits.h"
#include "ps/rows/merge.h"
#include "tests/check.h"
#include <pthread.h>
#include <stdlib.h>

enum { DIM = 3, N_KEYS = 200, STEP_KEYS = 24, N_STEPS = 60, MANY = SIZE_MAX };

static uint64_t keys[N_KEYS]; /* ascending, all of bucket 1 of 2 */

/* Returns a number below n that only these arguments determine. */
static uint64_t pick(uint64_t step, uint64_t i, uint64_t n)
{
    return rng_below(rng_key(4, RNG_TEST, step), i, n);
}

static struct bucket_config config_of(enum optim_rows_kind kind)
{
    struct bucket_config c = {.dim = DIM,
                              .init = {ROW_INIT_UNIFORM, 0.5f, 9},
                              .number = 1,
                              .n_buckets = 2,
                              .keeps_previous = true,
                              .max_rows = N_KEYS * 3 / 4,
                              .admit_after = 2,
                              .evict_after = 12,
                              .when_full = ROW_FULL_EVICT};
    optim_rows_defaults(kind, &c.optimizer);
    return c;
}

static struct shared_bucket *create(const struct bucket_config *c)
{
    struct shared_bucket *s;
    assert_int_equal(shared_bucket_create(c, &s), ST_OK);
    return s;
}

static int make_keys(void **state)
{
    size_t n = 0;
    for (uint64_t i = 0; n < N_KEYS; i++) {
        uint64_t key = i == 0 ? UINT64_MAX : i < 40 ? i - 1 : rng_mix(i);
        if (rng_mix(key) % 2 == 1)
            keys[n++] = key;
    }
    qsort(keys, N_KEYS, sizeof *keys, row_table_compare_keys);
    return 0;
}

/* Makes the next version, whose keys and gradients depend on the version alone. */
static void train(struct shared_bucket *s)
{
    uint64_t own[STEP_KEYS];
    float gradients[STEP_KEYS * DIM];
    struct merge *m;
    size_t n = 0;
    uint64_t step = s->bucket->version;
    for (uint64_t i = 0; i < N_KEYS && n < STEP_KEYS; i++)
        if (pick(step, i, 100) < (i < 20 ? 60 : 10))
            own[n++] = keys[i];
    for (size_t i = 0; i < n * DIM; i++)
        gradients[i] = (float)pick(step, 1000 + i, 4096) / 4096 - 0.5f;
    const struct merge_input in = {.n = n, .weight = 1, .keys = own, .gradients = gradients};
    assert_int_equal(merge_create(1, DIM, &m), ST_OK);
    pthread_mutex_lock(&s->lock);
    assert_int_equal(merge_run(m, s->bucket, 0, &in, 1, 1), ST_OK);
    pthread_mutex_unlock(&s->lock);
    merge_destroy(m);
}

static void train_until(struct shared_bucket *s, uint64_t version)
{
    while (s->bucket->version < version)
        train(s);
}

/* Compares all rows and pending keys of two versions, bit by bit. */
static void assert_same(const struct shared_bucket *x, uint64_t version,
                        const struct shared_bucket *y)
{
    struct row *a[N_KEYS], *b[N_KEYS];
    size_t n = 0;
    for (int is_pending = 0; is_pending < 2; is_pending++) {
        size_t bytes = (is_pending ? &x->bucket->pending : &x->bucket->rows)->row_bytes;
        bytes = is_pending ? sizeof(struct row) + sizeof(uint64_t)
                           : sizeof(struct row) +
                                 (x->bucket->value_floats + x->bucket->n_slots) * sizeof(float);
        assert_int_equal(bucket_find_entries(x->bucket, is_pending, version, keys, N_KEYS, a),
                         ST_OK);
        assert_int_equal(
            bucket_find_entries(y->bucket, is_pending, y->bucket->version, keys, N_KEYS, b), ST_OK);
        for (size_t i = 0; i < N_KEYS; i++) {
            if (!a[i] != !b[i])
                fail_msg("version %d, key %zu: %s", (int)version, i, a[i] ? "lost" : "added");
            if (a[i])
                assert_memory_equal(a[i], b[i], bytes);
            n += a[i] != NULL;
        }
    }
    assert_true(n > STEP_KEYS / 2);
}

/* Copies a version in parts of at most `most` entries to a new bucket. */
static struct shared_bucket *copy(struct shared_bucket *from, uint64_t version, size_t most)
{
    struct shared_bucket *to = create(&from->bucket->config);
    struct bucket_part p;
    uint64_t after = 0;
    bool has_after = false, has_more = true;
    const char *why = NULL;
    bucket_begin_fill(to->bucket, version);
    while (has_more) {
        assert_int_equal(bucket_copy(from, version, has_after ? &after : NULL, most, &p), ST_OK);
        const struct bucket_entries *e = &p.entries;
        assert_true(e->n + e->n_pending <= most);
        assert_true(e->n + e->n_pending > 0 || !p.has_more);
        if (bucket_add(to->bucket, has_after ? &after : NULL, e, &why) != ST_OK)
            fail_msg("%s", why);
        if (e->n > 0 && (!has_after || e->keys[e->n - 1] > after))
            after = e->keys[e->n - 1];
        if (e->n_pending > 0 && e->pending_keys[e->n_pending - 1] >= after)
            after = e->pending_keys[e->n_pending - 1];
        has_after = has_after || e->n + e->n_pending > 0;
        has_more = p.has_more;
        bucket_part_free(&p);
    }
    return to;
}

/* A copy has the bits of its version, and further versions made from it have the same bits. */
static void copy_continues_with_the_same_bits(void **state)
{
    static const size_t most[] = {1, 7, 64, MANY};
    for (int kind = 0; kind < 2 * OPTIM_ROWS_N_KINDS; kind++) {
        struct bucket_config c = config_of((enum optim_rows_kind)(kind / 2));
        c.dtype = kind % 2 ? DTYPE_BF16 : DTYPE_F32;
        struct shared_bucket *s = create(&c);
        train_until(s, 30);
        assert_int_equal(bucket_hold(s->bucket, 30), ST_OK);
        train_until(s, N_STEPS);
        for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
            struct shared_bucket *held = copy(s, 30, most[i]);
            struct shared_bucket *previous = copy(s, N_STEPS - 1, most[i]);
            struct shared_bucket *present = copy(s, N_STEPS, most[i]);
            assert_same(s, 30, held);
            assert_same(s, N_STEPS - 1, previous);
            assert_same(s, N_STEPS, present);
            train_until(held, N_STEPS);
            train_until(previous, N_STEPS);
            assert_same(s, N_STEPS, held);
            assert_same(s, N_STEPS, previous);
            shared_bucket_unref(held);
            shared_bucket_unref(previous);
            shared_bucket_unref(present);
        }
        struct bucket_part p;
        assert_int_equal(bucket_copy(s, 31, NULL, MANY, &p), ST_NOT_FOUND);
        shared_bucket_unref(s);
    }
}

/* After bucket_rewind a bucket equals one that never made the later versions. */
static void rewound_bucket_makes_the_same_versions_again(void **state)
{
    struct bucket_config c = config_of(OPTIM_ROWS_ADAM);
    c.dtype = DTYPE_BF16;
    struct shared_bucket *s = create(&c), *plain = create(&c);
    for (uint64_t version = 10; version < 50; version += 5) {
        uint64_t later = version + pick(version, 5000, 20); /* often several versions later */
        train_until(s, version);
        assert_int_equal(bucket_hold(s->bucket, version), ST_OK);
        train_until(s, later);
        assert_int_equal(bucket_hold(s->bucket, later), ST_OK);
        assert_int_equal(bucket_rewind(s->bucket, version), later > version ? ST_BUSY : ST_OK);
        assert_int_equal(s->bucket->version, later);
        bucket_release(s->bucket, later);
        assert_int_equal(bucket_rewind(s->bucket, version), ST_OK);
        assert_int_equal(bucket_rewind(s->bucket, version + 1), ST_NOT_FOUND);
        train_until(plain, version);
        assert_same(s, version, plain);
        train(s);
        assert_same(s, version, plain); /* the version is still held */
        bucket_release(s->bucket, version);
    }
    train_until(s, N_STEPS);
    train_until(plain, N_STEPS);
    assert_same(s, N_STEPS, plain);
    shared_bucket_unref(s);
    shared_bucket_unref(plain);
}

static void *train_main(void *arg)
{
    train_until(arg, N_STEPS);
    return NULL;
}

/* A thread makes versions while a held version is copied. */
static void copy_of_a_held_version_ignores_later_ones(void **state)
{
    struct bucket_config c = config_of(OPTIM_ROWS_FTRL);
    struct shared_bucket *s = create(&c), *plain = create(&c);
    pthread_t thread;
    train_until(s, 20);
    train_until(plain, 20);
    assert_int_equal(bucket_hold(s->bucket, 20), ST_OK);
    assert_int_equal(pthread_create(&thread, NULL, train_main, s), 0);
    for (int i = 0; i < 20; i++) {
        struct shared_bucket *to = copy(s, 20, i % 2 ? 10 : MANY);
        assert_same(plain, 20, to);
        shared_bucket_unref(to);
    }
    pthread_join(thread, NULL);
    shared_bucket_unref(s);
    shared_bucket_unref(plain);
}

/* Entries that a test changes. */
struct lists {
    uint64_t keys[4], steps[4], pending_keys[2], pending_steps[2], counts[2];
    float values[4 * DIM], slots[4 * DIM];
    struct bucket_entries entries;
};

static struct lists lists_of(void)
{
    struct lists l = {.keys = {keys[10], keys[12], keys[13], keys[15]},
                      .steps = {1, 2, 3, 4},
                      .pending_keys = {keys[11], keys[14]},
                      .pending_steps = {4, 4},
                      .counts = {1, 1},
                      .entries = {.n = 4, .n_pending = 2}};
    return l;
}

static const char *add(struct shared_bucket *s, struct lists *l, const uint64_t *after)
{
    const char *why = NULL;
    l->entries.keys = l->keys;
    l->entries.steps = l->steps;
    l->entries.values = l->values;
    l->entries.slots = l->slots;
    l->entries.pending_keys = l->pending_keys;
    l->entries.pending_steps = l->pending_steps;
    l->entries.pending_counts = l->counts;
    enum status st = bucket_add(s->bucket, after, &l->entries, &why);
    assert_int_equal(st, why ? ST_INVALID : ST_OK);
    return why;
}

static void assert_refused(struct shared_bucket *s, struct lists *l, const uint64_t *after,
                           const char *reason)
{
    uint32_t n = s->bucket->rows.n, n_pending = s->bucket->pending.n;
    const char *why = add(s, l, after);
    assert_string_equal(why ? why : "", reason);
    assert_int_equal(s->bucket->rows.n, n);
    assert_int_equal(s->bucket->pending.n, n_pending);
}

static void invalid_parts_are_refused_and_change_nothing(void **state)
{
    struct bucket_config c = config_of(OPTIM_ROWS_ADAGRAD);
    struct shared_bucket *s;
    struct lists l = lists_of();
    c.max_rows = 6;
    s = create(&c);
    bucket_begin_fill(s->bucket, 4);
    assert_refused(s, &l, &keys[10], "a key is not above the last key that arrived before");
    l.pending_keys[0] = keys[9];
    assert_refused(s, &l, &keys[9], "a key is not above the last key that arrived before");
    l = lists_of();
    l.keys[2] = l.keys[1];
    assert_refused(s, &l, NULL, "the keys are not ascending");
    l = lists_of();
    l.pending_keys[1] = l.pending_keys[0] - 1;
    assert_refused(s, &l, NULL, "the keys are not ascending");
    l = lists_of();
    while (rng_mix(l.keys[3]) % 2 == 1)
        l.keys[3]++;
    assert_refused(s, &l, NULL, "a key belongs to another bucket");
    l = lists_of();
    l.pending_keys[1] = l.keys[2];
    assert_refused(s, &l, NULL, "a key has a row, but is pending");
    l = lists_of();
    l.steps[0] = 5;
    assert_refused(s, &l, NULL, "a step is above the version of the bucket");
    l = lists_of();
    l.pending_steps[1] = ROW_ABSENT;
    assert_refused(s, &l, NULL, "a step is above the version of the bucket");
    l = lists_of();
    for (uint64_t count = 0; count < 3; count += 2) {
        l.counts[1] = count;
        assert_refused(s, &l, NULL,
                       "the count of a pending key is not between 1 and admit_after - 1");
    }
    l = lists_of();
    l.values[4 * DIM - 1] = 1.001f;
    s->bucket->config.dtype = DTYPE_BF16;
    assert_refused(s, &l, NULL, "a value is not a number of bf16");
    s->bucket->config.dtype = DTYPE_F32;
    s->bucket->config.max_rows = 5;
    l = lists_of();
    assert_refused(s, &l, NULL, "the bucket has more rows than max_rows allows");
    s->bucket->config.max_rows = 6;
    assert_null(add(s, &l, &keys[9]));
    assert_refused(s, &l, &keys[15], "a key is not above the last key that arrived before");
    l.entries.n_pending = 0;
    l.entries.n = 1;
    l.keys[0] = keys[16];
    assert_refused(s, &l, &keys[15], "the bucket has more rows than max_rows allows");
    shared_bucket_unref(s);
}

int main(void)
{
    return RUN_GROUP(make_keys, NULL, copy_continues_with_the_same_bits,
                     rewound_bucket_makes_the_same_versions_again,
                     copy_of_a_held_version_ignores_later_ones,
                     invalid_parts_are_refused_and_change_nothing);
}
