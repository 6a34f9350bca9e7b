/* ps/store/update.h - a chunk's next version, made in one pass over memory: the contributions
 * that are left are added to the sum of the others, the optimizer runs, the new value is written,
 * encoded for the wire and summed up, block by block while it lies in cache. The same bits as the
 * steps one after the other, and however many threads share it. Owns: nothing. Threads: any; the
 * outputs are the caller's alone. Errors: none. */
#ifndef PS_STORE_UPDATE_H
#define PS_STORE_UPDATE_H
#include "base/thread_pool.h"
#include "kernels/vector/optim.h"
#include "net/wire/chunks.h"
#include "net/wire/frame.h"

/* A contribution that is not in the sum yet. */
struct ps_term {
    struct net_payload payload;
    float weight;
    float limit;          /* of `arrived`: the largest magnitude that is taken; 0: what is finite */
    struct net_span span; /* of a payload that lies in a copy */
};

struct ps_update {
    const struct net_param *param; /* whose rule decides: optimizer or average */
    struct optim_step step;        /* from optim_begin; not read for averages */
    size_t n;                      /* elements of the chunk */
    const float *sum;              /* of the other contributions, weighted; NULL: there are none */
    /* Those that are added to it, in this order, all of dtype; none: the sum alone, and without one
     * the version is the one before, with its slots. Each lies in one piece, but `arrived`, which
     * was not looked at either; -1: there is none such. */
    const struct ps_term *terms;
    int n_terms, arrived;
    enum dtype dtype;
    float scale;        /* makes the sum a mean: 1 / total weight */
    const float *old;   /* the version before */
    const float *slots; /* the optimizer's, of the version before; NULL if it has none */
    int n_slots;
    int residual; /* the last slot is the residual of what members get */

    float compensation; /* DC-ASGD's lambda */
    const float *base;  /* the version that the contribution was computed on; NULL: none of that */

    float *value;                /* out: the new version */
    float *new_slots;            /* out: its slots; may be `slots` */
    enum dtype wire_dtype;       /* of what members get; in blocks: what changed, whose rounding's
                                    residual is the last slot */
    int sums;                    /* 1: the checksum is wanted */
    struct thread_pool *threads; /* that share it; NULL: the caller's alone */
    void *wire;        /* out: encoded; NULL where wire_dtype is fp32: members get `value` */
    size_t not_finite; /* out: the first element of `value` that is not finite; SIZE_MAX: none, or
                      it is the version before */
};

/* *crc: the CRC-32C of what members get, or 0 if it is not wanted. Returns SIZE_MAX, or the first
 * element of `arrived` that is not finite or above its limit: then what is in the outputs is to be
 * dropped. */
size_t ps_update_run(struct ps_update *u, uint32_t *crc);

#endif
