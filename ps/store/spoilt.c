/* ps/store/spoilt.c - see spoilt.h. */
#include "ps/store/spoilt.h"
#include "base/log.h"
#include <inttypes.h>

const struct net_param *spoilt_param_at(const struct ps_store *s, const struct chunk_state *c,
                                        size_t element)
{
    const struct chunks *chunks = s->cfg.chunks;
    int64_t at = chunks->chunks[c->chunk].first + (int64_t)element;
    int param = chunks->chunks[c->chunk].param;
    while (param + 1 < chunks->n_params && chunks->params[param + 1].first <= at)
        param++;
    return &chunks->params[param];
}

void spoilt_note(struct chunk_state *c, size_t element)
{
    if (element != SIZE_MAX && !c->diverged)
        c->spoilt = element;
    c->diverged = element != SIZE_MAX;
}

size_t spoilt_take(struct chunk_state *c)
{
    size_t spoilt = c->spoilt;
    c->spoilt = SIZE_MAX;
    return spoilt;
}

void spoilt_say(const struct ps_store *s, const struct chunk_state *c, size_t element, int64_t step)
{
    if (element != SIZE_MAX)
        LOG_FEW("step %" PRId64 ": the update leaves parameter '%.60s' not finite, though each "
                "contribution is: training has diverged, and no checkpoint is made of it; a lower "
                "--learning_rate may help",
                step, spoilt_param_at(s, c, element)->name);
}
