/* tests/sim/tables.c - see tables.h. Bounds may be smaller than tables_share() permits, so that
 * buckets with few keys are full (--wrap). */
#include "tests/sim/tables.h"
#include <stdlib.h>
#include <string.h>

enum {
    TABLES = 2,
    WINDOW = 3,      /* number of keys of a few batches */
    BATCHES = 8,     /* number of these batches */
    OCCURRENCES = 3, /* largest number of keys of a sample */
};

static struct net_table tables[TABLES];
static uint64_t keys[TABLES][ROW_MODEL_KEYS];

enum status __wrap_tables_add(struct chunks *c, const struct net_table *t, int n);
int64_t __wrap_tables_share(const struct net_table *t, int64_t n);

/* The one table of chunks (job.c) has the tables already. */
enum status __wrap_tables_add(struct chunks *c, const struct net_table *t, int n)
{
    CHECK(c == sim_chunks && n == c->n_tables);
    return ST_OK;
}

int64_t __wrap_tables_share(const struct net_table *t, int64_t n)
{
    return n;
}

static int compare(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static void make_keys(int table)
{
    for (int i = 0; i < ROW_MODEL_KEYS; i++)
        keys[table][i] = rng_mix((uint64_t)(table * ROW_MODEL_KEYS + i));
    keys[table][0] = 0;
    keys[table][1] = UINT64_MAX;
    qsort(keys[table], ROW_MODEL_KEYS, sizeof *keys[table], compare);
}

static void make_table(int i, struct net_table *t)
{
    static const char *const names[TABLES] = {"ads", "users"};
    int64_t kind = opt(OPT_row_optimizer) + i;
    *t = (struct net_table){.name = names[i],
                            .dim = (int)opt(OPT_dim),
                            .n_buckets = 1 << (opt(OPT_buckets) - (i > 0 && opt(OPT_buckets) > 0)),
                            .max_rows = opt(OPT_max_rows),
                            .step_rows = ROW_MODEL_KEYS,
                            .init = (enum row_init)((opt(OPT_dim) + i) % ROW_INIT_N_KINDS),
                            .init_scale = 1,
                            .admit_after = opt(OPT_admit_after),
                            .evict_after = opt(OPT_evict_after)};
    t->row_dtype = opt(OPT_row_dtype) >> i & 1 ? DTYPE_BF16 : DTYPE_F32;
    bool evicts = t->max_rows < ROW_MODEL_KEYS && !opt(OPT_full_stops);
    t->when_full = evicts ? ROW_FULL_EVICT : ROW_FULL_STOP;
    optim_rows_defaults((enum optim_rows_kind)(kind % OPTIM_ROWS_N_KINDS), &t->optimizer);
    t->optimizer.common.learning_rate = 0.5f;
    make_keys(i);
}

void tables_make(struct chunks *c)
{
    c->n_tables = (int)opt(OPT_tables);
    c->tables = tables;
    for (int i = 0; i < c->n_tables; i++) {
        struct net_table *t = &tables[i];
        make_table(i, t);
        t->first_chunk = c->n_chunks;
        for (int b = 0; b < t->n_buckets; b++)
            c->chunks[c->n_chunks++] =
                (struct net_chunk){.param = -1, .table = i, .first = c->n_elems};
    }
}

struct bucket_config tables_config(int chunk)
{
    const struct net_table *t = tables_of(sim_chunks, chunk);
    return (struct bucket_config){
        .dim = t->dim,
        .dtype = t->row_dtype,
        .optimizer = t->optimizer,
        .init = {t->init, t->init_scale, row_init_key(sim_job.seed, t->name)},
        .number = (uint32_t)(chunk - t->first_chunk),
        .n_buckets = (uint32_t)t->n_buckets,
        .max_rows = (uint64_t)t->max_rows,
        .admit_after = (uint64_t)t->admit_after,
        .evict_after = (uint64_t)t->evict_after,
        .when_full = t->when_full};
}

const uint64_t *tables_keys(int chunk)
{
    return keys[sim_chunks->chunks[chunk].table];
}

int tables_chunk(const struct bucket_config *c)
{
    for (int i = 0; i < sim_chunks->n_tables; i++)
        if (c->init.key == row_init_key(sim_job.seed, tables[i].name))
            return tables[i].first_chunk + (int)c->number;
    return -1;
}

int tables_index(int chunk, uint64_t key)
{
    const uint64_t *all = tables_keys(chunk);
    for (int i = 0; i < ROW_MODEL_KEYS; i++)
        if (all[i] == key)
            return i;
    return -1;
}

static uint64_t mix(int table, uint64_t a, uint64_t b)
{
    return rng_mix(rng_mix(a ^ (uint64_t)(table + 1) << 40) ^ b);
}

bool tables_has_key(int chunk, int i)
{
    const struct net_table *t = tables_of(sim_chunks, chunk);
    return tables_bucket(t, tables_keys(chunk)[i]) == chunk - t->first_chunk;
}

float tables_weight(int chunk, uint64_t position)
{
    bool is_zero = mix(sim_chunks->chunks[chunk].table, position, 1) % 8 == 0;
    return is_zero ? 0 : (float)sim_job.batch;
}

float tables_rate(int chunk, uint64_t step)
{
    return tables_of(sim_chunks, chunk)->optimizer.kind == OPTIM_ROWS_FTRL ? 1 : sim_rate(step);
}

/* Returns key j of a sample; -1: it has no such key. */
static int key_of(int table, uint64_t sample, uint64_t j)
{
    uint64_t few = sample / (uint64_t)(BATCHES * sim_job.batch), u = mix(table, sample, 2 + j);
    uint64_t first = mix(table, few, 0) % ROW_MODEL_KEYS;
    return u % 3 == 0 ? -1 : (int)((first + (u >> 8) % WINDOW) % ROW_MODEL_KEYS);
}

bool tables_uses(int chunk, uint64_t position, int i)
{
    int table = sim_chunks->chunks[chunk].table;
    if (!tables_has_key(chunk, i) || tables_weight(chunk, position) == 0)
        return false;
    for (int k = 0; k < sim_job.batch; k++)
        for (uint64_t j = 0; j < OCCURRENCES; j++)
            if (key_of(table, position + (uint64_t)k, j) == i)
                return true;
    return false;
}

bool tables_reads(int chunk, uint64_t position, uint32_t life, int i)
{
    bool uses = tables_uses(chunk, position, i);
    uint64_t u =
        mix(sim_chunks->chunks[chunk].table, position, (uint64_t)life << 8 | (16 + (uint64_t)i));
    if (opt(OPT_reads) != READS_OTHER)
        return uses && opt(OPT_reads) == READS_NEXT;
    return tables_has_key(chunk, i) && (uses ? u % 4 > 0 : u % 8 == 0);
}

void tables_gradient(int chunk, uint64_t position, int i, const float *values, float *out)
{
    int table = sim_chunks->chunks[chunk].table;
    for (int e = 0; e < tables[table].dim; e++) {
        uint32_t bits;
        int64_t sum = 0;
        memcpy(&bits, &values[e], sizeof bits);
        for (int k = 0; k < sim_job.batch; k++)
            for (uint64_t j = 0; j < OCCURRENCES; j++)
                if (key_of(table, position + (uint64_t)k, j) == i)
                    sum += (int64_t)(mix(table, (position + (uint64_t)k) * OCCURRENCES + j,
                                         bits ^ (uint64_t)e << 32) %
                                     33) -
                           16;
        out[e] = (float)sum / (float)sim_job.batch;
    }
}
