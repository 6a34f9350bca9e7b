/* worker/weights/weights_rows.c - see weights_rows.h. Most keys of a set occur often, so repeated
 * ones are removed whenever the list of keys is full. */
#include "worker/weights/weights_rows.h"
#include "base/log.h"
#include "checkpoint/tables_file.h"
#include "kernels/vector/row_init.h"
#include "worker/data/dataset_keys.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 1 << 16, NAMES_BYTES = 200 };

struct key_list {
    uint64_t *keys; /* [n], in any order and repeated until sort_keys */
    size_t n, room;
};

struct weights_rows {
    struct key_list list[DATASET_MAX_KEY_INPUTS]; /* keys of each input */
    struct row_source *source;                    /* [n_tables] */
    float **rows;                                 /* [n_tables] memory of source[i].rows */
    size_t *dim;                                  /* [n_tables] floats of a row */
    int n_tables;
};

/* The parts of one call. */
struct reading {
    const struct weights_request *q;
    const struct checkpoint_restore *checkpoint;
    struct weights_rows *r;
};

static enum status no_memory(const struct weights_request *q, const char *what)
{
    LOG_E("--%s=%s: out of memory for the %s of the samples", q->flag, q->path, what);
    return ST_NOMEM;
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the keys, and removes repeated ones. */
static void sort_keys(struct key_list *l)
{
    size_t n = 0;
    if (l->n > 0)
        qsort(l->keys, l->n, sizeof *l->keys, by_key);
    for (size_t i = 0; i < l->n; i++)
        if (i == 0 || l->keys[i] != l->keys[i - 1])
            l->keys[n++] = l->keys[i];
    l->n = n;
}

/* Makes room for at least one more key. */
static bool make_room(struct key_list *l)
{
    sort_keys(l);
    if (l->keys && l->n <= l->room / 2)
        return true;
    size_t room = l->keys ? 2 * l->room : FIRST_ROOM;
    uint64_t *keys = realloc(l->keys, room * sizeof *keys);
    if (!keys)
        return false;
    l->keys = keys;
    l->room = room;
    return true;
}

/* Collects the different keys of one input, in ascending order. */
static bool collect(const struct dataset *d, const struct dataset_key_input *in, struct key_list *l)
{
    if (!make_room(l))
        return false;
    for (int64_t i = 0; i < d->n; i++) {
        size_t cell = (size_t)dataset_row(d, i) * (size_t)in->n_columns;
        size_t at = in->first ? in->first[cell] : cell, last = cell + (size_t)in->n_columns;
        for (size_t end = in->first ? in->first[last] : last; at < end; at++) {
            if (l->n == l->room && !make_room(l))
                return false;
            l->keys[l->n++] = in->keys[at];
        }
    }
    sort_keys(l);
    return true;
}

/* Writes the names of tables, as "'a', 'b'", or "no table". */
static const char *names_of(const struct chunks *c, char text[NAMES_BYTES])
{
    size_t n = 0;
    snprintf(text, NAMES_BYTES, "no table");
    for (int i = 0; i < c->n_tables && n < NAMES_BYTES; i++)
        n +=
            (size_t)snprintf(text + n, NAMES_BYTES - n, "%s'%s'", i ? ", " : "", c->tables[i].name);
    return text;
}

/* Finds a table of the model in the checkpoint. */
static enum status find_table(const struct reading *x, const struct net_table *t, int *out)
{
    const struct chunks *c = checkpoint_restore_manifest(x->checkpoint)->chunks;
    char names[NAMES_BYTES];
    int i = 0;
    while (i < c->n_tables && strcmp(c->tables[i].name, t->name) != 0)
        i++;
    if (i == c->n_tables) {
        LOG_E(
            "--%s=%s: the checkpoint is of another model: it has %s, but no table '%s'; set --model as in training",
            x->q->flag, x->q->path, names_of(c, names), t->name);
        return ST_MISMATCH;
    }
    if (c->tables[i].dim != t->dim) {
        LOG_E(
            "--%s=%s: a row of table '%s' has %d numbers, but layer '%s' of the model has %d units; set --model as in training",
            x->q->flag, x->q->path, t->name, c->tables[i].dim, t->name, t->dim);
        return ST_MISMATCH;
    }
    *out = i;
    return ST_OK;
}

/* Copies the rows of a bucket that the keys need. `keys` were made from an ascending list, so each
 * has one place, its index in that list. *n_found: increased by their number. */
static enum status read_bucket(const struct reading *x, int table, int bucket,
                               const struct row_keys *keys, float *rows, size_t *n_found)
{
    struct checkpoint_bucket b;
    size_t dim = (size_t)checkpoint_restore_manifest(x->checkpoint)->chunks->tables[table].dim;
    if (!checkpoint_restore_holds_bucket(x->checkpoint, table, bucket)) {
        LOG_E(
            "--%s=%s: the checkpoint is in several servers' own folders; copy all of its files into one folder",
            x->q->flag, x->q->path);
        return ST_NOT_FOUND;
    }
    enum status st = checkpoint_restore_bucket_read(x->checkpoint, table, bucket, true, &b);
    if (st != ST_OK)
        return st;
    int64_t at = 0;
    for (uint32_t i = keys->first[bucket]; i < keys->first[bucket + 1]; i++) {
        while (at < b.n && b.keys[at] < keys->keys[i])
            at++;
        if (at == b.n || b.keys[at] != keys->keys[i])
            continue;
        memcpy(rows + keys->order[i] * dim, b.values + (size_t)at * dim, dim * sizeof *rows);
        ++*n_found;
    }
    checkpoint_bucket_free(&b);
    return ST_OK;
}

static void log_found(const struct reading *x, const char *table, size_t n, size_t n_found)
{
    if (n > 0 && n_found == 0)
        LOG_W(
            "table '%s': none of the %zu keys of the samples has a row in %s, so all have their initial values; keys must be made of the same columns as in training",
            table, n, x->q->path);
    else if (n_found < n - n_found)
        LOG_W(
            "table '%s': %zu of the %zu keys of the samples have rows in %s; the other %zu have their initial values, probably because of other columns, another --key_separator, or another spelling or encoding of the cells than in training",
            table, n_found, n, x->q->path, n - n_found);
    else if (n_found == n)
        LOG_I("table '%s': %zu of the %zu keys of the samples have rows in %s", table, n_found, n,
              x->q->path);
    else
        LOG_I(
            "table '%s': %zu of the %zu keys of the samples have rows in %s; the other %zu have their initial values",
            table, n_found, n, x->q->path, n - n_found);
}

/* Reads the rows of these keys, which ascend. rows: memory for them. */
static enum status read_table(const struct reading *x, int table, const struct key_list *l,
                              float *rows)
{
    enum status st = ST_OK;
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(x->checkpoint);
    const struct net_table *t = &m->chunks->tables[table];
    const struct row_init_config init = {t->init, t->init_scale,
                                         row_init_key(m->job.seed, t->name)};
    struct row_keys keys = {0};
    size_t dim = (size_t)t->dim, n_found = 0;
    for (size_t i = 0; i < l->n; i++)
        row_init_rounded(&init, t->row_dtype, l->keys[i], dim, rows + i * dim);
    if (row_keys_set(&keys, t, l->keys, l->n) != ST_OK)
        TRY(no_memory(x->q, "keys"));
    for (int b = 0; b < t->n_buckets; b++)
        if (row_keys_in(&keys, b) > 0)
            TRY(read_bucket(x, table, b, &keys, rows, &n_found));
    log_found(x, t->name, l->n, n_found);
done:
    row_keys_free(&keys);
    return st;
}

/* Reads the rows of table i of the model. */
static enum status read_rows(const struct reading *x, int i, const struct dataset *d, int input)
{
    enum status st = ST_OK;
    const struct net_table *t = &x->q->chunks->tables[i];
    struct key_list *l = &x->r->list[input];
    int table;
    TRY(find_table(x, t, &table));
    if (!l->keys && !collect(d, &d->keys->input[input], l))
        TRY(no_memory(x->q, "keys"));
    if (l->n > (size_t)ROW_KEYS_MAX) {
        LOG_E("--%s=%s: the samples have %zu different keys, at most %lld; divide the data",
              x->q->flag, x->q->path, l->n, (long long)ROW_KEYS_MAX);
        TRY(ST_INVALID);
    }
    float *rows = x->r->rows[i] = malloc(l->n * (size_t)t->dim * sizeof *rows + 1);
    if (!rows)
        TRY(no_memory(x->q, "rows"));
    x->r->dim[i] = (size_t)t->dim;
    x->r->source[i] = (struct row_source){l->n, l->keys, rows};
    TRY(read_table(x, table, l, rows));
done:
    return st;
}

enum status weights_rows_read(const struct weights_request *q, const struct weights_source *source,
                              const struct dataset *d, const int *input, struct weights_rows **out)
{
    enum status st = ST_OK;
    struct reading x = {q, weights_source_checkpoint(source), NULL};
    const struct chunks *c = q->chunks;
    if (!x.checkpoint) {
        LOG_E(
            "--%s=%s: the rows of table '%s' are read only from a checkpoint of the servers: name its weir-E.G-STEP.json or its folder",
            q->flag, q->path, c->tables[0].name);
        return ST_UNSUPPORTED;
    }
    struct weights_rows *r = x.r = calloc(1, sizeof *r);
    if (!r)
        return no_memory(q, "tables");
    r->n_tables = c->n_tables;
    r->source = calloc((size_t)c->n_tables, sizeof *r->source);
    r->rows = calloc((size_t)c->n_tables, sizeof *r->rows);
    r->dim = calloc((size_t)c->n_tables, sizeof *r->dim);
    if (!r->source || !r->rows || !r->dim)
        TRY(no_memory(q, "tables"));
    for (int i = 0; i < c->n_tables; i++)
        TRY(read_rows(&x, i, d, input[i]));
    *out = r;
    r = NULL;
done:
    weights_rows_free(r);
    return st;
}

void weights_rows_free(struct weights_rows *r)
{
    if (!r)
        return;
    for (int i = 0; i < DATASET_MAX_KEY_INPUTS; i++)
        free(r->list[i].keys);
    for (int i = 0; r->rows && i < r->n_tables; i++)
        free(r->rows[i]);
    free(r->rows);
    free(r->dim);
    free(r->source);
    free(r);
}

const struct row_source *weights_rows_sources(const struct weights_rows *r)
{
    return r->source;
}

/* Copies the row of a key. */
static void copy_row(const struct row_source *from, uint64_t key, size_t dim, float *to)
{
    size_t first = 0, end = from->n;
    while (first < end) {
        size_t half = first + (end - first) / 2;
        if (from->keys[half] < key)
            first = half + 1;
        else
            end = half;
    }
    CHECK(first < from->n && from->keys[first] == key);
    memcpy(to, from->rows + first * dim, dim * sizeof *to);
}

static enum status read_batch(void *ctx, int table, const uint64_t *keys, size_t n, float *rows)
{
    const struct weights_rows *r = ctx;
    size_t dim = r->dim[table];
    for (size_t i = 0; i < n; i++)
        copy_row(&r->source[table], keys[i], dim, rows + i * dim);
    return ST_OK;
}

struct table_reader weights_rows_reader(struct weights_rows *r)
{
    return (struct table_reader){read_batch, r};
}
