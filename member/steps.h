/* member/steps.h - computes positions of samples, versions of chunks and the final values, for a
 * loop over steps with any kind of updates. Owns: nothing. Threads and errors: those of
 * member/updates.h.
 */
#ifndef MEMBER_STEPS_H
#define MEMBER_STEPS_H
#include "member/updates.h"

/* State of one generation. */
struct member_steps {
    const struct updates *updates;
    const struct net_place *place;
    int own_pace;           /* not job_in_lockstep */
    int64_t n_local, batch; /* steps of a round, at least 1; samples of one step of this member */
};

/* Returns the position of this member's first sample of a step. The samples of all members in a
 * step have contiguous positions, of which each member has a contiguous part: the samples of its
 * whole round, if it has local steps. Only for members in lockstep. net_place_sample maps the
 * position to the samples of a region. */
uint64_t member_steps_position(const struct member_steps *m, int64_t step);
/* Returns the position of the current step's first sample, also in modes without lockstep, where
 * servers assign the samples. */
uint64_t member_steps_position_now(const struct member_steps *m, int64_t step);
/* Returns the lowest version of all chunks; -1: a chunk has no version, since the generation has
 * ended. */
int64_t member_steps_lowest_version(const struct updates *x, int n_chunks);
/* Waits, after the last step, until this process has all chunks at that version, those of
 * parameters in full precision. In modes without lockstep this process already has the chunks, but
 * requests those of parameters, too, because the servers answer only when the last checkpoint is on
 * the disk. asked: 0 in the first call; after
 * ST_DEADLINE the caller passes the value that the call has set. */
enum status member_steps_collect(const struct member_steps *m, const struct chunks *chunks,
                                 int64_t version, int64_t deadline_ns, int *asked);

#endif
