/* net/exchange/residuals.c - see residuals.h. */
#include "net/exchange/residuals.h"
#include <stdlib.h>
#include <string.h>

struct chunk_residual {
    int64_t step; /* last step that was rounded; -1: none */
    int out;      /* index of the buffer with the residual that this step left over */
};

struct residuals {
    const struct chunks *chunks;
    float *side[2]; /* [n_elems] */
    struct chunk_residual *of;
};

enum status residuals_create(const struct chunks *chunks, struct residuals **out)
{
    struct residuals *r = calloc(1, sizeof *r);
    if (!r)
        return ST_NOMEM;
    r->chunks = chunks;
    r->of = calloc((size_t)chunks->n_chunks, sizeof *r->of);
    for (int k = 0; k < 2; k++)
        r->side[k] = calloc((size_t)chunks->n_elems, sizeof *r->side[k]);
    if (!r->of || !r->side[0] || !r->side[1]) {
        residuals_destroy(r);
        return ST_NOMEM;
    }
    for (int i = 0; i < chunks->n_chunks; i++)
        r->of[i].step = -1;
    *out = r;
    return ST_OK;
}

void residuals_destroy(struct residuals *r)
{
    if (!r)
        return;
    free(r->side[0]);
    free(r->side[1]);
    free(r->of);
    free(r);
}

float *residuals_of(struct residuals *r, int chunk, int64_t step)
{
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    struct chunk_residual *of = &r->of[chunk];
    const size_t bytes = (size_t)c->n_elems * sizeof(float);
    if (step < of->step) {
        memset(r->side[!of->out] + c->first, 0, bytes);
        memset(r->side[of->out] + c->first, 0, bytes);
    } else if (step > of->step) {
        of->out = !of->out; /* adds to this step the residual that the last step left over */
    }
    of->step = step;
    memcpy(r->side[of->out] + c->first, r->side[!of->out] + c->first, bytes);
    return r->side[of->out] + c->first;
}

const float *residuals_added(const struct residuals *r, int chunk)
{
    return r->side[!r->of[chunk].out] + r->chunks->chunks[chunk].first;
}

const float *residuals_last(const struct residuals *r, int chunk)
{
    return r->side[r->of[chunk].out] + r->chunks->chunks[chunk].first;
}

void residuals_set(struct residuals *r, int chunk, int64_t step, const float *left)
{
    const struct net_chunk *c = &r->chunks->chunks[chunk];
    r->of[chunk] = (struct chunk_residual){.step = step};
    memcpy(r->side[0] + c->first, left, (size_t)c->n_elems * sizeof *left);
}

void residuals_restore(struct residuals *r, int chunk, int64_t step)
{
    struct chunk_residual *of = &r->of[chunk];
    if (of->step == step)
        of->out = !of->out;
}
