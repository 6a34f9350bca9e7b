/* ps/region/region_rewind.c - see region.h: the region goes back to a checkpoint, since one of its
 * servers has lost its chunks, while its ps 0 still runs. This is like a restart of all its
 * servers: the exchange is abandoned, without a leave message, and begins again from the
 * checkpoint's record. The exchanging thread restarts it when its present work has ended; until
 * then the versions of the new generation's chunks are recorded separately, in `next`.
 *
 * Locks:   the region's, then the exchange's. */
#include "base/log.h"
#include "base/threads.h"
#include "ps/region/region_chunks.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void ps_region_plans(struct ps_region *r, struct net_plan *plan,
                     const struct checkpoint_parent_version *restored)
{
    pthread_mutex_lock(&r->lock);
    r->next_restored = *restored;
    int64_t since = plan->source == PLAN_MEMORY ? r->slots_since
                    : restored->known           ? restored->slots_since
                                                : 0;
    plan->gates = (struct net_gates){.steps = r->cfg.steps,
                                     .overlap = r->cfg.overlap,
                                     .slots_since = since,
                                     .alone = r->cfg.max_drift > 0};
    pthread_mutex_unlock(&r->lock);
}

void region_rewind_init_pieces(struct piece *pieces, int n)
{
    for (int i = 0; i < n; i++) {
        pieces[i] = (struct piece){.waiting = -1, .sent_at = -1, .due = -1};
        pieces[i].heard = -1;
    }
}

void region_rewind_drop_pieces(struct piece *pieces, int n)
{
    for (int i = 0; pieces && i < n; i++) {
        buf_unref(pieces[i].sent);
        buf_unref(pieces[i].used);
        buf_unref(pieces[i].last);
        buf_unref(pieces[i].read);
        buf_unref(pieces[i].proposal);
    }
}

void region_rewind_note(struct ps_region *r, int64_t from,
                        const struct checkpoint_parent_version *parent)
{
    struct adoptions *a = &r->taken;
    if (r->next || (a->n > 0 && a->list[a->n - 1].from == from))
        /* the region goes back to a checkpoint; or another chunk has noted the same adoption */
        return;
    if (a->n == N_ADOPTIONS)
        memmove(a->list, a->list + 1, (N_ADOPTIONS - 1) * sizeof *a->list);
    a->n -= a->n == N_ADOPTIONS;
    a->list[a->n++] = (struct adoption){from, *parent};
}

void ps_region_parent_at(struct ps_region *r, uint64_t generation, int64_t version,
                         struct checkpoint_parent_version *out)
{
    pthread_mutex_lock(&r->lock);
    const struct adoptions *a = generation < r->since ? &r->taken_before : &r->taken;
    /* the result if no recorded adoption is as early as `version` */
    *out = a->restored;
    for (int i = 0; i < a->n && a->list[i].from <= version; i++)
        *out = a->list[i].parent;
    pthread_mutex_unlock(&r->lock);
}

/* Goes back to the parent's version in a checkpoint. The caller holds the lock. */
static enum status rewind_to(struct ps_region *r, const struct checkpoint_parent_version *to)
{
    int n = r->chunks->n_chunks;
    if (!r->next && !(r->next = calloc((size_t)n, sizeof *r->next)))
        return ST_NOMEM;
    region_rewind_drop_pieces(r->next, n);
    region_rewind_init_pieces(r->next, n);
    /* false: the same generation begins again, because its first start failed */
    if (r->since != r->planned)
        r->taken_before = r->taken;
    r->since = r->planned;
    r->taken = (struct adoptions){.restored = *to};
    r->slots_since = to->known ? to->slots_since : 0;
    r->is_alone = 0;
    r->let_go = 0;
    r->has_first = 0;
    if (r->x)
        net_exchange_cancel(r->x);
    pthread_cond_broadcast(&r->changed);
    return ST_OK;
}

enum status ps_region_begin(struct ps_region *r, const struct net_plan *plan)
{
    static const struct checkpoint_parent_version none = {0};
    enum status st = ST_OK;
    pthread_mutex_lock(&r->lock);
    r->planned = plan->generation;
    mail_begin(r->mail, plan->generation);
    r->n_first += plan->source == PLAN_FIRST;
    if (r->chunks && plan->source == PLAN_CHECKPOINT)
        st = rewind_to(r, &r->next_restored);
    else if (r->chunks && plan->source == PLAN_FIRST && r->has_first)
        st = rewind_to(r, &none);
    if (plan->source != PLAN_FIRST)
        r->has_first = 1; /* these plans continue only from values that all servers have */
    pthread_mutex_unlock(&r->lock);
    return st;
}

bool region_rewind_is_due(const struct ps_region *r)
{
    return r->stopping || r->next;
}

struct piece *region_rewind_pieces(struct ps_region *r)
{
    return r->next ? r->next : r->pieces;
}

/* Replaces the states of the chunks by `next`. The caller holds the lock. */
static void take_next(struct ps_region *r)
{
    region_rewind_drop_pieces(r->pieces, r->chunks->n_chunks);
    free(r->pieces);
    r->pieces = r->next;
    r->next = NULL;
    for (int i = 0; i < r->chunks->n_chunks; i++) {
        struct piece *p = &r->pieces[i];
        if (p->proposal)
            memcpy(r->base + r->chunks->chunks[i].first, p->proposal->data, p->proposal->bytes);
        buf_unref(p->proposal);
        p->proposal = NULL;
    }
    free(r->fragment);
    r->fragment = NULL;
    r->due = r->stuck_at = -1;
    /* these measurements restart after a rewind */
    r->gate_since_ns = r->silent_s = r->waited_ns = 0;
    r->ended = false;
    r->done = 0;
    r->is_alone = 0;
    r->let_go = 0;
}

bool region_rewind_finish(struct ps_region *r)
{
    pthread_mutex_lock(&r->lock);
    int again = r->next && !r->stopping;
    struct net_exchange *x = again ? r->x : NULL;
    if (again)
        r->x = NULL;
    pthread_mutex_unlock(&r->lock);
    if (!again)
        return false;
    if (r->has_watch_thread)
        pthread_join(r->watch_thread, NULL);
    net_exchange_destroy(x); /* until this call returns, the exchange may write to `base` */
    pthread_mutex_lock(&r->lock);
    take_next(r);
    pthread_mutex_unlock(&r->lock);
    int err = pthread_create(&r->watch_thread, NULL, region_end_watch, r);
    r->has_watch_thread = err == 0;
    if (err)
        LOG_E(
            "the thread that watches the parent group cannot be started: %s; until a restart, this server does not check whether that group answers",
            threads_error(err));
    return true;
}
