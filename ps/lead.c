/* ps/lead.c - see lead.h: its thread, which goes from one change or attempt at a checkpoint to the
 * next, and what others tell it: that is written down, and the thread woken.
 * Locks: the lead's is never held over a call into the saver, the service, the store or the net. */
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "ps/lead_impl.h"
#include "ps/match.h"
#include "ps/planner.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    FIRST_CALL_MS = 4000, /* a server that lives on calls ps 0 within */
    UNHEARD = 16,         /* changes, at most, that a ps 0 that died told only some of */
};

void lead_poke(struct lead *l)
{
    l->news = 1;
    pthread_cond_broadcast(&l->wake);
}

void lead_wake(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    lead_poke(l);
    pthread_mutex_unlock(&l->lock);
}

void lead_request(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    l->requested++;
    lead_poke(l);
    pthread_mutex_unlock(&l->lock);
}

/* It was started anew and has lost the settled generation's chunks: its next plan is another. Under
 * the lock. */
static int waits_for_next_plan(const struct lead *l, const struct remote *r)
{
    return l->settled == l->plan->generation && r->held && r->held != r->incarnation;
}

/* The plan goes to a server that has a place in it and is not in its generation; a copy. Under the
 * lock. */
static void fill_reply(const struct lead *l, const struct remote *r, struct net_control_reply *out)
{
    const struct net_plan *p = l->plan;
    *out = (struct net_control_reply){
        .number = l->number,
        .incarnation = l->incarnation,
        .generation = p ? p->generation : 0,
        .order = l->order,
        .step = l->step,
        .given = r->given,
        .closing = l->closing,
        .stop = l->stop,
        .stop_step = l->stop_step,
        .settled = l->settled,
    };
    out->drained =
        (p && r->server < 0 && (r->leaving || r->drain) && l->settled == p->generation) ||
        (l->over && l->closing);
    if (p && r->server > 0 && r->generation != p->generation && !waits_for_next_plan(l, r) &&
        net_plan_copy(p, &out->plan) != ST_OK)
        out->plan = NULL; /* the next answer brings it */
}

static void send_reply(struct lead *l, uint64_t call, struct net_control_reply *reply)
{
    l->cfg.reply(l->cfg.ctx, call, reply);
    net_plan_free(reply->plan);
}

/* The call of the first server that has something to hear; 0: none has. Under the lock. */
static uint64_t take_call(struct lead *l, struct net_control_reply *reply)
{
    for (int i = 0; i < l->n_remotes; i++) {
        struct remote *r = &l->remotes[i];
        uint64_t call = r->call;
        if (!call || (r->seen == l->number && !l->stopping &&
                      clock_now_ns() - r->call_ns <= BEAT_MS * 1000000LL))
            continue;
        lead_servers_answered(r);
        fill_reply(l, r, reply);
        pthread_cond_broadcast(&l->wake);
        return call;
    }
    return 0;
}

void lead_answer(struct lead *l)
{
    struct net_control_reply reply;
    uint64_t call;
    do {
        pthread_mutex_lock(&l->lock);
        call = take_call(l, &reply);
        pthread_mutex_unlock(&l->lock);
        if (call)
            send_reply(l, call, &reply);
    } while (call);
}

void lead_wait(struct lead *l, int64_t deadline_ns)
{
    lead_answer(l);
    pthread_mutex_lock(&l->lock);
    int64_t beat_ns = clock_deadline_ns(l->n_remotes > 0 ? RETRY_MS / 2 : BEAT_MS);
    if (deadline_ns > beat_ns)
        deadline_ns = beat_ns;
    if (deadline_ns > l->due_ns)
        deadline_ns = l->due_ns;
    while (!l->news && !l->stopping && clock_cond_wait(&l->wake, &l->lock, deadline_ns) == 0)
        ;
    l->news = 0;
    pthread_mutex_unlock(&l->lock);
    lead_answer(l);
}

void lead_control(struct lead *l, const struct net_control *c, uint64_t call)
{
    struct net_control_reply reply = {.number = 1}, old_reply;
    uint64_t old = 0;
    const char *why;
    int doubted = 0;
    pthread_mutex_lock(&l->lock);
    struct remote *r = lead_servers_caller(l, c, &why);
    if (r && lead_servers_doubted(r, c)) {
        doubted = 1;
    } else if (r) {
        old = r->call;
        if (old)
            fill_reply(l, r, &old_reply);
        lead_servers_note(l, r, c, call);
    }
    pthread_mutex_unlock(&l->lock);
    if (doubted) {
        snprintf(reply.later, sizeof reply.later, "another process has just called from %.*s",
                 CONTROL_TEXT_BYTES / 2, c->address);
        send_reply(l, call, &reply);
    } else if (!r) {
        reply.incarnation = l->incarnation;
        snprintf(reply.refused, sizeof reply.refused, "%s", why);
        send_reply(l, call, &reply);
    }
    if (old)
        send_reply(l, old, &old_reply);
    lead_answer(l);
}

void lead_control_closed(struct lead *l, uint64_t call)
{
    pthread_mutex_lock(&l->lock);
    lead_servers_closed(l, call);
    pthread_mutex_unlock(&l->lock);
}

/* The later of `last` and what others say that their job is in. */
static uint64_t later_of(uint64_t last, uint64_t claim, const char *who)
{
    if (claim <= MAX_CLAIM)
        return claim > last ? claim : last;
    LOG_W("%s claims to be in generation %" PRIu64 ", which no job gets to: ignored", who, claim);
    return last;
}

/* Greater than all that anybody has heard of. Under the lock. */
static uint64_t next_generation(const struct lead *l, const struct net_join *join)
{
    uint64_t next = l->cfg.generation, last = later_of(0, join->generation, "a worker");
    uint64_t unheard = l->cfg.folder ? 0 : UNHEARD; /* else the folder says */
    for (int i = 0; i < l->n_remotes; i++)
        last = later_of(last, l->remotes[i].generation, l->remotes[i].address);
    if (l->plan && l->plan->generation > last)
        last = l->plan->generation;
    if (last > 0 && !l->plan)
        last += unheard;
    return next > last ? next : last + 1;
}

/* Without a folder nothing but servers that live on may know which generations there have been, and
 * a worker without one may be the first that comes: they are given the time to call. Under the
 * lock. */
static const struct remote *expected_call(const struct lead *l)
{
    if (l->cfg.folder || l->plan || clock_now_ns() - l->start_ns > FIRST_CALL_MS * 1000000LL)
        return NULL;
    for (int i = 0; i < l->n_remotes; i++)
        if (l->remotes[i].server > 0 && !l->remotes[i].incarnation)
            return &l->remotes[i];
    return NULL;
}

enum status lead_first_join(struct lead *l, const struct net_join *join, char *why,
                            size_t why_bytes)
{
    struct net_join full = *join;
    struct plan_first first = {.join = &full, .servers = &l->cfg.servers};
    enum status st = ST_OK;
    int ended;
    struct run *run = ps_service_run(l->cfg.service, &ended);
    pthread_mutex_lock(&l->lock);
    const struct ps_manifest *m = l->cfg.restore ? ps_restore_manifest(l->cfg.restore) : NULL;
    if (l->first || (run && !ended) || (l->plan && l->plan->generation != l->settled))
        goto done; /* another came first */
    const struct remote *expected = expected_call(l);
    if (expected) {
        snprintf(why, why_bytes, "ps:%d (%s) has not called it yet", expected->server,
                 expected->address);
        goto done;
    }
    if (full.job.n_workers == 0 && !m) {
        snprintf(why, why_bytes,
                 "it has no checkpoint to go on from, and lets those that were "
                 "not started with --join begin anew");
        goto done;
    }
    if (full.job.n_workers == 0) /* it came by --join to what this goes on from */
        full.job.n_workers = m->job.n_workers;
    if (m && ps_match_restored(m, &full, why, why_bytes) != ST_OK) {
        st = ST_MISMATCH;
        goto done;
    }
    if (l->plan)
        first.servers = &l->plan->servers;
    first.from = m;
    first.restore = l->cfg.restored;
    if (m && join->generation > 0 && m->progress.known) { /* the job lives on without us */
        first.member = m->progress.member;
        first.n_members = m->progress.n_members;
    }
    l->lives_on = join->generation > 0;
    first.generation = next_generation(l, join);
    struct net_plan *p = NULL;
    if (plan_make_first(&first, &p) != ST_OK) {
        LOG_E("no memory for a plan of %d chunks", join->chunks->n_chunks);
        goto done;
    }
    if (plan_bytes(p, 0) > l->cfg.max_model_bytes) {
        snprintf(why, why_bytes, "the model passes this server's --max_model_bytes=%" PRId64,
                 l->cfg.max_model_bytes);
        net_plan_free(p);
        st = ST_RANGE;
        goto done;
    }
    l->first = p;
    lead_poke(l);
done:
    pthread_mutex_unlock(&l->lock);
    run_unref(run);
    return st;
}

/* The last checkpoint, if there can be one. Then workers that are told to end, too, need not wait
 * for a step that does not come. */
static void finish(struct lead *l, struct run *run, int ended)
{
    if (run && l->cfg.saver)
        lead_checkpoint_last(l, run);
    if (run && !ended)
        lead_change_end(l);
    pthread_mutex_lock(&l->lock);
    l->finished = 1;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

/* 1: servers are on their way to a generation, or were cut off in the middle of a step, which the
 * next generation puts right: there is nothing yet that could be saved. Under the lock. */
static int is_between(const struct lead *l)
{
    return l->phase == PHASE_BEGINNING ||
           (l->phase == PHASE_STOPPING && l->stop_step < 0 && l->cfg.saver);
}

/* This process was started anew after a job's last step, and no worker comes to it any more. */
static void end_if_over(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    int over = ps_restore_has_all_steps(l->cfg.restore) && l->cfg.over_ms > 0 && !l->over &&
               !l->finishing && !l->plan && !l->first &&
               clock_now_ns() - l->start_ns >= l->cfg.over_ms * 1000000;
    l->over |= over;
    pthread_mutex_unlock(&l->lock);
    if (!over)
        return;
    LOG_I("the job in %s has all its steps, and no worker comes back to it: it is done",
          l->cfg.folder);
    l->cfg.over(l->cfg.ctx);
}

static void *lead_main(void *arg)
{
    struct lead *l = arg;
    for (;;) {
        int ended;
        pthread_mutex_lock(&l->lock);
        int stopping = l->stopping, finishing = l->finishing, finished = l->finished;
        int changing = !finishing || (clock_now_ns() < l->begin_ns && is_between(l));
        pthread_mutex_unlock(&l->lock);
        if (stopping)
            return NULL;
        if (changing && lead_change_go_on(l))
            continue;
        struct run *run = ps_service_run(l->cfg.service, &ended);
        if (finishing && !finished) {
            finish(l, run, ended);
        } else if (run && !finished && l->cfg.saver && l->phase == PHASE_RUNNING) {
            lead_checkpoint_next(l, run);
        } else {
            lead_checkpoint_none(l);
            end_if_over(l);
            lead_wait(l, INT64_MAX);
        }
        run_unref(run);
    }
}

static void on_taken(void *ctx)
{
    lead_wake(ctx);
}

enum status lead_create(struct lead_config *cfg, struct lead **out)
{
    enum status st = ST_OK;
    struct lead *l = calloc(1, sizeof *l);
    if (!l)
        return ST_NOMEM;
    l->cfg = *cfg;
    while (l->incarnation == 0)
        if (getrandom(&l->incarnation, sizeof l->incarnation, 0) < 0)
            l->incarnation = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    /* none that another ps 0 gave has the number of one of ours */
    l->number = l->order = l->incarnation >> 1 | 1;
    l->step = l->stop_step = -1;
    l->last_step = cfg->restore ? ps_restore_manifest(cfg->restore)->step : -1;
    l->start_ns = clock_now_ns();
    l->due_ns = INT64_MAX;
    l->line_ns = clock_deadline_ns(ALIVE_MS);
    pthread_mutex_init(&l->lock, NULL);
    clock_cond_init(&l->wake);
    struct taker_config taker = {
        .service = cfg->service, .folder = cfg->folder, .changed = on_taken, .ctx = l};
    TRY(lead_servers_create(l));
    TRY(taker_create(&taker, &l->taker));
    *out = l;
    l = NULL;
done:
    lead_destroy(l);
    return st;
}

enum status lead_start(struct lead *l)
{
    int err = pthread_create(&l->thread, NULL, lead_main, l);
    l->has_thread = err == 0;
    if (err)
        LOG_E("the thread that coordinates cannot be started: %s", strerror(err));
    return err ? ST_NOMEM : ST_OK;
}

void lead_stop(struct lead *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stopping = 1;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
    if (l->has_thread)
        pthread_join(l->thread, NULL);
    l->has_thread = 0;
}

void lead_destroy(struct lead *l)
{
    if (!l)
        return;
    lead_stop(l);
    taker_destroy(l->taker);
    lead_servers_free(l);
    ps_restore_close(l->cfg.restore);
    net_plan_free(l->plan);
    net_plan_free(l->first);
    net_plan_free(l->base);
    free(l->removed);
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
}

/* Until when servers are waited for that have not said that they know the present end; past: none
 * is. One that calls no more is gone, or about to call again. Under the lock. */
static int64_t goodbyes_until(const struct lead *l, int64_t deadline)
{
    int64_t until = 0;
    for (int i = 0; i < l->n_remotes; i++) {
        const struct remote *r = &l->remotes[i];
        int64_t end = r->call ? deadline : r->life_ns;
        if (r->incarnation && r->seen < l->goodbye && end > until &&
            !lead_server_silent(r, ALIVE_MS))
            until = end;
    }
    return until < deadline ? until : deadline;
}

void lead_finish(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    l->finishing = 1;
    l->begin_ns = clock_deadline_ns(HOLD_MS);
    lead_poke(l);
    int64_t deadline = clock_deadline_ns(LAST_MS + TRY_MS + WRITE_MS);
    while (!l->finished && clock_cond_wait(&l->wake, &l->lock, deadline) == 0)
        ;
    l->closing = 1;
    l->goodbye = ++l->number;
    lead_poke(l);
    deadline = clock_deadline_ns(GOODBYE_MS);
    for (int64_t until; (until = goodbyes_until(l, deadline)) > clock_now_ns();)
        clock_cond_wait(&l->wake, &l->lock, until);
    pthread_mutex_unlock(&l->lock);
}
