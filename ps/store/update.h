/* ps/store/update.h - makes a chunk's next version in one pass over memory: it adds the remaining
 * contributions to the sum of the earlier ones, runs the optimizer, writes the new value, encodes
 * it for the wire and computes its checksum, block by block while the block is in cache. The result
 * has the same bits as if each of these operations ran over the whole chunk before the next one,
 * for any number of threads. Parameters without a gradient keep their value, their slots and their
 * rounding residual; only their average (optim_run_ema) changes.
 * Owns:    nothing.
 * Threads: any; the outputs are the caller's alone. Parts may run in parallel.
 * Errors:  none. */
#ifndef PS_STORE_UPDATE_H
#define PS_STORE_UPDATE_H
#include "base/thread_pool.h"
#include "kernels/vector/optim.h"
#include "net/wire/chunks.h"
#include "net/wire/lacking.h"
#include "net/wire/payload.h"
#include <stdbool.h>

/* A contribution that is not in the sum yet. */
struct ps_term {
    struct net_payload payload;
    float weight;
    float limit;          /* limit of magnitudes in `arrived`; 0: any finite value */
    struct net_span span; /* place of a payload that is in a copy */
};

/* The parameters of a chunk, if their updates differ. */
struct ps_update_params {
    const struct net_param *param; /* [n] in their order; `param` of the update is the first */
    int n;
    int64_t first; /* element offset of the chunk in the flat block of all parameters */
    /* marks of the parameters that keep their value (lacking.h); NULL: none */
    const uint8_t *lacking;
    /* [n] for each parameter, the number of updates in which it had no gradient; NULL: all are 0 */
    const uint64_t *idle;
    const struct optim_config *optim;
    uint64_t step, since; /* arguments of optim_begin_scaled; `since` without the idle updates */
    struct optim_factors factors; /* the same for all parameters of a chunk */
};

struct ps_update {
    const struct net_param *param; /* parameter, whose rule decides: optimizer or average */
    struct optim_step step;        /* scalars of optim_begin; not read for averages */
    size_t n;                      /* elements of the chunk */
    const float *sum;              /* weighted sum of the earlier contributions; NULL: none */
    /* Contributions to add to the sum, in this order, all of dtype. If there are none, the sum
     * alone counts; if there is no sum either, the new version equals the old one. `arrived` is the
     * index of the contribution that is not checked yet, and need not be contiguous; -1: none. */
    const struct ps_term *terms;
    int n_terms, arrived;
    enum dtype dtype;
    float scale;        /* makes the sum a mean: 1 / total weight */
    const float *old;   /* value of the version before */
    const float *slots; /* the optimizer's slots of the version before; NULL: none */
    int n_slots;
    bool residual; /* the last slot is the rounding residual of the wire form */

    const struct ps_update_params *params; /* NULL: all parameters are updated by `step` */

    float compensation; /* DC-ASGD's lambda */
    const float *base;  /* version that the contribution was computed on; NULL: no compensation */

    float *value; /* output: the new version */
    /* output: a copy of `value`, in memory that a member may change; NULL: none */
    float *placed;
    float *new_slots; /* output: slots of the new version; may be `slots` */
    /* Format that members receive. A format with blocks carries changes, and the last slot is then
     * the rounding residual. */
    enum dtype wire_dtype;
    bool sums;                   /* compute the checksum */
    struct thread_pool *threads; /* threads that help ps_update_run; NULL: none */
    void *wire; /* output: encoded version; NULL: wire_dtype is fp32, and members receive `value` */
    /* Output: first element of `value` that is not finite; SIZE_MAX: none, or the version equals
     * the one before. */
    _Atomic size_t not_finite;

    /* Fields that ps_update_begin sets for the functions of update.c. */
    /* elements of the first contribution of the list that are read in place; NULL: none */
    const char *src;
    _Atomic size_t bad;
    struct ps_term whole; /* the sum, used as the only contribution */
};

/* Prepares the pass; the struct must stay at its address from now on. Returns the number of parts
 * that may run in parallel; 0: the pass has no parts, since the payload of `arrived` is not
 * contiguous. */
int ps_update_begin(struct ps_update *u);
/* Runs part k of a pass that has begun. */
void ps_update_part(struct ps_update *u, int k);
/* Ends a pass, all of whose parts have run. *crc receives the CRC-32C of the wire form, or 0 if
 * `sums` is zero. Returns SIZE_MAX, or the first element of `arrived` that is not finite or above
 * its limit: then the caller drops the outputs. */
size_t ps_update_end(struct ps_update *u, uint32_t *crc);
/* Runs a whole pass, which has not begun, and ends it. */
size_t ps_update_run(struct ps_update *u, uint32_t *crc);

#endif
