/* net/wire/place.h - a member's place in a generation, which also determines its samples.
 * Threads: plain values without a lock. */
#ifndef NET_WIRE_PLACE_H
#define NET_WIRE_PLACE_H
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim.h"
#include "net/wire/rounding.h"
#include <stdbool.h>
#include <stdint.h>

struct net_place {
    int member; /* index of the member, which never changes */
    /* number of the member in this generation's frames and sums: 0 to n_members - 1, in the order
     * of the indices */
    int rank;
    int n_members;
    int64_t first_step; /* first step of the generation */
    uint64_t position;  /* position of first_step's first sample */
    int64_t train_steps;
    int64_t asked_steps; /* steps that the job was to have when it began; 0: unset */
    /* a region reads every n_regions-th sample, beginning with sample `region`; n_regions 0: there
     * are no regions */
    int region, n_regions;
    int64_t contributed;          /* lockstep: the last version up to first_step that contains a
                                     contribution of the member; 0: none */
    uint64_t contributed_in;      /* its generation, as in struct net_contribution (plan.h) */
    struct net_rounding rounding; /* rounding of the job */
    enum dtype push_dtype, version_dtype; /* number formats of the job */
    bool has_outer;            /* `outer` is known, and the job has rounds (local_steps) */
    struct optim_config outer; /* optimizer of the job's rounds: only kind, rate and momentum */
    bool validates; /* all members have the same validation data and schedule as this one */
};

/* Returns the position of the first sample of a member's step, counted from the first sample of
 * the first pass (I6); in a region, counted among the region's samples. */
uint64_t net_place_position(const struct net_place *p, int batch, int64_t step);
/* Returns the number, among all samples, of the region's sample at this position. */
uint64_t net_place_sample(const struct net_place *p, uint64_t position);

#endif
