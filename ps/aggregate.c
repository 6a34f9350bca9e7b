/* ps/aggregate.c - see aggregate.h. */
#include "ps/aggregate.h"
#include "base/clock.h"
#include "kernels/vector/vector.h"
#include <stdlib.h>

enum status ps_aggregate_init(struct ps_aggregate *a, struct ps_pool *pool, int shelf, size_t n,
                              int n_members)
{
    *a = (struct ps_aggregate){.pool = pool, .shelf = shelf, .n = n, .n_members = n_members};
    a->sum = malloc(n * sizeof *a->sum);
    a->parked = calloc((size_t)n_members, sizeof *a->parked);
    if (a->sum && a->parked)
        return ST_OK;
    ps_aggregate_free(a);
    return ST_NOMEM;
}

void ps_aggregate_free(struct ps_aggregate *a)
{
    for (int i = 0; a->parked && i < a->n_members; i++)
        buf_unref(a->parked[i].copy);
    free(a->parked);
    free(a->sum);
    *a = (struct ps_aggregate){0};
}

int ps_aggregate_has(const struct ps_aggregate *a, int member)
{
    return member < a->next || a->parked[member].copy != NULL;
}

struct run {
    float *sum;
    float weight;
};

static void scale_run(void *ctx, size_t first, const void *src, size_t n)
{
    const struct run *r = ctx;
    vector_scale(r->sum + first, src, r->weight, n);
}

static void add_run(void *ctx, size_t first, const void *src, size_t n)
{
    const struct run *r = ctx;
    vector_add_scaled(r->sum + first, src, r->weight, n);
}

/* The first contribution overwrites the last step's sum. */
static void add_next(struct ps_aggregate *a, const struct net_payload *payload, float weight)
{
    struct run r = {a->sum, weight};
    payload_each_run(payload, sizeof(float), a->next == 0 ? scale_run : add_run, &r);
    a->weight += (double)weight;
    a->next++;
}

static void add_those_whose_turn_came(struct ps_aggregate *a)
{
    while (a->next < a->n_members && a->parked[a->next].copy) {
        struct ps_parked *p = &a->parked[a->next];
        struct net_span span = {p->copy->data, p->copy->bytes};
        struct net_payload payload = {&span, 0, p->copy->bytes};
        add_next(a, &payload, p->weight);
        buf_unref(p->copy);
        p->copy = NULL;
    }
}

enum status ps_aggregate_add(struct ps_aggregate *a, int member, const struct net_payload *payload,
                             float weight)
{
    if (member == a->next) {
        add_next(a, payload, weight);
        add_those_whose_turn_came(a);
    } else {
        struct ps_parked *p = &a->parked[member];
        enum status st = ps_pool_take(a->pool, a->shelf, a->n * sizeof *a->sum, &p->copy);
        if (st != ST_OK)
            return st;
        payload_copy(payload, p->copy->data);
        p->weight = weight;
    }
    if (a->n_counted++ == 0)
        a->since_ns = clock_now_ns();
    return ST_OK;
}

int ps_aggregate_full(const struct ps_aggregate *a)
{
    return a->next == a->n_members;
}

float ps_aggregate_scale(const struct ps_aggregate *a)
{
    return (float)(1.0 / a->weight);
}

void ps_aggregate_reset(struct ps_aggregate *a)
{
    a->next = 0;
    a->n_counted = 0;
    a->weight = 0;
}
