/* member/steps.h - what a loop of steps asks of its updates, whatever computes them: which samples,
 * which version, and the last values. Owns: nothing. Threads: as member/updates.h. Errors: its. */
#ifndef MEMBER_STEPS_H
#define MEMBER_STEPS_H
#include "member/updates.h"

/* Of one generation. */
struct member_steps {
    const struct updates *updates;
    const struct net_place *place;
    int own_pace;           /* not job_in_lockstep */
    int64_t n_local, batch; /* steps of a round, at least 1; samples of one step of this member */
};

/* Where the samples of a step begin in the order of all members', which lie side by side, a
 * member's in one run; with local steps, those of one step of the servers. Known at once where the
 * members are in lockstep. net_place_sample makes of it what a region reads. */
uint64_t member_steps_position(const struct member_steps *m, int64_t step);
/* Likewise of the step at hand: at their own pace servers give the samples out. */
uint64_t member_steps_position_now(const struct member_steps *m, int64_t step);
/* Of all chunks; -1: one is not there, since the generation has ended. */
int64_t member_steps_lowest_version(const struct updates *x, int n_chunks);
/* After the last step: all chunks at that version, in this process and in full precision. At their
 * own pace they are here, but are asked for all the same: the servers answer that when the last
 * checkpoint is on the disk. asked: 0 at first; of an earlier call that ended with ST_DEADLINE. */
enum status member_steps_collect(const struct member_steps *m, int n_chunks, int64_t version,
                                 int64_t deadline_ns, int *asked);

#endif
