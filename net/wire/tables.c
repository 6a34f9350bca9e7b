/* net/wire/tables.c - see tables.h. A hostile peer may have sent the tables, so every number is
 * checked before memory is allocated. */
#include "net/wire/tables.h"
#include "base/log.h"
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t tables_share(const struct net_table *t, int64_t n)
{
    double mean = (double)n / t->n_buckets;
    return (int64_t)ceil(mean + 6 * sqrt(mean) + 16);
}

static bool has_name(const struct net_table *tables, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(tables[i].name, name) == 0)
            return true;
    return false;
}

static enum status check_number(const struct net_table *t, const char *field, int64_t value,
                                int64_t max)
{
    if (value >= 1 && value <= max)
        return ST_OK;
    LOG_E("table '%s': %s %" PRId64 " is not between 1 and %" PRId64, t->name, field, value, max);
    return ST_INVALID;
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
    TRY(check_number(t, "dim", t->dim, TABLES_MAX_DIM));
    TRY(check_number(t, "buckets", t->n_buckets, TABLES_MAX_BUCKETS));
    TRY(check_number(t, "max_rows", t->max_rows, TABLES_MAX_ROWS));
    TRY(check_number(t, "step_rows", t->step_rows, TABLES_MAX_STEP_ROWS));
    if (t->n_buckets & (t->n_buckets - 1)) {
        LOG_E("table '%s': buckets %d is not a power of two", t->name, t->n_buckets);
        return ST_INVALID;
    }
    /* a contribution has keys with gradients, and keys to read */
    int64_t share = tables_share(t, t->step_rows);
    int64_t bytes = share * (2 * (int64_t)sizeof(uint64_t) + t->dim * (int64_t)sizeof(float));
    if (bytes > CHUNKS_MAX_BYTES) {
        LOG_E("table '%s': %" PRId64 " rows of %d floats for one bucket in one step need %" PRId64
              " bytes, at most %d; lower step_rows=%" PRId64 " or raise buckets=%d",
              t->name, share, t->dim, bytes, CHUNKS_MAX_BYTES, t->step_rows, t->n_buckets);
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
           number_differs(a, "step_rows", a->step_rows, b->step_rows, why, n);
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
