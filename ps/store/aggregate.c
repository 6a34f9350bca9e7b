/* ps/store/aggregate.c - see aggregate.h. */
#include "ps/store/aggregate.h"
#include "kernels/vector/vector.h"
#include <stdlib.h>

enum status ps_aggregate_init(struct ps_aggregate *a, struct ps_pool *pool, int shelf)
{
    a->pool = pool;
    a->shelf = shelf;
    a->sum = a->n_members > 1 ? malloc(a->n * sizeof *a->sum) : NULL;
    a->parked = calloc((size_t)a->n_members, sizeof *a->parked);
    if ((a->sum || a->n_members == 1) && a->parked)
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

enum { BLOCK = 2048 }; /* elements that are decoded at once, to stay in cache */

struct run {
    float *sum;
    float weight;
    enum dtype dtype;
    int is_first; /* overwrites the last step's sum */
};

static void add_floats(const struct run *r, size_t first, const void *src, size_t n)
{
    if (r->is_first)
        vector_scale(r->sum + first, src, r->weight, n);
    else
        vector_add_scaled(r->sum + first, src, r->weight, n);
}

static void add_run(void *ctx, size_t first, const void *src, size_t n)
{
    const struct run *r = ctx;
    float decoded[BLOCK];
    if (r->dtype == DTYPE_F32) {
        add_floats(r, first, src, n);
        return;
    }
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t now = n - at < BLOCK ? n - at : BLOCK;
        dtype_decode(r->dtype, decoded, (const char *)src + at * dtype_size(r->dtype), now);
        add_floats(r, first + at, decoded, now);
    }
}

static void take_next(struct ps_aggregate *a, const struct net_payload *payload, float weight)
{
    struct run r = {a->sum, weight, a->dtype, a->next == 0};
    a->weight += (double)weight;
    if (++a->next < a->n_members) {
        payload_each_run(payload, dtype_size(a->dtype), add_run, &r);
    } else {
        a->last = *payload;
        a->last_weight = weight;
    }
}

static void take_those_whose_turn_came(struct ps_aggregate *a)
{
    while (a->next < a->n_members && a->parked[a->next].copy) {
        struct ps_parked *p = &a->parked[a->next];
        a->last_span = (struct net_span){p->copy->data, a->n * dtype_size(a->dtype)};
        struct net_payload payload = {&a->last_span, 0, a->last_span.n};
        take_next(a, &payload, p->weight);
        if (a->next == a->n_members)
            break; /* its bytes are still needed */
        buf_unref(p->copy);
        p->copy = NULL;
    }
}

enum status ps_aggregate_add(struct ps_aggregate *a, int member, const struct net_payload *payload,
                             float weight, int64_t now_ns)
{
    if (member == a->next) {
        take_next(a, payload, weight);
        take_those_whose_turn_came(a);
    } else {
        struct ps_parked *p = &a->parked[member];
        enum status st = ps_pool_take(a->pool, a->shelf, a->n * sizeof *a->sum, 0, &p->copy);
        if (st != ST_OK)
            return st;
        payload_copy(payload, p->copy->data);
        p->weight = weight;
    }
    if (a->n_counted++ == 0)
        a->since_ns = now_ns;
    return ST_OK;
}

const float *ps_aggregate_sum(const struct ps_aggregate *a)
{
    return a->n_members > 1 ? a->sum : NULL;
}

float ps_aggregate_scale(const struct ps_aggregate *a)
{
    return (float)(1.0 / a->weight);
}

void ps_aggregate_reset(struct ps_aggregate *a)
{
    struct ps_parked *last = &a->parked[a->n_members - 1];
    buf_unref(last->copy);
    last->copy = NULL;
    a->next = 0;
    a->n_counted = 0;
    a->weight = 0;
}
