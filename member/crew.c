/* member/crew.c - cuts a loop into ranges and spreads them over the threads; see crew.h. */
#include "member/crew.h"

struct loop {
    size_t n_elems;
    void (*range)(void *ctx, size_t first, size_t n);
    void *ctx;
};

static void run_range(void *ctx, int k)
{
    const struct loop *l = ctx;
    size_t first = (size_t)k * CREW_RANGE, left = l->n_elems - first;
    l->range(l->ctx, first, left < CREW_RANGE ? left : CREW_RANGE);
}

void crew_run(const struct crew *c, size_t n_elems,
              void (*range)(void *ctx, size_t first, size_t n), void *ctx)
{
    struct loop l = {n_elems, range, ctx};
    int n = (int)((n_elems + CREW_RANGE - 1) / CREW_RANGE);
    if (n > 1 && c->n_threads > 1 && c->spread) {
        c->spread(c->n_threads, n, run_range, &l);
        return;
    }
    thread_pool_run(c->threads, n, run_range, &l);
}
