/* ps/store/aggregate.h - the contributions to one chunk at the present step (I2), summed in member
 * order in whatever order they arrive. The contribution that is next in order is added directly
 * from the network's bytes; those ahead of their turn wait as copies, at most n_members - 1. The
 * last contribution to arrive, and the copies after it in member order, are not added: the pass
 * that makes the new version reads them in place (update.h). A contribution of weight 0, which its
 * sender skipped, has no payload and adds nothing, but is counted. If `whole` is set, all
 * contributions are added, since the sum is inspected before the version is made. A contribution
 * that lacks all gradients of the chunk (net/wire/lacking.h) has no payload, but its weight counts.
 * Owns:    the sum and the copies that wait.
 * Threads: none; the caller holds the chunk's lock.
 * Errors:  ST_NOMEM. */
#ifndef PS_STORE_AGGREGATE_H
#define PS_STORE_AGGREGATE_H
#include "net/wire/lacking.h"
#include "net/wire/payload.h"
#include "ps/store/pool.h"
#include "ps/store/update.h"
#include <stdbool.h>
#include <stdint.h>

struct aggregate_copy {
    struct buf *copy; /* copy of a contribution that waits; NULL: none waits */
    float weight;
    bool empty; /* the contribution has no payload, as it lacks all gradients */
};

struct aggregate {
    struct ps_pool *pool; /* borrowed */
    int shelf;            /* shelf of the pool */
    int n_members;
    enum dtype dtype;  /* format of the contributions */
    bool whole;        /* the last contribution is added to the sum, too */
    bool may_overflow; /* the sum may be infinite, and its reader checks that */
    size_t n;          /* elements */
    int n_params;      /* parameters of the chunk */
    float *sum;        /* [n] sum of contributions; meaningful while next > 0 */
    /* member whose contribution is added next; those of earlier members are in the sum */
    int next;
    int n_counted; /* contributions in the sum or waiting */
    double weight; /* total of the contributions whose turn has passed */
    bool summed;   /* the sum has a contribution with a payload */
    bool weighted; /* a contribution of weight above 0 was counted */
    bool lacks;    /* all contributions of weight above 0 lack the gradient of a parameter */
    /* lacking: marks of the gradients that all contributions lack, if `lacks`; unused: buffer
     * for the next such marks */
    uint8_t *lacking, *unused;
    int64_t since_ns;              /* time of this step's first contribution */
    struct aggregate_copy *parked; /* [n_members] */
    /* Once all contributions have arrived: those that have a payload and are not in the sum; see
     * ps_update. They refer to the payload that was passed to aggregate_add, or to copies. */
    struct ps_term *terms; /* [n_members] */
    int n_terms, arrived;
};

/* Initialises the other fields; the caller has set a->n, n_params, n_members, dtype, whole and
 * may_overflow. */
enum status aggregate_init(struct aggregate *a, struct ps_pool *pool, int shelf);
void aggregate_free(struct aggregate *a);
/* Returns the largest magnitude that is accepted in a contribution of this weight: even if every
 * member sends values of this size, the sum is finite. */
float aggregate_limit(const struct aggregate *a, float weight);
struct aggregate_term {
    int member;
    const struct net_payload *payload;
    float weight;
    /* marks of the gradients that the contribution lacks; NULL: it has all */
    const uint8_t *lacking;
};
/* Counts a contribution of n elements that has not been counted yet. ST_INVALID: an element is not
 * finite, or above the limit; *bad is the first one. After ST_INVALID and ST_NOMEM nothing has
 * changed. If the last contribution is not added here, its elements have not been checked. */
enum status aggregate_add(struct aggregate *a, const struct aggregate_term *from, int64_t now_ns,
                          size_t *bad);
/* Returns true if all contributions of weight above 0 may lack some gradient once this one is
 * counted. */
bool aggregate_may_lack(const struct aggregate *a, float weight, const uint8_t *lacking);
/* Returns the sum of the contributions that are not in `terms`, once all have arrived; NULL: none
 * of them has a payload. */
const float *aggregate_sum(const struct aggregate *a);
/* Returns the factor that turns the sum of all contributions into `factor` times the weighted mean;
 * infinite if all weights are 0. */
float aggregate_scale(const struct aggregate *a, double factor);
/* Returns the sum of squares of the weighted mean; 0 if all weights are 0. Called if `whole` is
 * set, once all contributions have arrived. */
double aggregate_squares(const struct aggregate *a);
/* Ends the step; the next step reuses the sum's memory. */
void aggregate_reset(struct aggregate *a);

#endif
