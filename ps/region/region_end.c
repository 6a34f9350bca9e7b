/* ps/region/region_end.c - see region.h: ends a region that waits for a parent group that it no
 * longer reaches. A thread measures how long the parent group has not been reached. After
 * parent_timeout the thread cancels the exchange, and the exchanging thread then ends the job
 * (region_end_alone).
 *
 * If all steps are made, the thread makes the region's own values the job's last version, so its
 * workers end as usual. Otherwise the region can only be stopped, since the next version is the
 * parent's.
 *
 * Locks:   the region's. */
#include "base/clock.h"
#include "base/log.h"
#include "ps/region/region_chunks.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>

enum { LOOK_MS = 500, LINE_S = 60, POLL_MS = 200, CHANGES_BYTES = 128, NOTHING = -1 };

/* Returns true if the chunk waits for the parent's answer, and cannot continue without it. The
 * caller holds the lock. */
static bool is_stuck(const struct ps_region *r, const struct piece *p)
{
    int may_drift = r->due >= 0 && p->waiting < r->due + r->cfg.max_drift &&
                    p->waiting < r->train_steps && r->cfg.max_drift > 0;
    return region_is_held(r, p) && !may_drift;
}

/* Returns true if the region makes no version before the parent answers. *version is the version
 * that waits at the chunks; NOTHING: the region does not even have initial values. */
static bool waits_for_parent(struct ps_region *r, int64_t *version)
{
    struct run *run = region_run(r);
    if (!run)
        return false;
    int stuck = 1, has_values = region_chunks_step(r, run) >= 0;
    run_unref(run);
    pthread_mutex_lock(&r->lock);
    *version = has_values ? r->pieces[0].waiting : NOTHING;
    for (int i = 0; has_values && i < r->chunks->n_chunks; i++)
        stuck &= is_stuck(r, &r->pieces[i]);
    pthread_mutex_unlock(&r->lock);
    return stuck;
}

/* Writes "its changes since round 5 of 6": round 5 is the parent's version that region version
 * `version` is based on; the parent's initial values are round 0. */
static void name_changes(struct ps_region *r, int64_t version, char text[CHANGES_BYTES])
{
    struct checkpoint_parent_version held;
    ps_region_parent_at(r, UINT64_MAX, version, &held);
    snprintf(text, CHANGES_BYTES, "its changes since round %" PRId64 " of %" PRId64,
             held.known ? held.version : 0, r->n_gates);
}

static void log_waiting(struct ps_region *r, int64_t version, int64_t silent_s)
{
    char parents[REGION_NAME_BYTES], changes[CHANGES_BYTES], held[REGION_TEXT_BYTES], how[96];
    region_name_parents(r, parents);
    name_changes(r, version, changes);
    snprintf(held, sizeof held,
             version == NOTHING ? "has no parameters yet"
                                : "is at step %" PRId64 " of %" PRId64 ", and has not delivered %s",
             version * r->steps_each, r->train_steps * r->steps_each, changes);
    snprintf(how, sizeof how,
             r->cfg.parent_timeout > 0 ? "%" PRId64 " s more (--parent_timeout)"
                                       : "without a time limit (--parent_timeout=0)",
             r->cfg.parent_timeout - silent_s);
    LOG_W("region %d: the parent group (%s) has not been reached for %" PRId64
          " s; this region %s; the region waits %s",
          r->cfg.index, parents, silent_s, held, how);
}

void *region_end_watch(void *ctx)
{
    struct ps_region *r = ctx;
    int64_t first_s = r->cfg.parent_timeout > 0 && r->cfg.parent_timeout < 2 * LINE_S
                          ? (r->cfg.parent_timeout + 1) / 2
                          : LINE_S;
    for (int64_t line_s = first_s;;) {
        int64_t version, deadline = clock_deadline_ns(LOOK_MS);
        pthread_mutex_lock(&r->lock);
        while (!region_rewind_is_due(r) && clock_cond_wait(&r->changed, &r->lock, deadline) == 0)
            ;
        int ends = region_rewind_is_due(r) || r->ended;
        /* r->x is valid until this thread ends, since region_rewind_finish joins this thread
         * before it frees r->x */
        struct net_exchange *x = ends ? NULL : r->x;
        pthread_mutex_unlock(&r->lock);
        if (ends)
            return NULL;
        int64_t silent_s = x ? net_exchange_silence_ms(x) / 1000 : 0;
        bool stuck = waits_for_parent(r, &version);
        region_waits_update(r, x, stuck);
        if (silent_s < first_s || !stuck) {
            line_s = first_s;
        } else if (r->cfg.parent_timeout > 0 && silent_s >= r->cfg.parent_timeout) {
            pthread_mutex_lock(&r->lock);
            r->silent_s = silent_s;
            r->stuck_at = version;
            pthread_mutex_unlock(&r->lock);
            net_exchange_cancel(x);
            return NULL;
        } else if (silent_s >= line_s) {
            log_waiting(r, version, silent_s);
            line_s = silent_s + LINE_S;
        }
    }
}

/* Makes every waiting version with the value that the region itself computed, in the present
 * generation of the region and in later ones. */
static void make_waiting_versions(struct ps_region *r)
{
    pthread_mutex_lock(&r->lock);
    while (!region_rewind_is_due(r)) {
        for (int i = 0; i < r->chunks->n_chunks && !r->next; i++) {
            int64_t version = r->pieces[i].waiting;
            if (version < 0)
                continue;
            pthread_mutex_unlock(&r->lock);
            region_make_own(r, i, version);
            pthread_mutex_lock(&r->lock);
        }
        clock_cond_wait(&r->changed, &r->lock, clock_deadline_ns(POLL_MS));
    }
    pthread_mutex_unlock(&r->lock);
}

void region_end_alone(struct ps_region *r, int64_t silent_s)
{
    char parents[REGION_NAME_BYTES], changes[CHANGES_BYTES], end[REGION_TEXT_BYTES];
    char why[REGION_TEXT_BYTES];
    int64_t version = r->stuck_at; /* version that waited when the exchange was cancelled */
    int complete = version >= r->train_steps;
    region_name_parents(r, parents);
    name_changes(r, version, changes);
    snprintf(why, sizeof why,
             "the parent group (%s) has not been reached for %" PRId64 " s (--parent_timeout)",
             parents, silent_s);
    if (complete)
        snprintf(end, sizeof end,
                 "the job of this region is done, with the region's own parameters; %s", changes);
    else if (version == NOTHING)
        snprintf(end, sizeof end, "the region ends before its first step");
    else
        snprintf(end, sizeof end, "the region ends at step %" PRId64 " of %" PRId64 "; %s",
                 (version - 1) * r->steps_each, r->train_steps * r->steps_each, changes);
    LOG_E("region %d: %s: %s%s%s", r->cfg.index, why, end,
          version == NOTHING ? "" : " were not delivered",
          complete ? "" : "; when the parent group runs, start all programs of the region again");
    r->cfg.parent_lost(r->cfg.ctx, complete, why);
    if (complete)
        make_waiting_versions(r);
}
