/* ps/store/aggregate.h - the contributions to one chunk at the step under way (invariant I2):
 * summed in member order whatever the arrival. The next in order is added straight from the
 * network's bytes; those ahead of their turn wait as copies, at most n_members - 1. As the one
 * comes that makes it complete, it and those behind it are not added: the pass that makes the new
 * version takes them from where they lie (update.h). One of weight 0, which its sender skipped, has
 * no payload and adds nothing, but is counted.
 * `whole`: all are added, for a sum that is looked at before the version is made.
 * Owns:    the sum and the copies that wait.
 * Threads: none; under the chunk's lock. Errors: ST_NOMEM. */
#ifndef PS_STORE_AGGREGATE_H
#define PS_STORE_AGGREGATE_H
#include "net/wire/frame.h"
#include "ps/store/pool.h"
#include "ps/store/update.h"
#include <stdint.h>

struct aggregate_copy {
    struct buf *copy; /* NULL: nothing waits */
    float weight;
};

struct aggregate {
    struct ps_pool *pool; /* borrowed */
    int shelf;            /* of the pool, borrowed likewise */
    int n_members;
    enum dtype dtype;              /* of the contributions */
    int whole;                     /* the last is added to the sum, too */
    int may_overflow;              /* the sum may be infinite: who looks at it takes care of that */
    size_t n;                      /* elements */
    float *sum;                    /* n; meaningful while next > 0 */
    int next;                      /* the member whose turn it is; those below are in the sum */
    int n_counted;                 /* in the sum or waiting */
    double weight;                 /* total of those whose turn has come */
    int summed;                    /* 1: when all are there: the sum has a weight above 0 */
    int64_t since_ns;              /* when the first contribution of this step came */
    struct aggregate_copy *parked; /* n_members */
    /* When all are there: those of weight above 0 that are not in the sum, see ps_update. They
     * borrow the payload given to add, or the copies. */
    struct ps_term *terms; /* n_members */
    int n_terms, arrived;
};

/* a->n, n_members, dtype, whole, may_overflow: set by the caller. */
enum status aggregate_init(struct aggregate *a, struct ps_pool *pool, int shelf);
void aggregate_free(struct aggregate *a);
/* Up to which magnitude a contribution of this weight is taken: each of the members may bring as
 * much, and their sum is finite. */
float aggregate_limit(const struct aggregate *a, float weight);
/* Counts a contribution of n elements that is not here yet. ST_INVALID: it is not finite, or above
 * the limit; *bad is the first such element. On that and on ST_NOMEM nothing has changed. If it
 * makes it complete and is not added, it was not looked at. */
enum status aggregate_add(struct aggregate *a, int member, const struct net_payload *payload,
                          float weight, int64_t now_ns, size_t *bad);
/* Of all but the terms, once all are there; NULL: none of them has a weight. */
const float *aggregate_sum(const struct aggregate *a);
/* What makes the sum of all `factor` times a weighted mean; infinite if all weights are 0. */
float aggregate_scale(const struct aggregate *a, double factor);
/* `whole`, all are there: the sum of squares of their weighted mean; 0: none has a weight. */
double aggregate_squares(const struct aggregate *a);
/* The step is done; the sum's memory is used for the next. */
void aggregate_reset(struct aggregate *a);

#endif
