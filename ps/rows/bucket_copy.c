/* ps/rows/bucket_copy.c - see bucket_copy.h. A part is found in one pass over the keys of all
 * entries and of their undo logs: a selection finds the lowest ones above the cursor, and only
 * these are sorted, without the lock. Some of them may be absent in the version, so a part may have
 * fewer entries than the caller allows. Then entries are read in blocks, and the lock is free
 * between two blocks, so that members do not wait for the whole copy. */
#include "ps/rows/bucket_copy.h"
#include "kernels/vector/float_bits.h"
#include <stdlib.h>

enum { COPY_BLOCK = 1024 }; /* entries that are read without a break */

/* Returns the floats of one slot of a row. */
static size_t slot_width(const struct bucket *b)
{
    size_t dim = (size_t)b->config.dim;
    return b->n_slots < dim ? b->n_slots : dim;
}

size_t bucket_row_bytes(const struct bucket *b)
{
    return 2 * sizeof(uint64_t) + ((size_t)b->config.dim + b->n_slots) * sizeof(float);
}

static size_t keep_above(uint64_t *keys, size_t n, const uint64_t *after)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!after || keys[i] > *after)
            keys[kept++] = keys[i];
    return kept;
}

/* Allocates *keys, and fills it with the keys of all entries and records, in any order; a key may
 * occur several times. */
static enum status list_keys(const struct bucket *b, uint64_t version, uint64_t **keys, size_t *n)
{
    const struct row *row;
    uint32_t cursor = 0;
    size_t count = 0;
    if (!bucket_is_readable(b, version))
        return ST_NOT_FOUND;
    uint64_t *all = malloc(((size_t)b->rows.n + b->pending.n + undo_keys(&b->undo, version, NULL) +
                            undo_keys(&b->undo_pending, version, NULL) + 1) *
                           sizeof *all);
    if (!all)
        return ST_NOMEM;
    while ((row = row_table_next(&b->rows, &cursor)))
        all[count++] = row->key;
    cursor = 0;
    while ((row = row_table_next(&b->pending, &cursor)))
        all[count++] = row->key;
    count += undo_keys(&b->undo, version, all + count);
    count += undo_keys(&b->undo_pending, version, all + count);
    *n = count;
    *keys = all;
    return ST_OK;
}

/* Reorders the keys so that the `k` lowest ones are the first (Hoare's selection). */
static void select_lowest(uint64_t *keys, size_t n, size_t k)
{
    ptrdiff_t low = 0, high = (ptrdiff_t)n - 1, place = (ptrdiff_t)k;
    while (k < n && low < high) {
        uint64_t pivot = keys[place], swapped;
        ptrdiff_t i = low, j = high;
        while (i <= j) {
            while (keys[i] < pivot)
                i++;
            while (pivot < keys[j])
                j--;
            if (i > j)
                break;
            swapped = keys[i];
            keys[i++] = keys[j];
            keys[j--] = swapped;
        }
        if (j < place)
            low = i;
        if (place < i)
            high = j;
    }
}

/* Sorts keys, and removes repeated ones. Returns the number of keys. */
static size_t sort_unique(uint64_t *keys, size_t n)
{
    size_t kept = 0;
    qsort(keys, n, sizeof *keys, row_table_compare_keys);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || keys[i] != keys[i - 1])
            keys[kept++] = keys[i];
    return kept;
}

/* Creates a block unless it would be empty. */
static enum status make_block(size_t bytes, struct buf **out)
{
    return bytes > 0 ? buf_create(bytes, out) : ST_OK;
}

static void *data_of(struct buf *b)
{
    return b ? b->data : NULL;
}

/* Sets the entries of a part to those of its blocks. */
static void set_entries(struct bucket_part *p, size_t n, size_t n_pending)
{
    const uint64_t *pending = data_of(p->pending);
    p->entries =
        (struct bucket_entries){.n = n,
                                .keys = data_of(p->keys),
                                .steps = data_of(p->steps),
                                .values = data_of(p->values),
                                .slots = data_of(p->slots),
                                .n_pending = n_pending,
                                .pending_keys = pending,
                                .pending_steps = pending ? pending + n_pending : NULL,
                                .pending_counts = pending ? pending + 2 * n_pending : NULL};
}

static enum status make_blocks(const struct bucket *b, size_t n, size_t n_pending,
                               struct bucket_part *p)
{
    enum status st = ST_OK;
    TRY(make_block(n * sizeof(uint64_t), &p->keys));
    TRY(make_block(n * sizeof(uint64_t), &p->steps));
    TRY(make_block(n * (size_t)b->config.dim * sizeof(float), &p->values));
    TRY(make_block(n * b->n_slots * sizeof(float), &p->slots));
    TRY(make_block(3 * n_pending * sizeof(uint64_t), &p->pending));
    set_entries(p, n, n_pending);
done:
    return st;
}

/* Shortens a block; frees it if it would be empty. */
static void trim_block(struct buf **block, size_t bytes)
{
    if (bytes == 0) {
        buf_unref(*block);
        *block = NULL;
    } else {
        (*block)->bytes = bytes;
    }
}

/* Shortens the blocks, which were made for more rows than the n that were copied. */
static void trim_rows(const struct bucket *b, size_t n, struct bucket_part *p)
{
    size_t made = p->entries.n, width = slot_width(b);
    for (size_t at = width; at < b->n_slots; at += width) {
        float *slots = p->slots->data;
        memmove(slots + at * n, slots + at * made, n * width * sizeof *slots);
    }
    trim_block(&p->keys, n * sizeof(uint64_t));
    trim_block(&p->steps, n * sizeof(uint64_t));
    trim_block(&p->values, n * (size_t)b->config.dim * sizeof(float));
    trim_block(&p->slots, n * b->n_slots * sizeof(float));
    set_entries(p, n, p->entries.n_pending);
}

static void copy_row(const struct bucket *b, const struct row *row, size_t i, struct bucket_part *p)
{
    size_t dim = (size_t)b->config.dim, width = slot_width(b), n = p->entries.n;
    CHECK(i < n);
    ((uint64_t *)p->keys->data)[i] = row->key;
    ((uint64_t *)p->steps->data)[i] = row->step;
    float room[OPTIM_ROWS_MAX_DIM];
    const float *slots = row->data + b->value_floats;
    memcpy((float *)p->values->data + i * dim, bucket_values(b, row, room), dim * sizeof *room);
    for (size_t at = 0; at < b->n_slots; at += width)
        memcpy((float *)p->slots->data + at * n + i * width, slots + at, width * sizeof *slots);
}

static void copy_pending(const struct bucket *b, const struct row *entry, size_t i,
                         struct bucket_part *p)
{
    uint64_t *to = p->pending->data;
    size_t n = p->entries.n_pending;
    CHECK(i < n);
    to[i] = entry->key;
    to[n + i] = entry->step;
    to[2 * n + i] = bucket_pending_count(entry);
}

/* A pass over the entries of one kind: rows or pending keys. */
struct pass {
    struct shared_bucket *bucket;
    uint64_t version;
    bool is_pending;
    /* called for each entry of the version, in ascending order of keys, with its index */
    void (*visit)(const struct bucket *b, const struct row *entry, size_t i, struct bucket_part *p);
    size_t n; /* result: number of entries */
};

static enum status run_pass(struct pass *pass, const uint64_t *keys, size_t n,
                            struct bucket_part *p)
{
    struct shared_bucket *s = pass->bucket;
    struct row *rows[COPY_BLOCK];
    enum status st = ST_OK;
    for (size_t at = 0; at < n && st == ST_OK; at += COPY_BLOCK) {
        size_t count = n - at < COPY_BLOCK ? n - at : COPY_BLOCK;
        pthread_mutex_lock(&s->lock);
        st =
            bucket_find_entries(s->bucket, pass->is_pending, pass->version, keys + at, count, rows);
        for (size_t i = 0; i < count && st == ST_OK; i++) {
            if (!rows[i])
                continue;
            if (pass->visit)
                pass->visit(s->bucket, rows[i], pass->n, p);
            pass->n++;
        }
        pthread_mutex_unlock(&s->lock);
    }
    return st;
}

/* Returns true if the version may have pending keys. */
static bool has_pending(struct shared_bucket *s, uint64_t version)
{
    pthread_mutex_lock(&s->lock);
    const struct bucket *b = s->bucket;
    bool has = b->pending.n > 0 || undo_keys(&b->undo_pending, version, NULL) > 0;
    pthread_mutex_unlock(&s->lock);
    return has;
}

/* Copies the entries that these keys have in the version. Nearly all of them have rows, so these
 * are not counted first; pending keys are. */
static enum status copy_entries(struct shared_bucket *s, uint64_t version, const uint64_t *keys,
                                size_t n, struct bucket_part *p)
{
    enum status st = ST_OK;
    struct pass rows = {.bucket = s, .version = version, .visit = copy_row};
    struct pass pending = {.bucket = s, .version = version, .is_pending = true};
    bool may_pend = has_pending(s, version);
    if (may_pend)
        TRY(run_pass(&pending, keys, n, p));
    TRY(make_blocks(s->bucket, n, pending.n, p));
    TRY(run_pass(&rows, keys, n, p));
    if (rows.n < n)
        trim_rows(s->bucket, rows.n, p);
    pending.visit = copy_pending;
    pending.n = 0;
    if (p->entries.n_pending > 0)
        TRY(run_pass(&pending, keys, n, p));
done:
    return st;
}

enum status bucket_copy(struct shared_bucket *s, uint64_t version, const uint64_t *after,
                        size_t most, struct bucket_part *out)
{
    struct bucket_part p = {0};
    uint64_t *keys = NULL;
    size_t n = 0, at = 0;
    pthread_mutex_lock(&s->lock);
    enum status st = list_keys(s->bucket, version, &keys, &n);
    pthread_mutex_unlock(&s->lock);
    TRY(st);
    n = keep_above(keys, n, after);
    while (at < n && p.entries.n + p.entries.n_pending == 0) {
        size_t count = n - at < most ? n - at : most;
        select_lowest(keys + at, n - at, count);
        TRY(copy_entries(s, version, keys + at, sort_unique(keys + at, count), &p));
        at += count;
    }
    p.has_more = at < n;
    *out = p;
    p = (struct bucket_part){0};
done:
    bucket_part_free(&p);
    free(keys);
    return st;
}

void bucket_part_free(struct bucket_part *p)
{
    buf_unref(p->keys);
    buf_unref(p->steps);
    buf_unref(p->values);
    buf_unref(p->slots);
    buf_unref(p->pending);
    *p = (struct bucket_part){0};
}

void bucket_begin_fill(struct bucket *b, uint64_t version)
{
    CHECK(b->version == 0 && b->rows.n == 0 && b->pending.n == 0);
    b->version = b->first = version;
}

/* Checks the keys and steps of one list. */
static const char *check_list(const struct bucket *b, const uint64_t *after, const uint64_t *keys,
                              const uint64_t *steps, size_t n)
{
    size_t at;
    const char *why = bucket_check_keys(b, keys, n, &at);
    if (!why && n > 0 && after && keys[0] <= *after)
        why = "a key is not above the last key that arrived before";
    for (size_t i = 0; i < n && !why; i++)
        if (steps[i] > b->version)
            why = "a step is above the version of the bucket";
    return why;
}

static const char *check_pending(const struct bucket *b, const struct bucket_entries *e)
{
    size_t row = 0;
    for (size_t i = 0; i < e->n_pending; i++) {
        if (e->pending_counts[i] < 1 || e->pending_counts[i] >= b->config.admit_after)
            return "the count of a pending key is not between 1 and admit_after - 1";
        while (row < e->n && e->keys[row] < e->pending_keys[i])
            row++;
        if (row < e->n && e->keys[row] == e->pending_keys[i])
            return "a key has a row, but is pending";
    }
    return NULL;
}

/* Returns true if the values are numbers of the bucket's dtype. */
static bool fit_values(const struct bucket *b, const struct bucket_entries *e)
{
    size_t n = b->config.dtype == DTYPE_BF16 ? e->n * (size_t)b->config.dim : 0;
    uint32_t lost = 0;
    for (size_t i = 0; i < n; i++)
        lost |= bits_of(e->values[i]) & 0xffff;
    return lost == 0;
}

static const char *check_entries(const struct bucket *b, const uint64_t *after,
                                 const struct bucket_entries *e)
{
    uint64_t present = (uint64_t)b->rows.n + b->pending.n;
    const char *why = check_list(b, after, e->keys, e->steps, e->n);
    if (!why)
        why = check_list(b, after, e->pending_keys, e->pending_steps, e->n_pending);
    if (!why)
        why = check_pending(b, e);
    if (!why && !fit_values(b, e))
        why = "a value is not a number of bf16";
    if (!why && present + e->n + e->n_pending > b->config.max_rows)
        why = "the bucket has more rows than max_rows allows";
    return why;
}

static void add_row(struct bucket *b, const struct bucket_entries *e, size_t i)
{
    size_t width = slot_width(b);
    struct row *row = row_table_add(&b->rows, e->keys[i]);
    float *slots = bucket_slots(b, row);
    row->step = e->steps[i];
    bucket_set_values(b, row, e->values + i * (size_t)b->config.dim);
    for (size_t at = 0; at < b->n_slots; at += width)
        memcpy(slots + at, e->slots + at * e->n + i * width, width * sizeof *slots);
}

enum status bucket_add(struct bucket *b, const uint64_t *after, const struct bucket_entries *from,
                       const char **why)
{
    enum status st = ST_OK;
    *why = check_entries(b, after, from);
    if (*why)
        return ST_INVALID;
    TRY(row_table_reserve(&b->rows, from->n));
    TRY(row_table_reserve(&b->pending, from->n_pending));
    for (size_t i = 0; i < from->n; i++)
        add_row(b, from, i);
    for (size_t i = 0; i < from->n_pending; i++) {
        struct row *entry = row_table_add(&b->pending, from->pending_keys[i]);
        entry->step = from->pending_steps[i];
        memcpy(entry->data, &from->pending_counts[i], sizeof(uint64_t));
    }
done:
    return st;
}
