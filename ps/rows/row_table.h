/* ps/rows/row_table.h - rows of equal size, found by 64-bit keys. The rows lie in slabs of at most
 * 64 KB that never move. The index is an array of 4-byte entries with linear probing, filled to at
 * most 3/4; removal shifts the following entries back, so there are no marks of removed rows. An
 * entry has the number of a row and, in the bits that the number does not need, a part of the key's
 * hash, so that a search rarely reads another key's row. Only the index is copied when it grows.
 * Owns:    rows and index.
 * Threads: one at a time.
 * Errors:  ST_NOMEM, ST_RANGE (more than 1.6 billion rows); a failed call changes nothing. */
#ifndef PS_ROWS_ROW_TABLE_H
#define PS_ROWS_ROW_TABLE_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct row {
    uint64_t key;
    uint64_t step; /* version that changed the row last */
    float data[];
};
#define ROW_ABSENT UINT64_MAX /* `step` of an unused row, and of the record of an absent one */

struct row_table {
    size_t row_bytes; /* a multiple of 8 */
    int slab_shift;   /* a slab has 2^slab_shift rows */
    int index_bits;   /* the index has 2^index_bits entries */
    uint32_t *index;  /* 0: empty; otherwise hash bits and 1 + number of a row */
    char **slabs;
    size_t n_slabs, slabs_capacity;
    uint32_t n;      /* rows */
    uint32_t n_made; /* numbers that were ever used */
    uint32_t unused; /* 1 + number of the first unused row below n_made; 0: none */
};

/* Returns key i of an array of any alignment. */
static inline uint64_t row_key_at(const void *keys, size_t i)
{
    uint64_t key;
    memcpy(&key, (const char *)keys + i * sizeof key, sizeof key);
    return key;
}

/* Compares two keys, or the keys of two rows, for qsort and bsearch. */
int row_table_compare_keys(const void *a, const void *b);

/* Returns the bytes of a row that has `data_bytes` besides key and step. */
static inline size_t row_table_row_bytes(size_t data_bytes)
{
    return (sizeof(struct row) + data_bytes + 7) / 8 * 8;
}
/* Creates an empty table; each row has `data_bytes` besides key and step. */
enum status row_table_create(size_t data_bytes, struct row_table *out);
void row_table_destroy(struct row_table *t);

/* Sets rows[i] to the row of key i, or to NULL. keys: any alignment and order. The rows are in the
 * processor's cache afterwards if there are not too many of them. */
void row_table_find(const struct row_table *t, const void *keys, size_t n, struct row **rows);
/* Allocates memory for n further rows. */
enum status row_table_reserve(struct row_table *t, size_t n);
/* Adds a row for a key that has none. step and data are not set. row_table_reserve precedes it. */
struct row *row_table_add(struct row_table *t, uint64_t key);
void row_table_remove(struct row_table *t, struct row *row);
/* Returns the next row, in the order of memory, and NULL after the last one. *cursor begins with
 * 0. The caller may remove the row that it received last. */
struct row *row_table_next(const struct row_table *t, uint32_t *cursor);
/* Does the same as row_table_next, but also returns NULL if *cursor has reached `end`. */
struct row *row_table_next_before(const struct row_table *t, uint32_t end, uint32_t *cursor);
/* Returns the bytes that the table has allocated. */
size_t row_table_bytes(const struct row_table *t);

#endif
