/* ps/lead_checkpoint.c - see lead.h: one attempt at a checkpoint after the other. */
#include "base/clock.h"
#include "base/log.h"
#include "ps/lead_impl.h"
#include <inttypes.h>
#include <stdlib.h>

enum what { WHAT_NOTHING, WHAT_STEPS, WHAT_NOW };

/* How far the servers are, at best and at worst; a server that spoils it. */
struct outlook {
    int n_armed, n_taken, n_written; /* each includes the next */
    int failed, lost;                /* a server's number; -1: none */
};
static void count(struct outlook *o, int server, const struct saver_state *s, uint64_t order)
{
    if (s->order != order)
        return;
    o->n_armed += s->phase >= SAVER_ARMED && s->phase <= SAVER_WRITTEN;
    o->n_taken += s->phase == SAVER_WRITING || s->phase == SAVER_WRITTEN;
    o->n_written += s->phase == SAVER_WRITTEN;
    if (s->phase == SAVER_FAILED)
        o->failed = server;
}

static void look(struct lead *l, struct outlook *o)
{
    struct saver_state own;
    *o = (struct outlook){.failed = -1, .lost = -1};
    saver_state(l->cfg.saver, &own);
    pthread_mutex_lock(&l->lock);
    count(o, 0, &own, l->order);
    for (int i = 0; i < l->n_remotes; i++) {
        const struct remote *r = &l->remotes[i];
        if (r->server <= 0)
            continue;
        count(o, r->server, &r->state, l->order);
        if (lead_server_silent(r, ALIVE_MS))
            o->lost = r->server;
    }
    pthread_mutex_unlock(&l->lock);
}

/* A server that has not called, or not for long; -1: all are there. */
static int absent_server(struct lead *l)
{
    int absent = -1;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_remotes; i++) {
        const struct remote *r = &l->remotes[i];
        if (r->server > 0 && (!r->incarnation || r->mute || lead_server_silent(r, ALIVE_MS)))
            absent = r->server;
    }
    pthread_mutex_unlock(&l->lock);
    return absent;
}

/* 1 if the server has ever called. */
static int was_there(struct lead *l, int server)
{
    pthread_mutex_lock(&l->lock);
    int was = 0;
    for (int i = 0; i < l->n_remotes; i++)
        was |= server > 0 && l->remotes[i].server == server && l->remotes[i].incarnation != 0;
    pthread_mutex_unlock(&l->lock);
    return was;
}

/* Those that did not take the order up are not asked again before they call. */
static void mark_mute(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_remotes; i++)
        l->remotes[i].mute = l->remotes[i].server > 0 && l->remotes[i].state.order != l->order;
    pthread_mutex_unlock(&l->lock);
}

/* 1 if somebody asked for a checkpoint. Under the lock. */
static int was_asked(const struct lead *l)
{
    int wanted = l->requested > l->given;
    for (int i = 0; i < l->n_remotes; i++)
        wanted |= l->remotes[i].wanted > l->remotes[i].given;
    return wanted;
}

/* 1 if there is a reason for one now. Under the lock. */
static int wants_now(const struct lead *l)
{
    return was_asked(l) || l->finishing || (l->cfg.save_ms > 0 && clock_now_ns() >= l->timer_ns);
}

/* Makes the order known; step -1: there is none any more. */
static void give_order(struct lead *l, const struct run *run, int64_t step)
{
    pthread_mutex_lock(&l->lock);
    if (step >= 0)
        l->order++;
    l->step = step;
    l->number++;
    uint64_t order = l->order;
    pthread_mutex_unlock(&l->lock);
    if (step >= 0)
        saver_order(l->cfg.saver, order, run->generation, step);
    else
        saver_cancel(l->cfg.saver);
    lead_answer(l);
}

/* Until every server has taken the order up; the hold ends here. */
static enum status wait_for_arms(struct lead *l)
{
    int64_t deadline = clock_deadline_ns(HOLD_MS);
    struct outlook o;
    for (;;) {
        look(l, &o);
        if (o.failed >= 0 || o.n_armed == l->n_servers)
            return ST_OK; /* a failure is told by wait_for_files */
        pthread_mutex_lock(&l->lock);
        int stopping = l->stopping;
        pthread_mutex_unlock(&l->lock);
        if (stopping || clock_now_ns() >= deadline)
            return stopping ? ST_CANCELLED : ST_DEADLINE;
        lead_wait(l, deadline);
    }
}

static void tell_given_up(const struct lead *l, int64_t step, const struct outlook *o)
{
    if (o->lost > 0)
        LOG_W("checkpoint at step %" PRId64 " given up: ps:%d has not been heard of for %d s; is "
              "it there, with the same --checkpoint_dir?",
              step, o->lost, ALIVE_MS / 1000);
    else if (o->failed == 0)
        LOG_W("checkpoint at step %" PRId64 " given up; training goes on", step);
    else if (o->failed > 0)
        LOG_W("checkpoint at step %" PRId64 " given up: ps:%d could not take or write its part; "
              "training goes on",
              step, o->failed);
    else
        LOG_W("checkpoint at step %" PRId64 " given up: %d of %d servers have written their part "
              "in time; training goes on",
              step, o->n_written, l->n_servers);
}

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Until every server's file is there. ST_CANCELLED: something else is wanted first. */
static enum status wait_for_files(struct lead *l, enum what what, int64_t until_ns)
{
    struct outlook o;
    int64_t first_ns = 0; /* when the first file was there */
    for (;;) {
        look(l, &o);
        if (o.n_written == l->n_servers)
            return ST_OK;
        int64_t now = clock_now_ns();
        if (o.n_written > 0 && first_ns == 0)
            first_ns = now;
        pthread_mutex_lock(&l->lock);
        int more = o.n_taken == l->n_servers || !l->finishing ? WRITE_MS : TRY_MS;
        int late = (o.n_taken == 0 && now >= until_ns) ||
                   (first_ns > 0 && now - first_ns > more * 1000000LL);
        int other = l->stopping || (o.n_taken == 0 && until_ns == INT64_MAX &&
                                    (l->finishing || (what == WHAT_STEPS && wants_now(l))));
        int64_t step = l->step, next = until_ns;
        if (o.n_taken == 0 && what == WHAT_STEPS && l->cfg.save_ms > 0)
            next = lower(next, l->timer_ns);
        int finishing = l->finishing;
        pthread_mutex_unlock(&l->lock);
        if (other || (!finishing && lead_change_due(l, o.n_taken)))
            return ST_CANCELLED;
        if (o.failed >= 0 || o.lost >= 0 || late) {
            if (until_ns == INT64_MAX) /* else another attempt follows, or a line */
                tell_given_up(l, step, &o);
            return ST_DEADLINE;
        }
        lead_wait(l, next);
    }
}

static enum status write_manifest(struct lead *l, const struct run *run, int64_t step)
{
    enum status st = ST_NOMEM;
    struct saver_state own;
    double bytes = 0;
    struct safetensors_written *files = calloc((size_t)l->n_servers, sizeof *files);
    if (!files)
        goto done;
    saver_state(l->cfg.saver, &own);
    pthread_mutex_lock(&l->lock);
    files[0] = own.file;
    for (int i = 0; i < l->n_remotes; i++)
        if (l->remotes[i].server > 0)
            files[l->remotes[i].server] = l->remotes[i].state.file;
    pthread_mutex_unlock(&l->lock);
    struct ps_manifest m = {.step = step,
                            .generation = run->generation,
                            .job = run->job,
                            .chunks = run->chunks,
                            .n_files = l->n_servers,
                            .files = files,
                            .progress = run_progress(run, step)};
    TRY(ps_manifest_write(l->cfg.folder, &m));
    for (int i = 0; i < l->n_servers; i++)
        bytes += (double)files[i].bytes;
    LOG_I("checkpoint at step %" PRId64 ": %s, %.1f MB", step, l->cfg.folder, bytes * 1e-6);
    if (ps_manifest_tidy(l->cfg.folder, l->cfg.keep) != ST_OK)
        LOG_W("checkpoint at step %" PRId64 ": it is whole, but its folder could not be tidied up",
              step);
done:
    if (st != ST_OK)
        LOG_W("checkpoint at step %" PRId64 " given up: its manifest could not be written; "
              "training goes on",
              step);
    free(files);
    return st;
}

/* The step of the next checkpoint; under a hold. `present`: where all chunks of this server are. */
static int64_t choose_step(const struct lead *l, const struct run *run, enum what what, int present)
{
    int64_t lowest = ps_store_step(run->store), highest = ps_store_highest(run->store);
    int64_t last = run->job.train_steps;
    if (lowest < 0 && what == WHAT_NOW)
        return -1; /* the first values are still coming in */
    if (!job_in_lockstep(&run->job) && what == WHAT_NOW)
        return lowest;
    if (present)
        return lowest == highest ? highest : -1;
    if (highest < 0)
        highest = 0;
    int64_t next = highest + (l->n_servers > 1 ? 2 : 1);
    if (highest >= last)
        return last;
    if (what == WHAT_STEPS && l->cfg.save_steps == 0)
        return last;
    if (what == WHAT_STEPS)
        next = (next + l->cfg.save_steps - 1) / l->cfg.save_steps * l->cfg.save_steps;
    return lower(next, last);
}

/* One checkpoint, from the order to the manifest. until: when chunks must have come to the step. */
static enum status attempt(struct lead *l, struct run *run, enum what what, int present,
                           int64_t until_ns)
{
    l->tried = -1;
    if (absent_server(l) >= 0)
        return ST_UNAVAILABLE;
    ps_store_hold(run->store, 1);
    int64_t step = l->tried = choose_step(l, run, what, present);
    int held = step >= 0 && step <= ps_store_highest(run->store) + 2;
    if (!held)
        ps_store_hold(run->store, 0);
    if (step < 0)
        return ST_NOT_FOUND;
    if (step == l->last_step && ps_store_step(run->store) == ps_store_highest(run->store)) {
        ps_store_hold(run->store, 0);
        return ST_OK; /* there is one */
    }
    give_order(l, run, step);
    enum status st = held ? wait_for_arms(l) : ST_OK;
    if (held)
        ps_store_hold(run->store, 0);
    if (st == ST_OK) {
        st = wait_for_files(l, what, until_ns);
    } else if (st == ST_DEADLINE) {
        mark_mute(l);
        LOG_W("checkpoint at step %" PRId64 " given up: not all servers answered within %d s; "
              "training goes on",
              step, HOLD_MS / 1000);
    }
    if (st == ST_OK)
        st = write_manifest(l, run, step);
    give_order(l, run, -1);
    pthread_mutex_lock(&l->lock);
    if (st == ST_OK)
        l->last_step = step;
    pthread_mutex_unlock(&l->lock);
    return st;
}

/* What is asked for up to here, the next attempt is for. */
static void take_up(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    l->taken_up = l->requested;
    for (int i = 0; i < l->n_remotes; i++)
        l->remotes[i].taken_up = l->remotes[i].wanted;
    pthread_mutex_unlock(&l->lock);
}

/* It is done with, one way or the other. */
static void settle(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    l->given = l->taken_up;
    for (int i = 0; i < l->n_remotes; i++)
        l->remotes[i].given = l->remotes[i].taken_up;
    l->timer_ns = clock_deadline_ns(l->cfg.save_ms);
    l->number++;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
    lead_answer(l);
}

/* Now and then; a server that is slower to start is not missing yet. */
static void tell_absent(struct lead *l)
{
    int64_t now = clock_now_ns();
    int absent = absent_server(l);
    if (absent < 0 || now < l->line_ns)
        return;
    l->line_ns = now + ALIVE_MS * 1000000LL;
    LOG_W("no checkpoints: ps:%d does not call; is it there, with the same --checkpoint_dir? "
          "Training goes on",
          absent);
}

/* Nobody is told of the last version before its checkpoint is on the disk: members that have left
 * could not do again what a server that dies takes with it. 1: there will be one. */
static int hold_last(struct lead *l, struct run *run)
{
    int on = l->last_step < run->job.train_steps && l->unsaved != run->generation;
    ps_store_hold_last(run->store, on);
    return on;
}

/* An attempt came to nothing: where it was the last step's, nobody is kept waiting for it. */
static void let_go(struct lead *l, struct run *run, enum status st)
{
    int64_t last = run->job.train_steps;
    int alone = st == ST_UNAVAILABLE && !was_there(l, absent_server(l));
    if (l->tried == last || (alone && ps_store_highest(run->store) >= last))
        l->unsaved = run->generation;
}

void lead_checkpoint_next(struct lead *l, struct run *run)
{
    int64_t now = clock_now_ns(), next = INT64_MAX;
    int held = hold_last(l, run);
    pthread_mutex_lock(&l->lock);
    if (l->timer_ns == 0)
        l->timer_ns = clock_deadline_ns(l->cfg.save_ms);
    int by_steps = held || (l->cfg.save_steps > 0 && l->last_step < run->job.train_steps);
    enum what what = wants_now(l)                          ? WHAT_NOW
                     : by_steps && now >= l->not_before_ns ? WHAT_STEPS
                                                           : WHAT_NOTHING;
    if (l->cfg.save_ms > 0)
        next = l->timer_ns;
    if (by_steps && l->not_before_ns > now && l->not_before_ns < next)
        next = l->not_before_ns;
    pthread_mutex_unlock(&l->lock);
    if (what == WHAT_NOTHING) {
        lead_wait(l, next);
        return;
    }
    if (what == WHAT_NOW)
        take_up(l);
    enum status st = attempt(l, run, what, 0, INT64_MAX);
    if (what == WHAT_NOW && st != ST_CANCELLED)
        settle(l);
    if (st == ST_UNAVAILABLE)
        tell_absent(l);
    if (st == ST_NOT_FOUND)
        LOG_I("no checkpoint yet: the first values are still coming in");
    if (st != ST_OK && st != ST_CANCELLED) {
        let_go(l, run, st);
        pthread_mutex_lock(&l->lock);
        l->not_before_ns = clock_deadline_ns(RETRY_MS);
        pthread_mutex_unlock(&l->lock);
    }
}

/* A moment, whatever happens meanwhile, but the end. */
static void pause(struct lead *l)
{
    int64_t deadline = clock_deadline_ns(RETRY_MS / 4);
    for (int stopping = 0; !stopping && clock_now_ns() < deadline;) {
        lead_wait(l, deadline);
        pthread_mutex_lock(&l->lock);
        stopping = l->stopping;
        pthread_mutex_unlock(&l->lock);
    }
}

/* A step ahead, or where everything stands. */
void lead_checkpoint_last(struct lead *l, struct run *run)
{
    int64_t end = clock_deadline_ns(LAST_MS), absent_end = clock_deadline_ns(HOLD_MS);
    enum status st = l->last_step >= run->job.train_steps ? ST_OK : ST_DEADLINE;
    take_up(l);
    for (int i = 0; st != ST_OK && st != ST_CANCELLED && clock_now_ns() < end; i++) {
        st = attempt(l, run, WHAT_NOW, i % 2 == 0, clock_deadline_ns(TRY_MS));
        if (st == ST_NOT_FOUND && ps_store_step(run->store) < 0)
            break; /* nothing was ever there */
        if (st == ST_DEADLINE && l->unsaved == run->generation)
            break; /* it was tried when the step was made, and now again */
        if (st == ST_UNAVAILABLE && clock_now_ns() > absent_end)
            break;
        if (st == ST_UNAVAILABLE)
            lead_wait(l, absent_end);
        else if (st != ST_OK && st != ST_CANCELLED)
            pause(l);
    }
    settle(l);
    hold_last(l, run);
    if (st == ST_UNAVAILABLE)
        LOG_W("no last checkpoint: ps:%d does not call; is it there, with the same "
              "--checkpoint_dir? The last one is at step %" PRId64,
              absent_server(l), l->last_step);
    else if (st != ST_OK && ps_store_step(run->store) >= 0)
        LOG_W("no last checkpoint: the chunks of all servers did not come to one step within %d s; "
              "the last one is at step %" PRId64,
              LAST_MS / 1000, l->last_step);
}

void lead_checkpoint_none(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    int asked = was_asked(l);
    pthread_mutex_unlock(&l->lock);
    if (!asked)
        return;
    take_up(l);
    settle(l);
}
