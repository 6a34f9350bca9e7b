/* member/row_keys.c - see row_keys.h. The keys are sorted by their bytes, lowest first, and then
 * by bucket; each pass keeps the order of equal digits. A byte that all keys share needs no pass,
 * so small numbers need few. */
#include "member/row_keys.h"
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = sizeof(uint64_t), DIGITS = 256 };

static enum status make_room(struct row_keys *k, const struct net_table *t, size_t n)
{
    if (!k->first)
        k->first = malloc(((size_t)t->n_buckets + 1) * sizeof *k->first);
    if (!k->first)
        return ST_NOMEM;
    if (n <= k->room && k->items)
        return ST_OK;
    size_t room = n + n / 4 + 1;
    free(k->items);
    free(k->keys);
    free(k->order);
    k->items = malloc(2 * room * sizeof *k->items);
    k->keys = malloc(2 * room * sizeof *k->keys);
    k->order = malloc((2 * room + 1) * sizeof *k->order);
    if (!k->items || !k->keys || !k->order) {
        row_keys_free(k);
        return ST_NOMEM;
    }
    k->start = k->order + room;
    k->given = k->keys + room;
    k->room = room;
    return ST_OK;
}

void row_keys_free(struct row_keys *k)
{
    free(k->items);
    free(k->keys);
    free(k->order);
    free(k->first);
    *k = (struct row_keys){0};
}

/* Makes the items, and counts the digits of each byte of the keys, and the items of each bucket:
 * counts[bucket + 1]. */
static void count_digits(const struct net_table *t, const uint64_t *keys, size_t n,
                         struct row_item *items, uint32_t digits[KEY_BYTES][DIGITS],
                         uint32_t *counts)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t key = keys[i];
        uint32_t bucket = (uint32_t)tables_bucket(t, key);
        items[i] = (struct row_item){key, (uint32_t)i, bucket};
        counts[bucket + 1]++;
        for (int b = 0; b < KEY_BYTES; b++)
            digits[b][key >> (8 * b) & (DIGITS - 1)]++;
    }
}

/* Sorts by one byte of the keys. */
static void sort_by_byte(const struct row_item *from, struct row_item *to, size_t n, int byte,
                         uint32_t digits[DIGITS])
{
    uint32_t at = 0;
    for (int d = 0; d < DIGITS; d++) {
        uint32_t here = digits[d];
        digits[d] = at;
        at += here;
    }
    for (size_t i = 0; i < n; i++)
        to[digits[from[i].key >> (8 * byte) & (DIGITS - 1)]++] = from[i];
}

/* Sorts by bucket. `at` are the indices of each bucket's first item, and is changed. */
static void sort_by_bucket(const struct row_item *from, struct row_item *to, size_t n, uint32_t *at)
{
    for (size_t i = 0; i < n; i++)
        to[at[from[i].bucket]++] = from[i];
}

/* Writes the keys without repetitions, and the places of each. */
static void collect(struct row_keys *k, const struct net_table *t, const struct row_item *items)
{
    size_t n = 0;
    uint32_t bucket = 0;
    k->first[0] = 0;
    for (size_t i = 0; i < k->n_given; i++) {
        const struct row_item *item = &items[i];
        k->order[i] = item->at;
        if (i > 0 && item->key == items[i - 1].key)
            continue;
        while (bucket < item->bucket)
            k->first[++bucket] = (uint32_t)n;
        k->keys[n] = item->key;
        k->start[n++] = (uint32_t)i;
    }
    while (bucket < (uint32_t)t->n_buckets)
        k->first[++bucket] = (uint32_t)n;
    k->start[n] = (uint32_t)k->n_given;
    k->n = n;
}

bool row_keys_are(const struct row_keys *k, const uint64_t *keys, size_t n)
{
    return k->items && k->n_given == n && (n == 0 || memcmp(k->given, keys, n * sizeof *keys) == 0);
}

enum status row_keys_set(struct row_keys *k, const struct net_table *t, const uint64_t *keys,
                         size_t n)
{
    uint32_t digits[KEY_BYTES][DIGITS] = {{0}}, counts[TABLES_MAX_BUCKETS + 1] = {0};
    enum status st = make_room(k, t, n);
    if (st != ST_OK)
        return st;
    struct row_item *from = k->items, *to = k->items + k->room;
    k->n_given = n;
    if (n > 0)
        memcpy(k->given, keys, n * sizeof *keys);
    count_digits(t, keys, n, from, digits, counts);
    for (int b = 0; b < KEY_BYTES && n > 0; b++) {
        if (digits[b][keys[0] >> (8 * b) & (DIGITS - 1)] == n)
            continue;
        sort_by_byte(from, to, n, b, digits[b]);
        struct row_item *sorted = to;
        to = from;
        from = sorted;
    }
    for (int b = 0; b < t->n_buckets; b++)
        counts[b + 1] += counts[b];
    sort_by_bucket(from, to, n, counts);
    collect(k, t, to);
    return ST_OK;
}

int row_keys_above(const struct row_keys *k, const struct net_table *t, int64_t share)
{
    for (int b = 0; b < t->n_buckets; b++)
        if ((int64_t)row_keys_in(k, b) > share)
            return b;
    return -1;
}

void row_keys_sum(const struct row_keys *k, size_t dim, const float *gradients, float *sums)
{
    for (size_t u = 0; u < k->n; u++, sums += dim) {
        uint32_t i = k->start[u], end = k->start[u + 1];
        memcpy(sums, gradients + k->order[i] * dim, dim * sizeof *sums);
        while (++i < end) {
            const float *more = gradients + k->order[i] * dim;
            for (size_t d = 0; d < dim; d++)
                sums[d] += more[d];
        }
    }
}

bool row_keys_read(const struct row_keys *k, size_t from, size_t to,
                   const struct row_source *source, size_t dim, float *out)
{
    size_t at = 0;
    for (size_t u = from; u < to; u++) {
        while (at < source->n && source->keys[at] < k->keys[u])
            at++;
        if (at == source->n || source->keys[at] != k->keys[u])
            return false;
        for (uint32_t i = k->start[u]; i < k->start[u + 1]; i++)
            memcpy(out + k->order[i] * dim, source->rows + at * dim, dim * sizeof *out);
    }
    return true;
}
