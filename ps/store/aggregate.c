/* ps/store/aggregate.c - see aggregate.h. */
#include "ps/store/aggregate.h"
#include "kernels/vector/clip.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/vector.h"
#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum status aggregate_init(struct aggregate *a, struct ps_pool *pool, int shelf)
{
    a->pool = pool;
    a->shelf = shelf;
    a->arrived = -1;
    int sums = a->n_members > 1 || a->whole;
    a->sum = sums ? malloc(a->n * sizeof *a->sum) : NULL;
    a->parked = calloc((size_t)a->n_members, sizeof *a->parked);
    a->terms = calloc((size_t)a->n_members, sizeof *a->terms);
    a->lacking = malloc(lacking_bytes(a->n_params));
    a->unused = malloc(lacking_bytes(a->n_params));
    if ((a->sum || !sums) && a->parked && a->terms && a->lacking && a->unused)
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
    free(a->lacking);
    free(a->unused);
    *a = (struct aggregate){0};
}

float aggregate_limit(const struct aggregate *a, float weight)
{
    double times = (double)weight * a->n_members;
    /* no addition or multiplication can overflow, or the reader of the sum checks it */
    if (a->may_overflow || (a->n_members == 1 && weight == 1))
        return FLT_MAX;
    /* The limit is half of the exact bound, since the rounding of partial sums may enlarge them. */
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
        /* the values are checked after the addition, because they are in the cache then */
        size_t bad = r->is_first ? finite_first_above(r->dtype, block, now, r->limit) : now;
        if (bad < now)
            r->bad = first + at + bad;
    }
}

/* Adds a payload to the sum. If the addition overwrites an older sum, the elements are checked
 * after they were added; otherwise they are checked before, because an addition to a sum in use
 * cannot be undone. Returns the first element above the limit, or SIZE_MAX. */
static size_t add_next(struct aggregate *a, const struct net_payload *payload, float weight,
                       int is_copy)
{
    struct addition r = {a->sum,   weight,     aggregate_limit(a, weight),
                         a->dtype, !a->summed, SIZE_MAX};
    if (!r.is_first && !is_copy)
        r.bad = payload_first_above(payload, a->dtype, a->n, r.limit);
    payload_each_run(payload, a->dtype, a->n, dtype_block(a->dtype), add_run, &r);
    return r.bad;
}

/* Counts the contribution of the next member and adds its payload to the sum. payload NULL: the
 * contribution has no payload. */
static size_t take_next(struct aggregate *a, const struct net_payload *payload, float weight,
                        int is_copy)
{
    size_t bad = payload ? add_next(a, payload, weight, is_copy) : SIZE_MAX;
    if (bad != SIZE_MAX)
        return bad;
    a->next++;
    a->weight += (double)weight;
    a->summed |= payload != NULL;
    return bad;
}

static void add_copies_in_turn(struct aggregate *a)
{
    while (a->next < a->n_members && a->parked[a->next].copy) {
        struct aggregate_copy *p = &a->parked[a->next];
        struct net_span span = {p->copy->data, dtype_bytes(a->dtype, a->n)};
        struct net_payload payload = {&span, 0, span.n};
        /* the elements of the copy were checked on arrival */
        take_next(a, p->empty ? NULL : &payload, p->weight, 1);
        buf_unref(p->copy);
        p->copy = NULL;
    }
}

/* Lists the contributions that are not in the sum, once all have arrived. Their payloads are not
 * moved. */
static void list_terms(struct aggregate *a, const struct aggregate_term *from, bool is_empty)
{
    a->n_terms = 0;
    a->arrived = -1;
    for (; a->next < a->n_members; a->next++) {
        const struct aggregate_copy *p = &a->parked[a->next];
        struct ps_term *t = &a->terms[a->n_terms];
        bool is_last = a->next == from->member;
        t->weight = is_last ? from->weight : p->weight;
        a->weight += (double)t->weight;
        if (is_last ? is_empty : p->empty)
            continue;
        if (is_last) {
            t->limit = aggregate_limit(a, from->weight);
            t->payload = *from->payload;
            a->arrived = a->n_terms;
        } else {
            t->span = (struct net_span){p->copy->data, dtype_bytes(a->dtype, a->n)};
            t->payload = (struct net_payload){&t->span, 0, t->span.n};
        }
        a->n_terms++;
    }
}

/* Copies a contribution that is ahead of its turn. */
static enum status park_copy(struct aggregate *a, const struct aggregate_term *from, bool is_empty,
                             size_t *bad)
{
    struct aggregate_copy *p = &a->parked[from->member];
    enum status st = ps_pool_take(a->pool, a->shelf, a->n * sizeof *a->sum, 0, &p->copy);
    if (st != ST_OK)
        return st;
    p->weight = from->weight;
    p->empty = is_empty;
    if (is_empty)
        return ST_OK;
    payload_copy(from->payload, p->copy->data);
    float limit = aggregate_limit(a, from->weight);
    size_t at = finite_first_above(a->dtype, p->copy->data, a->n, limit);
    if (at == a->n)
        return ST_OK;
    *bad = at;
    buf_unref(p->copy);
    p->copy = NULL;
    return ST_INVALID;
}

bool aggregate_may_lack(const struct aggregate *a, float weight, const uint8_t *lacking)
{
    if (!(weight > 0))
        return a->lacks;
    return lacking && (a->lacks || !a->weighted);
}

/* Keeps those marks of missing gradients that this contribution has, too. Writes the result to
 * `unused`, so that the caller of aggregate_add can restore the struct to its state before the
 * last contribution. */
static void note_lacking(struct aggregate *a, float weight, const uint8_t *lacking)
{
    a->lacks = aggregate_may_lack(a, weight, lacking);
    bool is_first = !a->weighted;
    a->weighted |= weight > 0;
    if (!a->lacks || !(weight > 0))
        return;
    uint8_t *marks = a->unused;
    if (is_first)
        memcpy(marks, lacking, lacking_bytes(a->n_params));
    else
        lacking_and(marks, a->lacking, lacking, a->n_params);
    a->unused = a->lacking;
    a->lacking = marks;
    a->lacks = lacking_any(marks, a->n_params);
}

enum status aggregate_add(struct aggregate *a, const struct aggregate_term *from, int64_t now_ns,
                          size_t *bad)
{
    bool is_empty = !(from->weight > 0) || (from->lacking && from->payload->bytes == 0);
    if (a->n_counted + 1 == a->n_members && !a->whole) {
        list_terms(a, from, is_empty);
    } else if (from->member == a->next) {
        *bad = take_next(a, is_empty ? NULL : from->payload, from->weight, 0);
        if (*bad != SIZE_MAX)
            return ST_INVALID;
        add_copies_in_turn(a);
    } else {
        enum status st = park_copy(a, from, is_empty, bad);
        if (st != ST_OK)
            return st;
    }
    note_lacking(a, from->weight, from->lacking);
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
    a->summed = a->weighted = a->lacks = false;
}
