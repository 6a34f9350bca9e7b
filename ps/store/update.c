/* ps/store/update.c - see update.h. A block is small enough that it and all that belongs to it stay
 * in the first-level cache between the loops, so each byte of the chunk moves once. */
#include "ps/store/update.h"
#include "base/digest.h"
#include "kernels/vector/compensate.h"
#include "kernels/vector/finite.h"
#include "kernels/vector/vector.h"

enum { BLOCK = 2048 }; /* elements */

struct pass {
    struct ps_update *u;
    uint32_t crc;
    size_t bad;
};

/* The block's gradient, as r->n elements from src on give it: r->sum, weight and others; where it
 * lies, or in `sum`. */
static void add_last(const struct ps_update *u, size_t first, const void *src, struct optim_run *r,
                     float *sum)
{
    int clips = u->sum && u->step.clip > 0;
    if (!u->base && u->param->rule == PARAM_TRAINED && !clips) {
        r->sum = src; /* the optimizer adds as it reads */
        r->weight = u->last_weight;
        r->others = u->sum ? u->sum + first : NULL;
        return;
    }
    r->sum = sum;
    r->weight = 1;
    if (u->sum)
        vector_sum_scaled(sum, u->sum + first, src, u->last_weight, r->n);
    else
        vector_scale(sum, src, u->last_weight, r->n);
    if (u->base)
        optim_compensate(u->compensation, r->n, u->old + first, u->base + first, sum);
}

static void run_block(struct pass *p, size_t first, const void *src, size_t n)
{
    struct ps_update *u = p->u;
    float sum[BLOCK], decoded[BLOCK], *value = u->value + first;
    const void *as_it_came = src;
    if (u->last_dtype != DTYPE_F32) {
        dtype_decode(u->last_dtype, decoded, src, n);
        src = decoded;
    }
    struct optim_run r = {.n = n,
                          .scale = u->scale,
                          .old = u->old + first,
                          .slots = u->slots ? u->slots + first : NULL,
                          .new_slots = u->slots ? u->new_slots + first : NULL,
                          .slot_stride = u->n,
                          .new_ = value};
    add_last(u, first, src, &r, sum);
    if (u->step.clip > 0 && u->param->rule == PARAM_TRAINED) {
        vector_clip(sum, r.sum, r.weight, r.scale, u->step.clip, n);
        r.sum = sum;
        r.weight = r.scale = 1;
    }
    if (u->param->rule == PARAM_AVERAGE)
        optim_average(u->param->keep, n, r.sum, u->scale, r.old, value);
    else
        optim_run(&u->step, &r);
    size_t size = dtype_size(u->wire_dtype);
    const void *out = value;
    if (u->wire) {
        dtype_encode(u->wire_dtype, (char *)u->wire + first * size, value, n);
        out = (const char *)u->wire + first * size;
    }
    if (u->sums)
        p->crc = digest_crc32c(p->crc, out, n * size);
    /* after, since it lies in cache now */
    size_t bad = u->sum_is_last ? n : finite_first_bad(u->last_dtype, as_it_came, n);
    if (bad < n && p->bad == SIZE_MAX)
        p->bad = first + bad;
}

static void run_blocks(void *ctx, size_t first, const void *src, size_t n)
{
    struct pass *p = ctx;
    size_t size = dtype_size(p->u->last_dtype);
    for (size_t at = 0; at < n; at += BLOCK)
        run_block(p, first + at, (const char *)src + at * size, n - at < BLOCK ? n - at : BLOCK);
}

/* Nobody contributed: nothing moves, the slots neither. */
static uint32_t keep(const struct ps_update *u)
{
    size_t size = dtype_size(u->wire_dtype);
    int n_slots = u->slots ? u->n_slots : 0;
    vector_copy(u->value, u->old, u->n);
    if (n_slots > 0 && u->new_slots != u->slots)
        vector_copy(u->new_slots, u->slots, u->n * (size_t)n_slots);
    if (u->wire)
        dtype_encode(u->wire_dtype, u->wire, u->value, u->n);
    return u->sums ? digest_crc32c(0, u->wire ? u->wire : (void *)u->value, u->n * size) : 0;
}

size_t ps_update_run(struct ps_update *u, uint32_t *crc)
{
    struct pass p = {u, 0, SIZE_MAX};
    if (u->last->bytes == 0 && !u->sum) {
        p.crc = keep(u);
    } else if (u->last->bytes == 0) { /* the sum stands for the last one, with a weight of 1 */
        struct ps_update of_sum = *u;
        of_sum.sum = NULL;
        of_sum.last_dtype = DTYPE_F32;
        of_sum.last_weight = 1;
        of_sum.sum_is_last = 1;
        p.u = &of_sum;
        run_blocks(&p, 0, u->sum, u->n);
    } else {
        payload_each_run(u->last, dtype_size(u->last_dtype), run_blocks, &p);
    }
    if (p.bad == SIZE_MAX)
        *crc = p.crc;
    return p.bad;
}
