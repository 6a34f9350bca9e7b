/* ps/follow.c - see follow.h. The thread calls again and again; a change here ends the call under
 * way, so that the next tells of it. */
#include "ps/follow.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "net/control.h"
#include "ps/restore.h"
#include "ps/run.h"
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    CALL_MS = 12000, /* longer than ps 0 takes to answer without news */
    RETRY_MS = 500,
    LINE_MS = 10000, /* how often a missing ps 0 is named */
    LAST_MS = 60000, /* for the last checkpoint */
    GONE_MS = 5000,  /* at the end: ps 0 is not there any more */
};

struct follow {
    struct follow_config cfg;
    struct net_control_client *client;
    uint64_t incarnation, seen; /* the thread's own */
    uint64_t leader;            /* likewise: incarnation of ps 0; 0: not known yet */
    uint64_t order, taken;      /* likewise: the last, and the last that the saver was given */
    int64_t step;               /* likewise: of the order; -1: it is over */
    uint64_t generation;        /* likewise: that the order is for */
    int told_restore;           /* likewise */
    int64_t line_ns;            /* likewise */
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    uint64_t wanted, given;
    int64_t heard_ns;
    int closing, stopping;
};

static void poke(struct follow *f)
{
    net_control_cancel(f->client);
}

void follow_wake(struct follow *f)
{
    poke(f);
}

void follow_request(struct follow *f)
{
    pthread_mutex_lock(&f->lock);
    f->wanted++;
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->lock);
    poke(f);
}

/* What ps 0 goes on from, this server goes on from. */
static enum status restore(struct follow *f, const char *name, uint64_t generation)
{
    char path[PATH_MAX];
    struct ps_restore *r = NULL;
    enum status st = ST_OK;
    if (name[0]) {
        snprintf(path, sizeof path, "%s/%s", f->cfg.restore_folder, name);
        st = ps_restore_find(path, &r);
        if (st == ST_NOT_FOUND)
            LOG_E(
                "%s: ps:0 goes on from this checkpoint, but it is not there; all servers need one "
                "folder that they share",
                path);
    }
    if (st == ST_OK)
        ps_service_resume(f->cfg.service, r, generation);
    return st;
}

/* Hands the last order on, as soon as there is a job that it can be for. */
static void take_order(struct follow *f)
{
    int ended;
    struct run *run = NULL;
    if (f->step < 0) {
        struct saver_state state;
        saver_state(f->cfg.saver, &state);
        if (state.phase == SAVER_ARMED)
            saver_cancel(f->cfg.saver);
    } else if (f->order != f->taken) {
        run = ps_service_run(f->cfg.service, &ended);
        if (run) {
            f->taken = f->order;
            saver_order(f->cfg.saver, f->order, f->generation, f->step);
        }
    }
    run_unref(run);
}

/* Another process than before speaks for ps 0. 0: it knows nothing of the job under way here. */
static int follow_leader(struct follow *f, uint64_t leader)
{
    int ended, first = f->leader == 0;
    struct run *run = ps_service_run(f->cfg.service, &ended);
    f->leader = leader;
    f->told_restore = 0;
    f->taken = 0;
    if (run && !first)
        LOG_E("ps:0 (%s) was started anew while the job goes on here; stop all servers and workers "
              "and start them again, they go on from the last checkpoint",
              f->cfg.addr);
    int go = !run || first;
    run_unref(run);
    return go;
}

/* 0: there is nothing more to be called for. */
static int handle(struct follow *f, const struct net_control_reply *reply)
{
    f->line_ns = 0;
    if (reply->refused[0]) {
        LOG_E("ps:0 (%s) refuses this server: %s", f->cfg.addr, reply->refused);
        f->cfg.refused(f->cfg.ctx);
        return 0;
    }
    if (f->leader != reply->incarnation && !follow_leader(f, reply->incarnation)) {
        f->cfg.refused(f->cfg.ctx);
        return 0;
    }
    if (!f->told_restore && restore(f, reply->restore, reply->generation) != ST_OK) {
        f->cfg.refused(f->cfg.ctx);
        return 0;
    }
    f->told_restore = 1;
    f->seen = reply->number;
    f->order = reply->order;
    f->step = reply->step;
    f->generation = reply->generation;
    pthread_mutex_lock(&f->lock);
    f->given = reply->given;
    f->closing = reply->closing;
    f->heard_ns = clock_now_ns();
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->lock);
    return !reply->closing;
}

static void tell_missing(struct follow *f, const char *why)
{
    int64_t now = clock_now_ns();
    if (f->line_ns == 0)
        f->line_ns = now + 1000000000; /* not for a moment's absence */
    if (now < f->line_ns)
        return;
    f->line_ns = now + LINE_MS * 1000000LL;
    LOG_W("waiting for ps:0 (%s), which orders checkpoints: %s", f->cfg.addr, why);
}

static int fill_request(struct follow *f, struct net_control *out)
{
    struct saver_state state;
    int ended;
    struct run *run = ps_service_run(f->cfg.service, &ended);
    uint64_t generation = run ? run->generation : 0;
    run_unref(run);
    saver_state(f->cfg.saver, &state);
    pthread_mutex_lock(&f->lock);
    *out = (struct net_control){
        .server = f->cfg.self,
        .n_servers = f->cfg.n_servers,
        .incarnation = f->incarnation,
        .generation = generation,
        .seen = f->seen,
        .wanted = f->wanted,
        .order = state.order,
        .phase = (int)state.phase,
        .bytes = state.file.bytes,
        .crc32c = state.file.crc32c,
    };
    int go = !f->stopping;
    pthread_mutex_unlock(&f->lock);
    return go;
}

static void *follow_main(void *arg)
{
    struct follow *f = arg;
    struct net_control request;
    struct net_control_reply reply;
    char why[CONTROL_TEXT_BYTES];
    while (take_order(f), fill_request(f, &request)) {
        enum status st = net_control_call(f->client, &request, CALL_MS, &reply, why);
        if (st == ST_CANCELLED)
            continue;
        if (st == ST_OK) {
            int go = handle(f, &reply);
            net_control_reply_free(&reply);
            if (!go)
                break;
            continue;
        }
        if (st == ST_PROTOCOL) {
            LOG_E("ps:0 (%s) does not take this server's call: %s; give all servers the same "
                  "--ps_hosts and --checkpoint_dir",
                  f->cfg.addr, why);
            f->cfg.refused(f->cfg.ctx);
            break;
        }
        tell_missing(f, why);
        pthread_mutex_lock(&f->lock);
        if (!f->stopping)
            clock_cond_wait(&f->wake, &f->lock, clock_deadline_ns(RETRY_MS));
        pthread_mutex_unlock(&f->lock);
    }
    return NULL;
}

enum status follow_create(const struct follow_config *cfg, struct follow **out)
{
    enum status st = ST_NOMEM;
    struct follow *f = calloc(1, sizeof *f);
    if (!f)
        return ST_NOMEM;
    f->cfg = *cfg;
    f->heard_ns = clock_now_ns();
    f->step = -1;
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->wake);
    while (f->incarnation == 0)
        if (getrandom(&f->incarnation, sizeof f->incarnation, 0) < 0)
            f->incarnation = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    TRY(net_control_create(cfg->addr, &f->client));
    *out = f;
    f = NULL;
done:
    follow_destroy(f);
    return st;
}

enum status follow_start(struct follow *f)
{
    int err = pthread_create(&f->thread, NULL, follow_main, f);
    f->has_thread = err == 0;
    if (err)
        LOG_E("the thread that calls ps:0 cannot be started: %s", strerror(err));
    return err ? ST_NOMEM : ST_OK;
}

void follow_stop(struct follow *f)
{
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    f->stopping = 1;
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (!f->has_thread)
        return;
    poke(f);
    pthread_join(f->thread, NULL);
    f->has_thread = 0;
}

void follow_destroy(struct follow *f)
{
    if (!f)
        return;
    follow_stop(f);
    net_control_destroy(f->client);
    pthread_cond_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void follow_finish(struct follow *f)
{
    int64_t deadline = clock_deadline_ns(LAST_MS);
    follow_request(f);
    pthread_mutex_lock(&f->lock);
    while (!f->closing && f->given < f->wanted && clock_now_ns() < deadline &&
           clock_now_ns() - f->heard_ns < (CALL_MS + GONE_MS) * 1000000LL)
        clock_cond_wait(&f->wake, &f->lock, clock_deadline_ns(RETRY_MS));
    pthread_mutex_unlock(&f->lock);
}
