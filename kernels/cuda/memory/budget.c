/* kernels/cuda/memory/budget.c - the records of budget.h. In a block, the first gap that is large
 * enough is used; no better strategy is needed, because there are few plans, and they exist for
 * long. */
#include "kernels/cuda/memory/budget.h"
#include "kernels/cuda/memory/arena.h"
#include <stdlib.h>
#include <string.h>

struct gpu_budget_span {
    uint64_t first, end;
};

void gpu_budget_init(struct gpu_budget *b, uint64_t limit, int has_block)
{
    *b = (struct gpu_budget){.limit = limit, .has_block = has_block};
}

void gpu_budget_free(struct gpu_budget *b)
{
    free(b->spans);
    *b = (struct gpu_budget){.limit = 0};
}

/* Returns the gap before span i; if i is the number of spans, the gap after the last span. */
static struct gpu_budget_span gap(const struct gpu_budget *b, int i)
{
    return (struct gpu_budget_span){i > 0 ? b->spans[i - 1].end : 0,
                                    i < b->n_spans ? b->spans[i].first
                                                   : b->limit / GPU_ARENA_ALIGN * GPU_ARENA_ALIGN};
}

uint64_t gpu_budget_left(const struct gpu_budget *b)
{
    uint64_t widest = 0;
    if (!b->has_block)
        return b->limit - b->taken;
    for (int i = 0; i <= b->n_spans; i++) {
        struct gpu_budget_span g = gap(b, i);
        if (g.end - g.first > widest)
            widest = g.end - g.first;
    }
    return widest;
}

static enum status span_insert(struct gpu_budget *b, int i, struct gpu_budget_span span)
{
    if (b->n_spans == b->cap_spans) {
        int cap = b->cap_spans * 2 + 16;
        struct gpu_budget_span *more = realloc(b->spans, (size_t)cap * sizeof *more);
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

enum status gpu_budget_reserve(struct gpu_budget *b, uint64_t bytes, uint64_t *at)
{
    enum status st = ST_NOMEM;
    uint64_t wanted = bytes;
    *at = 0;
    if (bytes > gpu_budget_left(b))
        return ST_NOMEM;
    if (b->has_block) {
        wanted = (bytes + GPU_ARENA_ALIGN - 1) / GPU_ARENA_ALIGN * GPU_ARENA_ALIGN;
        if (wanted == 0) /* every span has a length, so two spans never have the same offset */
            wanted = GPU_ARENA_ALIGN;
        for (int i = 0; i <= b->n_spans; i++) {
            struct gpu_budget_span g = gap(b, i);
            if (g.end - g.first < wanted)
                continue;
            *at = g.first;
            st = span_insert(b, i, (struct gpu_budget_span){g.first, g.first + wanted});
            break;
        }
        if (st != ST_OK)
            return st;
    }
    b->taken += wanted;
    return ST_OK;
}

void gpu_budget_release(struct gpu_budget *b, uint64_t at, uint64_t bytes)
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
