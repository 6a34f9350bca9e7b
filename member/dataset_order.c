/* member/dataset_order.c - computes the item that is read at a global position (I6). Each pass is
 * Fisher and Yates' shuffle of 0 .. n-1 under a key of its own. Two passes are kept, an even and an
 * odd one, because at the boundary of two passes some towers still read the old pass while others
 * read the new one. */
#include "member/dataset_order.h"
#include "base/log.h"
#include "base/rng.h"
#include <stdlib.h>

struct dataset_order {
    uint64_t n, seed;
    uint64_t pass[2];  /* pass whose order is in item[]; UINT64_MAX: none */
    uint32_t *item[2]; /* [n] */
};

enum status dataset_order_create(int64_t n, uint64_t seed, struct dataset_order **out)
{
    if (n < 1 || n > DATASET_MAX_ITEMS) {
        LOG_E("a data set of %lld items cannot be ordered; it must have from 1 to %d items",
              (long long)n, DATASET_MAX_ITEMS);
        return ST_INVALID;
    }
    struct dataset_order *o = calloc(1, sizeof *o);
    if (o) {
        *o = (struct dataset_order){(uint64_t)n, seed, {UINT64_MAX, UINT64_MAX}, {NULL, NULL}};
        o->item[0] = malloc((size_t)n * sizeof *o->item[0]);
        o->item[1] = malloc((size_t)n * sizeof *o->item[1]);
    }
    if (!o || !o->item[0] || !o->item[1]) {
        LOG_E("no memory for the order of %lld items", (long long)n);
        dataset_order_destroy(o);
        return ST_NOMEM;
    }
    *out = o;
    return ST_OK;
}

void dataset_order_destroy(struct dataset_order *o)
{
    if (!o)
        return;
    free(o->item[0]);
    free(o->item[1]);
    free(o);
}

static void shuffle(uint32_t *item, uint64_t n, uint64_t key)
{
    for (uint64_t i = 0; i < n; i++)
        item[i] = (uint32_t)i;
    for (uint64_t i = n - 1; i > 0; i--) {
        uint64_t j = rng_below(key, i, i + 1);
        uint32_t swap = item[i];
        item[i] = item[j];
        item[j] = swap;
    }
}

int64_t dataset_order_item(struct dataset_order *o, uint64_t position)
{
    uint64_t pass = position / o->n;
    int slot = (int)(pass & 1);
    if (o->pass[slot] != pass) {
        shuffle(o->item[slot], o->n, rng_key(o->seed, RNG_SHUFFLE, pass));
        o->pass[slot] = pass;
    }
    return o->item[slot][position % o->n];
}
