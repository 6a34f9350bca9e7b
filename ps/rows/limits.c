/* ps/rows/limits.c - see limits.h. The tables count all entries in memory, also absent ones. Only
 * if this count exceeds the bound, one pass over the bucket finds the exact number. Entries that
 * the pass frees are recorded in the undo logs, because older versions may have them. */
#include "ps/rows/limits.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    SWEEP_PART = 1024, /* a sweep reads 1/1024 of the entries */
    SWEEP_LEAST = 16,  /* least number of entries of a sweep */
};

struct victim {
    uint64_t step, key;
    struct row *row;
    bool is_pending;
};

struct victims {
    struct victim *all;
    size_t n;
    size_t n_pending;
};

struct changes { /* changes of both tables by one step */
    size_t rows, new_rows, pending, new_pending;
};

static bool is_present(const struct bucket *b, const struct row *row)
{
    return row && !bucket_is_expired(&b->config, row->step, b->version);
}

/* Returns true if the key of an entry that is absent or pending gets a row in this step. */
static bool is_admitted(const struct bucket *b, const struct row *pending)
{
    uint64_t before = is_present(b, pending) ? bucket_pending_count(pending) : 0;
    return before + 1 >= b->config.admit_after;
}

static struct changes count_changes(const struct bucket *b, const struct limits_step *s)
{
    struct changes c = {0};
    for (size_t i = 0; i < s->n; i++)
        if (is_present(b, s->rows[i]) || is_admitted(b, s->pending[i])) {
            c.rows++;
            c.new_rows += !s->rows[i];
            c.pending += s->pending[i] != NULL;
        } else {
            c.pending++;
            c.new_pending += !s->pending[i];
        }
    return c;
}

static bool has_key(const struct limits_step *s, uint64_t key)
{
    return bsearch(&key, s->keys, s->n, sizeof *s->keys, row_table_compare_keys) != NULL;
}

static void collect(struct row_table *t, const struct limits_step *s, bool is_pending,
                    struct victims *v)
{
    struct row *row;
    uint32_t cursor = 0;
    while ((row = row_table_next(t, &cursor)))
        if (!has_key(s, row->key))
            v->all[v->n++] = (struct victim){row->step, row->key, row, is_pending};
}

static bool is_older(const struct victim *a, const struct victim *b)
{
    return a->step < b->step || (a->step == b->step && a->key < b->key);
}

/* Reorders the entries so that the `k` oldest ones are the first (Hoare's selection). */
static void select_oldest(struct victim *all, size_t n, size_t k)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)n - 1, place = (ptrdiff_t)k;
    while (k < n && low < high) {
        struct victim pivot = all[place], swapped;
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (is_older(&all[i], &pivot))
                i++;
            while (is_older(&pivot, &all[j]))
                j--;
            if (i > j)
                break;
            swapped = all[i];
            all[i++] = all[j];
            all[j--] = swapped;
        }
        if (j < place)
            low = i;
        if (place < i)
            high = j;
    }
}

/* Finds the entries that must be freed so that the step keeps the bound. */
static enum status find_victims(struct bucket *b, struct limits_step *s, uint64_t total,
                                struct victims *out)
{
    const struct bucket_config *c = &b->config;
    struct victims v = {.all = malloc((b->rows.n + b->pending.n + 1) * sizeof *v.all)};
    size_t n_absent = 0, n_evicted = 0;
    if (!v.all)
        return ST_NOMEM;
    collect(&b->rows, s, false, &v);
    collect(&b->pending, s, true, &v);
    for (size_t i = 0; i < v.n; i++)
        n_absent += bucket_is_expired(c, v.all[i].step, b->version + 1);
    s->needed_rows = total - n_absent;
    if (s->needed_rows > c->max_rows)
        n_evicted = s->needed_rows - c->max_rows / 16 * 15 - c->max_rows % 16 * 15 / 16;
    if (n_evicted > 0 && (c->when_full == ROW_FULL_STOP || n_evicted > v.n - n_absent)) {
        free(v.all);
        return ST_RANGE;
    }
    /* absent entries are older than all others */
    select_oldest(v.all, v.n, n_absent + n_evicted);
    v.n = n_absent + n_evicted;
    for (size_t i = 0; i < v.n; i++)
        v.n_pending += v.all[i].is_pending;
    *out = v;
    return ST_OK;
}

enum status limits_begin(struct bucket *b, struct limits_step *s)
{
    enum status st = ST_OK;
    struct victims v = {0};
    if (b->pending.n > 0)
        row_table_find(&b->pending, s->keys, s->n, s->pending);
    else
        memset(s->pending, 0, s->n * sizeof *s->pending);
    struct changes c = count_changes(b, s);
    uint64_t total = (uint64_t)b->rows.n + b->pending.n + s->n; /* each key has one entry then */
    for (size_t i = 0; i < s->n; i++)
        total -= (s->rows[i] != NULL) + (s->pending[i] != NULL);
    if (total > b->config.max_rows)
        TRY(find_victims(b, s, total, &v));
    TRY(bucket_begin(b, c.rows + v.n - v.n_pending, c.new_rows));
    TRY(bucket_begin_pending(b, c.pending + v.n_pending, c.new_pending));
    for (size_t i = 0; i < v.n; i++)
        if (v.all[i].is_pending)
            bucket_remove_pending(b, v.all[i].row);
        else
            bucket_remove(b, v.all[i].row);
done:
    free(v.all);
    return st;
}

struct row *limits_row(struct bucket *b, const struct limits_step *s, size_t i)
{
    struct row *row = s->rows[i], *pending = s->pending[i];
    if (!is_present(b, row) && !is_admitted(b, pending)) {
        bucket_count_pending(b, s->keys[i], pending);
        return NULL;
    }
    if (pending)
        bucket_remove_pending(b, pending);
    return bucket_change(b, s->keys[i], row);
}

static void sweep_table(struct bucket *b, struct row_table *t, uint32_t *cursor, uint64_t oldest)
{
    uint32_t part = t->n_made / SWEEP_PART;
    uint32_t end = *cursor + (part > SWEEP_LEAST ? part : SWEEP_LEAST);
    for (struct row *row; (row = row_table_next_before(t, end, cursor));)
        if (bucket_is_expired(&b->config, row->step, oldest)) {
            row_table_remove(t, row);
            b->n_removed += t == &b->rows;
        }
    if (*cursor >= t->n_made)
        *cursor = 0;
}

void limits_sweep(struct bucket *b)
{
    if (b->config.evict_after == 0)
        return;
    uint64_t oldest = bucket_oldest(b);
    sweep_table(b, &b->rows, &b->sweep_rows, oldest);
    sweep_table(b, &b->pending, &b->sweep_pending, oldest);
}

void limits_text(const struct bucket *b, uint64_t needed_rows, const char *table, uint64_t max_rows,
                 char text[LIMITS_TEXT_BYTES])
{
    const char *advice = b->config.when_full == ROW_FULL_STOP
                             ? "set evict_after or when_full=evict, or raise max_rows"
                             : "too many rows have a gradient in this step, raise max_rows";
    snprintf(text, LIMITS_TEXT_BYTES,
             "table '%s', bucket %" PRIu32 ": %" PRIu64 " rows, at most %" PRIu64
             " (max_rows=%" PRIu64 "); %s",
             table, b->config.number, needed_rows, b->config.max_rows, max_rows, advice);
}
