/* net/wire/place.h - a member's place in a generation, and which samples are its by that.
 * Threads: values. */
#ifndef NET_WIRE_PLACE_H
#define NET_WIRE_PLACE_H
#include "kernels/vector/dtype.h"
#include "kernels/vector/optim.h"
#include "net/wire/rounding.h"
#include <stdbool.h>
#include <stdint.h>

struct net_place {
    int member; /* its index, for life */
    int rank;   /* in this generation's frames and sums: 0 to n_members - 1, by index */
    int n_members;
    int64_t first_step; /* of the generation */
    uint64_t position;  /* of first_step's first sample */
    int64_t train_steps;
    int64_t asked_steps;   /* that the job was to take when it began; 0: not said */
    int region, n_regions; /* of the samples that come next where the servers are a region's, every
                              n_regions-th is a member's of region `region`; n_regions 0: all are */
    int64_t contributed;   /* lockstep: the last version up to first_step that has a contribution of
                              the member's; 0: none has */
    struct net_rounding rounding;         /* the job's */
    enum dtype push_dtype, version_dtype; /* likewise */
    bool has_outer;            /* `outer` is known, and the job has rounds (local_steps) */
    struct optim_config outer; /* the job's optimizer of rounds: kind, rate, momentum */
    int validates;             /* all members have the validation that this one has brought */
};

/* Where the samples of a member's step begin, counted from the first of the first pass (I6), in a
 * region from its own first. */
uint64_t net_place_position(const struct net_place *p, int batch, int64_t step);
/* Of all samples, which one a region's is that has this position. */
uint64_t net_place_sample(const struct net_place *p, uint64_t position);

#endif
