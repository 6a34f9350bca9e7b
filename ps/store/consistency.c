/* ps/store/consistency.c - see consistency.h.
 *
 * sync            the mean of all members' contributions makes a version (I2).
 * backup workers  sync, but the first so many make it, summed in the order they come; the others'
 *                 are answered STALE with the version that did without them.
 * async           each contribution makes a version.
 * ssp             async, but a member that is ahead gets no answer until clock - lowest clock <=
 *                 staleness (Ho et al. 2013), where a member's clock at a chunk is the number of
 *                 its contributions that counted.
 *
 * Why nobody waits for ever in ssp. A worker pushes all chunks that are not finished, then waits
 * for all answers: so at a worker that waits, its clocks at all chunks are equal. Were there a ring
 * of workers, each waiting at some chunk for the next one, then each were more than `staleness`
 * ahead of the next; going round, the differences cannot sum to 0. A process that dies may leave
 * its member's clocks one apart; therefore every restart makes the bound one larger, which is more
 * than such a difference can add up to. One that left by name and came back neither waits nor is
 * waited for. A chunk that has reached train_steps holds nobody.
 *
 * With backup workers: suppose that all wait; let Z be the one whose present round of pushes began
 * first, waiting at a chunk that is at version w. Not all that contributed to w did so before their
 * present round, else their present pushes were for w and would complete it. One that did in its
 * present round did it after that began, but before w existed, which Z had when its own began. */
#include "ps/store/consistency.h"

enum consistency_mode consistency_mode_of(const struct net_job *job)
{
    if (job->sync_mode == JOB_ASYNC)
        return CONSISTENCY_ASYNC;
    if (job->sync_mode == JOB_SSP)
        return CONSISTENCY_SSP;
    return job_in_lockstep(job) ? CONSISTENCY_SYNC : CONSISTENCY_BACKUP;
}

/* Of the version that the push was computed on. */
enum age { PRESENT, PREVIOUS, OLDER, N_AGES };

/* What the chunk knows of the member at that step. */
enum record {
    NEW,       /* nothing: its last contribution was for an earlier step, or there was none, or it
                  was another process's for a later one */
    WAITING,   /* this process waits for the answer to this very push */
    COUNTED,   /* it counted, sent by this process, and was answered */
    RESTARTED, /* it counted, sent by an earlier process of the member */
    OVERTAKEN, /* this process's contribution for a later step counted */
    N_RECORDS
};

#define COUNT VERDICT_COUNT
#define DUP VERDICT_DUPLICATE
#define STALE VERDICT_STALE
#define WAIT VERDICT_WAIT

/* What is repeated while its first answer is held back (hold_last) is answered like any other
 * repeat, but for ssp, where holding answers back is what the mode is about.
 * sync: version s+1 took a contribution of every member, so what is repeated of step s was counted,
 * whatever the record says: a store that goes on from another's versions has none.
 * async, ssp: a member has one push per chunk in flight, so its last one is enough to know a
 * repeat; a process that was restarted computed its gradient again, on other samples: it is another
 * contribution. */
static const enum verdict_kind verdicts[CONSISTENCY_N_MODES][N_AGES][N_RECORDS] = {
    /*                                 NEW    WAITING COUNTED RESTARTED OVERTAKEN */
    [CONSISTENCY_SYNC] = {[PRESENT] = {COUNT, WAIT, WAIT, WAIT, STALE},
                          [PREVIOUS] = {DUP, DUP, DUP, DUP, DUP},
                          [OLDER] = {STALE, STALE, STALE, STALE, STALE}},
    [CONSISTENCY_BACKUP] = {[PRESENT] = {COUNT, WAIT, WAIT, WAIT, STALE},
                            [PREVIOUS] = {STALE, DUP, DUP, DUP, STALE},
                            [OLDER] = {STALE, DUP, DUP, DUP, STALE}},
    [CONSISTENCY_ASYNC] = {[PRESENT] = {COUNT, WAIT, DUP, COUNT, STALE},
                           [PREVIOUS] = {COUNT, WAIT, DUP, COUNT, STALE},
                           [OLDER] = {COUNT, WAIT, DUP, COUNT, STALE}},
    [CONSISTENCY_SSP] = {[PRESENT] = {COUNT, WAIT, DUP, COUNT, STALE},
                         [PREVIOUS] = {COUNT, WAIT, DUP, COUNT, STALE},
                         [OLDER] = {COUNT, WAIT, DUP, COUNT, STALE}},
};

static enum age age_of(const struct consistency_push *p)
{
    if (p->step == p->version)
        return PRESENT;
    return p->step == p->version - 1 ? PREVIOUS : OLDER;
}

static enum record record_of(const struct consistency_push *p)
{
    if (p->awaits_answer)
        return WAITING;
    if (p->step == p->last_step)
        return p->same_process ? COUNTED : RESTARTED;
    return p->step < p->last_step && p->same_process ? OVERTAKEN : NEW;
}

/* Its number among those that make the version: in sync the sum is in member order (I2); with
 * backup workers whoever comes next is next, so that none is kept aside; else there is but one. */
static int slot_of(enum consistency_mode mode, const struct consistency_push *p)
{
    if (mode == CONSISTENCY_SYNC)
        return p->member;
    return mode == CONSISTENCY_BACKUP ? p->n_counted : 0;
}

struct verdict consistency_verdict(enum consistency_mode mode, const struct consistency_push *p)
{
    if (p->step > p->version)
        return (struct verdict){VERDICT_REFUSE, 0};
    enum verdict_kind kind = verdicts[mode][age_of(p)][record_of(p)];
    if (kind != VERDICT_COUNT)
        return (struct verdict){kind, 0};
    if (p->version >= p->last)
        return (struct verdict){VERDICT_STALE, 0};
    return (struct verdict){VERDICT_COUNT, slot_of(mode, p)};
}

int64_t consistency_limit(int64_t lowest, int64_t staleness, int n_restarts)
{
    return lowest == INT64_MAX ? lowest : lowest + staleness + n_restarts;
}
