/* ps/store/consistency.c - see consistency.h.
 *
 * sync            the mean of all members' contributions makes a version (I2).
 * backup workers  sync, but the first N contributions make a version, summed in order of arrival;
 *                 later ones are answered STALE with the version that was made without them.
 * async           each contribution makes a version.
 * ssp             async, but a member that is ahead gets no answer until clock - lowest clock <=
 *                 staleness (Ho et al. 2013), where a member's clock at a chunk is the number of
 *                 its contributions that counted.
 *
 * Why ssp has no deadlock. A worker pushes all chunks that are not finished, then waits for all
 * answers. So the clocks of a waiting worker are equal at all chunks. Assume a ring of workers,
 * each of which waits at some chunk for the next worker. Then each is more than `staleness` ahead
 * of the next, but around the ring these differences would have to sum to 0. A process that dies
 * may leave its member's clocks one apart. Therefore every restart raises the bound by one, which
 * outweighs all such differences together. A member that left in order and returned neither waits
 * nor is waited for. A chunk that has reached train_steps blocks no member.
 *
 * Why backup workers have no deadlock. Assume that all workers wait. Let Z be the worker whose
 * present round of pushes began first, and let Z wait at a chunk with version w. If all workers
 * that contributed to w had done so before their present round, they would have pushed on w in
 * their present round, and these pushes would have made version w + 1. So one of them, Y,
 * contributed to w in its present round, which therefore began before w existed. But Z had w when
 * its round began, so Y's round began before Z's: a contradiction. */
#include "ps/store/consistency.h"

enum consistency_mode consistency_mode_of(const struct net_job *job)
{
    if (job->sync_mode == JOB_ASYNC)
        return CONSISTENCY_ASYNC;
    if (job->sync_mode == JOB_SSP)
        return CONSISTENCY_SSP;
    return job_in_lockstep(job) ? CONSISTENCY_SYNC : CONSISTENCY_BACKUP;
}

/* Age of the version that the push was computed on. */
enum age { PRESENT, PREVIOUS, OLDER, N_AGES };

/* State of the chunk's record of the member's push of that step. */
enum record {
    /* No record: the member's last contribution was for an earlier step, or another process of the
     * member sent one for a later step, or the member has not contributed. */
    NEW,
    WAITING,   /* this process waits for the answer to this very push */
    COUNTED,   /* counted, sent by this process, and answered */
    RESTARTED, /* counted, sent by an earlier process of the member */
    OVERTAKEN, /* a contribution of this process for a later step counted */
    N_RECORDS
};

#define COUNT VERDICT_COUNT
#define DUP VERDICT_DUPLICATE
#define STALE VERDICT_STALE
#define WAIT VERDICT_WAIT

/* A push that is repeated while its first answer is held back (hold_last) is answered like any
 * other repeat, except in ssp, where the mode itself holds answers back.
 *
 * In sync, version s+1 contains a contribution of every member. So a repeat of step s was counted
 * even if there is no record of it: a store that continues from another store's versions has no
 * records.
 *
 * In async and ssp a member has one push per chunk in flight, so the record of its last push is
 * enough to recognise a repeat. A restarted process computed its gradient again, on other samples:
 * this is another contribution, and it counts. */
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

/* Returns the contribution's number in its version. In sync contributions are summed in member
 * order (I2). If there are backup workers, they are summed in order of arrival, so that none is
 * parked. In the other modes a version has only one contribution. */
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
