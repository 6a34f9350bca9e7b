/* tests/sim/row_model.c - see row_model.h. */
#include "tests/sim/row_model.h"
#include "base/rng.h"
#include <string.h>

static bool is_absent(const struct bucket_config *c, const struct row_entry *e, uint64_t version)
{
    return e->step == 0 || (c->evict_after > 0 && e->step + c->evict_after < version);
}

/* Evicts the oldest entry that the step does not change, by last step and then key. Returns false
 * if the step changes all entries. */
static bool evict_one(struct row_model *m, const struct row_sums *s)
{
    struct row_entry *oldest = NULL;
    for (int i = 0; i < ROW_MODEL_KEYS; i++) {
        struct row_entry *e = &m->entry[i];
        if (!s->has[i] && e->step > 0 && (!oldest || e->step < oldest->step))
            oldest = e;
    }
    if (oldest)
        oldest->step = 0;
    return oldest != NULL;
}

/* Keeps the bound of the bucket. Returns false if that is impossible. */
static bool keep_bound(const struct bucket_config *c, struct row_model *m, const struct row_sums *s)
{
    uint64_t n = 0, most = c->max_rows;
    for (int i = 0; i < ROW_MODEL_KEYS; i++)
        n += s->has[i] || m->entry[i].step > 0;
    if (n <= most)
        return true;
    if (c->when_full == ROW_FULL_STOP)
        return false;
    for (; n > most * 15 / 16; n--)
        if (!evict_one(m, s))
            return false;
    return true;
}

/* Rounds new values to bf16: a float loses its lower half, after a random number of 16 bits was
 * added. */
static void round_values(const struct bucket_config *c, uint64_t key, uint64_t version,
                         float *values)
{
    uint64_t row = rng_u64(rng_mix(c->init.key ^ rng_mix(key)), ~version);
    for (uint64_t i = 0; i < (uint64_t)c->dim; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits = (bits + (rng_u64(row, i / 4) >> 16 * (i % 4) & 0xffff)) & 0xffff0000u;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

/* Counts the step for key i; if the key has a row then, updates the row. */
static void change(const struct bucket_config *c, uint64_t key, const struct optim_rows_step *step,
                   struct row_entry *e, const float *sum, float scale)
{
    size_t dim = (size_t)c->dim;
    bool is_row = e->step > 0 && e->count == 0;
    uint64_t count = e->step > 0 ? e->count + 1 : 1;
    if (!is_row && count < c->admit_after) {
        e->count = count;
        return;
    }
    if (!is_row) {
        *e = (struct row_entry){.count = 0};
        bucket_initial(c, key, e->data);
    }
    optim_rows_run(step, &(struct optim_run){.n = dim,
                                             .sum = sum,
                                             .weight = 1,
                                             .scale = scale,
                                             .old = e->data,
                                             .slots = e->data + dim,
                                             .new_slots = e->data + dim,
                                             .slot_stride = dim,
                                             .new_ = e->data});
}

bool row_model_step(const struct bucket_config *c, const uint64_t *keys, struct row_model *m,
                    const struct row_sums *s)
{
    struct row_model next = *m;
    struct optim_rows_step step;
    next.version++;
    optim_rows_begin(&c->optimizer, next.version, s->rate, &step);
    for (int i = 0; i < ROW_MODEL_KEYS; i++) { /* the step reads version m->version */
        struct row_entry *e = &next.entry[i];
        if (is_absent(c, e, s->has[i] ? m->version : next.version))
            *e = (struct row_entry){.step = 0};
    }
    if (!keep_bound(c, &next, s))
        return false;
    for (int i = 0; i < ROW_MODEL_KEYS; i++)
        if (s->has[i]) {
            struct row_entry *e = &next.entry[i];
            change(c, keys[i], &step, e, s->sum[i], s->scale);
            if (c->dtype == DTYPE_BF16 && e->count == 0)
                round_values(c, keys[i], next.version, e->data);
            e->step = next.version;
        }
    *m = next;
    return true;
}

void row_model_values(const struct bucket_config *c, const uint64_t *keys,
                      const struct row_model *m, int i, float *values)
{
    const struct row_entry *e = &m->entry[i];
    if (e->step > 0 && e->count == 0)
        memcpy(values, e->data, (size_t)c->dim * sizeof *values);
    else
        bucket_initial(c, keys[i], values);
}
