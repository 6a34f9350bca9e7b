/* ps/lead.c - see lead.h. The thread goes from one attempt at a checkpoint to the next; what
 * happens meanwhile is written down and it is woken.
 * Locks: the lead's is never held over a call into the saver, the service, the store or the net. */
#include "ps/lead.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "ps/run.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    HOLD_MS = 3000,   /* for all servers to take an order up */
    ALIVE_MS = 15000, /* a server that was not heard of for so long is lost */
    BEAT_MS = 3000,   /* an answer without news */
    RETRY_MS = 1000,  /* after a checkpoint that was given up */
    TRY_MS = 8000,    /* at the end: for training to get to the step */
    LAST_MS = 30000,  /* at the end, in all, before a checkpoint's chunks are taken */
    WRITE_MS = 300000,
    GOODBYE_MS = 2000,
};

struct remote {
    uint64_t incarnation; /* 0: it has not called yet */
    uint64_t generation;  /* of its job; 0: it has none */
    uint64_t call, seen;  /* its call that waits; 0: none */
    int64_t heard_ns, call_ns;
    uint64_t told;                    /* the number of the last reply */
    uint64_t wanted, taken_up, given; /* checkpoints that it asked for */
    struct saver_state state;
};

struct lead {
    struct lead_config cfg;
    uint64_t incarnation; /* of this process */
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    struct remote *remotes; /* n_servers; [0] is not used */
    uint64_t number, order;
    int64_t step;                    /* of the order; -1: there is none */
    int64_t last_step;               /* of the last checkpoint; -1 */
    int64_t line_ns;                 /* the thread's own: when a missing server is named next */
    int64_t timer_ns, not_before_ns; /* save_ms; save_steps */
    uint64_t requested, taken_up, given;
    int finishing, finished, closing, stopping;
    int news; /* something happened since the thread looked last */
};

enum what { WHAT_NOTHING, WHAT_STEPS, WHAT_NOW };

/* How far the servers are, at best and at worst; a server that spoils it. */
struct outlook {
    int n_armed, n_taken, n_written; /* each includes the next */
    int failed, lost;                /* a server's number; -1: none */
};

/* Under the lock: something has happened. */
static void poke(struct lead *l)
{
    l->news = 1;
    pthread_cond_broadcast(&l->wake);
}

void lead_wake(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    poke(l);
    pthread_mutex_unlock(&l->lock);
}

void lead_request(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    l->requested++;
    poke(l);
    pthread_mutex_unlock(&l->lock);
}

/* Under the lock. */
static void fill_reply(const struct lead *l, const struct remote *r, struct net_control_reply *out)
{
    *out = (struct net_control_reply){
        .number = l->number,
        .incarnation = l->incarnation,
        .generation = l->cfg.generation,
        .order = l->order,
        .step = l->step,
        .given = r->given,
        .closing = l->closing,
    };
    memcpy(out->restore, l->cfg.restored, sizeof out->restore);
}

/* Answers the calls that have something to hear, or have waited long enough. */
static void answer_calls(struct lead *l)
{
    for (int i = 1; i < l->cfg.n_servers; i++) {
        struct remote *r = &l->remotes[i];
        struct net_control_reply reply;
        uint64_t call = 0;
        pthread_mutex_lock(&l->lock);
        if (r->call && (r->seen != l->number || clock_now_ns() - r->call_ns > BEAT_MS * 1000000LL ||
                        l->stopping)) {
            call = r->call;
            r->call = 0;
            r->told = l->number;
            fill_reply(l, r, &reply);
            pthread_cond_broadcast(&l->wake);
        }
        pthread_mutex_unlock(&l->lock);
        if (call)
            l->cfg.reply(l->cfg.ctx, call, &reply);
    }
}

/* Waits for news, at most until the deadline or the next heartbeat. */
static void wait_for_news(struct lead *l, int64_t deadline_ns)
{
    int64_t beat_ns = clock_deadline_ns(l->cfg.n_servers > 1 ? RETRY_MS / 2 : BEAT_MS);
    answer_calls(l);
    pthread_mutex_lock(&l->lock);
    if (deadline_ns > beat_ns)
        deadline_ns = beat_ns;
    while (!l->news && !l->stopping && clock_cond_wait(&l->wake, &l->lock, deadline_ns) == 0)
        ;
    l->news = 0;
    pthread_mutex_unlock(&l->lock);
    answer_calls(l);
}

/* NULL, or why the server cannot take part. Under the lock. */
static const char *objection(const struct lead *l, const struct net_control *c,
                             const struct run *run)
{
    if (c->n_servers != l->cfg.n_servers || c->server < 1 || c->server >= l->cfg.n_servers)
        return "another --ps_hosts than that of ps:0";
    const struct remote *r = &l->remotes[c->server];
    if (r->incarnation && r->incarnation != c->incarnation && run &&
        r->generation == run->generation)
        return "this server was started anew while the job goes on: it has lost its parameters; "
               "stop all servers and workers and start them again, they go on from the last "
               "checkpoint";
    return NULL;
}

void lead_control(struct lead *l, const struct net_control *c, uint64_t call)
{
    struct net_control_reply reply = {.number = 1};
    uint64_t old = 0;
    int ended;
    struct run *run = ps_service_run(l->cfg.service, &ended);
    pthread_mutex_lock(&l->lock);
    const char *why = objection(l, c, run);
    if (!why) {
        struct remote *r = &l->remotes[c->server];
        old = r->call;
        fill_reply(l, r, &reply);
        r->incarnation = c->incarnation;
        r->generation = c->generation;
        r->call = call;
        r->seen = c->seen;
        r->call_ns = r->heard_ns = clock_now_ns();
        r->wanted = c->wanted;
        r->state = (struct saver_state){
            .order = c->order, .phase = (enum saver_phase)c->phase, .file = {c->bytes, c->crc32c}};
        call = 0;
        poke(l);
    }
    pthread_mutex_unlock(&l->lock);
    run_unref(run);
    if (why)
        snprintf(reply.refused, sizeof reply.refused, "%s", why);
    if (call)
        l->cfg.reply(l->cfg.ctx, call, &reply);
    if (old)
        l->cfg.reply(l->cfg.ctx, old, &reply);
    answer_calls(l);
}

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
    for (int i = 1; i < l->cfg.n_servers; i++) {
        const struct remote *r = &l->remotes[i];
        count(o, i, &r->state, l->order);
        if (clock_now_ns() - r->heard_ns > ALIVE_MS * 1000000LL)
            o->lost = i;
    }
    pthread_mutex_unlock(&l->lock);
}

/* A server that has not called, or not for long; -1: all are there. */
static int absent_server(struct lead *l)
{
    int absent = -1;
    pthread_mutex_lock(&l->lock);
    for (int i = 1; i < l->cfg.n_servers; i++)
        if (!l->remotes[i].incarnation ||
            clock_now_ns() - l->remotes[i].heard_ns > ALIVE_MS * 1000000LL)
            absent = i;
    pthread_mutex_unlock(&l->lock);
    return absent;
}

/* Those that did not take the order up are not asked again before they call. */
static void mark_silent(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    for (int i = 1; i < l->cfg.n_servers; i++)
        if (l->remotes[i].state.order != l->order)
            l->remotes[i].heard_ns = 0;
    pthread_mutex_unlock(&l->lock);
}

/* 1 if somebody asked for a checkpoint. Under the lock. */
static int was_asked(const struct lead *l)
{
    int wanted = l->requested > l->given;
    for (int i = 1; i < l->cfg.n_servers; i++)
        wanted |= l->remotes[i].wanted > l->remotes[i].given;
    return wanted;
}

/* 1 if there is a reason for one now. Under the lock. */
static int wants_now(const struct lead *l)
{
    return was_asked(l) || l->finishing || (l->cfg.save_ms > 0 && clock_now_ns() >= l->timer_ns);
}

/* Makes the order known; step -1: there is none any more. */
static void give_order(struct lead *l, int64_t step)
{
    pthread_mutex_lock(&l->lock);
    if (step >= 0)
        l->order++;
    l->step = step;
    l->number++;
    uint64_t order = l->order;
    pthread_mutex_unlock(&l->lock);
    if (step >= 0)
        saver_order(l->cfg.saver, order, step);
    else
        saver_cancel(l->cfg.saver);
    answer_calls(l);
}

/* Until every server has taken the order up; the hold ends here. */
static enum status wait_for_arms(struct lead *l)
{
    int64_t deadline = clock_deadline_ns(HOLD_MS);
    struct outlook o;
    for (;;) {
        look(l, &o);
        if (o.failed >= 0 || o.n_armed == l->cfg.n_servers)
            return ST_OK; /* a failure is told by wait_for_files */
        pthread_mutex_lock(&l->lock);
        int stopping = l->stopping;
        pthread_mutex_unlock(&l->lock);
        if (stopping || clock_now_ns() >= deadline)
            return stopping ? ST_CANCELLED : ST_DEADLINE;
        wait_for_news(l, deadline);
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
              step, o->n_written, l->cfg.n_servers);
}

/* Until every server's file is there. ST_CANCELLED: something else is wanted first. */
static enum status wait_for_files(struct lead *l, enum what what, int64_t until_ns)
{
    struct outlook o;
    int64_t first_ns = 0; /* when the first file was there */
    for (;;) {
        look(l, &o);
        if (o.n_written == l->cfg.n_servers)
            return ST_OK;
        int64_t now = clock_now_ns();
        if (o.n_written > 0 && first_ns == 0)
            first_ns = now;
        pthread_mutex_lock(&l->lock);
        int more = o.n_taken == l->cfg.n_servers || !l->finishing ? WRITE_MS : TRY_MS;
        int late = (o.n_taken == 0 && now >= until_ns) ||
                   (first_ns > 0 && now - first_ns > more * 1000000LL);
        int other = l->stopping || (o.n_taken == 0 && until_ns == INT64_MAX &&
                                    (l->finishing || (what == WHAT_STEPS && wants_now(l))));
        int64_t step = l->step;
        pthread_mutex_unlock(&l->lock);
        if (other)
            return ST_CANCELLED;
        if (o.failed >= 0 || o.lost >= 0 || late) {
            if (until_ns == INT64_MAX) /* else another attempt follows, or a line */
                tell_given_up(l, step, &o);
            return ST_DEADLINE;
        }
        wait_for_news(l, until_ns);
    }
}

static enum status write_manifest(struct lead *l, const struct run *run, int64_t step)
{
    enum status st = ST_NOMEM;
    struct saver_state own;
    double bytes = 0;
    struct safetensors_written *files = calloc((size_t)l->cfg.n_servers, sizeof *files);
    if (!files)
        goto done;
    saver_state(l->cfg.saver, &own);
    pthread_mutex_lock(&l->lock);
    files[0] = own.file;
    for (int i = 1; i < l->cfg.n_servers; i++)
        files[i] = l->remotes[i].state.file;
    pthread_mutex_unlock(&l->lock);
    struct ps_manifest m = {step, run->generation, run->job, run->chunks, l->cfg.n_servers, files};
    TRY(ps_manifest_write(l->cfg.folder, &m));
    for (int i = 0; i < l->cfg.n_servers; i++)
        bytes += (double)files[i].bytes;
    LOG_I("checkpoint at step %" PRId64 ": %s, %.1f MB", step, l->cfg.folder, bytes * 1e-6);
    TRY(ps_manifest_tidy(l->cfg.folder, l->cfg.keep));
done:
    if (st != ST_OK)
        LOG_W("checkpoint at step %" PRId64 ": its manifest, or what has to be tidied up after it, "
              "could not be written; training goes on",
              step);
    free(files);
    return st;
}

static int64_t lower(int64_t a, int64_t b)
{
    return a < b ? a : b;
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
    int64_t next = highest + (l->cfg.n_servers > 1 ? 2 : 1);
    if (highest >= last)
        return last;
    if (what == WHAT_STEPS)
        next = (next + l->cfg.save_steps - 1) / l->cfg.save_steps * l->cfg.save_steps;
    return lower(next, last);
}

/* One checkpoint, from the order to the manifest. until: when chunks must have come to the step. */
static enum status attempt(struct lead *l, struct run *run, enum what what, int present,
                           int64_t until_ns)
{
    if (absent_server(l) >= 0)
        return ST_UNAVAILABLE;
    ps_store_hold(run->store, 1);
    int64_t step = choose_step(l, run, what, present);
    int held = step >= 0 && step <= ps_store_highest(run->store) + 2;
    if (!held)
        ps_store_hold(run->store, 0);
    if (step < 0)
        return ST_NOT_FOUND;
    if (step == l->last_step && ps_store_step(run->store) == ps_store_highest(run->store)) {
        ps_store_hold(run->store, 0);
        return ST_OK; /* there is one */
    }
    give_order(l, step);
    enum status st = held ? wait_for_arms(l) : ST_OK;
    if (held)
        ps_store_hold(run->store, 0);
    if (st == ST_OK) {
        st = wait_for_files(l, what, until_ns);
    } else if (st == ST_DEADLINE) {
        mark_silent(l);
        LOG_W("checkpoint at step %" PRId64 " given up: not all servers answered within %d s; "
              "training goes on",
              step, HOLD_MS / 1000);
    }
    if (st == ST_OK)
        st = write_manifest(l, run, step);
    give_order(l, -1);
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
    for (int i = 1; i < l->cfg.n_servers; i++)
        l->remotes[i].taken_up = l->remotes[i].wanted;
    pthread_mutex_unlock(&l->lock);
}

/* It is done with, one way or the other. */
static void settle(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    l->given = l->taken_up;
    for (int i = 1; i < l->cfg.n_servers; i++)
        l->remotes[i].given = l->remotes[i].taken_up;
    l->timer_ns = clock_deadline_ns(l->cfg.save_ms);
    l->number++;
    pthread_cond_broadcast(&l->wake);
    pthread_mutex_unlock(&l->lock);
    answer_calls(l);
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

static void next_checkpoint(struct lead *l, struct run *run)
{
    int64_t now = clock_now_ns(), next = INT64_MAX;
    pthread_mutex_lock(&l->lock);
    if (l->timer_ns == 0)
        l->timer_ns = clock_deadline_ns(l->cfg.save_ms);
    int by_steps = l->cfg.save_steps > 0 && l->last_step < run->job.train_steps;
    enum what what = wants_now(l)                          ? WHAT_NOW
                     : by_steps && now >= l->not_before_ns ? WHAT_STEPS
                                                           : WHAT_NOTHING;
    if (l->cfg.save_ms > 0)
        next = l->timer_ns;
    if (by_steps && l->not_before_ns > now && l->not_before_ns < next)
        next = l->not_before_ns;
    pthread_mutex_unlock(&l->lock);
    if (what == WHAT_NOTHING) {
        wait_for_news(l, next);
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
        pthread_mutex_lock(&l->lock);
        l->not_before_ns = clock_deadline_ns(RETRY_MS);
        pthread_mutex_unlock(&l->lock);
    }
}

/* The workers may be there or not: a step ahead, or where everything stands. */
static void last_checkpoint(struct lead *l, struct run *run)
{
    int64_t end = clock_deadline_ns(LAST_MS), absent_end = clock_deadline_ns(HOLD_MS);
    enum status st = ST_DEADLINE;
    take_up(l);
    for (int i = 0; st != ST_OK && st != ST_CANCELLED && clock_now_ns() < end; i++) {
        st = attempt(l, run, WHAT_NOW, i % 2 == 0, clock_deadline_ns(TRY_MS));
        if (st == ST_NOT_FOUND && ps_store_step(run->store) < 0)
            break; /* nothing was ever there */
        if (st == ST_UNAVAILABLE && clock_now_ns() > absent_end)
            break;
        if (st == ST_UNAVAILABLE)
            wait_for_news(l, absent_end);
    }
    settle(l);
    if (st == ST_UNAVAILABLE)
        LOG_W("no last checkpoint: ps:%d does not call; is it there, with the same "
              "--checkpoint_dir? The last one is at step %" PRId64,
              absent_server(l), l->last_step);
    else if (st != ST_OK && ps_store_step(run->store) >= 0)
        LOG_W("no last checkpoint: the chunks of all servers did not come to one step within %d s; "
              "the last one is at step %" PRId64,
              LAST_MS / 1000, l->last_step);
}

static void *lead_main(void *arg)
{
    struct lead *l = arg;
    for (;;) {
        int ended;
        pthread_mutex_lock(&l->lock);
        int stopping = l->stopping, finishing = l->finishing, finished = l->finished;
        int asked = was_asked(l);
        pthread_mutex_unlock(&l->lock);
        if (stopping)
            return NULL;
        struct run *run = ps_service_run(l->cfg.service, &ended);
        if (finishing && !finished) {
            if (run)
                last_checkpoint(l, run);
            pthread_mutex_lock(&l->lock);
            l->finished = 1;
            pthread_cond_broadcast(&l->wake);
            pthread_mutex_unlock(&l->lock);
        } else if (run && !finished) {
            next_checkpoint(l, run);
        } else {
            if (asked) { /* there is nothing to save, or nothing more */
                take_up(l);
                settle(l);
            }
            wait_for_news(l, INT64_MAX);
        }
        run_unref(run);
    }
}

enum status lead_create(const struct lead_config *cfg, struct lead **out)
{
    struct lead *l = calloc(1, sizeof *l);
    if (l)
        l->remotes = calloc((size_t)cfg->n_servers, sizeof *l->remotes);
    if (!l || !l->remotes) {
        free(l);
        return ST_NOMEM;
    }
    l->cfg = *cfg;
    l->number = 1;
    while (l->incarnation == 0)
        if (getrandom(&l->incarnation, sizeof l->incarnation, 0) < 0)
            l->incarnation = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    l->step = -1;
    l->last_step = cfg->restored_step;
    l->line_ns = clock_deadline_ns(ALIVE_MS);
    for (int i = 0; i < cfg->n_servers; i++)
        l->remotes[i].heard_ns = clock_now_ns();
    pthread_mutex_init(&l->lock, NULL);
    clock_cond_init(&l->wake);
    *out = l;
    return ST_OK;
}

enum status lead_start(struct lead *l)
{
    int err = pthread_create(&l->thread, NULL, lead_main, l);
    l->has_thread = err == 0;
    if (err)
        LOG_E("the thread that orders checkpoints cannot be started: %s", strerror(err));
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
    pthread_cond_destroy(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l->remotes);
    free(l);
}

/* 1 if every server that is still there has been told of the present state. Under the lock. */
static int all_told(const struct lead *l)
{
    for (int i = 1; i < l->cfg.n_servers; i++)
        if (l->remotes[i].incarnation && l->remotes[i].told != l->number &&
            clock_now_ns() - l->remotes[i].heard_ns < ALIVE_MS * 1000000LL)
            return 0;
    return 1;
}

void lead_finish(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    l->finishing = 1;
    poke(l);
    int64_t deadline = clock_deadline_ns(LAST_MS + TRY_MS + WRITE_MS);
    while (!l->finished && clock_cond_wait(&l->wake, &l->lock, deadline) == 0)
        ;
    l->closing = 1;
    l->number++;
    poke(l);
    deadline = clock_deadline_ns(GOODBYE_MS);
    while (!all_told(l) && clock_cond_wait(&l->wake, &l->lock, deadline) == 0)
        ;
    pthread_mutex_unlock(&l->lock);
}
