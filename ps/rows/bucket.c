/* ps/rows/bucket.c - see bucket.h. */
#include "ps/rows/bucket.h"
#include "base/rng.h"
#include <stdlib.h>

enum { READ_BLOCK = 256 }; /* number of keys that are found before their rows are read */

/* Returns the floats of memory that `dim` values need. */
static size_t value_floats(enum dtype dtype, size_t dim)
{
    return (dtype_bytes(dtype, dim) + sizeof(float) - 1) / sizeof(float);
}

void bucket_initial(const struct bucket_config *config, uint64_t key, float *values)
{
    row_init_rounded(&config->init, config->dtype, key, (size_t)config->dim, values);
}

void bucket_set_values(const struct bucket *b, struct row *row, const float *values)
{
    row->data[b->value_floats - 1] = 0; /* the values may fill only a half of it */
    dtype_encode(b->config.dtype, row->data, values, (size_t)b->config.dim);
}

double bucket_most_bytes(size_t dim, enum dtype dtype, enum optim_rows_kind kind, int64_t max_rows)
{
    size_t floats = value_floats(dtype, dim) + optim_rows_slots(kind, dim);
    /* the index has a 4-byte entry for each row, and is filled to at least 3/8 */
    double index = sizeof(uint32_t) * 8.0 / 3.0;
    return (double)max_rows * ((double)row_table_row_bytes(floats * sizeof(float)) + index);
}

enum status bucket_create(const struct bucket_config *config, struct bucket **out)
{
    enum status st = ST_OK;
    size_t dim = (size_t)config->dim, n_slots = optim_rows_slots(config->optimizer.kind, dim);
    struct bucket *b = calloc(1, sizeof *b);
    if (!b)
        return ST_NOMEM;
    b->config = *config;
    b->value_floats = value_floats(config->dtype, dim);
    b->n_slots = n_slots;
    TRY(row_table_create((b->value_floats + n_slots) * sizeof(float), &b->rows));
    undo_init(&b->undo, b->rows.row_bytes);
    TRY(row_table_create(sizeof(uint64_t), &b->pending));
    undo_init(&b->undo_pending, b->pending.row_bytes);
    *out = b;
    b = NULL;
done:
    bucket_destroy(b);
    return st;
}

void bucket_destroy(struct bucket *b)
{
    if (!b)
        return;
    row_table_destroy(&b->rows);
    undo_destroy(&b->undo);
    row_table_destroy(&b->pending);
    undo_destroy(&b->undo_pending);
    free(b);
}

const char *bucket_check_keys(const struct bucket *b, const void *keys, size_t n, size_t *at)
{
    uint32_t mask = b->config.n_buckets - 1;
    for (size_t i = 0; i < n; i++) {
        uint64_t key = row_key_at(keys, i);
        *at = i;
        if (i > 0 && key <= row_key_at(keys, i - 1))
            return "the keys are not ascending";
        if (((uint32_t)rng_mix(key) & mask) != b->config.number)
            return "a key belongs to another bucket";
    }
    return NULL;
}

bool bucket_is_expired(const struct bucket_config *config, uint64_t step, uint64_t version)
{
    return config->evict_after > 0 && version > config->evict_after &&
           step < version - config->evict_after;
}

enum status bucket_find_entries(const struct bucket *b, bool is_pending, uint64_t version,
                                const void *keys, size_t n, struct row **rows)
{
    if (!bucket_is_readable(b, version))
        return ST_NOT_FOUND;
    row_table_find(is_pending ? &b->pending : &b->rows, keys, n, rows);
    if (version != b->version)
        undo_find(is_pending ? &b->undo_pending : &b->undo, version, keys, n, rows);
    for (size_t i = 0; i < n; i++)
        if (rows[i] &&
            (rows[i]->step == ROW_ABSENT || bucket_is_expired(&b->config, rows[i]->step, version)))
            rows[i] = NULL;
    return ST_OK;
}

enum status bucket_find(const struct bucket *b, uint64_t version, const void *keys, size_t n,
                        struct row **rows)
{
    return bucket_find_entries(b, false, version, keys, n, rows);
}

enum status bucket_find_pending(const struct bucket *b, uint64_t version, const void *keys,
                                size_t n, uint64_t *counts)
{
    struct row *rows[READ_BLOCK];
    if (!bucket_is_readable(b, version))
        return ST_NOT_FOUND;
    for (size_t first = 0; first < n; first += READ_BLOCK) {
        size_t count = n - first < READ_BLOCK ? n - first : READ_BLOCK;
        bucket_find_entries(b, true, version, (const char *)keys + first * sizeof(uint64_t), count,
                            rows);
        for (size_t i = 0; i < count; i++)
            counts[first + i] = rows[i] ? bucket_pending_count(rows[i]) : 0;
    }
    return ST_OK;
}

enum status bucket_encode(const struct bucket *b, uint64_t version, const void *keys, size_t n,
                          enum dtype dtype, void *out)
{
    size_t dim = (size_t)b->config.dim, bytes = dtype_bytes(dtype, dim);
    float room[OPTIM_ROWS_MAX_DIM];
    struct row *rows[READ_BLOCK];
    char *to = out;
    if (!bucket_is_readable(b, version))
        return ST_NOT_FOUND;
    for (size_t first = 0; first < n; first += READ_BLOCK) {
        size_t count = n - first < READ_BLOCK ? n - first : READ_BLOCK;
        const char *part = (const char *)keys + first * sizeof(uint64_t);
        bucket_find(b, version, part, count, rows);
        for (size_t i = 0; i < count; i++, to += bytes) {
            if (!rows[i])
                bucket_initial(&b->config, row_key_at(part, i), room);
            const float *values = rows[i] ? bucket_values(b, rows[i], room) : room;
            if (dtype == DTYPE_F32)
                memcpy(to, values, bytes);
            else
                dtype_encode(dtype, to, values, dim);
        }
    }
    return ST_OK;
}

enum status bucket_read(const struct bucket *b, uint64_t version, const void *keys, size_t n,
                        float *values)
{
    return bucket_encode(b, version, keys, n, DTYPE_F32, values);
}

/* Sorts keys, and removes repeated keys and those of absent rows. Returns the number of keys. */
static size_t keep_present(const struct bucket *b, uint64_t version, uint64_t *keys, size_t n)
{
    size_t n_unique = 0, kept = 0;
    struct row *rows[READ_BLOCK];
    qsort(keys, n, sizeof *keys, row_table_compare_keys);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || keys[i] != keys[i - 1])
            keys[n_unique++] = keys[i];
    for (size_t first = 0; first < n_unique; first += READ_BLOCK) {
        size_t count = n_unique - first < READ_BLOCK ? n_unique - first : READ_BLOCK;
        bucket_find(b, version, keys + first, count, rows);
        for (size_t i = 0; i < count; i++)
            if (rows[i])
                keys[kept++] = keys[first + i];
    }
    return kept;
}

enum status bucket_list_keys(const struct bucket *b, uint64_t version, uint64_t **keys, size_t *n)
{
    const struct row *row;
    uint32_t cursor = 0;
    size_t count = 0;
    if (!bucket_is_readable(b, version))
        return ST_NOT_FOUND;
    uint64_t *all = malloc((b->rows.n + undo_keys(&b->undo, version, NULL) + 1) * sizeof *all);
    if (!all)
        return ST_NOMEM;
    while ((row = row_table_next(&b->rows, &cursor)))
        all[count++] = row->key;
    count += undo_keys(&b->undo, version, all + count);
    *n = keep_present(b, version, all, count);
    *keys = all;
    return ST_OK;
}

size_t bucket_bytes(const struct bucket *b)
{
    return sizeof *b + row_table_bytes(&b->rows) + undo_bytes(&b->undo) +
           row_table_bytes(&b->pending) + undo_bytes(&b->undo_pending);
}
