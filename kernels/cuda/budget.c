/* kernels/cuda/budget.c - see the header. In a block the first gap that is wide enough is given:
 * plans are few and live long. */
#include "kernels/cuda/budget.h"
#include "kernels/cuda/arena.h"
#include <stdlib.h>
#include <string.h>

struct cuda_span {
    uint64_t first, end;
};

void cuda_budget_init(struct cuda_budget *b, uint64_t limit, int has_block)
{
    *b = (struct cuda_budget){.limit = limit, .has_block = has_block};
}

void cuda_budget_free(struct cuda_budget *b)
{
    free(b->spans);
    *b = (struct cuda_budget){.limit = 0};
}

/* The gap before span i, or behind the last one. */
static struct cuda_span gap(const struct cuda_budget *b, int i)
{
    return (struct cuda_span){i > 0 ? b->spans[i - 1].end : 0,
                              i < b->n_spans ? b->spans[i].first
                                             : b->limit / CUDA_ARENA_ALIGN * CUDA_ARENA_ALIGN};
}

uint64_t cuda_budget_left(const struct cuda_budget *b)
{
    uint64_t widest = 0;
    if (!b->has_block)
        return b->limit - b->taken;
    for (int i = 0; i <= b->n_spans; i++) {
        struct cuda_span g = gap(b, i);
        if (g.end - g.first > widest)
            widest = g.end - g.first;
    }
    return widest;
}

static enum status span_insert(struct cuda_budget *b, int i, struct cuda_span span)
{
    if (b->n_spans == b->cap_spans) {
        int cap = b->cap_spans * 2 + 16;
        struct cuda_span *more = realloc(b->spans, (size_t)cap * sizeof *more);
        if (more == NULL)
            return ST_NOMEM;
        b->spans = more;
        b->cap_spans = cap;
    }
    memmove(&b->spans[i + 1], &b->spans[i], (size_t)(b->n_spans - i) * sizeof *b->spans);
    b->spans[i] = span;
    b->n_spans++;
    return ST_OK;
}

enum status cuda_budget_take(struct cuda_budget *b, uint64_t bytes, uint64_t *at)
{
    enum status st = ST_NOMEM;
    uint64_t wanted = bytes;
    *at = 0;
    if (bytes > cuda_budget_left(b))
        return ST_NOMEM;
    if (b->has_block) {
        wanted = (bytes + CUDA_ARENA_ALIGN - 1) / CUDA_ARENA_ALIGN * CUDA_ARENA_ALIGN;
        if (wanted == 0) /* two spans never share a place */
            wanted = CUDA_ARENA_ALIGN;
        for (int i = 0; i <= b->n_spans; i++) {
            struct cuda_span g = gap(b, i);
            if (g.end - g.first < wanted)
                continue;
            *at = g.first;
            st = span_insert(b, i, (struct cuda_span){g.first, g.first + wanted});
            break;
        }
        if (st != ST_OK)
            return st;
    }
    b->taken += wanted;
    return ST_OK;
}

void cuda_budget_give(struct cuda_budget *b, uint64_t at, uint64_t bytes)
{
    if (!b->has_block) {
        b->taken -= bytes;
        return;
    }
    for (int i = 0; i < b->n_spans; i++) {
        if (b->spans[i].first != at)
            continue;
        b->taken -= b->spans[i].end - b->spans[i].first;
        b->n_spans--;
        memmove(&b->spans[i], &b->spans[i + 1], (size_t)(b->n_spans - i) * sizeof *b->spans);
        return;
    }
}
