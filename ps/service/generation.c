/* ps/service/generation.c - see service.h: replaces one run by the next. The service creates and
 * fills the next run while the stopped run is still in place, and then swaps them. A member that
 * waits for an answer of the old run receives the order to join the new one. */
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "ps/service/planner.h"
#include "ps/service/service_impl.h"
#include "ps/service/shard_send.h"
#include "ps/store/handover.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns a new reference to the run of that generation, if it is the present run or a kept one;
 * otherwise NULL. */
static struct run *find_run(struct service *s, uint64_t generation)
{
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    while (r && r->generation != generation)
        r = r->older;
    if (r)
        run_ref(r);
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* Detaches the earlier runs that `r` keeps, and returns them. The caller holds the lock. */
static struct run *cut_older(struct run *r)
{
    struct run *older = r->older;
    r->older = NULL;
    return older;
}

void generation_release_runs(struct run *r)
{
    while (r) {
        struct run *older = cut_older(r);
        run_unref(r);
        r = older;
    }
}

static void log_job(const struct net_plan *p)
{
    const struct chunks *c = p->chunks;
    char tables[64] = "";
    if (c->n_tables > 0)
        snprintf(tables, sizeof tables, ", %d %s in %d %s", c->n_tables,
                 c->n_tables == 1 ? "table" : "tables", c->n_chunks - c->n_dense,
                 c->n_chunks - c->n_dense == 1 ? "bucket" : "buckets");
    LOG_I("job: %d parameters, %" PRId64 " elements in %d %s%s; %d %s, %s, %s, %" PRId64 " steps",
          c->n_params, c->n_elems, c->n_dense, c->n_dense == 1 ? "chunk" : "chunks", tables,
          p->n_members, p->n_members == 1 ? "worker" : "workers",
          job_sync_mode_name(p->job.sync_mode), optim_name(p->job.optim.kind), p->job.train_steps);
}

static void log_run(const struct run *r, int first)
{
    const struct net_plan *p = r->plan;
    log_number(r->self);
    if (first)
        log_job(p);
    if (p->source == PLAN_CHECKPOINT)
        LOG_I("resumes from step %" PRId64 ", as generation " TERM_FMT, p->step,
              TERM_ARG(p->generation));
    else if (p->source == PLAN_MEMORY)
        LOG_I("generation " TERM_FMT " from step %" PRId64 ": %d %s, %d %s",
              TERM_ARG(p->generation), p->step, p->n_members,
              p->n_members == 1 ? "worker" : "workers", p->servers.n,
              p->servers.n == 1 ? "server" : "servers");
}

/* Adds to `late` how long training waited for each member of `r`. After ST_NOMEM nothing has
 * changed. */
static enum status add_late(const struct run *r, struct late_total **late, int *n)
{
    int most = r->plan->n_members ? r->plan->member[r->plan->n_members - 1] + 1 : 0;
    if (most < r->job.n_workers)
        most = r->job.n_workers;
    if (most > *n) {
        struct late_total *more = realloc(*late, (size_t)most * sizeof *more);
        if (!more)
            return ST_NOMEM;
        memset(more + *n, 0, (size_t)(most - *n) * sizeof *more);
        *late = more;
        *n = most;
    }
    for (int i = 0; i < r->plan->n_members; i++) {
        struct late_total t, *to = &(*late)[r->plan->member[i]];
        stragglers_total(store_stragglers(r->store), i, &t);
        to->times += t.times;
        to->seconds += t.seconds;
        to->skipped += t.skipped;
    }
    return ST_OK;
}

/* Copies a member's state from the old run, or from the list of joiners, to the new run. The caller
 * holds the lock. */
static void carry_member(struct service *s, const struct run *old, struct run *r, int rank)
{
    int index = r->plan->member[rank];
    int was = old ? net_plan_rank(old->plan, index) : -1;
    struct member *to = &r->members[rank];
    struct join_queue_entry *w = join_queue_find_member(&s->waiting, index);
    if (was >= 0) {
        const struct member *from = &old->members[was];
        to->expected = from->incarnation ? from->incarnation : from->expected;
        to->joined = from->joined;
        to->known = from->known;
        to->leaving = from->leaving;
        to->failed = from->failed;
        to->done = from->done && r->plan->source == PLAN_MEMORY && old->plan->ps0 == r->plan->ps0;
        if (from->missing_ns)
            to->missing_ns = from->missing_ns;
        memcpy(to->peer, from->peer, sizeof to->peer);
        memcpy(to->address, from->address, sizeof to->address);
    } else if (w) {
        to->expected = w->incarnation;
        to->joined = 1;
        memcpy(to->peer, w->peer, sizeof to->peer);
        memcpy(to->address, w->address, sizeof to->address);
    }
    if (w)
        join_queue_drop(&s->waiting, w);
}

/* Keeps the earlier run that `r` continues, since other servers may have to fetch from it. Returns
 * the remaining earlier runs, which include those of abandoned generations. The caller holds the
 * lock. */
static struct run *keep_holder(struct run *r, struct run *old)
{
    struct run **at = &old;
    while (*at && (r->plan->source != PLAN_MEMORY || (*at)->generation != r->plan->before))
        at = &(*at)->older;
    r->older = *at;
    *at = NULL;
    return old;
}

/* Puts this run in the place of the old one, and returns the runs that no server needs any more. */
static struct run *swap_runs(struct service *s, struct run *r, int *over)
{
    pthread_mutex_lock(&s->lock);
    struct run *old = s->run, *gone = NULL;
    int same_job = old && !old->ended;
    for (int i = 0; i < r->plan->n_members; i++)
        carry_member(s, same_job ? old : NULL, r, i);
    if (same_job) {
        r->start_ns = old->start_ns;
        r->began = old->began < r->began ? old->began : r->began;
    }
    if (!same_job)
        s->n_late = 0;
    else
        add_late(old, &s->late, &s->n_late); /* if memory is lacking, these figures are lost */
    gone = keep_holder(r, old);
    s->run = r;
    *over = generation_end_run(r);
    pthread_mutex_unlock(&s->lock);
    return gone;
}

static enum status make_run(struct service *s, const struct net_plan *plan,
                            const struct checkpoint_restore *restore, struct run **out)
{
    struct run *before = plan->source == PLAN_MEMORY ? find_run(s, plan->before) : NULL;
    struct run_config cfg = {
        .plan = plan,
        .address = s->cfg.address,
        .restore = restore,
        .before = before,
        .gather = s->gather,
        .store = {.max_bytes = s->cfg.max_model_bytes,
                  .worker_hosts = s->cfg.worker_hosts,
                  .straggler_ms = s->cfg.straggler_ms,
                  .shared_memory = s->cfg.shared_memory,
                  .outer = s->cfg.self == 0 || plan->gates.steps > 0 ? s->cfg.outer : NULL,
                  .turns = &s->turns,
                  .threads = s->cfg.threads,
                  .long_bytes = s->cfg.long_bytes,
                  .hold_last = s->cfg.hold_last,
                  .answer = service_answer,
                  .stopped = service_roster_changed,
                  .ctx = s},
    };
    if (plan->source != PLAN_MEMORY)
        shard_fetch_forget(s->gather);
    enum status st = run_create(&cfg, out);
    run_unref(before);
    if (st == ST_NOMEM)
        LOG_E("generation " TERM_FMT " cannot begin: out of memory", TERM_ARG(plan->generation));
    return st;
}

/* Marks in the store of the new run the members that are done, so that no step waits for them. */
static void leave_done(struct service *s, struct run *r)
{
    for (int i = 0; i < r->plan->n_members; i++) {
        pthread_mutex_lock(&s->lock);
        int done = r->members[i].done;
        pthread_mutex_unlock(&s->lock);
        if (done)
            store_leave(r->store, i);
    }
}

/* Marks the streams of the old run's members as untrusted until each member sends a piece in the
 * new run. */
static void doubt_streams(struct service *s, const struct run *old)
{
    for (int i = 0; i < old->plan->n_members; i++) {
        pthread_mutex_lock(&s->lock);
        uint64_t stream = old->members[i].stream;
        pthread_mutex_unlock(&s->lock);
        if (stream)
            stream_table_doubt(s->streams, stream);
    }
}

/* Releases the values of the earlier runs if the next run uses none of them: without this, a
 * server that goes back to a checkpoint would hold the model twice. Every later plan of the
 * coordinator then starts from a checkpoint, or is a first plan, until one of these plans
 * settles. */
static void empty_before(struct service *s, struct run *old)
{
    pthread_mutex_lock(&s->lock);
    struct run *older = cut_older(old);
    pthread_mutex_unlock(&s->lock);
    generation_release_runs(older);
    handover_empty(old->store);
}

/* Begins a run. The caller holds `change`. */
static enum status begin_run(struct service *s, const struct net_plan *plan,
                             const struct checkpoint_restore *restore)
{
    int ended, over;
    struct run *r = NULL, *old = service_run(s, &ended);
    if (old && !handover_is_stopped(old->store))
        handover_stop(old->store);
    enum status st = s->cfg.beginning ? s->cfg.beginning(s->cfg.ctx, plan) : ST_OK;
    /* A region still reads its own chunks from the old run until the next run exists. */
    if (st == ST_OK && old && !ended && plan->source != PLAN_MEMORY && !s->cfg.outer)
        empty_before(s, old);
    if (st == ST_OK)
        st = make_run(s, plan, restore, &r);
    if (st != ST_OK) {
        run_unref(old);
        return st;
    }
    struct run *gone = swap_runs(s, run_ref(r), &over);
    leave_done(s, r);
    log_run(r, !old || ended);
    if (old)
        doubt_streams(s, old);
    generation_release_runs(gone);
    run_unref(old);
    if (s->cfg.started)
        s->cfg.started(s->cfg.ctx);
    if (over)
        generation_report_done(s, r);
    run_unref(r);
    return ST_OK;
}

enum status generation_begin(struct service *s, const struct net_plan *plan,
                             const struct checkpoint_restore *restore)
{
    pthread_mutex_lock(&s->change);
    enum status st = begin_run(s, plan, restore);
    pthread_mutex_unlock(&s->change);
    return st;
}

/* Creates the first plan (generation_make_first_plan). The caller holds `change`. */
static enum status first_plan(struct service *s, const struct net_join *req, char *why,
                              size_t why_bytes)
{
    int ended;
    struct net_plan *plan = NULL;
    struct run *r = service_run(s, &ended);
    struct planner_first first = {
        .generation = r ? r->generation + 1 : 1, .join = req, .servers = s->cfg.ps_hosts};
    run_unref(r);
    if (r && !ended)
        return ST_OK; /* another joiner was faster */
    if (s->cfg.self > 0 && req->generation > first.generation)
        /* generation that ps 0 has begun, as the request names it */
        first.generation = req->generation;
    enum status st = planner_make_first(&first, &plan);
    if (st == ST_OK)
        st = begin_run(s, plan, NULL);
    net_plan_free(plan);
    if (st == ST_RANGE)
        snprintf(why, why_bytes, "the model exceeds this server's --max_model_bytes=%" PRId64,
                 s->cfg.max_model_bytes);
    else if (st != ST_OK)
        snprintf(why, why_bytes, "the server cannot hold this model: %s", status_text(st));
    return st;
}

enum status generation_make_first_plan(struct service *s, const struct net_join *req, char *why,
                                       size_t why_bytes)
{
    pthread_mutex_lock(&s->change);
    enum status st = first_plan(s, req, why, why_bytes);
    pthread_mutex_unlock(&s->change);
    return st;
}

void generation_stop(struct service *s)
{
    int ended;
    struct run *r = service_run(s, &ended);
    if (r)
        handover_stop(r->store);
    run_unref(r);
}

void generation_cancel(struct service *s, uint64_t generation)
{
    shard_fetch_cancel(s->gather, generation);
}

/* Returns a reference to the stopped run of that generation, or NULL with the reason in *why. */
static struct run *find_stopped(struct service *s, uint64_t generation,
                                char why[CONTROL_TEXT_BYTES])
{
    struct run *r = find_run(s, generation);
    if (!r)
        snprintf(why, CONTROL_TEXT_BYTES, "generation " TERM_FMT " is no longer on this server",
                 TERM_ARG(generation));
    else if (!handover_is_stopped(r->store))
        snprintf(why, CONTROL_TEXT_BYTES, "generation " TERM_FMT " has not stopped on this server",
                 TERM_ARG(generation));
    else
        return r;
    run_unref(r);
    return NULL;
}

void generation_fetch(void *ctx, const struct net_fetch_request *request,
                      struct net_fetch_reply *reply)
{
    const struct service *s = ctx;
    if (s->cfg.fault_keep_chunks) {
        snprintf(reply->refused, sizeof reply->refused, "--fault_keep_chunks");
        return;
    }
    struct run *r = find_stopped(ctx, request->generation, reply->refused);
    if (r)
        shard_send_chunks(r->store, request, reply);
    run_unref(r);
}

void generation_squares(void *ctx, const struct net_squares *squares,
                        struct net_squares_reply *reply)
{
    int ended;
    struct run *r = service_run(ctx, &ended);
    uint64_t here = r ? r->generation : 0;
    if (r && here == squares->generation && r->plan->ps0 == squares->ps0) {
        reply->answer = clip_receive_squares(r->store, squares, reply->why);
    } else if (here > squares->generation) {
        reply->answer = SQUARES_OVER;
    } else {
        reply->answer = SQUARES_LATER;
        snprintf(reply->why, sizeof reply->why,
                 "generation " TERM_FMT " has not begun on this server",
                 TERM_ARG(squares->generation));
    }
    run_unref(r);
}

void generation_settle(struct service *s, uint64_t generation)
{
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run, *gone = NULL;
    if (r && r->generation == generation)
        gone = cut_older(r);
    pthread_mutex_unlock(&s->lock);
    generation_release_runs(gone);
}

void generation_state(struct service *s, struct generation_state *out)
{
    int ended;
    *out = (struct generation_state){.lowest = -1, .highest = -1};
    struct run *r = service_run(s, &ended);
    out->ended = ended;
    pthread_mutex_lock(&s->lock);
    out->claim = s->claim;
    pthread_mutex_unlock(&s->lock);
    if (!r)
        return;
    out->generation = r->generation;
    out->ps0 = r->plan->ps0;
    out->stopped = handover_is_stopped(r->store);
    out->lowest = store_step(r->store);
    out->highest = store_highest(r->store);
    run_unref(r);
}

bool generation_end_run(struct run *r)
{
    int over = !r->ended;
    for (int i = 0; i < r->plan->n_members; i++)
        over = over && r->members[i].done;
    if (over) {
        r->ended = 1;
        r->end_ns = clock_now_ns();
    }
    return over;
}

void generation_report_done(struct service *s, struct run *r)
{
    struct late_total *late = NULL;
    int n = 0;
    if (generation_lateness(s, &late, &n) == ST_OK)
        stragglers_log(late, n, s->cfg.worker_hosts);
    free(late);
    s->cfg.done(s->cfg.ctx);
}

enum status generation_lateness(struct service *s, struct late_total **out, int *n)
{
    enum status st = ST_OK;
    struct late_total *late = NULL;
    int n_late = 0;
    pthread_mutex_lock(&s->lock);
    if (s->run && s->n_late > 0) {
        late = malloc((size_t)s->n_late * sizeof *late);
        TRY(late ? ST_OK : ST_NOMEM);
        memcpy(late, s->late, (size_t)s->n_late * sizeof *late);
        n_late = s->n_late;
    }
    if (s->run)
        TRY(add_late(s->run, &late, &n_late));
done:
    pthread_mutex_unlock(&s->lock);
    if (st != ST_OK) {
        free(late);
        late = NULL;
        n_late = 0;
    }
    *out = late;
    *n = n_late;
    return st;
}
