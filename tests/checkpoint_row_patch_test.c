/* tests/checkpoint_row_patch_test.c - what changed in a bucket between two checkpoints: applied to
 * the first one, it yields the second one. Pairs that cannot be of one line of descent are refused.
 */
#include "base/rng.h"
#include "checkpoint/row_patch.h"
#include "tests/check.h"
#include <stdlib.h>
#include <string.h>

enum { KEYS = 40, DIM = 3, STEPS = 200, EARLIER = 12 };

/* A bucket as a plain array, by key. */
struct model {
    int64_t version;
    bool has[KEYS];
    uint64_t step[KEYS];
    float value[KEYS][DIM];
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = rng_mix(*state + 1);
    return *state % below;
}

static uint64_t key_of(int i)
{
    return (uint64_t)i * 7 + (i % 3 == 0 ? UINT64_C(1) << 63 : 0);
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = key_of(*(const int *)a), y = key_of(*(const int *)b);
    return x < y ? -1 : x > y;
}

/* Makes the next version: some rows change, some are removed, some appear. */
static void step_on(struct model *m, uint64_t *state)
{
    m->version++;
    for (int i = 0; i < KEYS; i++) {
        uint64_t what = draw(state, 20);
        if (what == 0)
            m->has[i] = false;
        if (what > 2)
            continue;
        m->has[i] = what > 0;
        m->step[i] = (uint64_t)m->version;
        for (int d = 0; d < DIM; d++)
            m->value[i][d] = (float)draw(state, 1000);
    }
}

static struct checkpoint_bucket bucket_of(const struct model *m)
{
    int order[KEYS];
    struct checkpoint_bucket b = {.version = m->version};
    b.keys = calloc(KEYS, sizeof *b.keys);
    b.steps = calloc(KEYS, sizeof *b.steps);
    b.values = calloc((size_t)KEYS * DIM, sizeof *b.values);
    for (int i = 0; i < KEYS; i++)
        order[i] = i;
    qsort(order, KEYS, sizeof *order, by_key);
    for (int i = 0; i < KEYS; i++) {
        int k = order[i];
        if (!m->has[k])
            continue;
        b.keys[b.n] = key_of(k);
        b.steps[b.n] = m->step[k];
        memcpy(b.values + b.n++ * DIM, m->value[k], sizeof m->value[k]);
    }
    return b;
}

static int index_of(uint64_t key)
{
    for (int i = 0; i < KEYS; i++)
        if (key_of(i) == key)
            return i;
    fail();
    return 0;
}

static void assert_ascending(const uint64_t *keys, int64_t n)
{
    for (int64_t i = 1; i < n; i++)
        assert_true(keys[i] > keys[i - 1]);
}

/* Applies a patch to the older model, and compares the result with the newer one. */
static void assert_yields(struct model old, const struct checkpoint_bucket *removed,
                          const struct checkpoint_bucket *changed, const struct model *want)
{
    assert_ascending(removed->keys, removed->n);
    assert_ascending(changed->keys, changed->n);
    for (int64_t i = 0; i < removed->n; i++) {
        int k = index_of(removed->keys[i]);
        assert_true(old.has[k]);
        old.has[k] = false;
    }
    for (int64_t i = 0; i < changed->n; i++) {
        int k = index_of(changed->keys[i]);
        assert_true(changed->steps[i] > (uint64_t)old.version);
        old.has[k] = true;
        old.step[k] = changed->steps[i];
        memcpy(old.value[k], changed->values + i * DIM, sizeof old.value[k]);
    }
    for (int k = 0; k < KEYS; k++) {
        assert_int_equal(old.has[k], want->has[k]);
        assert_true(!want->has[k] || old.step[k] == want->step[k]);
        assert_true(!want->has[k] || !memcmp(old.value[k], want->value[k], sizeof old.value[k]));
    }
}

static void patches_of_random_steps_yield_the_newer_rows(void **state)
{
    struct model now = {0}, was[EARLIER] = {{0}};
    uint64_t random = 1;
    int64_t n_changed = 0, n_removed = 0;
    for (int step = 0; step < STEPS; step++) {
        step_on(&now, &random);
        for (int i = 0; i < EARLIER && i <= step; i++) {
            struct checkpoint_bucket from = bucket_of(&was[i]), to = bucket_of(&now);
            assert_int_equal(row_patch_make(&from, &to, DIM), ST_OK);
            assert_yields(was[i], &from, &to, &now);
            n_changed += to.n;
            n_removed += from.n;
            checkpoint_bucket_free(&from);
            checkpoint_bucket_free(&to);
        }
        memmove(was + 1, was, sizeof was - sizeof *was);
        was[0] = now;
    }
    assert_true(n_changed > STEPS && n_removed > STEPS);
}

static enum status patch_of(const struct model *old, const struct model *now)
{
    struct checkpoint_bucket from = bucket_of(old), to = bucket_of(now);
    enum status st = row_patch_make(&from, &to, DIM);
    checkpoint_bucket_free(&from);
    checkpoint_bucket_free(&to);
    return st;
}

static void pairs_of_two_histories_are_refused(void **state)
{
    struct model old = {.version = 5}, now = {.version = 7};
    old.has[3] = now.has[3] = now.has[4] = true;
    old.step[3] = now.step[3] = 4;
    now.step[4] = 6;
    assert_int_equal(patch_of(&old, &now), ST_OK);
    assert_int_equal(patch_of(&now, &old), ST_CORRUPT); /* an older version */
    now.step[4] = 5; /* the row existed at version 5, but the older bucket lacks it */
    assert_int_equal(patch_of(&old, &now), ST_CORRUPT);
    now.step[4] = 6;
    now.step[3] = 3; /* the row was at another step in the older bucket */
    assert_int_equal(patch_of(&old, &now), ST_CORRUPT);
}

int main(void)
{
    return RUN_TESTS(patches_of_random_steps_yield_the_newer_rows,
                     pairs_of_two_histories_are_refused);
}
