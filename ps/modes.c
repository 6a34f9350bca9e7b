/* ps/modes.c - see cell.h: what a contribution does in each mode, and who has to wait for whom.
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
#include "base/clock.h"
#include "ps/cell.h"
#include <inttypes.h>

/* A contribution that waits for others: remembers whom the version waited for in the end. */
static int contribute_in_sync(struct ps_store *s, struct cell *c, int member, int slot,
                              const struct net_piece *piece, struct ps_answer *now)
{
    int64_t now_ns = clock_now_ns();
    int64_t waited_ns = c->sum.n_counted > 0 ? now_ns - c->arrived_ns : 0;
    int made = ps_cell_contribute(s, c, slot, &piece->payload, piece->weight, now);
    c->arrived_ns = now_ns;
    if (made)
        c->late = (struct ps_late){c->version - 1, member, waited_ns};
    return made;
}

/* Version s+1 took a contribution of every member, so whoever repeats step s was counted. */
static int push_sync(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                     const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step;
    int member = (int)head->member, made = 0;
    if (step < c->version || step >= s->job.train_steps) {
        ps_cell_give(s, c, step == c->version - 1 ? PIECE_DUPLICATE : PIECE_STALE, now);
        return 0;
    }
    if (!ps_aggregate_has(&c->sum, member))
        made = contribute_in_sync(s, c, member, member, piece, now);
    if (now->kind == PIECE_NONE)
        ps_cell_wait(c, head, step);
    return made;
}

/* Backup workers: whoever comes next is next in the sum, so none is kept aside. */
static int push_first(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                      const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step;
    struct asker *a = &c->askers[head->member];
    int made = 0;
    if (step < c->version || step >= s->job.train_steps) {
        ps_cell_give(s, c, a->counted_step == step ? PIECE_DUPLICATE : PIECE_STALE, now);
        return 0;
    }
    if (a->counted_step != step) {
        made = contribute_in_sync(s, c, (int)head->member, c->sum.n_counted, piece, now);
        if (now->kind != PIECE_NONE)
            return 0;
        a->counted_step = step;
    }
    ps_cell_wait(c, head, step);
    return made;
}

/* The version that the contribution was computed on, if it was sent to this member and another has
 * come since. */
static const struct buf *base_of(const struct ps_store *s, const struct cell *c,
                                 const struct asker *a, int64_t step)
{
    int known = s->job.delay_compensation > 0 && a->base && a->base_version == step;
    return known && step < c->version ? a->base : NULL;
}

/* async, ssp. A member has one push per chunk under way, so the last one counted is enough to know
 * a repeat. The mean of one contribution does not depend on its weight. */
static int push_free(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                     const struct net_piece *piece, struct ps_answer *now)
{
    int64_t step = (int64_t)piece->step;
    struct asker *a = &c->askers[head->member];
    if (a->counted_by == head->incarnation && step <= a->counted_step) {
        int counted = step == a->counted_step;
        if (!counted || a->pusher != head->incarnation) /* else its answer is held still */
            ps_cell_give(s, c, counted ? PIECE_DUPLICATE : PIECE_STALE, now);
        return 0;
    }
    if (c->version >= s->job.train_steps) {
        ps_cell_give(s, c, PIECE_STALE, now);
        return 0;
    }
    c->base = base_of(s, c, a, step);
    int made = ps_cell_contribute(s, c, 0, &piece->payload, 1.0f, now);
    c->base = NULL;
    if (!made)
        return 0;
    a->counted_by = head->incarnation;
    a->counted_step = step;
    a->clock++;
    if (s->job.sync_mode == JOB_SSP) {
        ps_cell_wait(c, head, step);
        a->push_ns = clock_now_ns();
    } else {
        ps_cell_give(s, c, PIECE_APPLIED, now);
    }
    return 1;
}

int ps_modes_push(struct ps_store *s, struct cell *c, const struct net_frame_head *head,
                  const struct net_piece *piece, struct ps_answer *now)
{
    if ((int64_t)piece->step > c->version) {
        ps_cell_refuse(now, "chunk %d: push on version %" PRIu64 ", ahead of the server's %" PRId64,
                       c->chunk, piece->step, c->version);
        return 0;
    }
    if (s->job.sync_mode != JOB_SYNC)
        return push_free(s, c, head, piece, now);
    return s->lockstep ? push_sync(s, c, head, piece, now) : push_first(s, c, head, piece, now);
}

static int64_t lowest_clock(const struct ps_store *s, const struct cell *c)
{
    int64_t lowest = INT64_MAX;
    for (int m = 0; m < s->n_members; m++)
        if (!atomic_load_explicit(&s->left[m], memory_order_relaxed) && c->askers[m].clock < lowest)
            lowest = c->askers[m].clock;
    return lowest;
}

int64_t ps_modes_limit(const struct ps_store *s, const struct cell *c)
{
    if (s->job.sync_mode != JOB_SSP || c->version >= s->job.train_steps)
        return INT64_MAX;
    int64_t lowest = lowest_clock(s, c);
    if (lowest == INT64_MAX)
        return INT64_MAX;
    return lowest + s->job.staleness + atomic_load(&s->n_restarts);
}

int ps_modes_held(const struct ps_store *s, const struct cell *c, int member, int64_t limit)
{
    return c->askers[member].clock > limit && !atomic_load(&s->left[member]);
}

void ps_modes_sent(const struct ps_store *s, struct cell *c, int member)
{
    struct asker *a = &c->askers[member];
    /* what is averaged has no gradient to compensate */
    if (s->job.delay_compensation <= 0 || c->param->rule == PARAM_AVERAGE)
        return;
    buf_unref(a->base);
    a->base = buf_ref(c->now.value);
    a->base_version = c->version;
}

static int held_since(const struct ps_store *s, const struct cell *c, int64_t since_ns)
{
    int64_t limit = ps_modes_limit(s, c);
    for (int m = 0; m < s->n_members; m++) {
        const struct asker *a = &c->askers[m];
        if (a->pusher && a->push_ns < since_ns && ps_modes_held(s, c, m, limit))
            return 1;
    }
    return 0;
}

int ps_modes_missing(const struct ps_store *s, const struct cell *c, int64_t since_ns, int *missing)
{
    int ssp = s->job.sync_mode == JOB_SSP;
    if (ssp ? !held_since(s, c, since_ns) : c->sum.n_counted == 0 || c->sum.since_ns >= since_ns)
        return 0;
    int64_t lowest = ssp ? lowest_clock(s, c) : 0;
    for (int m = 0; m < s->n_members; m++) {
        const struct asker *a = &c->askers[m];
        if (ssp)
            missing[m] += a->clock == lowest && !atomic_load(&s->left[m]);
        else if (s->lockstep)
            missing[m] += !ps_aggregate_has(&c->sum, m);
        else
            missing[m] += a->counted_step != c->version;
    }
    return 1;
}
