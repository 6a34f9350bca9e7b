/* worker/train/trainer_parts.c - finds the parts of a chunk, waits for their copies from the
 * device, and queues copies to the device. The design is in trainer_parts.h. */
#include "worker/train/trainer_parts.h"
#include "base/log.h"
#include "worker/train/trainer_impl.h"
#include <stdlib.h>
#include <string.h>

enum status trainer_parts_make(struct trainer *t)
{
    const struct chunks *all = t->cfg.chunks;
    struct trainer_parts *p = &t->parts;
    p->fetches = t->cfg.n_towers == 1 && split_tower_has_parts(t->towers[0]->stages);
    /* if own_pace is set, a step begins only when all parameters have arrived, so parts are not
     * loaded one by one */
    p->loads = p->fetches && !t->cfg.own_pace && t->cfg.updates->ops->wait_any;
    p->loaded_step = -1;
    p->fetched = calloc((size_t)all->n_params, 1);
    p->loaded = calloc((size_t)all->n_chunks, 1);
    if (p->fetched && p->loaded)
        return ST_OK;
    LOG_E("out of memory for the lists of %d chunks", all->n_chunks);
    return ST_NOMEM;
}

void trainer_parts_free(struct trainer *t)
{
    free(t->parts.fetched);
    free(t->parts.loaded);
}

/* Calls f for each part of each parameter in the chunk, except for the parameters that are marked
 * in `skip` [n_params]. skip NULL: no parameter is marked. */
static enum status each_part(struct trainer *t, int chunk, const uint8_t *skip,
                             enum status (*f)(struct split_tower *s, int param, int64_t part))
{
    enum status st = ST_OK;
    const struct chunks *all = t->cfg.chunks;
    const struct net_chunk *c = &all->chunks[chunk];
    for (int i = c->param; i < all->n_params && all->params[i].first < c->first + c->n_elems; i++) {
        int64_t at = i == c->param ? c->first - all->params[i].first : 0;
        if (!skip || !skip[i])
            TRY(f(t->towers[0]->stages, i, at / tower_part_elems(&t->cfg)));
    }
done:
    return st;
}

enum status trainer_parts_fetch(struct trainer *t, int chunk)
{
    return each_part(t, chunk, t->parts.fetched, split_tower_wait_part);
}

enum status trainer_parts_fetch_layer(struct trainer *t, int layer)
{
    enum status st = ST_OK;
    const struct layer *l = &t->cfg.model->layers[layer];
    TRY(split_tower_wait_grads(t->towers[0]->stages, layer));
    for (int i = 0; i < l->n_params; i++)
        t->parts.fetched[l->param[i]] = 1;
done:
    return st;
}

enum status trainer_parts_load(struct trainer *t, int first, int n, int64_t step)
{
    enum status st = ST_OK;
    struct trainer_parts *p = &t->parts;
    const struct updates *x = t->cfg.updates;
    int ready;
    if (p->loaded_step != step)
        memset(p->loaded, 0, (size_t)t->cfg.chunks->n_chunks);
    p->loaded_step = step;
    for (int c = first; c < first + n; c++)
        while (!p->loaded[c]) {
            TRY(x->ops->wait_any(x->ctx, p->loaded, step, &ready));
            TRY(each_part(t, ready, NULL, split_tower_load_part));
            p->loaded[ready] = 1;
        }
done:
    return st;
}
