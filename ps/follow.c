/* ps/follow.c - see follow.h. The thread calls again and again; a change here ends the call under
 * way, so that the next tells of it. */
#include "ps/follow.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "net/control.h"
#include "net/plan.h"
#include "ps/restore.h"
#include "ps/run.h"
#include "ps/taker.h"
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
    ENDED_MS = 1000, /* likewise, where the job has all its steps */
};

struct follow {
    struct follow_config cfg;
    struct net_control_client *client;
    struct taker *taker;

    /* The thread's own. */
    uint64_t incarnation, seen;
    uint64_t leader;       /* incarnation of ps 0; 0: not known yet */
    uint64_t order, taken; /* of checkpoints: the last, and the last that the saver was given */
    int64_t step;          /* of the order; -1: it is over */
    uint64_t generation;   /* that it is for */
    uint64_t stop;         /* the last that was taken up */
    uint64_t settled;
    int64_t line_ns;
    int64_t over_ns; /* when a job that has all its steps is over without ps 0; INT64_MAX: never */
    pthread_t thread;
    int has_thread;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake;
    uint64_t wanted, given;
    int64_t heard_ns, missed_ns; /* ps 0 last; since when it is not there, 0: it is */
    int closing, leaving, drained, stopping;
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

void follow_leave(struct follow *f)
{
    pthread_mutex_lock(&f->lock);
    f->leaving = 1;
    pthread_mutex_unlock(&f->lock);
    poke(f);
}

/* Hands the last order on, as soon as there is a job that it can be for. */
static void take_order(struct follow *f)
{
    int ended;
    struct run *run = NULL;
    if (f->step < 0 && f->cfg.saver) {
        struct saver_state state;
        saver_state(f->cfg.saver, &state);
        if (state.phase == SAVER_ARMED)
            saver_cancel(f->cfg.saver);
    } else if (f->step >= 0 && f->order != f->taken) {
        run = ps_service_run(f->cfg.service, &ended);
        if (run) {
            f->taken = f->order;
            if (f->cfg.saver)
                saver_order(f->cfg.saver, f->order, f->generation, f->step);
            else
                LOG_W("no checkpoint: this server was started without --checkpoint_dir");
        }
    }
    run_unref(run);
}

/* Another process than before speaks for ps 0: what it knows of the job is what counts, and until
 * it has a plan nothing moves. */
static void follow_leader(struct follow *f, uint64_t leader)
{
    struct ps_service_state state;
    int first = f->leader == 0;
    f->leader = leader;
    f->order = f->taken = f->stop = f->settled = 0;
    f->step = -1;
    if (first)
        return;
    ps_service_state(f->cfg.service, &state);
    LOG_W("ps:0 (%s) was started anew; training goes on from where it says", f->cfg.addr);
    if (state.generation && !state.ended)
        ps_service_stop(f->cfg.service, -1);
}

/* A Stop is of the generation in force; whoever is not in it has nothing to stop. */
static void take_stop(struct follow *f, const struct net_control_reply *reply)
{
    struct ps_service_state state;
    if (reply->stop == f->stop)
        return;
    f->stop = reply->stop;
    ps_service_state(f->cfg.service, &state);
    if (state.generation == reply->generation)
        ps_service_stop(f->cfg.service, reply->stop_step);
}

/* A server that the generation in force has no place for is told no plan: whoever still waits here
 * has to go where the plan says. */
static void take_plan(struct follow *f, const struct net_control_reply *reply)
{
    struct ps_service_state state;
    ps_service_state(f->cfg.service, &state);
    if (reply->plan)
        taker_take(f->taker, reply->plan, NULL);
    else if (state.generation && state.generation < reply->generation)
        ps_service_stop(f->cfg.service, -1);
    if (reply->settled && reply->settled != f->settled) {
        f->settled = reply->settled;
        ps_service_settle(f->cfg.service, reply->settled);
    }
}

static int64_t over_deadline(const struct follow *f)
{
    return f->cfg.over_ms > 0 ? clock_deadline_ns(f->cfg.over_ms) : INT64_MAX;
}

static int fill_request(struct follow *f, struct net_control *out);

/* ps 0, which ends, waits a moment for the call that shows that its answer has come. It does not
 * answer that: it is gone then. */
static void acknowledge(struct follow *f)
{
    struct net_control request;
    struct net_control_reply reply = {.number = 0};
    char why[CONTROL_TEXT_BYTES];
    if (fill_request(f, &request))
        net_control_call(f->client, &request, ENDED_MS, &reply, why);
    net_control_free(&request);
    net_control_reply_free(&reply);
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
    if (f->leader != reply->incarnation)
        follow_leader(f, reply->incarnation);
    take_stop(f, reply);
    take_plan(f, reply);
    f->seen = reply->number;
    f->order = reply->order;
    f->step = reply->step;
    f->generation = reply->generation;
    f->over_ns = over_deadline(f);
    pthread_mutex_lock(&f->lock);
    f->given = reply->given;
    f->closing = reply->closing;
    f->drained = reply->drained;
    f->heard_ns = clock_now_ns();
    f->missed_ns = 0;
    pthread_cond_broadcast(&f->wake);
    pthread_mutex_unlock(&f->lock);
    if (!reply->drained)
        return 1;
    if (reply->closing)
        acknowledge(f);
    LOG_I("%s", reply->closing ? "ps:0 says that the job is done"
                               : "no chunk is left here: this server has left the job");
    f->cfg.drained(f->cfg.ctx);
    return 0;
}

static void tell_missing(struct follow *f, const char *why)
{
    int64_t now = clock_now_ns();
    if (f->line_ns == 0)
        f->line_ns = now + 1000000000; /* not for a moment's absence */
    if (now < f->line_ns)
        return;
    f->line_ns = now + LINE_MS * 1000000LL;
    LOG_W("waiting for ps:0 (%s), which coordinates: %s", f->cfg.addr, why);
}

/* Members that were here and are not. */
static void fill_missing(struct follow *f, struct net_control *out)
{
    struct ps_person *members = NULL, *waiting = NULL;
    int n = 0, n_waiting = 0;
    if (ps_service_people(f->cfg.service, &members, &n, &waiting, &n_waiting) != ST_OK)
        return; /* told by the next call */
    out->missing = malloc((size_t)(n > 0 ? n : 1) * sizeof *out->missing);
    for (int i = 0; out->missing && i < n; i++)
        if (members[i].spoke && members[i].missing_ms >= 0 && !members[i].done)
            out->missing[out->n_missing++] =
                (struct net_missing){members[i].member, members[i].missing_ms};
    free(members);
    free(waiting);
}

static void fill_stand(struct follow *f, struct net_control *out)
{
    struct ps_service_state state;
    ps_service_state(f->cfg.service, &state);
    out->generation = state.generation;
    out->stop = f->stop;
    out->stopped = state.stopped;
    out->lowest = state.lowest;
    out->highest = state.highest > state.lowest ? state.highest : state.lowest;
}

/* 0: no more calls. The caller frees out->missing. */
static int fill_request(struct follow *f, struct net_control *out)
{
    struct saver_state state = {.order = f->taken, .phase = SAVER_FAILED};
    if (f->cfg.saver)
        saver_state(f->cfg.saver, &state);
    *out = (struct net_control){
        .server = f->cfg.joining ? 0 : f->cfg.self,
        .n_servers = f->cfg.joining ? 0 : f->cfg.n_servers,
        .incarnation = f->incarnation,
        .seen = f->seen,
        .order = state.order,
        .phase = (int)state.phase,
        .bytes = state.file.bytes,
        .crc32c = state.file.crc32c,
        .joining = f->cfg.joining,
    };
    snprintf(out->address, sizeof out->address, "%s", f->cfg.address);
    fill_stand(f, out);
    fill_missing(f, out);
    pthread_mutex_lock(&f->lock);
    out->wanted = f->wanted;
    out->leaving = f->leaving;
    int go = !f->stopping;
    pthread_mutex_unlock(&f->lock);
    return go;
}

/* A moment after a call that came to nothing; until then ps 0 may be there. */
static void rest(struct follow *f)
{
    pthread_mutex_lock(&f->lock);
    if (f->missed_ns == 0)
        f->missed_ns = clock_now_ns();
    if (!f->stopping)
        clock_cond_wait(&f->wake, &f->lock, clock_deadline_ns(RETRY_MS));
    pthread_mutex_unlock(&f->lock);
}

/* 1: this process was started anew after a job's last step, has been in none since, and ps 0 does
 * not come back: there is nothing that it could say. */
static int is_over(struct follow *f)
{
    struct ps_service_state state;
    struct ps_restore *r = NULL;
    if (clock_now_ns() < f->over_ns)
        return 0;
    f->over_ns = INT64_MAX; /* the folder is looked at once */
    ps_service_state(f->cfg.service, &state);
    int over = state.generation == 0 && ps_restore_find(f->cfg.folder, &r) == ST_OK &&
               ps_restore_has_all_steps(r);
    ps_restore_close(r);
    if (!over)
        return 0;
    LOG_I("the job in %s has all its steps, and ps:0 (%s) does not come back: it is done",
          f->cfg.folder, f->cfg.addr);
    pthread_mutex_lock(&f->lock);
    f->drained = 1;
    pthread_mutex_unlock(&f->lock);
    f->cfg.drained(f->cfg.ctx);
    return 1;
}

/* 0: there is nothing more to be called for. */
static int call_once(struct follow *f, const struct net_control *request)
{
    struct net_control_reply reply;
    char why[CONTROL_TEXT_BYTES];
    enum status st = net_control_call(f->client, request, CALL_MS, &reply, why);
    if (st == ST_CANCELLED)
        return 1;
    if (st == ST_OK) {
        int go_on = handle(f, &reply);
        net_plan_free(reply.plan);
        return go_on;
    }
    if (st == ST_PROTOCOL) {
        LOG_E("ps:0 (%s) does not take this server's call: %s; give all servers the same "
              "--ps_hosts and the same version of this program",
              f->cfg.addr, why);
        f->cfg.refused(f->cfg.ctx);
        return 0;
    }
    if (is_over(f))
        return 0;
    tell_missing(f, why);
    rest(f);
    return 1;
}

static void *follow_main(void *arg)
{
    struct follow *f = arg;
    struct net_control request;
    int go_on;
    do {
        take_order(f);
        go_on = fill_request(f, &request) && call_once(f, &request);
        net_control_free(&request);
    } while (go_on);
    return NULL;
}

static void on_taken(void *ctx)
{
    follow_wake(ctx);
}

enum status follow_create(const struct follow_config *cfg, struct follow **out)
{
    enum status st = ST_NOMEM;
    struct follow *f = calloc(1, sizeof *f);
    if (!f)
        return ST_NOMEM;
    f->cfg = *cfg;
    f->heard_ns = clock_now_ns();
    f->over_ns = over_deadline(f);
    f->step = -1;
    pthread_mutex_init(&f->lock, NULL);
    clock_cond_init(&f->wake);
    while (f->incarnation == 0)
        if (getrandom(&f->incarnation, sizeof f->incarnation, 0) < 0)
            f->incarnation = rng_mix((uint64_t)clock_now_ns() ^ (uint64_t)getpid());
    struct taker_config taker = {.service = cfg->service,
                                 .folder = cfg->folder,
                                 .restore_folder = cfg->restore_folder,
                                 .changed = on_taken,
                                 .ctx = f};
    TRY(net_control_create(cfg->addr, &f->client));
    TRY(taker_create(&taker, &f->taker));
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
    taker_destroy(f->taker);
    net_control_destroy(f->client);
    pthread_cond_destroy(&f->wake);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* 1: ps 0 has said what there was to say, and has seen that it was heard, or has ended before the
 * question came. Where the job has all its steps, it is likely to have; and nobody has left before
 * the last checkpoint was made, or given up. Under the lock. */
static int is_heard_out(const struct follow *f, int job_ended)
{
    int64_t now = clock_now_ns();
    return f->drained || f->given >= f->wanted ||
           (f->closing && (f->missed_ns || now - f->heard_ns >= ENDED_MS * 1000000LL)) ||
           now - f->heard_ns >= (CALL_MS + GONE_MS) * 1000000LL ||
           (job_ended && f->missed_ns && now - f->missed_ns >= ENDED_MS * 1000000LL);
}

void follow_finish(struct follow *f)
{
    int64_t deadline = clock_deadline_ns(LAST_MS);
    struct ps_service_state state;
    if (!f->cfg.saver)
        return;
    ps_service_state(f->cfg.service, &state);
    follow_request(f);
    pthread_mutex_lock(&f->lock);
    while (!is_heard_out(f, state.ended) && clock_now_ns() < deadline)
        clock_cond_wait(&f->wake, &f->lock, clock_deadline_ns(RETRY_MS));
    pthread_mutex_unlock(&f->lock);
}
