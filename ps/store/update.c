/* ps/store/update.c - see update.h. A block is small enough that it and its inputs stay in the
 * first-level cache between the loops, so each byte of the chunk moves once. */
#include "ps/store/update.h"
#include "base/digest.h"
#include "kernels/vector/compensate.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/vector.h"
#include <float.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK = 2048, PART = 16 * BLOCK }; /* elements */

/* The blocks that one thread makes, one after the other. */
struct pass {
    struct ps_update *u;
    bool sums; /* the checksum is computed block after block */
    uint32_t crc;
    size_t bad, not_finite;
};

/* Adds the last contribution of the list, whose n elements begin at src, to the block's
 * gradient: sets r->sum, r->weight and r->others. The gradient is read in place or written to
 * `sum`, which may already contain r->others. */
static void add_last(const struct ps_update *u, size_t first, const void *src, struct optim_run *r,
                     float *sum)
{
    float weight = u->terms[u->n_terms - 1].weight;
    int clips = r->others && u->step.clip > 0;
    if (!u->base && u->param->rule == PARAM_TRAINED && !clips) {
        r->sum = src; /* the optimizer adds this contribution while it reads */
        r->weight = weight;
        return;
    }
    if (r->others)
        vector_sum_scaled(sum, r->others, src, weight, r->n);
    else
        vector_scale(sum, src, weight, r->n);
    if (u->base)
        optim_compensate(u->compensation, r->n, u->old + first, u->base + first, sum);
    r->sum = sum;
    r->weight = 1;
    r->others = NULL;
}

/* Returns n elements of the k-th contribution from `first` on, as floats. If this contribution
 * is `arrived`, src is the address of these elements. */
static const void *term_block(const struct ps_update *u, int k, size_t first, const void *src,
                              size_t n, float *decoded)
{
    const struct net_payload *p = &u->terms[k].payload;
    if (k != u->arrived)
        src = p->span->data + p->skip + dtype_bytes(u->dtype, first);
    if (u->dtype == DTYPE_F32)
        return src;
    dtype_decode(u->dtype, decoded, src, n);
    return decoded;
}

/* Returns the earlier sum plus all contributions but the last, or NULL if there is neither. */
static const float *add_first(const struct ps_update *u, size_t first, const void *src, size_t n,
                              float *sum)
{
    float decoded[BLOCK];
    const float *others = u->sum ? u->sum + first : NULL;
    for (int k = 0; k + 1 < u->n_terms; k++) {
        const void *values = term_block(u, k, first, src, n, decoded);
        if (others)
            vector_sum_scaled(sum, others, values, u->terms[k].weight, n);
        else
            vector_scale(sum, values, u->terms[k].weight, n);
        others = sum;
    }
    return others;
}

static size_t last_slot(const struct ps_update *u, size_t first)
{
    return (size_t)(u->n_slots - 1) * u->n + first;
}

/* Consecutive elements of one parameter, from element `first` of the chunk on. */
struct part {
    int param; /* index among the chunk's parameters */
    size_t first, n;
    bool stays;
};

/* Returns the index of the parameter that has the chunk's element. */
static int find_param(const struct ps_update_params *p, size_t element)
{
    int low = 0, high = p->n - 1;
    while (low < high) {
        int mid = (low + high + 1) / 2;
        if (p->param[mid].first - p->first <= (int64_t)element)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* Moves to the next part of the n elements from `first` on. Returns false at their end. At the
 * start part->n is 0. */
static bool next_part(const struct ps_update_params *p, size_t first, size_t n, struct part *part)
{
    size_t at = part->n > 0 ? part->first + part->n : first;
    if (at == first + n)
        return false;
    int k = part->n > 0 ? part->param + 1 : find_param(p, at);
    int64_t end = p->param[k].first + p->param[k].n_elems - p->first;
    size_t until = (size_t)end < first + n ? (size_t)end : first + n;
    *part = (struct part){k, at, until - at, p->lacking && lacking_has(p->lacking, k)};
    return true;
}

/* Sets the rounding residuals of the parameters that keep their value: to 0 if `from` is NULL,
 * otherwise to their residuals in the block `from`. */
static void set_residuals(const struct ps_update *u, size_t first, size_t n, const float *from)
{
    struct part part = {.n = 0};
    while (next_part(u->params, first, n, &part)) {
        float *residual = u->new_slots + last_slot(u, part.first);
        if (part.stays && from)
            vector_copy(residual, from + (part.first - first), part.n);
        else if (part.stays)
            memset(residual, 0, part.n * sizeof *residual);
    }
}

/* Returns the wire form of the block. Encoding may change the block's value. */
static const void *encode_block(const struct ps_update *u, size_t first, float *value, size_t n)
{
    char *wire = (char *)u->wire + dtype_bytes(u->wire_dtype, first);
    size_t last = last_slot(u, first);
    if (dtype_block(u->wire_dtype) == 1) {
        dtype_encode(u->wire_dtype, wire, value, n);
        return wire;
    }
    if (u->new_slots != u->slots)
        vector_copy(u->new_slots + last, u->slots + last, n);
    bool some_stay = u->params && u->params->lacking;
    float residual[BLOCK];
    if (some_stay) {
        vector_copy(residual, u->new_slots + last, n);
        set_residuals(u, first, n, NULL);
    }
    dtype_encode_change(u->wire_dtype, wire, u->old + first, value, u->new_slots + last, n);
    if (some_stay)
        set_residuals(u, first, n, residual);
    return wire;
}

static void keep_run(const struct ps_update *u, const struct optim_run *r)
{
    vector_copy(r->new_, r->old, r->n);
    for (int k = 0; r->slots && r->new_slots != r->slots && k < u->n_slots; k++)
        vector_copy(r->new_slots + (size_t)k * r->slot_stride,
                    r->slots + (size_t)k * r->slot_stride, r->n);
    if (r->slots)
        optim_run_ema(&u->step, r);
}

static void update_run(const struct ps_update *u, const struct optim_step *step,
                       const struct optim_run *r)
{
    if (u->param->rule == PARAM_AVERAGE)
        optim_average(u->param->keep, r->n, r->sum, u->scale, r->old, r->new_);
    else
        optim_run(step, r);
}

/* Updates the parameters of a block one after the other. */
static void update_params(const struct ps_update *u, size_t first, const struct optim_run *block)
{
    const struct ps_update_params *p = u->params;
    struct optim_step step = u->step;
    uint64_t idle = 0;
    struct part part = {.n = 0};
    while (next_part(p, first, block->n, &part)) {
        size_t at = part.first - first;
        struct optim_run r = *block;
        r.n = part.n;
        r.sum = (const char *)block->sum + at * sizeof(float);
        r.others = block->others ? block->others + at : NULL;
        r.old += at;
        r.slots = block->slots ? block->slots + at : NULL;
        r.new_slots = block->slots ? block->new_slots + at : NULL;
        r.new_ += at;
        if (part.stays) {
            keep_run(u, &r);
            continue;
        }
        if (p->idle && p->idle[part.param] != idle && u->param->rule == PARAM_TRAINED) {
            idle = p->idle[part.param];
            optim_begin_scaled(p->optim, p->step, p->since + idle, &p->factors, &step);
        }
        update_run(u, &step, &r);
    }
}

/* Makes a block of the version. src: the elements of `arrived`, if it exists. */
static void run_block(struct pass *p, size_t first, const void *src, size_t n)
{
    struct ps_update *u = p->u;
    float sum[BLOCK], decoded[BLOCK], *value = u->value + first;
    struct optim_run r = {.n = n,
                          .scale = u->scale,
                          .others = add_first(u, first, src, n, sum),
                          .old = u->old + first,
                          .slots = u->slots ? u->slots + first : NULL,
                          .new_slots = u->slots ? u->new_slots + first : NULL,
                          .slot_stride = u->n,
                          .new_ = value};
    add_last(u, first, term_block(u, u->n_terms - 1, first, src, n, decoded), &r, sum);
    if (u->step.clip > 0 && u->param->rule == PARAM_TRAINED) {
        vector_clip(sum, r.sum, r.weight, r.scale, u->step.clip, n);
        r.sum = sum;
        r.weight = r.scale = 1;
    }
    if (u->params)
        update_params(u, first, &r);
    else
        update_run(u, &u->step, &r);
    const void *out = value;
    if (u->placed)
        vector_copy(u->placed + first, value, n);
    if (u->wire)
        out = encode_block(u, first, value, n);
    else if (u->residual) /* the value is sent without encoding, so there is no residual */
        memset(u->new_slots + last_slot(u, first), 0, n * sizeof(float));
    if (p->sums)
        p->crc = digest_crc32c(p->crc, out, dtype_bytes(u->wire_dtype, n));
    /* the value is checked last, because the block is in the cache now */
    size_t not_finite = finite_first_bad(DTYPE_F32, value, n);
    if (not_finite < n && p->not_finite == SIZE_MAX)
        p->not_finite = first + not_finite;
    float limit =
        u->arrived >= 0 && u->terms[u->arrived].limit > 0 ? u->terms[u->arrived].limit : FLT_MAX;
    /* a finite value shows that the elements of `arrived` are finite, unless limits or clipping
     * apply */
    int may_be = not_finite < n || limit < FLT_MAX || u->step.clip > 0;
    size_t bad = u->arrived < 0 || !may_be ? n : finite_first_above(u->dtype, src, n, limit);
    if (bad < n && p->bad == SIZE_MAX)
        p->bad = first + bad;
}

static void run_blocks(void *ctx, size_t first, const void *src, size_t n)
{
    struct pass *p = ctx;
    for (size_t at = 0; at < n; at += BLOCK)
        run_block(p, first + at, (const char *)src + dtype_bytes(p->u->dtype, at),
                  n - at < BLOCK ? n - at : BLOCK);
}

static void note_first(_Atomic size_t *first, size_t at)
{
    size_t before = atomic_load(first);
    while (at < before && !atomic_compare_exchange_weak(first, &before, at))
        ;
}

/* Makes a version without a contribution: the value and the slots do not change. */
static void keep_version(const struct ps_update *u)
{
    int n_slots = u->slots ? u->n_slots : 0;
    vector_copy(u->value, u->old, u->n);
    for (size_t i = 0; dtype_block(u->wire_dtype) > 1 && i < u->n; i++)
        u->value[i] += 0.0f; /* this adds a zero change, with its effect on bits: -0 becomes 0 */
    if (n_slots > 0 && u->new_slots != u->slots)
        vector_copy(u->new_slots, u->slots, u->n * (size_t)n_slots);
    if (u->wire && dtype_block(u->wire_dtype) > 1)
        memset(u->wire, 0, dtype_bytes(u->wire_dtype, u->n)); /* no change */
    else if (u->wire)
        dtype_encode(u->wire_dtype, u->wire, u->value, u->n);
}

/* Makes the sum the only contribution of the list, with a weight of 1. */
static void use_sum(struct ps_update *u)
{
    u->whole =
        (struct ps_term){.weight = 1, .span = {(const uint8_t *)u->sum, u->n * sizeof *u->sum}};
    u->whole.payload = (struct net_payload){&u->whole.span, 0, u->whole.span.n};
    u->sum = NULL;
    u->terms = &u->whole;
    u->n_terms = 1;
    u->arrived = -1;
    u->dtype = DTYPE_F32;
}

int ps_update_begin(struct ps_update *u)
{
    atomic_store(&u->bad, SIZE_MAX);
    atomic_store(&u->not_finite, SIZE_MAX);
    u->src = NULL;
    if (u->n_terms == 0 && !u->sum)
        return 1;
    if (u->n_terms == 0)
        use_sum(u);
    const struct net_payload *p = &u->terms[u->arrived < 0 ? 0 : u->arrived].payload;
    if (p->span->n - p->skip < p->bytes)
        return 0;
    u->src = (const char *)p->span->data + p->skip;
    return (int)((u->n + PART - 1) / PART);
}

void ps_update_part(struct ps_update *u, int k)
{
    struct pass p = {u, 0, 0, SIZE_MAX, SIZE_MAX};
    size_t at = (size_t)k * PART;
    if (!u->src) {
        keep_version(u);
        return;
    }
    run_blocks(&p, at, u->src + dtype_bytes(u->dtype, at), u->n - at < PART ? u->n - at : PART);
    note_first(&u->bad, p.bad);
    note_first(&u->not_finite, p.not_finite);
}

size_t ps_update_end(struct ps_update *u, uint32_t *crc)
{
    const void *out = u->wire ? u->wire : (void *)u->value;
    size_t bad = atomic_load(&u->bad);
    if (bad == SIZE_MAX)
        *crc = u->sums ? digest_crc32c(0, out, dtype_bytes(u->wire_dtype, u->n)) : 0;
    return bad;
}

static void run_part(void *ctx, int k)
{
    ps_update_part(ctx, k);
}

size_t ps_update_run(struct ps_update *u, uint32_t *crc)
{
    struct pass p = {u, u->sums, 0, SIZE_MAX, SIZE_MAX};
    int n_parts = ps_update_begin(u);
    if (n_parts == 1 || (n_parts > 1 && u->threads)) {
        thread_pool_run(u->threads, n_parts, run_part, u);
        return ps_update_end(u, crc);
    }
    if (n_parts > 1) {
        run_blocks(&p, 0, u->src, u->n);
    } else {
        size_t in = dtype_block(u->dtype), out = dtype_block(u->wire_dtype);
        payload_each_run(&u->terms[u->arrived].payload, u->dtype, u->n, in > out ? in : out,
                         run_blocks, &p);
    }
    atomic_store(&u->not_finite, p.not_finite);
    if (p.bad == SIZE_MAX)
        *crc = p.crc;
    return p.bad;
}
