/* net/wire/tables.c - see tables.h. A hostile peer may have sent the tables, so every number is
 * checked before memory is allocated. */
#include "net/wire/tables.h"
#include "base/float_text.h"
#include "base/log.h"
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t tables_share(const struct net_table *t, int64_t n)
{
    double mean = (double)n / t->n_buckets;
    return (int64_t)ceil(mean + 6 * sqrt(mean) + 16);
}

enum { PAGE = 4096 };

static size_t round_up(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Returns the most bytes that a contribution to one bucket has: keys with gradients, and keys to
 * read. */
static int64_t step_bytes(const struct net_table *t)
{
    int64_t row = 2 * (int64_t)sizeof(uint64_t) + t->dim * (int64_t)sizeof(float);
    return tables_share(t, t->step_rows) * row;
}

bool tables_step_fits(const struct net_table *t)
{
    return step_bytes(t) <= CHUNKS_MAX_BYTES;
}

size_t tables_range_bytes(const struct net_table *t)
{
    return round_up((size_t)step_bytes(t));
}

size_t tables_wire_bytes(const struct chunks *c, enum dtype d)
{
    size_t bytes = chunks_wire_bytes(c, d);
    for (int i = 0; i < c->n_tables; i++)
        bytes =
            round_up(bytes) + (size_t)c->tables[i].n_buckets * tables_range_bytes(&c->tables[i]);
    return bytes;
}

static bool has_name(const struct net_table *tables, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(tables[i].name, name) == 0)
            return true;
    return false;
}

static enum status check_number(const struct net_table *t, const char *field, int64_t value,
                                int64_t min, int64_t max)
{
    if (value >= min && value <= max)
        return ST_OK;
    LOG_E("table '%s': %s %" PRId64 " is not between %" PRId64 " and %" PRId64, t->name, field,
          value, min, max);
    return ST_INVALID;
}

/* Checks the settings that change the bits of rows. */
static enum status check_rows(const struct net_table *t)
{
    enum status st = ST_OK;
    char of[CHUNKS_MAX_NAME + 16], text[FLOAT_TEXT_BYTES];
    snprintf(of, sizeof of, "table '%s'", t->name);
    TRY(optim_rows_check(&t->optimizer, of));
    if ((unsigned)t->init >= ROW_INIT_N_KINDS) {
        LOG_E("%s: init %d is unknown; there are %s", of, (int)t->init, ROW_INIT_NAMES);
        return ST_INVALID;
    }
    if (!isfinite(t->init_scale) || t->init_scale < 0) {
        LOG_E("%s: init_scale %s is not 0 or above", of, float_text(t->init_scale, text));
        return ST_INVALID;
    }
    TRY(check_number(t, "admit_after", t->admit_after, 0, TABLES_MAX_STEPS));
    TRY(check_number(t, "evict_after", t->evict_after, 0, TABLES_MAX_STEPS));
    if ((unsigned)t->when_full >= ROW_FULL_N_KINDS) {
        LOG_E("%s: when_full %d is unknown; there are %s", of, (int)t->when_full, ROW_FULL_NAMES);
        return ST_INVALID;
    }
    if (t->row_dtype != DTYPE_F32 && t->row_dtype != DTYPE_BF16) {
        LOG_E("%s: row_dtype %s is not one of %s", of, dtype_name(t->row_dtype), ROW_DTYPE_NAMES);
        return ST_INVALID;
    }
done:
    return st;
}

/* Checks table i, whose name must differ from those of the tables before it. */
static enum status check_table(const struct net_table *tables, int i)
{
    const struct net_table *t = &tables[i];
    enum status st = ST_OK;
    if (!chunks_name_ok(t->name)) {
        LOG_E("table %d: its name is not 1 to %d printable characters without spaces", i,
              CHUNKS_MAX_NAME);
        return ST_INVALID;
    }
    if (has_name(tables, i, t->name)) {
        LOG_E("two tables are named '%s'", t->name);
        return ST_INVALID;
    }
    TRY(check_number(t, "dim", t->dim, 1, TABLES_MAX_DIM));
    TRY(check_number(t, "buckets", t->n_buckets, 1, TABLES_MAX_BUCKETS));
    TRY(check_number(t, "max_rows", t->max_rows, 1, TABLES_MAX_ROWS));
    TRY(check_number(t, "step_rows", t->step_rows, 1, TABLES_MAX_STEP_ROWS));
    TRY(check_rows(t));
    if (t->n_buckets & (t->n_buckets - 1)) {
        LOG_E("table '%s': buckets %d is not a power of two", t->name, t->n_buckets);
        return ST_INVALID;
    }
    if (!tables_step_fits(t)) {
        LOG_E("table '%s': %" PRId64 " rows of %d floats for one bucket in one step need %" PRId64
              " bytes, at most %d; lower step_rows=%" PRId64 " or raise buckets=%d",
              t->name, tables_share(t, t->step_rows), t->dim, step_bytes(t), CHUNKS_MAX_BYTES,
              t->step_rows, t->n_buckets);
        st = ST_INVALID;
    }
done:
    return st;
}

/* Checks all tables; *n_buckets is the sum of their buckets. */
static enum status check_tables(const struct chunks *c, const struct net_table *tables, int n,
                                int *n_buckets)
{
    *n_buckets = 0;
    if (n < 0 || n > TABLES_MAX) {
        LOG_E("the job has %d tables; at most %d are possible", n, TABLES_MAX);
        return ST_INVALID;
    }
    for (int i = 0; i < n; i++) {
        enum status st = check_table(tables, i);
        if (st != ST_OK)
            return st;
        *n_buckets += tables[i].n_buckets;
    }
    if (*n_buckets > TABLES_MAX_ALL_BUCKETS || *n_buckets > CHUNKS_MAX_CHUNKS - c->n_dense) {
        LOG_E(
            "the tables have %d buckets, and the parameters %d chunks; at most %d buckets, and %d of both together, are possible",
            *n_buckets, c->n_dense, TABLES_MAX_ALL_BUCKETS, CHUNKS_MAX_CHUNKS);
        return ST_INVALID;
    }
    return ST_OK;
}

void tables_free(struct net_table *tables, int n)
{
    for (int i = 0; tables && i < n; i++)
        free((char *)tables[i].name);
    free(tables);
}

static enum status copy_tables(const struct net_table *tables, int n, struct net_table **out)
{
    struct net_table *copy = calloc((size_t)n, sizeof *copy);
    bool ok = copy != NULL;
    for (int i = 0; ok && i < n; i++) {
        copy[i] = tables[i];
        copy[i].name = strdup(tables[i].name);
        if (copy[i].admit_after == 0)
            copy[i].admit_after = 1;
        ok = copy[i].name != NULL;
    }
    if (!ok) {
        tables_free(copy, n);
        return ST_NOMEM;
    }
    *out = copy;
    return ST_OK;
}

enum status tables_add(struct chunks *c, const struct net_table *tables, int n)
{
    int n_buckets;
    enum status st = check_tables(c, tables, n, &n_buckets);
    if (st != ST_OK || n == 0)
        return st;
    struct net_chunk *chunks =
        realloc(c->chunks, (size_t)(c->n_dense + n_buckets) * sizeof *chunks);
    if (!chunks)
        return ST_NOMEM;
    c->chunks = chunks;
    st = copy_tables(tables, n, &c->tables);
    if (st != ST_OK)
        return st;
    c->n_tables = n;
    for (int i = 0; i < n; i++) {
        c->tables[i].first_chunk = c->n_chunks;
        for (int b = 0; b < tables[i].n_buckets; b++)
            c->chunks[c->n_chunks++] =
                (struct net_chunk){.param = -1, .table = i, .first = c->n_elems};
    }
    return ST_OK;
}

/* Counts of the buckets of each server. */
struct placement {
    int n_servers;
    int *total; /* buckets of the earlier tables */
    int *now;   /* buckets of the present table */
    int *keep;  /* largest number of the present table's buckets that do not move */
};

/* Each server keeps at most B / n buckets, and B % n of them keep one more: those with the fewest
 * buckets of the earlier tables. */
static void set_limits(struct placement *p, int n_buckets)
{
    int least = n_buckets / p->n_servers;
    for (int s = 0; s < p->n_servers; s++)
        p->keep[s] = least;
    for (int more = n_buckets % p->n_servers; more > 0; more--) {
        int best = -1;
        for (int s = 0; s < p->n_servers; s++)
            if (p->keep[s] == least && p->now[s] > least &&
                (best < 0 || p->total[s] < p->total[best]))
                best = s;
        if (best < 0)
            return;
        p->keep[best]++;
    }
}

/* Returns the server that receives the next bucket. */
static int next_server(const struct placement *p)
{
    int to = 0;
    for (int s = 1; s < p->n_servers; s++)
        if (p->now[s] < p->now[to] || (p->now[s] == p->now[to] && p->total[s] < p->total[to]))
            to = s;
    return to;
}

/* server: of each bucket of the table */
static void place_table(struct placement *p, int n_buckets, int *server)
{
    for (int s = 0; s < p->n_servers; s++)
        p->now[s] = 0;
    for (int b = 0; b < n_buckets; b++)
        if (server[b] >= 0)
            p->now[server[b]]++;
    set_limits(p, n_buckets);
    for (int b = n_buckets - 1; b >= 0; b--) {
        int from = server[b];
        if (from >= 0 && p->now[from] > p->keep[from]) {
            p->now[from]--;
            server[b] = -1;
        }
    }
    for (int b = 0; b < n_buckets; b++) {
        if (server[b] >= 0)
            continue;
        server[b] = next_server(p);
        p->now[server[b]]++;
    }
    for (int s = 0; s < p->n_servers; s++)
        p->total[s] += p->now[s];
}

enum status tables_place(const struct chunks *c, int n_servers, int *server)
{
    if (c->n_tables == 0)
        return ST_OK;
    int *counts = calloc((size_t)n_servers, 3 * sizeof *counts);
    if (!counts)
        return ST_NOMEM;
    struct placement p = {n_servers, counts, counts + n_servers, counts + 2 * n_servers};
    for (int i = 0; i < c->n_tables; i++)
        place_table(&p, c->tables[i].n_buckets, server + c->tables[i].first_chunk);
    free(counts);
    return ST_OK;
}

/* Returns true, with the difference in `why`, if a number of table i differs. */
static bool number_differs(const struct net_table *t, const char *field, int64_t a, int64_t b,
                           char *why, size_t n)
{
    if (a == b)
        return false;
    snprintf(why, n, "table '%s': %s %" PRId64 " on the servers, %" PRId64 " on the worker",
             t->name, field, a, b);
    return true;
}

/* Returns true, with the difference in `why`, if a setting of table i differs in its text. */
static bool text_differs(const struct net_table *t, const char *field, const char *a, const char *b,
                         char *why, size_t n)
{
    if (strcmp(a, b) == 0)
        return false;
    snprintf(why, n, "table '%s': %s %s on the servers, %s on the worker", t->name, field, a, b);
    return true;
}

/* numbers of the optimizer, and of the initial values */
#define FLOAT(name, field)                                                                         \
    {                                                                                              \
        name, offsetof(struct net_table, field)                                                    \
    }
static const struct {
    const char *name;
    size_t at;
} floats[] = {
    FLOAT("learning_rate", optimizer.common.learning_rate),
    FLOAT("momentum", optimizer.common.momentum),
    FLOAT("decay", optimizer.common.decay),
    FLOAT("beta1", optimizer.common.beta1),
    FLOAT("beta2", optimizer.common.beta2),
    FLOAT("epsilon", optimizer.common.epsilon),
    FLOAT("ftrl_beta", optimizer.ftrl_beta),
    FLOAT("l1", optimizer.l1),
    FLOAT("l2", optimizer.l2),
    FLOAT("clip_value", optimizer.common.clip_value),
    FLOAT("lr_decay", optimizer.common.lr_decay),
    FLOAT("init_scale", init_scale),
};

static bool floats_differ(const struct net_table *a, const struct net_table *b, char *why, size_t n)
{
    char here[FLOAT_TEXT_BYTES], there[FLOAT_TEXT_BYTES];
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) {
        float x, y;
        memcpy(&x, (const char *)a + floats[i].at, sizeof x);
        memcpy(&y, (const char *)b + floats[i].at, sizeof y);
        if (x != y)
            return text_differs(a, floats[i].name, float_text(x, here), float_text(y, there), why,
                                n);
    }
    return false;
}

enum { BOUNDARIES_BYTES = 21 * OPTIM_MAX_BOUNDARIES + 8 };
/* Writes the boundaries as "100,200". */
static const char *boundaries_text(const struct optim_config *c, char text[BOUNDARIES_BYTES])
{
    size_t at = (size_t)snprintf(text, BOUNDARIES_BYTES, "%s", c->n_boundaries > 0 ? "" : "none");
    for (int i = 0; i < c->n_boundaries; i++)
        at += (size_t)snprintf(text + at, BOUNDARIES_BYTES - at, "%s%" PRIu64, i ? "," : "",
                               c->boundary[i]);
    return text;
}

static bool schedule_differs(const struct net_table *a, const struct net_table *b, char *why,
                             size_t n)
{
    const struct optim_config *x = &a->optimizer.common, *y = &b->optimizer.common;
    char here[BOUNDARIES_BYTES], there[BOUNDARIES_BYTES];
    return text_differs(a, "lr_schedule", optim_schedule_name(x->schedule),
                        optim_schedule_name(y->schedule), why, n) ||
           number_differs(a, "lr_warmup_steps", (int64_t)x->warmup_steps, (int64_t)y->warmup_steps,
                          why, n) ||
           text_differs(a, "lr_boundaries", boundaries_text(x, here), boundaries_text(y, there),
                        why, n) ||
           number_differs(a, "lr_decay_steps", (int64_t)x->lr_decay_steps,
                          (int64_t)y->lr_decay_steps, why, n);
}

static bool table_differs(const struct net_table *a, const struct net_table *b, int i, char *why,
                          size_t n)
{
    if (strcmp(a->name, b->name) != 0) {
        snprintf(why, n, "table %d: named '%s' on the servers, '%s' on the worker", i, a->name,
                 b->name);
        return true;
    }
    return number_differs(a, "dim", a->dim, b->dim, why, n) ||
           number_differs(a, "buckets", a->n_buckets, b->n_buckets, why, n) ||
           number_differs(a, "max_rows", a->max_rows, b->max_rows, why, n) ||
           number_differs(a, "step_rows", a->step_rows, b->step_rows, why, n) ||
           text_differs(a, "optimizer", optim_rows_name(a->optimizer.kind),
                        optim_rows_name(b->optimizer.kind), why, n) ||
           text_differs(a, "init", row_init_name(a->init), row_init_name(b->init), why, n) ||
           floats_differ(a, b, why, n) || schedule_differs(a, b, why, n) ||
           number_differs(a, "admit_after", a->admit_after, b->admit_after, why, n) ||
           number_differs(a, "evict_after", a->evict_after, b->evict_after, why, n) ||
           text_differs(a, "when_full", row_full_name(a->when_full), row_full_name(b->when_full),
                        why, n) ||
           text_differs(a, "row_dtype", dtype_name(a->row_dtype), dtype_name(b->row_dtype), why, n);
}

enum status tables_compare(const struct chunks *servers, const struct chunks *worker, char *why,
                           size_t why_bytes)
{
    const struct chunks *longer = servers->n_tables > worker->n_tables ? servers : worker;
    int common = longer == servers ? worker->n_tables : servers->n_tables;
    for (int i = 0; i < common; i++)
        if (table_differs(&servers->tables[i], &worker->tables[i], i, why, why_bytes))
            return ST_MISMATCH;
    if (longer->n_tables == common)
        return ST_OK;
    snprintf(why, why_bytes, "table %d '%s': only %s", common, longer->tables[common].name,
             longer == servers ? "on the servers" : "on the worker");
    return ST_MISMATCH;
}
