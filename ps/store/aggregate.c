/* ps/store/aggregate.c - see aggregate.h. */
#include "ps/store/aggregate.h"
#include "kernels/vector/clip.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/vector.h"
#include <float.h>
#include <stdbool.h>
#include <stdlib.h>

enum status aggregate_init(struct aggregate *a, struct ps_pool *pool, int shelf)
{
    a->pool = pool;
    a->shelf = shelf;
    a->arrived = -1;
    int sums = a->n_members > 1 || a->whole;
    a->sum = sums ? malloc(a->n * sizeof *a->sum) : NULL;
    a->parked = calloc((size_t)a->n_members, sizeof *a->parked);
    a->terms = calloc((size_t)a->n_members, sizeof *a->terms);
    if ((a->sum || !sums) && a->parked && a->terms)
        return ST_OK;
    aggregate_free(a);
    return ST_NOMEM;
}

void aggregate_free(struct aggregate *a)
{
    for (int i = 0; a->parked && i < a->n_members; i++)
        buf_unref(a->parked[i].copy);
    free(a->parked);
    free(a->terms);
    free(a->sum);
    *a = (struct aggregate){0};
}

float aggregate_limit(const struct aggregate *a, float weight)
{
    double times = (double)weight * a->n_members;
    if (a->may_overflow || (a->n_members == 1 && weight == 1)) /* nothing is added or multiplied */
        return FLT_MAX;
    /* The limit is half of the exact bound, since partial sums are rounded. */
    return (float)(FLT_MAX / (times > 1 ? times : 1) / 2);
}

enum { BLOCK = 2048 }; /* elements to decode at once, so that they stay in cache */

struct addition {
    float *sum;
    float weight, limit;
    enum dtype dtype;
    bool is_first; /* the addition overwrites the last step's sum */
    size_t bad;    /* first element above the limit, where the addition ended; SIZE_MAX: none */
};

static void add_floats(const struct addition *r, size_t first, const void *src, size_t n)
{
    if (r->is_first)
        vector_scale(r->sum + first, src, r->weight, n);
    else
        vector_add_scaled(r->sum + first, src, r->weight, n);
}

static void add_run(void *ctx, size_t first, const void *src, size_t n)
{
    struct addition *r = ctx;
    float decoded[BLOCK];
    for (size_t at = 0; at < n && r->bad == SIZE_MAX; at += BLOCK) {
        size_t now = n - at < BLOCK ? n - at : BLOCK;
        const void *block = (const char *)src + dtype_bytes(r->dtype, at), *values = block;
        if (r->dtype != DTYPE_F32) {
            dtype_decode(r->dtype, decoded, block, now);
            values = decoded;
        }
        add_floats(r, first + at, values, now);
        /* checked after the addition, since the block is in cache now */
        size_t bad = r->is_first ? finite_first_above(r->dtype, block, now, r->limit) : now;
        if (bad < now)
            r->bad = first + at + bad;
    }
}

/* Adds a contribution to the sum. If the addition overwrites an older sum, the elements are checked
 * while they are added; otherwise they are checked first, as an addition cannot be undone. Returns
 * SIZE_MAX, or the first element above the limit. */
static size_t add_next(struct aggregate *a, const struct net_payload *payload, float weight,
                       int is_copy)
{
    struct addition r = {a->sum,   weight,         aggregate_limit(a, weight),
                         a->dtype, a->weight == 0, SIZE_MAX};
    if (!r.is_first && !is_copy)
        r.bad = payload_first_above(payload, a->dtype, a->n, r.limit);
    payload_each_run(payload, a->dtype, a->n, dtype_block(a->dtype), add_run, &r);
    return r.bad;
}

static size_t take_next(struct aggregate *a, const struct net_payload *payload, float weight,
                        int is_copy)
{
    size_t bad = weight > 0 ? add_next(a, payload, weight, is_copy) : SIZE_MAX;
    if (bad != SIZE_MAX)
        return bad;
    a->next++;
    a->weight += (double)weight;
    a->summed = a->weight > 0;
    return bad;
}

static void add_copies_in_turn(struct aggregate *a)
{
    while (a->next < a->n_members && a->parked[a->next].copy) {
        struct aggregate_copy *p = &a->parked[a->next];
        struct net_span span = {p->copy->data, dtype_bytes(a->dtype, a->n)};
        struct net_payload payload = {&span, 0, span.n};
        take_next(a, &payload, p->weight, 1); /* the copy was checked on arrival */
        buf_unref(p->copy);
        p->copy = NULL;
    }
}

/* Lists the contributions that are not in the sum, once all have arrived. They stay where they
 * are. */
static void list_terms(struct aggregate *a, int member, const struct net_payload *payload,
                       float weight)
{
    a->n_terms = 0;
    a->arrived = -1;
    for (; a->next < a->n_members; a->next++) {
        const struct aggregate_copy *p = &a->parked[a->next];
        struct ps_term *t = &a->terms[a->n_terms];
        t->weight = a->next == member ? weight : p->weight;
        a->weight += (double)t->weight;
        if (!(t->weight > 0))
            continue;
        if (a->next == member) {
            t->limit = aggregate_limit(a, weight);
            t->payload = *payload;
            a->arrived = a->n_terms;
        } else {
            t->span = (struct net_span){p->copy->data, dtype_bytes(a->dtype, a->n)};
            t->payload = (struct net_payload){&t->span, 0, t->span.n};
        }
        a->n_terms++;
    }
}

/* Copies a contribution that is ahead of its turn. */
static enum status park_copy(struct aggregate *a, int member, const struct net_payload *payload,
                             float weight, size_t *bad)
{
    struct aggregate_copy *p = &a->parked[member];
    enum status st = ps_pool_take(a->pool, a->shelf, a->n * sizeof *a->sum, 0, &p->copy);
    if (st != ST_OK)
        return st;
    payload_copy(payload, p->copy->data);
    p->weight = weight;
    size_t n = weight > 0 ? a->n : 0;
    size_t at = finite_first_above(a->dtype, p->copy->data, n, aggregate_limit(a, weight));
    if (at == n)
        return ST_OK;
    *bad = at;
    buf_unref(p->copy);
    p->copy = NULL;
    return ST_INVALID;
}

enum status aggregate_add(struct aggregate *a, int member, const struct net_payload *payload,
                          float weight, int64_t now_ns, size_t *bad)
{
    if (a->n_counted + 1 == a->n_members && !a->whole) {
        list_terms(a, member, payload, weight);
    } else if (member == a->next) {
        *bad = take_next(a, payload, weight, 0);
        if (*bad != SIZE_MAX)
            return ST_INVALID;
        add_copies_in_turn(a);
    } else {
        enum status st = park_copy(a, member, payload, weight, bad);
        if (st != ST_OK)
            return st;
    }
    if (a->n_counted++ == 0)
        a->since_ns = now_ns;
    return ST_OK;
}

const float *aggregate_sum(const struct aggregate *a)
{
    return a->summed ? a->sum : NULL;
}

float aggregate_scale(const struct aggregate *a, double factor)
{
    return clip_scale(factor, a->weight);
}

double aggregate_squares(const struct aggregate *a)
{
    const float *sum = aggregate_sum(a);
    return sum ? vector_sum_squares(sum, 1, a->n) / a->weight / a->weight : 0;
}

void aggregate_reset(struct aggregate *a)
{
    for (int i = 0; i < a->n_members; i++) {
        buf_unref(a->parked[i].copy);
        a->parked[i].copy = NULL;
    }
    a->n_terms = 0;
    a->next = 0;
    a->n_counted = 0;
    a->weight = 0;
    a->summed = 0;
}
