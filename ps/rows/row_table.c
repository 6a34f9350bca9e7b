/* ps/rows/row_table.c - see row_table.h. The highest bits of a key's hash choose its place in the
 * index, and lower bits are in the entry. The lowest ones choose the bucket, so they are equal for
 * all keys of a table; an entry has them only if the index is very small. */
#include "ps/rows/row_table.h"
#include "base/rng.h"
#include <stdlib.h>

enum {
    SLAB_BYTES = 64 << 10,
    FIRST_BITS = 6,
    MAX_BITS = 31,
    BLOCK = 32,  /* number of keys whose memory is requested at once */
    LINE = 64,   /* bytes of a cache line */
    AHEAD = 512, /* bytes of a row that a search requests; hardware fetches the rest in sequence */
};

int row_table_compare_keys(const void *a, const void *b)
{
    uint64_t x = row_key_at(a, 0), y = row_key_at(b, 0); /* a row begins with its key */
    return (x > y) - (x < y);
}

static struct row *row_at(const struct row_table *t, uint32_t number)
{
    size_t in_slab = number & ((1u << t->slab_shift) - 1);
    return (struct row *)(void *)(t->slabs[number >> t->slab_shift] + in_slab * t->row_bytes);
}

static uint32_t index_mask(const struct row_table *t)
{
    return (1u << t->index_bits) - 1;
}

static uint32_t home_of(const struct row_table *t, uint64_t hash)
{
    return (uint32_t)(hash >> (64 - t->index_bits));
}

enum status row_table_create(size_t data_bytes, struct row_table *out)
{
    struct row_table t = {.row_bytes = row_table_row_bytes(data_bytes), .index_bits = FIRST_BITS};
    while ((t.row_bytes << (t.slab_shift + 1)) <= SLAB_BYTES)
        t.slab_shift++;
    t.index = calloc((size_t)1 << FIRST_BITS, sizeof *t.index);
    if (!t.index)
        return ST_NOMEM;
    *out = t;
    return ST_OK;
}

void row_table_destroy(struct row_table *t)
{
    for (size_t s = 0; s < t->n_slabs; s++)
        free(t->slabs[s]);
    free(t->slabs);
    free(t->index);
    *t = (struct row_table){0};
}

/* Returns the row of the first entry from *at on that has the hash bits, and sets *at to its place;
 * NULL if an empty entry precedes it. */
static struct row *probe(const struct row_table *t, uint64_t hash, uint32_t *at)
{
    uint32_t mask = index_mask(t), bits = (uint32_t)hash & ~mask;
    for (;; *at = (*at + 1) & mask) {
        uint32_t entry = t->index[*at];
        if (!entry)
            return NULL;
        if ((entry & ~mask) == bits)
            return row_at(t, (entry & mask) - 1);
    }
}

static void prefetch_row(const struct row_table *t, const struct row *row)
{
    size_t bytes = t->row_bytes < AHEAD ? t->row_bytes : AHEAD;
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch((const char *)row + at, 1);
    __builtin_prefetch((const char *)row + bytes - 1, 1);
}

static void find_block(const struct row_table *t, const void *keys, size_t n, struct row **rows)
{
    uint64_t hash[BLOCK];
    uint32_t at[BLOCK], mask = index_mask(t);
    for (size_t i = 0; i < n; i++) {
        hash[i] = rng_mix(row_key_at(keys, i));
        at[i] = home_of(t, hash[i]);
        __builtin_prefetch(&t->index[at[i]]);
    }
    for (size_t i = 0; i < n; i++) {
        rows[i] = probe(t, hash[i], &at[i]);
        if (rows[i])
            prefetch_row(t, rows[i]);
    }
    for (size_t i = 0; i < n; i++)
        while (rows[i] && rows[i]->key != row_key_at(keys, i)) {
            at[i] = (at[i] + 1) & mask;
            rows[i] = probe(t, hash[i], &at[i]);
        }
}

void row_table_find(const struct row_table *t, const void *keys, size_t n, struct row **rows)
{
    for (size_t at = 0; at < n; at += BLOCK)
        find_block(t, (const char *)keys + at * sizeof(uint64_t), n - at < BLOCK ? n - at : BLOCK,
                   rows + at);
}

/* Writes the entry of a row that is not in the index yet. */
static void enter(struct row_table *t, uint64_t key, uint32_t number)
{
    uint64_t hash = rng_mix(key);
    uint32_t mask = index_mask(t), at = home_of(t, hash);
    while (t->index[at])
        at = (at + 1) & mask;
    t->index[at] = ((uint32_t)hash & ~mask) | (number + 1);
}

static enum status grow_index(struct row_table *t, int bits)
{
    uint32_t *index = calloc((size_t)1 << bits, sizeof *index);
    if (!index)
        return ST_NOMEM;
    free(t->index);
    t->index = index;
    t->index_bits = bits;
    for (uint32_t i = 0; i < t->n_made; i++)
        if (row_at(t, i)->step != ROW_ABSENT)
            enter(t, row_at(t, i)->key, i);
    return ST_OK;
}

/* Adds slabs until there are n. */
static enum status add_slabs(struct row_table *t, size_t n)
{
    if (n > t->slabs_capacity) {
        size_t capacity = n > 2 * t->slabs_capacity ? n : 2 * t->slabs_capacity;
        char **slabs = realloc(t->slabs, capacity * sizeof *slabs);
        if (!slabs)
            return ST_NOMEM;
        t->slabs = slabs;
        t->slabs_capacity = capacity;
    }
    for (; t->n_slabs < n; t->n_slabs++) {
        t->slabs[t->n_slabs] = malloc(t->row_bytes << t->slab_shift);
        if (!t->slabs[t->n_slabs])
            return ST_NOMEM;
    }
    return ST_OK;
}

enum status row_table_reserve(struct row_table *t, size_t n)
{
    enum status st = ST_OK;
    size_t total = t->n + n, slab_rows = (size_t)1 << t->slab_shift;
    int bits = t->index_bits;
    if (total > (size_t)3 << (MAX_BITS - 2))
        return ST_RANGE;
    while (total > (size_t)3 << (bits - 2))
        bits++;
    size_t made = total > t->n_made ? total : t->n_made;
    TRY(add_slabs(t, (made + slab_rows - 1) / slab_rows));
    if (bits > t->index_bits)
        TRY(grow_index(t, bits));
done:
    return st;
}

struct row *row_table_add(struct row_table *t, uint64_t key)
{
    uint32_t number = t->unused ? t->unused - 1 : t->n_made++;
    struct row *row = row_at(t, number);
    if (t->unused)
        t->unused = (uint32_t)row->key;
    row->key = key;
    enter(t, key, number);
    t->n++;
    return row;
}

/* Empties the entry `hole`, and moves entries that would no longer be found. */
static void close_hole(struct row_table *t, uint32_t hole)
{
    uint32_t mask = index_mask(t);
    for (uint32_t at = (hole + 1) & mask; t->index[at]; at = (at + 1) & mask) {
        const struct row *row = row_at(t, (t->index[at] & mask) - 1);
        uint32_t home = home_of(t, rng_mix(row->key));
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        t->index[hole] = t->index[at];
        hole = at;
    }
    t->index[hole] = 0;
}

void row_table_remove(struct row_table *t, struct row *row)
{
    uint64_t hash = rng_mix(row->key);
    uint32_t at = home_of(t, hash), mask = index_mask(t);
    while (probe(t, hash, &at) != row)
        at = (at + 1) & mask;
    uint32_t number = (t->index[at] & mask) - 1;
    close_hole(t, at);
    row->key = t->unused;
    row->step = ROW_ABSENT;
    t->unused = number + 1;
    t->n--;
}

struct row *row_table_next_before(const struct row_table *t, uint32_t end, uint32_t *cursor)
{
    while (*cursor < t->n_made && *cursor < end) {
        struct row *row = row_at(t, (*cursor)++);
        if (row->step != ROW_ABSENT)
            return row;
    }
    return NULL;
}

struct row *row_table_next(const struct row_table *t, uint32_t *cursor)
{
    return row_table_next_before(t, t->n_made, cursor);
}

size_t row_table_bytes(const struct row_table *t)
{
    return t->n_slabs * (t->row_bytes << t->slab_shift) + t->slabs_capacity * sizeof *t->slabs +
           ((size_t)1 << t->index_bits) * sizeof *t->index;
}
