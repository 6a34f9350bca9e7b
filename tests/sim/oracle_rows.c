/* tests/sim/oracle_rows.c - see oracle_rows.h. */
#include "tests/sim/oracle_rows.h"
#include "tests/sim/tables.h"
#include <stdlib.h>
#include <string.h>

/* States of the buckets of a generation, by number of the version, which no job raises above 15.
 * first, known: lowest and highest version that is computed; known -1: none. */
struct generation_rows {
    int64_t first[SIM_BUCKETS], known[SIM_BUCKETS];
    struct row_model state[SIM_BUCKETS][MAX_STEPS];
};

struct rows_at { /* rows that are checked, for the text of a failure */
    const struct generation *g;
    int chunk;
    int64_t version;
    const char *what;
    const struct row_model *right;
};

static bool in_lockstep(void)
{
    return job_in_lockstep(&sim_job);
}

static int bucket_of(int chunk)
{
    return chunk - sim_chunks->n_dense;
}

__attribute__((noreturn)) static void differs(const struct rows_at *at, uint64_t key,
                                              const char *how)
{
    sim_fail("rows", "%s bucket %d, version %lld of generation %llx, %s: key %llx %s",
             tables_of(sim_chunks, at->chunk)->name, bucket_of(at->chunk), (long long)at->version,
             (unsigned long long)at->g->number, at->what, (unsigned long long)key, how);
}

void oracle_rows_planned(struct generation *g)
{
    if (sim_chunks->n_tables == 0)
        return;
    g->rows = sim_alloc_list(sizeof *g->rows);
    for (int b = 0; b < SIM_BUCKETS; b++)
        g->rows->first[b] = g->rows->known[b] = -1;
}

/* Adds the contributions of all members to the bucket at version m->version. */
static void sum_step(const struct generation *g, int chunk, const struct row_model *m,
                     struct row_sums *s)
{
    struct bucket_config c = tables_config(chunk);
    const uint64_t *keys = tables_keys(chunk);
    uint64_t at = oracle_position(g, (int64_t)m->version);
    double total = 0;
    memset(s, 0, sizeof *s);
    for (int r = 0; r < g->n_members; r++, at += (uint64_t)sim_job.batch) {
        float weight = tables_weight(chunk, at);
        total += (double)weight;
        for (int i = 0; i < ROW_MODEL_KEYS; i++) {
            float values[ROW_MODEL_DIM], gradient[ROW_MODEL_DIM];
            if (!tables_uses(chunk, at, i))
                continue;
            row_model_values(&c, keys, m, i, values);
            tables_gradient(chunk, at, i, values, gradient);
            s->has[i] = true;
            for (int e = 0; e < c.dim; e++)
                s->sum[i][e] += gradient[e] * weight;
        }
    }
    s->rate = tables_rate(chunk, m->version);
    s->scale = total > 0 ? (float)(1 / total) : 1;
}

static void make_next(int chunk, struct row_model *m, const struct row_sums *s)
{
    struct bucket_config c = tables_config(chunk);
    if (!row_model_step(&c, tables_keys(chunk), m, s))
        sim_fail("rows", "a bucket made a version with more rows than its bound");
}

/* Returns the state of a version that some generation of the chain has computed; NULL: none. */
static const struct row_model *computed(const struct generation *g, int b, int64_t version)
{
    for (; g; g = g->base)
        if (g->rows->known[b] >= version && g->rows->first[b] <= version && version >= 0)
            return &g->rows->state[b][version];
    return NULL;
}

/* Returns a version along the chain of plans, in lockstep. */
static const struct row_model *right(const struct generation *g, int chunk, int64_t version)
{
    int b = bucket_of(chunk);
    struct generation_rows *r = g->rows;
    if (version < g->step && g->base)
        return right(g->base, chunk, version);
    if (version < g->step || version >= MAX_STEPS)
        sim_fail("I2", "step %lld is not part of generation %llx, which begins at step %lld",
                 (long long)version, (unsigned long long)g->number, (long long)g->step);
    if (r->known[b] < 0) {
        struct row_model *first = &r->state[b][g->step];
        if (g->base)
            *first = *right(g->base, chunk, g->step);
        else
            memset(first, 0, sizeof *first);
        r->first[b] = r->known[b] = g->step;
    }
    for (; r->known[b] < version; r->known[b]++) {
        struct row_model *next = &r->state[b][r->known[b] + 1];
        struct row_sums s;
        *next = next[-1];
        sum_step(g, chunk, next, &s);
        make_next(chunk, next, &s);
    }
    return &r->state[b][version];
}

/* Finds the right rows. Returns false in modes other than lockstep if the version is not known
 * yet, because the server sends it before the contribution is noted. */
static bool find_right(struct rows_at *at)
{
    at->right = in_lockstep() ? right(at->g, at->chunk, at->version)
                              : computed(at->g, bucket_of(at->chunk), at->version);
    return at->right != NULL;
}

static const struct generation *generation_at(struct oracle_place at)
{
    const struct generation *g = oracle_generation_at(at.server, at.generation);
    if (!g)
        sim_fail("I2", "a bucket is of generation %llx, which %s never began",
                 (unsigned long long)at.generation, sim.node[at.server].name);
    oracle_count_check();
    return g;
}

static bool is_row(const struct row_entry *e)
{
    return e->step > 0 && e->count == 0;
}

struct seen { /* an entry as production has it */
    uint64_t step;
    const float *values, *slots[2]; /* slots NULL: not checked */
};

static void check_row(const struct rows_at *at, int i, const struct seen *seen)
{
    const struct row_entry *e = &at->right->entry[i];
    struct bucket_config c = tables_config(at->chunk);
    size_t dim = (size_t)c.dim, n_slots = optim_rows_slots(c.optimizer.kind, dim);
    size_t floats = n_slots < dim ? n_slots : dim;
    uint64_t key = tables_keys(at->chunk)[i];
    if (!is_row(e))
        differs(at, key, "has a row");
    if (seen->step != e->step)
        differs(at, key, "has a wrong last step");
    if (memcmp(seen->values, e->data, dim * sizeof(float)) != 0)
        differs(at, key, "has wrong values");
    for (size_t k = 0; k * floats < n_slots; k++)
        if (memcmp(seen->slots[k], e->data + dim + k * floats, floats * sizeof(float)) != 0)
            differs(at, key, "has wrong slots");
}

/* Checks that the bucket has no other row than those that were found. */
static void check_no_other(const struct rows_at *at, const struct bucket *b, size_t n_found)
{
    uint64_t *all;
    size_t n;
    CHECK(bucket_list_keys(b, (uint64_t)at->version, &all, &n) == ST_OK);
    for (size_t i = 0; i < n; i++)
        if (tables_index(at->chunk, all[i]) < 0)
            differs(at, all[i], "is unknown");
    free(all);
    if (n != n_found)
        differs(at, 0, "or another one is listed, but not found");
}

static void check_version(struct rows_at *at, const struct bucket *b)
{
    const uint64_t *keys = tables_keys(at->chunk);
    size_t dim = (size_t)b->config.dim, n_found = 0;
    if (!find_right(at))
        return;
    for (int i = 0; i < ROW_MODEL_KEYS; i++) {
        const struct row_entry *e = &at->right->entry[i];
        struct row *row;
        uint64_t count;
        float values[ROW_MODEL_DIM];
        CHECK(bucket_find(b, (uint64_t)at->version, &keys[i], 1, &row) == ST_OK);
        CHECK(bucket_find_pending(b, (uint64_t)at->version, &keys[i], 1, &count) == ST_OK);
        if (row)
            check_row(at, i,
                      &(struct seen){row->step,
                                     bucket_values(b, row, values),
                                     {bucket_slots(b, row), bucket_slots(b, row) + dim}});
        else if (is_row(e))
            differs(at, keys[i], "has no row");
        if (count != (e->step > 0 ? e->count : 0))
            differs(at, keys[i], "has a wrong number of steps before its admission");
        n_found += row != NULL;
    }
    check_no_other(at, b, n_found);
}

static void check_bucket(const struct generation *g, int chunk, const struct bucket *b,
                         const char *what)
{
    struct rows_at at = {g, chunk, (int64_t)b->version, what, NULL};
    check_version(&at, b);
    at.what = "in its undo log";
    for (at.version = (int64_t)b->first; at.version < (int64_t)b->version; at.version++)
        if (bucket_is_readable(b, (uint64_t)at.version))
            check_version(&at, b);
}

void oracle_rows_bucket(struct oracle_place at, const struct bucket *b, const char *what)
{
    check_bucket(generation_at(at), at.chunk, b, what);
}

/* Notes the version of a bucket with which a generation begins, in modes other than lockstep. */
static void note_first(struct generation *g, int chunk, int64_t version)
{
    int b = bucket_of(chunk);
    struct generation_rows *r = g->rows;
    const struct row_model *from = g->base ? computed(g->base, b, version) : NULL;
    if (g->base ? !from : version > 0)
        sim_fail("I2", "bucket %d begins generation %llx with version %lld, which was never made",
                 b, (unsigned long long)g->number, (long long)version);
    if (g->base && g->source == PLAN_MEMORY && g->base->rows->known[b] != version)
        sim_fail("I2", "bucket %d begins generation %llx with version %lld, but %lld was made", b,
                 (unsigned long long)g->number, (long long)version,
                 (long long)g->base->rows->known[b]);
    if (from)
        r->state[b][version] = *from;
    else
        memset(&r->state[b][version], 0, sizeof r->state[b][version]);
    r->first[b] = r->known[b] = version;
    if (g->base && g->source == PLAN_MEMORY)
        oracle_keep_counted(&g->shadow[chunk], &g->base->shadow[chunk]);
}

void oracle_rows_begin(const struct net_plan *p, int chunk, const struct bucket *b)
{
    struct generation *g = oracle_generation(p->generation, p->ps0);
    oracle_count_check();
    if (!in_lockstep())
        note_first(g, chunk, (int64_t)b->version);
    else if ((int64_t)b->version != g->step)
        sim_fail("I2", "bucket %d begins generation %llx with version %lld, not %lld",
                 bucket_of(chunk), (unsigned long long)g->number, (long long)b->version,
                 (long long)g->step);
    check_bucket(g, chunk, b, "at the beginning");
}

/* Returns the highest key of a part. */
static uint64_t last_key(const struct bucket_entries *e)
{
    uint64_t row = e->n > 0 ? e->keys[e->n - 1] : 0;
    uint64_t pending = e->n_pending > 0 ? e->pending_keys[e->n_pending - 1] : 0;
    return row > pending ? row : pending;
}

/* Checks the pending key i, if it is entry k of the part. Returns true if it is. */
static bool check_pending(const struct rows_at *at, int i, const struct bucket_entries *e, size_t k)
{
    const struct row_entry *want = &at->right->entry[i];
    uint64_t key = tables_keys(at->chunk)[i];
    bool is_here = k < e->n_pending && e->pending_keys[k] == key;
    uint64_t step = is_here ? e->pending_steps[k] : 0, count = is_here ? e->pending_counts[k] : 0;
    bool waits = want->step > 0 && want->count > 0;
    if (step != (waits ? want->step : 0) || count != (waits ? want->count : 0))
        differs(at, key, "has a wrong number of steps before its admission");
    return is_here;
}

static void check_part(const struct rows_at *at, const struct oracle_part *part)
{
    const struct bucket_entries *e = &part->entries;
    struct bucket_config c = tables_config(at->chunk);
    size_t dim = (size_t)c.dim, slot = optim_rows_slots(c.optimizer.kind, dim), row = 0, wait = 0;
    const uint64_t *keys = tables_keys(at->chunk);
    slot = slot < dim ? slot : dim;
    for (int i = 0; i < ROW_MODEL_KEYS; i++) {
        if ((part->has_after && keys[i] <= part->after) ||
            (part->has_more && keys[i] > last_key(e)))
            continue;
        if (row < e->n && e->keys[row] == keys[i]) {
            check_row(at, i,
                      &(struct seen){e->steps[row],
                                     e->values + row * dim,
                                     {e->slots + row * slot, e->slots + (e->n + row) * slot}});
            row++;
        } else if (is_row(&at->right->entry[i])) {
            differs(at, keys[i], "has no row");
        }
        wait += check_pending(at, i, e, wait);
    }
    if (row != e->n || wait != e->n_pending)
        differs(at, row != e->n ? e->keys[row] : e->pending_keys[wait], "does not belong there");
}

void oracle_rows_part(struct oracle_place place, const struct oracle_part *part, const char *what)
{
    struct rows_at at = {generation_at(place), place.chunk, part->version, what, NULL};
    if (find_right(&at))
        check_part(&at, part);
}

static void check_values(struct rows_at *at, const uint64_t *keys, size_t n, const float *values)
{
    struct bucket_config c = tables_config(at->chunk);
    if (!find_right(at))
        return;
    for (size_t k = 0; k < n; k++) {
        float want[ROW_MODEL_DIM];
        int i = tables_index(at->chunk, keys[k]);
        if (i < 0)
            differs(at, keys[k], "is unknown");
        row_model_values(&c, tables_keys(at->chunk), at->right, i, want);
        if (memcmp(want, values + k * (size_t)c.dim, (size_t)c.dim * sizeof *want) != 0)
            differs(at, keys[k], "has wrong values");
    }
}

void oracle_rows_received(const struct oracle_received *r)
{
    struct rows_at at = {oracle_generation(r->generation, r->ps0), r->chunk, r->version,
                         "as a worker received it", NULL};
    if (!at.g)
        sim_fail("I2", "a worker is in generation %llx, which no server began",
                 (unsigned long long)r->generation);
    oracle_count_check();
    check_values(&at, r->keys, r->n, r->values);
    if (!at.right)
        sim_fail("I2", "a worker received version %lld of bucket %d, which was never made",
                 (long long)r->version, bucket_of(r->chunk));
}

bool oracle_rows_is_full(uint64_t generation, uint64_t ps0, int64_t step)
{
    const struct generation *g = oracle_generation(generation, ps0);
    bool is_full = false;
    for (int i = sim_chunks->n_dense; i < sim_chunks->n_chunks; i++) {
        struct bucket_config c = tables_config(i);
        struct row_model next = *right(g, i, step);
        struct row_sums s;
        sum_step(g, i, &next, &s);
        is_full |= !row_model_step(&c, tables_keys(i), &next, &s);
    }
    return is_full;
}

/* Makes the next version by one contribution, in modes other than lockstep. */
static void apply_push(struct generation *g, const struct sim_msg *m, int64_t before)
{
    int chunk = (int)m->piece.chunk, b = bucket_of(chunk);
    struct generation_rows *r = g->rows;
    struct row_sums s = {.scale = 1, .rate = m->piece.has_rate ? m->piece.rate : 1};
    size_t n = m->piece.rows, dim = (size_t)tables_of(sim_chunks, chunk)->dim;
    const uint64_t *keys = m->data;
    const float *gradient = (const float *)(const void *)(keys + n + m->piece.reads);
    if (r->known[b] != before || before + 1 >= MAX_STEPS)
        sim_fail("I2", "version %lld of bucket %d follows %lld", (long long)before + 1, b,
                 (long long)r->known[b]);
    for (size_t k = 0; k < n; k++) {
        int i = tables_index(chunk, keys[k]);
        s.has[i] = true;
        for (size_t e = 0; e < dim; e++)
            s.sum[i][e] = gradient[k * dim + e];
    }
    r->state[b][before + 1] = r->state[b][before];
    make_next(chunk, &r->state[b][before + 1], &s);
    r->known[b]++;
    oracle_count_push(&g->shadow[chunk], m);
}

void oracle_rows_pushed(int server, const struct sim_msg *m, int64_t before, const struct bucket *b)
{
    struct generation *g = oracle_generation_at(server, m->head.generation);
    if (!g || (int64_t)b->version == before)
        return;
    oracle_count_check();
    if ((int64_t)b->version != before + 1)
        sim_fail("I2", "a contribution made more than one version");
    if (!in_lockstep())
        apply_push(g, m, before);
    check_bucket(g, (int)m->piece.chunk, b, "as it was made");
}
