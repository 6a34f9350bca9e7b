/* ps/lead_change.c - see lead.h: from one generation to the next.
 *
 * RUNNING -> STOPPING: somebody comes, goes, or is lost; a Stop is out. When all servers of the
 * plan are at its end (or one has lost its chunks, so that nobody's count), the next plan is laid
 * down: BEGINNING. When all servers are in it, it is settled: RUNNING. If a server is lost before,
 * the plan is made again from the generation that was settled last, whose stores are still there.
 * Each function takes one step, or waits for news, so that the thread sees all that happens
 * meanwhile; nothing here waits without a line. */
#include "base/clock.h"
#include "base/log.h"
#include "files/durable.h"
#include "ps/lead_impl.h"
#include "ps/planner.h"
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum reason { REASON_NONE, REASON_PLANNED, REASON_LATE, REASON_LOST };

/* What the thread is about, for snapshots; a line of it now and then while it waits. */
static void __attribute__((format(printf, 2, 3))) waits_for(struct lead *l, const char *fmt, ...)
{
    char text[CONTROL_TEXT_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&l->lock);
    memcpy(l->change, text, sizeof text);
    pthread_mutex_unlock(&l->lock);
    if (clock_now_ns() >= l->line_ns) {
        LOG_W("%s", text);
        l->line_ns = clock_deadline_ns(LINE_MS);
    }
    lead_wait(l, l->line_ns);
}

static void enter(struct lead *l, enum phase phase)
{
    l->phase = phase;
    l->line_ns = clock_deadline_ns(LINE_MS);
    if (phase == PHASE_RUNNING) {
        pthread_mutex_lock(&l->lock);
        l->change[0] = 0;
        pthread_mutex_unlock(&l->lock);
    }
}

/* How far from ps 0's highest version a Stop has to be, so that all servers hear of it in time. */
static int margin(const struct lead *l)
{
    return l->n_servers > 1 ? 2 : 1;
}

/* 1: there are first values, and steps enough are left for an announced Stop. */
static int can_plan(struct lead *l)
{
    int ended, can;
    struct run *run = ps_service_run(l->cfg.service, &ended);
    if (!run)
        return 0;
    int64_t lowest = ps_store_step(run->store), highest = ps_store_highest(run->store);
    if (job_in_lockstep(&run->job))
        can = lowest >= 0 && highest + margin(l) < run->job.train_steps;
    else
        can = lowest >= 0 && lowest < run->job.train_steps;
    run_unref(run);
    return can && !ended;
}

static enum reason find_reason(struct lead *l)
{
    struct census c;
    l->due_ns = INT64_MAX;
    if (l->phase != PHASE_RUNNING && l->phase != PHASE_STOPPING)
        return REASON_NONE;
    pthread_mutex_lock(&l->lock);
    int lost = lead_servers_lost(l) != NULL, servers = 0;
    for (int i = 0; i < l->n_remotes; i++)
        servers |= lead_server_joins(l, &l->remotes[i]) || lead_server_leaves(&l->remotes[i]);
    pthread_mutex_unlock(&l->lock);
    if (lost)
        return REASON_LOST;
    if (lead_census_take(l, &c) != ST_OK)
        return REASON_NONE; /* asked again soon */
    int late = c.n_by[LOT_LATE] + c.n_gone > 0;
    int planned = servers || c.n_by[LOT_LEAVES] + c.n_by[LOT_REMOVED] + c.n_by[LOT_JOINS] > 0;
    l->due_ns = c.due_ns;
    lead_census_free(&c);
    return late ? REASON_LATE : planned && can_plan(l) ? REASON_PLANNED : REASON_NONE;
}

int lead_change_due(struct lead *l, int n_taken)
{
    enum reason reason = find_reason(l);
    return reason == REASON_LOST || (reason != REASON_NONE && n_taken < l->n_servers);
}

static void give_stop(struct lead *l, int64_t step)
{
    pthread_mutex_lock(&l->lock);
    l->stop++;
    l->stop_step = step;
    l->number++;
    pthread_mutex_unlock(&l->lock);
    ps_service_stop(l->cfg.service, step);
    lead_answer(l);
}

static void release(struct lead *l)
{
    int ended;
    struct run *run = l->holding ? ps_service_run(l->cfg.service, &ended) : NULL;
    l->holding = 0;
    if (run)
        ps_store_hold(run->store, 0);
    run_unref(run);
}

/* A Stop that goes round while the answers are held. 0: the job ends too soon. */
static int announce_stop(struct lead *l)
{
    int ended;
    struct run *run = ps_service_run(l->cfg.service, &ended);
    if (!run)
        return 0;
    ps_store_hold(run->store, 1);
    l->holding = 1;
    l->hold_ns = clock_deadline_ns(HOLD_MS);
    int go = can_plan(l);
    int64_t step = ps_store_highest(run->store) + margin(l);
    run_unref(run);
    if (go)
        give_stop(l, step);
    else
        release(l);
    return go;
}

static void begin_stop(struct lead *l, enum reason reason)
{
    l->stop_ns = clock_now_ns();
    if (reason == REASON_PLANNED && job_in_lockstep(&l->plan->job)) {
        if (!announce_stop(l))
            return;
    } else {
        give_stop(l, -1);
    }
    enter(l, PHASE_STOPPING);
}

/* NULL, or a server that has not taken the Stop up, or (ended) is not at its end. Under the lock.
 */
static const struct remote *behind(const struct lead *l, int ended)
{
    for (int i = 0; i < l->n_remotes; i++) {
        const struct remote *r = &l->remotes[i];
        if (r->server > 0 && (r->stop != l->stop || (ended && !r->stopped)))
            return r;
    }
    return NULL;
}

/* The last version that is whole everywhere. */
static int64_t lowest_version(struct lead *l)
{
    struct ps_service_state own;
    ps_service_state(l->cfg.service, &own);
    int64_t lowest = own.lowest;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_remotes; i++)
        if (l->remotes[i].server > 0 && l->remotes[i].lowest < lowest)
            lowest = l->remotes[i].lowest;
    pthread_mutex_unlock(&l->lock);
    return lowest;
}

/* Where the next generation begins. */
struct start {
    enum plan_source source;
    int64_t step;
    uint64_t position;
    struct ps_restore *restore; /* CHECKPOINT */
    char name[CONTROL_TEXT_BYTES];
};

/* The newest checkpoint; with --restore none but this process' own count before what that names. */
static enum status find_checkpoint(const struct lead *l, struct ps_restore **out, const char **mark)
{
    const char *given = l->cfg.restore_path;
    enum status st = ps_restore_find(l->cfg.folder, out);
    *mark = "";
    if (st == ST_OK && given && ps_restore_manifest(*out)->generation < l->cfg.generation) {
        ps_restore_close(*out);
        st = ST_NOT_FOUND;
    }
    if (!given || (st != ST_NOT_FOUND && st != ST_CORRUPT))
        return st;
    *mark = TAKER_RESTORE_MARK;
    st = ps_restore_find(given, out);
    return st == ST_NOT_FOUND ? ST_IO : st; /* it was there */
}

/* From the newest checkpoint; without one, from the first step. ST_CORRUPT and the like: there are
 * some, none can be had; logged. */
static enum status start_from_disk(struct lead *l, struct start *s)
{
    struct ps_restore *found;
    const char *mark;
    *s = (struct start){.source = PLAN_FIRST};
    if (!l->cfg.folder)
        return ST_OK;
    enum status st = find_checkpoint(l, &found, &mark);
    if (st == ST_NOT_FOUND)
        return ST_OK;
    if (st != ST_OK)
        return st;
    const struct ps_manifest *m = ps_restore_manifest(found);
    s->restore = found;
    s->source = PLAN_CHECKPOINT;
    s->step = m->step;
    s->position = plan_position(m);
    char name[MANIFEST_NAME_BYTES];
    ps_manifest_name(m->step, name);
    snprintf(s->name, sizeof s->name, "%s%s", name, mark);
    return ST_OK;
}

/* A plan that is made again, before it was settled, begins where it was to. */
static enum status find_start(struct lead *l, int lost, struct start *s)
{
    int again = l->phase == PHASE_BEGINNING;
    if (lost || (again && l->plan->source != PLAN_MEMORY))
        return start_from_disk(l, s);
    int64_t step = again ? l->plan->step : lowest_version(l);
    *s = (struct start){.source = PLAN_MEMORY, .step = step};
    if (step < 0 || !l->base)
        *s = (struct start){.source = PLAN_FIRST};
    else
        s->position = net_plan_position(l->base, step);
    return ST_OK;
}

/* Kept for ps 0's next life: no generation has a number twice. */
static void record(struct lead *l, const struct net_plan *p)
{
    char path[PATH_MAX], text[32];
    if (!l->cfg.folder)
        return;
    snprintf(path, sizeof path, "%s/generation", l->cfg.folder);
    int n = snprintf(text, sizeof text, "%" PRIu64 "\n", p->generation);
    if (durable_put(path, text, (size_t)n) != ST_OK)
        LOG_W("if ps:0 is started again now, workers that live on may not see it; start them "
              "again, too");
    lead_servers_record(l, &p->servers);
}

/* Those who were removed without having come, and are out now: whoever comes as one of them later
 * was not meant. Under the lock. */
static void forget_removed(struct lead *l)
{
    int n = 0;
    for (int i = 0; i < l->n_removed; i++)
        if (l->removed[i].incarnation || net_plan_rank(l->plan, l->removed[i].member) >= 0)
            l->removed[n++] = l->removed[i];
    l->n_removed = n;
}

/* Takes the plan and what it goes on from. */
static void publish(struct lead *l, struct net_plan *take, struct ps_restore *restore)
{
    record(l, take);
    pthread_mutex_lock(&l->lock);
    struct net_plan *old = l->plan;
    l->plan = take;
    lead_servers_number(l, &take->servers);
    forget_removed(l);
    l->number++;
    pthread_mutex_unlock(&l->lock);
    net_plan_free(old);
    l->begun_ns = clock_now_ns();
    enter(l, PHASE_BEGINNING);
    taker_take(l->taker, take, restore);
    lead_answer(l);
}

static void tell_workers(struct lead *l, const struct net_plan *p, const struct census *c)
{
    char tail[96];
    snprintf(tail, sizeof tail, "(generation %" PRIu64 ", %d workers)", p->generation,
             p->n_members);
    for (int i = 0; i < c->n; i++) {
        const struct who *w = &c->who[i];
        if (w->lot == LOT_LATE)
            LOG_W("worker %d (%s) has not come back for %g s: training goes on without it from "
                  "step %" PRId64 " %s",
                  w->member, w->address, (double)l->cfg.worker_timeout_ms * 1e-3, p->step, tail);
        else if (w->lot == LOT_LEAVES || w->lot == LOT_REMOVED)
            LOG_I("worker %d (%s) %s at step %" PRId64 " %s", w->member, w->address,
                  w->lot == LOT_LEAVES ? "leaves" : "was removed", p->step, tail);
        else if (w->lot == LOT_JOINS)
            LOG_I("worker %d (%s) joins at step %" PRId64 " %s", w->member, w->address, p->step,
                  tail);
    }
}

static void tell_servers(const struct net_plan *old, const struct net_plan *p)
{
    int64_t bytes;
    int n;
    for (int i = 0; i < p->servers.n; i++) {
        if (net_plan_server(old, p->servers.addr[i]) >= 0)
            continue;
        plan_moves(old, p, p->servers.addr[i], 1, &bytes, &n);
        LOG_I("ps:%d (%s) joins at step %" PRId64 ": %.1f MB in %d chunks move to it (generation "
              "%" PRIu64 ", %d servers)",
              i, p->servers.addr[i], p->step, (double)bytes * 1e-6, n, p->generation, p->servers.n);
    }
    for (int i = 0; i < old->servers.n; i++) {
        if (net_plan_server(p, old->servers.addr[i]) >= 0)
            continue;
        plan_moves(old, p, old->servers.addr[i], 0, &bytes, &n);
        LOG_I("ps:%d (%s) leaves at step %" PRId64 ": %.1f MB in %d chunks move to the others "
              "(generation %" PRIu64 ", %d servers)",
              i, old->servers.addr[i], p->step, (double)bytes * 1e-6, n, p->generation,
              p->servers.n);
    }
}

static void tell_lost(const struct remote *r, const struct net_plan *p)
{
    char from[96] = "there is no checkpoint, training begins anew";
    if (p->source == PLAN_CHECKPOINT)
        snprintf(from, sizeof from, "training goes back to the checkpoint at step %" PRId64,
                 p->step);
    char name[16] = "a server"; /* that was on its way out */
    if (r->server > 0)
        snprintf(name, sizeof name, "ps:%d", r->server);
    LOG_W("%s (%s) %s: %s (generation %" PRIu64 ")", name, r->address,
          r->held != r->incarnation ? "was started anew and has lost its parameters"
                                    : "is gone with its parameters",
          from, p->generation);
}

static int is_finishing(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    int finishing = l->finishing;
    pthread_mutex_unlock(&l->lock);
    return finishing;
}

/* The members of the next generation; malloc'd. At the end those of the one before: nobody is
 * waited for any more, and who comes back later goes on from the checkpoint. */
static int *next_members(const struct lead *l, const struct census *c, int ends, int *n)
{
    const struct net_plan *p = l->plan;
    int *member = malloc(((size_t)(ends ? p->n_members : c->n) + 1) * sizeof *member);
    *n = 0;
    for (int i = 0; member && !ends && i < c->n; i++)
        if (c->who[i].lot == LOT_STAYS || c->who[i].lot == LOT_JOINS)
            member[(*n)++] = c->who[i].member;
    for (int i = 0; member && ends && i < p->n_members; i++)
        member[(*n)++] = p->member[i];
    return member;
}

/* Training waits for workers: those that leave are told to go now, not when the others go on. */
static void let_leavers_go(struct lead *l)
{
    if (l->stop_step >= 0) /* written by this thread alone */
        give_stop(l, -1);
}

/* 1: there are enough workers to go on; else one look at it more. */
static int enough(struct lead *l, const struct census *c, int64_t step)
{
    int least = l->cfg.min_workers > 0 ? l->cfg.min_workers : 1;
    if (c->n_next == 0 && c->n_by[LOT_DONE] > 0 && step >= l->plan->job.train_steps) {
        pthread_mutex_lock(&l->lock);
        int told = l->over;
        l->over = 1;
        pthread_mutex_unlock(&l->lock);
        if (!told) {
            LOG_I("the job has all its steps, and its last workers do not come back: it is done");
            l->cfg.over(l->cfg.ctx);
        }
        lead_wait(l, INT64_MAX);
        return 0;
    }
    if (c->n_next > 0 && c->n_next + c->n_by[LOT_DONE] >= least)
        return 1;
    let_leavers_go(l);
    waits_for(l, "training waits at step %" PRId64 ": %d workers are there, --min_workers=%d", step,
              c->n_next, least);
    return 0;
}

/* Lays the next plan down, as soon as it can be. lost: a server whose chunks are gone, by value;
 * NULL: none is. */
static void decide(struct lead *l, const struct remote *lost)
{
    struct start start = {.restore = NULL};
    struct census c = {.n = 0};
    struct hosts servers = {0, NULL};
    struct net_plan *p = NULL;
    int *member = NULL, n_members = 0, ends = is_finishing(l);
    enum status st = lead_census_take(l, &c);
    TRY(st);
    if (!ends && !enough(l, &c, lost ? l->last_step : lowest_version(l)))
        goto done;
    TRY(find_start(l, lost != NULL, &start));
    member = next_members(l, &c, ends, &n_members);
    TRY(member ? ST_OK : ST_NOMEM);
    TRY(lead_servers_next(l, &servers));
    struct plan_next next = {.generation = l->plan->generation + 1,
                             .base = l->base ? l->base : l->plan,
                             .source = start.source,
                             .step = start.step,
                             .position = start.position,
                             .restore = start.name,
                             .member = member,
                             .n_members = n_members,
                             .servers = &servers};
    TRY(plan_make_next(&next, &p));
    if (lost)
        tell_lost(lost, p);
    if (!ends)
        tell_workers(l, p, &c);
    tell_servers(next.base, p);
    if (start.source != PLAN_MEMORY) {
        pthread_mutex_lock(&l->lock);
        l->last_step = start.source == PLAN_CHECKPOINT ? start.step : -1;
        pthread_mutex_unlock(&l->lock);
    }
    publish(l, p, start.restore);
    start.restore = NULL;
done:
    if (st != ST_OK)
        waits_for(l, "the next generation cannot begin: %s", status_text(st));
    free(member);
    lead_census_free(&c);
    hosts_free(&servers);
    ps_restore_close(start.restore);
}

/* 1: *out is a copy of one that is lost. */
static int copy_lost(struct lead *l, struct remote *out)
{
    pthread_mutex_lock(&l->lock);
    const struct remote *r = lead_servers_lost(l);
    if (r)
        *out = *r;
    pthread_mutex_unlock(&l->lock);
    return r != NULL;
}

/* 1: nothing moves on the way to the announced step, for as long as a worker may be away: not all
 * workers reach all servers, or one does nothing. */
static int is_stuck(struct lead *l, int64_t stop_step)
{
    int64_t lowest = lowest_version(l), now = clock_now_ns();
    int64_t allowed = l->cfg.worker_timeout_ms > REJOIN_MS ? l->cfg.worker_timeout_ms : REJOIN_MS;
    if (l->moved_ns < l->stop_ns || lowest != l->moved) {
        l->moved_ns = now;
        l->moved = lowest;
    }
    return lowest < stop_step && now - l->moved_ns >= allowed * 1000000;
}

static void go_on_stopping(struct lead *l)
{
    struct ps_service_state own;
    struct remote lost;
    char name[CONTROL_TEXT_BYTES] = "";
    int number = 0;
    pthread_mutex_lock(&l->lock);
    int armed = !behind(l, 0);
    const struct remote *r = behind(l, 1);
    int64_t stop_step = l->stop_step;
    if (r) {
        memcpy(name, r->address, sizeof name);
        number = r->server;
    }
    pthread_mutex_unlock(&l->lock);
    ps_service_state(l->cfg.service, &own);
    int late = l->holding && !armed && clock_now_ns() >= l->hold_ns;
    int stuck = stop_step >= 0 && is_stuck(l, stop_step);
    if (stuck)
        LOG_W("workers do not come to step %" PRId64 " for a change: training stops where it is",
              stop_step);
    if (stop_step >= 0 && (late || stuck || find_reason(l) == REASON_LATE))
        give_stop(l, -1);
    if (armed || late)
        release(l);
    if (copy_lost(l, &lost)) {
        release(l);
        decide(l, &lost);
    } else if (own.stopped && !r) {
        decide(l, NULL);
    } else if (r) {
        waits_for(l,
                  "training stops for a change and waits for ps:%d (%s); start it again if it "
                  "is gone, or take it out with ps --leave=%d",
                  number, name, number);
    } else {
        waits_for(l,
                  "training is to stop at step %" PRId64 " for a change; workers are on their "
                  "way to it",
                  stop_step);
    }
}

/* NULL, or a server of the plan that is not in its generation. Under the lock. */
static const struct remote *outside(const struct lead *l)
{
    const struct remote *found = NULL;
    for (int i = 0; i < l->n_remotes; i++)
        if (l->remotes[i].server > 0 && l->remotes[i].generation != l->plan->generation)
            found = &l->remotes[i];
    return found;
}

/* All servers are in the plan's generation; one that was started anew this very moment is not. */
static void settle(struct lead *l)
{
    struct net_plan *base = NULL;
    if (net_plan_copy(l->plan, &base) != ST_OK) {
        waits_for(l, "the generation cannot be settled: %s", status_text(ST_NOMEM));
        return;
    }
    pthread_mutex_lock(&l->lock);
    int all = !outside(l);
    if (all) {
        l->settled = base->generation;
        for (int i = 0; i < l->n_remotes; i++)
            l->remotes[i].held = l->remotes[i].server > 0 ? l->remotes[i].incarnation : 0;
        l->number++;
    }
    pthread_mutex_unlock(&l->lock);
    if (!all) {
        net_plan_free(base);
        return;
    }
    net_plan_free(l->base);
    l->base = base;
    ps_service_settle(l->cfg.service, base->generation);
    l->begun_ns = clock_now_ns();
    enter(l, PHASE_RUNNING);
    lead_answer(l);
}

static void go_on_beginning(struct lead *l)
{
    const struct net_plan *p = l->plan;
    int own = taker_generation(l->taker) == p->generation, gone = 0, number = -1;
    char name[CONTROL_TEXT_BYTES] = "";
    struct remote lost;
    pthread_mutex_lock(&l->lock);
    const struct remote *r = outside(l);
    if (r) {
        number = r->server;
        memcpy(name, r->address, sizeof name);
    }
    for (int i = 0; i < l->n_remotes; i++)
        gone |= l->remotes[i].generation != p->generation && lead_server_gone(l, &l->remotes[i]);
    pthread_mutex_unlock(&l->lock);
    if (l->base && p->source == PLAN_MEMORY && copy_lost(l, &lost))
        decide(l, &lost);
    else if (gone)
        decide(l, NULL);
    else if (own && number < 0)
        settle(l);
    else if (number > 0)
        waits_for(l, "generation %" PRIu64 " waits for ps:%d (%s)", p->generation, number, name);
    else
        waits_for(l, "generation %" PRIu64 " waits for this server's chunks", p->generation);
}

/* 1: a first plan was laid down. Until it is published, it keeps others from being made. */
static int take_first(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    struct net_plan *p = l->first;
    struct ps_restore *restore = p ? l->cfg.restore : NULL;
    if (p)
        l->cfg.restore = NULL;
    pthread_mutex_unlock(&l->lock);
    if (!p)
        return 0;
    net_plan_free(l->base);
    l->base = NULL;
    publish(l, p, restore);
    pthread_mutex_lock(&l->lock);
    l->first = NULL;
    pthread_mutex_unlock(&l->lock);
    return 1;
}

int lead_change_go_on(struct lead *l)
{
    enum reason reason;
    l->due_ns = INT64_MAX;
    if (take_first(l))
        return 1;
    if (l->phase == PHASE_STOPPING)
        go_on_stopping(l);
    else if (l->phase == PHASE_BEGINNING)
        go_on_beginning(l);
    else if (l->phase == PHASE_RUNNING && (reason = find_reason(l)) != REASON_NONE)
        begin_stop(l, reason);
    else
        return 0;
    return 1;
}

void lead_change_end(struct lead *l)
{
    give_stop(l, -1);
}
