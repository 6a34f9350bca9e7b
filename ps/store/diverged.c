/* ps/store/diverged.c - see diverged.h. */
#include "ps/store/diverged.h"
#include "base/log.h"
#include <inttypes.h>

const struct net_param *diverged_param_at(const struct store *s, const struct chunk_state *c,
                                          size_t element)
{
    const struct chunks *chunks = s->cfg.chunks;
    int64_t at = chunks->chunks[c->chunk].first + (int64_t)element;
    int param = chunks->chunks[c->chunk].param;
    while (param + 1 < chunks->n_params && chunks->params[param + 1].first <= at)
        param++;
    return &chunks->params[param];
}

void diverged_note(struct chunk_state *c, size_t element)
{
    if (element != SIZE_MAX && !c->diverged)
        c->not_finite = element;
    c->diverged = element != SIZE_MAX;
}

size_t diverged_take(struct chunk_state *c)
{
    size_t not_finite = c->not_finite;
    c->not_finite = SIZE_MAX;
    return not_finite;
}

void diverged_log(const struct store *s, const struct chunk_state *c, size_t element, int64_t step)
{
    if (element != SIZE_MAX)
        LOG_FEW(
            "step %" PRId64
            ": the update makes parameter '%.60s' not finite, though each contribution is finite: training has diverged, and no checkpoint of this step is written; a lower --learning_rate may help",
            step, diverged_param_at(s, c, element)->name);
}

void diverged_log_row(const struct chunk_rows *r, int64_t step)
{
    uint64_t key;
    if (merge_not_finite(r->merge, &key))
        LOG_FEW(
            "step %" PRId64 ": the update makes the row of key %" PRIu64
            " of table '%.60s', or its optimizer's state, not finite, though each gradient is finite: training has diverged, and no checkpoint with this row is written; a lower learning rate may help",
            step, key, r->table->name);
}
