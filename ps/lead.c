/* ps/lead.c - see lead.h. The thread goes from one attempt at a checkpoint to the next; what
 * happens meanwhile is written down and it is woken.
 * Locks: the lead's is never held over a call into the saver, the service, the store or the net. */
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "ps/lead_impl.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

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

void lead_answer(struct lead *l)
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

void lead_wait(struct lead *l, int64_t deadline_ns)
{
    int64_t beat_ns = clock_deadline_ns(l->cfg.n_servers > 1 ? RETRY_MS / 2 : BEAT_MS);
    lead_answer(l);
    pthread_mutex_lock(&l->lock);
    if (deadline_ns > beat_ns)
        deadline_ns = beat_ns;
    while (!l->news && !l->stopping && clock_cond_wait(&l->wake, &l->lock, deadline_ns) == 0)
        ;
    l->news = 0;
    pthread_mutex_unlock(&l->lock);
    lead_answer(l);
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
    lead_answer(l);
}
static void *lead_main(void *arg)
{
    struct lead *l = arg;
    for (;;) {
        int ended;
        pthread_mutex_lock(&l->lock);
        int stopping = l->stopping, finishing = l->finishing, finished = l->finished;
        pthread_mutex_unlock(&l->lock);
        if (stopping)
            return NULL;
        struct run *run = ps_service_run(l->cfg.service, &ended);
        if (finishing && !finished) {
            if (run)
                lead_checkpoint_last(l, run);
            pthread_mutex_lock(&l->lock);
            l->finished = 1;
            pthread_cond_broadcast(&l->wake);
            pthread_mutex_unlock(&l->lock);
        } else if (run && !finished) {
            lead_checkpoint_next(l, run);
        } else {
            lead_checkpoint_none(l);
            lead_wait(l, INT64_MAX);
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
