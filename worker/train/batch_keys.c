/* worker/train/batch_keys.c - see batch_keys.h. */
#include "worker/train/batch_keys.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

static enum status no_memory(size_t n)
{
    LOG_E("out of memory for %zu keys of a batch", n);
    return ST_NOMEM;
}

enum status batch_keys_create(const struct dataset *d, int n_samples, struct batch_keys *b)
{
    if (!d->keys || d->keys->n == 0)
        return ST_OK;
    b->n = d->keys->n;
    b->bags = calloc((size_t)b->n, sizeof *b->bags);
    b->list = calloc((size_t)b->n, sizeof *b->list);
    if (!b->bags || !b->list)
        return no_memory(0);
    for (int i = 0; i < b->n; i++) {
        const struct dataset_key_input *in = &d->keys->input[i];
        struct batch_key_list *l = &b->list[i];
        size_t cells = (size_t)n_samples * (size_t)in->n_columns;
        l->room = cells;
        l->keys = malloc(cells * sizeof *l->keys);
        l->first = in->first ? malloc((cells + 1) * sizeof *l->first) : NULL;
        if (!l->keys || (in->first && !l->first))
            return no_memory(cells);
    }
    return ST_OK;
}

void batch_keys_free(struct batch_keys *b)
{
    for (int i = 0; b->list && i < b->n; i++) {
        free(b->list[i].keys);
        free(b->list[i].first);
    }
    free(b->list);
    free(b->bags);
    *b = (struct batch_keys){0};
}

/* Returns the index of the first key of row `row`, or of the end of the last row. */
static size_t first_of(const struct dataset_key_input *in, int64_t row)
{
    size_t cell = (size_t)row * (size_t)in->n_columns;
    return in->first ? in->first[cell] : cell;
}

/* Makes room for all keys of the batch, whose number becomes *total. */
static enum status make_room(struct batch_key_list *l, const struct dataset *d,
                             const struct dataset_key_input *in, const uint32_t *item, int n,
                             size_t *total)
{
    *total = 0;
    for (int i = 0; i < n; i++) {
        int64_t row = dataset_row(d, item[i]);
        *total += first_of(in, row + 1) - first_of(in, row);
    }
    if (*total <= l->room)
        return ST_OK;
    if (*total > UINT32_MAX) {
        LOG_E("%zu keys of one input in a batch of %d samples, at most %u; lower --batch_size",
              *total, n, UINT32_MAX);
        return ST_INVALID;
    }
    free(l->keys); /* the keys of an earlier batch are not needed any more */
    l->room = *total + *total / 4;
    l->keys = malloc(l->room * sizeof *l->keys);
    if (l->keys)
        return ST_OK;
    l->room = 0;
    return no_memory(*total);
}

static enum status read_input(struct batch_key_list *l, struct bags *bags, const struct dataset *d,
                              const struct dataset_key_input *in, const uint32_t *item, int n)
{
    enum status st = ST_OK;
    size_t total, at = 0, cell = 0;
    *bags = (struct bags){0};
    TRY(make_room(l, d, in, item, n, &total));
    for (int i = 0; i < n; i++) {
        int64_t row = dataset_row(d, item[i]);
        size_t from = first_of(in, row), n_keys = first_of(in, row + 1) - from;
        for (int c = 0; l->first && c < in->n_columns; c++)
            l->first[cell++] = (uint32_t)(at + in->first[row * in->n_columns + c] - from);
        if (n_keys > 0)
            memcpy(l->keys + at, in->keys + from, n_keys * sizeof *l->keys);
        at += n_keys;
    }
    if (l->first)
        l->first[cell] = (uint32_t)at;
    *bags = (struct bags){.n_cells = (size_t)n * (size_t)in->n_columns,
                          .n_keys = total,
                          .keys = l->keys,
                          .first = l->first};
done:
    return st;
}

enum status batch_keys_read(struct batch_keys *b, const struct dataset *d, const uint32_t *item,
                            int n)
{
    enum status st = ST_OK;
    for (int i = 0; i < b->n; i++)
        TRY(read_input(&b->list[i], &b->bags[i], d, &d->keys->input[i], item, n));
done:
    return st;
}
