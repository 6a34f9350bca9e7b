/* net/exchange/exchange_session.c - the shell of an exchange's session. It steps the session under
 * the lock, carries out actions on memory at once, and the other actions, gRPC's calls and log
 * lines, without the lock. It decides nothing.
 *
 * A link has one call at a time. From the step that returns JOIN or OPEN until the session
 * processes the call's end, the link counts as calling, even before gRPC has the call; if a CANCEL
 * arrives before that, the link remembers it. */
#include "base/clock.h"
#include "base/log.h"
#include "base/term.h"
#include "base/utf8.h"
#include "net/exchange/exchange_requests.h"
#include "net/exchange/wire_auto.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Silence of ps 0 before is_over is called, and interval between these calls. A member that is
 * started together with the servers reaches ps 0 within that time. */
enum { OVER_MS = 10000 };

/* Actions of a step, and their links. */
struct step {
    struct session_out out;
    struct link *target[SESSION_ACTIONS];
    char reason[BIDI_REASON_BYTES]; /* reason for the log line */
    char why[SEGMENT_WHY_BYTES];    /* why the gradients cannot be detached; "": no error */
};

/* Discards all requests and versions. */
static void forget_all(struct net_exchange *x)
{
    int64_t lowest = exchange_lowest_version(x);
    if (lowest >= 0)
        x->reached = lowest;
    exchange_request_forget_all(x);
}

/* Detaches the gradients of a member that leaves. It may leave because it has lost ps 0, while
 * another server still reads its last contributions, and the caller may write gradients before it
 * notices that the generation has ended. Without a copy the member must stop. */
static void detach_gradients(struct net_exchange *x, char why[SEGMENT_WHY_BYTES])
{
    if (x->segment && x->session->leave == LEAVE_REPORTED &&
        segment_detach(x->segment, why) != ST_OK)
        x->st = ST_NOMEM;
}

/* Carries out the part of an action that only concerns memory. Returns the link for the other
 * part; the link stays until exchange_session_unuse_link. */
static struct link *apply_action(struct net_exchange *x, const struct session_action *a,
                                 struct step *step)
{
    struct link *l = NULL;
    switch (a->kind) {
    case ACTION_JOIN:
    case ACTION_OPEN:
        l = x->links[a->link];
        l->calling = 1;
        l->cancelled = 0;
        break;
    case ACTION_CANCEL:
        l = x->links[a->link];
        l->cancelled = 1;
        break;
    case ACTION_LEAVE_CALL:
        l = x->links[a->link];
        x->n_leaves++;
        break;
    case ACTION_LINE:
        l = x->links[a->link];
        x->stats.reconnects += a->line == LINE_LOST;
        if (a->line == LINE_WAITING)
            x->logged_ns = clock_now_ns();
        snprintf(step->reason, sizeof step->reason, "%s", l->reason);
        break;
    case ACTION_SET_SERVERS:
        forget_all(x);
        server_set_install(x, x->offered);
        break;
    case ACTION_REBASED:
        forget_all(x);
        detach_gradients(x, step->why);
        break;
    case ACTION_BEGIN:
        x->n_begun++;
        break;
    case ACTION_OUT:
        x->n_out++;
        break;
    case ACTION_LEFT:
        x->leave_st = a->st;
        x->n_left++;
        break;
    case ACTION_FAIL: /* x->st is set after the log line is written */
        break;
    }
    if (l)
        l->n_users++;
    return l;
}

/* Steps the session. The caller holds the lock. */
static void step_session(struct net_exchange *x, const struct session_event *e, int64_t now,
                         struct step *step)
{
    step->why[0] = 0;
    session_step(x->session, e, now, &step->out);
    for (int i = 0; i < step->out.n; i++)
        step->target[i] = apply_action(x, &step->out.act[i], step);
    if (step->out.wake_ns < x->wake_ns)
        pthread_cond_signal(&x->work);
    x->wake_ns = step->out.wake_ns;
    pthread_cond_broadcast(&x->changed);
    if (step->out.n > 0) {
        pthread_cond_broadcast(&x->ready);
        exchange_session_notify(x);
    }
}

static void write_line(const struct link *l, const struct session_action *a, const char *reason)
{
    switch (a->line) {
    case LINE_LOST:
        LOG_W("connection to ps:%d (%s) lost: %s; trying again", a->link, l->addr, reason);
        break;
    case LINE_WAITING:
        LOG_W("waiting for ps:%d (%s), %lld s so far: %s", a->link, l->addr, (long long)a->seconds,
              reason);
        break;
    case LINE_BACK:
        LOG_I("connected to ps:%d (%s) again", a->link, l->addr);
        break;
    case LINE_REFUSED:
        LOG_E("ps:%d (%s) refused this worker: %s", a->link, l->addr, reason);
        break;
    case LINE_NO_INDEX:
        LOG_E(
            "ps:0 (%s) assigned this worker no index, or the index of another worker; do both programs run the same version?",
            l->addr);
        break;
    case LINE_PARAMETERS_LOST:
        LOG_E("ps:%d (%s) was restarted and has lost the parameters; start all programs again",
              a->link, l->addr);
        break;
    case LINE_BAD_MAP:
        LOG_E(
            "ps:0 (%s) sent a shard map that does not fit this worker's chunks and the servers; do all programs have the same --ps_hosts?",
            l->addr);
        break;
    }
}

static void set_status(struct net_exchange *x, enum status st)
{
    pthread_mutex_lock(&x->lock);
    x->st = st;
    pthread_cond_broadcast(&x->changed);
    pthread_cond_broadcast(&x->ready);
    exchange_session_notify(x);
    pthread_mutex_unlock(&x->lock);
}

/* Signals event_fd. The write cannot block: increments of 1 never bring an eventfd's counter near
 * its limit. */
void exchange_session_notify(const struct net_exchange *x)
{
    const uint64_t one = 1;
    if (x->cfg.event_fd > 0 && write(x->cfg.event_fd, &one, sizeof one) < 0)
        LOG_D("eventfd %d: cannot be written", x->cfg.event_fd);
}

enum status exchange_session_status(const struct net_exchange *x)
{
    return x->st == ST_OK && x->session->state == SESSION_REBASED ? ST_REBASED : x->st;
}

static void carry_out(struct net_exchange *x, const struct step *step)
{
    for (int i = 0; i < step->out.n; i++) {
        const struct session_action *a = &step->out.act[i];
        struct link *l = step->target[i];
        if (a->kind == ACTION_FAIL)
            set_status(x, a->st);
        if (a->kind == ACTION_REBASED && step->why[0])
            LOG_E(
                "this worker leaves the job, but servers may still read its gradients while they change: %s",
                step->why);
        if (!l)
            continue;
        if (a->kind == ACTION_JOIN)
            link_join(l, a);
        else if (a->kind == ACTION_OPEN)
            link_open(l, a);
        else if (a->kind == ACTION_CANCEL)
            link_cancel(l);
        else if (a->kind == ACTION_LEAVE_CALL)
            link_leave(l, a);
        else
            write_line(l, a, step->reason);
        exchange_session_unuse_link(l);
    }
}

/* Steps the session again until it has returned all actions, because one step has room for only
 * some of them. */
static void step_on(struct net_exchange *x, struct step *step, int64_t now)
{
    const struct session_event timer = {.kind = EVENT_TIMER};
    carry_out(x, step);
    while (step->out.more) {
        pthread_mutex_lock(&x->lock);
        step_session(x, &timer, now, step);
        pthread_mutex_unlock(&x->lock);
        carry_out(x, step);
    }
}

void exchange_session_step(struct net_exchange *x, const struct session_event *e)
{
    struct step step;
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&x->lock);
    step_session(x, e, now, &step);
    pthread_mutex_unlock(&x->lock);
    step_on(x, &step, now);
}

/* Steps the session with an event of the link. Returns false if the session has no such link. The
 * caller holds the lock. */
static bool step_link(struct link *l, struct session_event *e, int64_t now, struct step *step)
{
    struct net_exchange *x = l->x;
    e->link = l->index;
    if (!l->retired)
        step_session(x, e, now, step);
    else
        pthread_cond_broadcast(&x->changed);
    if (l->retired)
        pthread_cond_signal(&x->work);
    return !l->retired;
}

void exchange_session_step_link(struct link *l, struct session_event *e)
{
    struct step step;
    struct net_exchange *x = l->x;
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&x->lock);
    bool known = step_link(l, e, now, &step);
    pthread_mutex_unlock(&x->lock);
    if (known)
        step_on(x, &step, now);
}

void exchange_session_end_call(struct link *l, struct session_event *e, const char *reason,
                               struct server_set *set)
{
    struct step step;
    struct net_exchange *x = l->x;
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&x->lock);
    l->calling = l->up = 0;
    exchange_request_queue_clear(l);
    utf8_copy_words(l->reason, sizeof l->reason, reason);
    x->offered = set;
    bool known = step_link(l, e, now, &step);
    x->offered = NULL;
    pthread_mutex_unlock(&x->lock);
    if (known)
        step_on(x, &step, now);
}

void exchange_session_report_busy(struct link *l)
{
    struct session_event e = {.kind = EVENT_BUSY};
    struct step step;
    struct net_exchange *x = l->x;
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&x->lock);
    e.busy = l->n_under_way > 0;
    bool known =
        e.busy != l->reported_busy && (l->reported_busy = e.busy, step_link(l, &e, now, &step));
    pthread_mutex_unlock(&x->lock);
    if (known)
        step_on(x, &step, now);
}

void exchange_session_unuse_link(struct link *l)
{
    struct net_exchange *x = l->x;
    pthread_mutex_lock(&x->lock);
    l->n_users--;
    if (l->retired)
        pthread_cond_signal(&x->work);
    if (x->closing)
        pthread_cond_broadcast(&x->changed);
    pthread_mutex_unlock(&x->lock);
}

void exchange_session_fail(struct net_exchange *x, enum status st)
{
    const struct session_event e = {.kind = EVENT_FAIL, .st = st};
    exchange_session_step(x, &e);
}

static bool is_over(const struct session *s)
{
    return s->state == SESSION_LEAVING || s->state == SESSION_LEFT || s->state == SESSION_CLOSED;
}

bool exchange_session_ask_if_over(struct net_exchange *x)
{
    int64_t silent_ms = x->links[0]->silent_ns / 1000000;
    if (silent_ms < x->over_asked_ms)
        x->over_asked_ms = 0;
    if (!x->cfg.is_over || x->session->generation > 0 || silent_ms - x->over_asked_ms < OVER_MS)
        return false;
    x->over_asked_ms = silent_ms;
    pthread_mutex_unlock(&x->lock);
    bool over = x->cfg.is_over(x->cfg.ctx);
    pthread_mutex_lock(&x->lock);
    /* A server may have answered, or a generation begun, while the folder was read. */
    return over && x->session->generation == 0 && x->links[0]->silent_ns / 1000000 >= silent_ms;
}

/* Waits until gRPC holds none of the caller's bytes and the session has joined all servers. */
static enum status join_all(struct net_exchange *x)
{
    const struct session_event e = {.kind = EVENT_START};
    enum status st = ST_OK;
    net_exchange_flush(x);
    pthread_mutex_lock(&x->lock);
    int begun = x->n_begun, out = x->n_out;
    pthread_mutex_unlock(&x->lock);
    exchange_session_step(x, &e);
    pthread_mutex_lock(&x->lock);
    exchange_begin_wait(x);
    for (;;) {
        bool over = exchange_session_ask_if_over(x);
        st = x->n_out != out ? ST_CANCELLED : exchange_session_status(x);
        if (st == ST_OK && (over || is_over(x->session)))
            st = ST_CANCELLED;
        if (st != ST_OK || (x->n_begun != begun && x->n_refs == 0))
            break;
        pthread_cond_wait(&x->changed, &x->lock); /* returns after each step of the session */
    }
    x->n_waiting--;
    pthread_mutex_unlock(&x->lock);
    return st;
}

/* Reads the versions of `step` again. In lockstep this member's last process may have ended in the
 * middle of a step, after it had pushed to some chunks, which have advanced since. The step is
 * repeated from its start, with the versions that it used at first (I4); without this member no
 * chunk advances further. *redoes: becomes true if a chunk had advanced. */
static enum status go_back(struct net_exchange *x, int64_t step, bool *redoes)
{
    enum status st = ST_OK;
    for (int i = 0; i < x->n_chunks; i++)
        if (net_exchange_version(x, i) > step) {
            *redoes = true;
            TRY(exchange_request_version(x, i, step));
        }
    TRY(net_exchange_wait(x, 0, x->n_chunks, step));
    for (int i = 0; i < x->n_chunks; i++) {
        int64_t version = net_exchange_version(x, i);
        if (version == step)
            continue;
        LOG_E(
            "the server sent chunk %d of step %lld, but this worker resumes from step %lld; start all programs again",
            i, (long long)version, (long long)step);
        return ST_PROTOCOL;
    }
done:
    return st;
}

/* Returns the member's place. If the server assigns no places, a member's rank is its index. */
static struct net_place place_of(const struct net_exchange *x)
{
    const struct net_join *join = &x->cfg.join;
    if (x->session->place.n_members > 0)
        return x->session->place;
    return (struct net_place){.member = join->member,
                              .rank = join->member,
                              .n_members = join->job.n_workers,
                              .train_steps = join->job.train_steps};
}

/* Logs the new generation. `before`: the generation that this member was in. The log line counts
 * the member's steps; several of these may form one step of the servers. */
static void log_generation(const struct net_start *s, uint64_t before, int64_t reached,
                           int n_servers, int steps)
{
    if (before == 0 || before == s->generation)
        return;
    LOG_I("generation " TERM_FMT " from step %lld: %d %s, %d %s", TERM_ARG(s->generation),
          (long long)s->step * steps, s->place.n_members,
          s->place.n_members == 1 ? "worker" : "workers", n_servers,
          n_servers == 1 ? "server" : "servers");
    if (s->step < reached)
        LOG_W("going back from step %lld to step %lld", (long long)reached * steps,
              (long long)s->step * steps);
}

/* Replaces the memory of params if servers of an earlier generation can write there. One of them
 * may have been stopped in the middle of a write, and would continue it now. A server may have
 * opened the memory although its answer was lost. */
static enum status renew_values(struct net_exchange *x)
{
    char why[SEGMENT_WHY_BYTES];
    if (!x->values || !segment_is_claimed(x->values))
        return ST_OK;
    enum status st = segment_renew(x->values, why);
    if (st != ST_OK) {
        LOG_E(
            "the parameters cannot be moved out of the memory that servers of the last generation can write to: %s",
            why);
        return st;
    }
    pthread_mutex_lock(&x->lock);
    segment_name_of(x->values, &x->cfg.join.values);
    x->values_serial++;
    pthread_mutex_unlock(&x->lock);
    return ST_OK;
}

enum status net_exchange_start(struct net_exchange *x, struct net_start *out)
{
    enum status st;
    pthread_mutex_lock(&x->lock);
    uint64_t before = x->session->generation;
    pthread_mutex_unlock(&x->lock);
    int64_t lowest;
    bool redoes;
    do {
        redoes = false;
        st = renew_values(x);
        if (st == ST_OK)
            st = wire_auto_propose(x);
        if (st == ST_OK)
            st = join_all(x);
        if (st == ST_OK)
            st = net_exchange_wait(x, 0, x->n_chunks, 0);
        pthread_mutex_lock(&x->lock);
        lowest = exchange_lowest_version(x);
        pthread_mutex_unlock(&x->lock);
        if (st == ST_OK && job_in_lockstep(&x->cfg.join.job))
            st = go_back(x, lowest, &redoes);
    } while (st == ST_REBASED); /* the generation ended during the start: start again */
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&x->lock);
    *out = (struct net_start){.step = lowest,
                              .generation = x->session->generation,
                              .ps0 = x->session->ps0,
                              .redoes = redoes,
                              .place = place_of(x)};
    int64_t reached = x->reached;
    int n_servers = x->n_links;
    pthread_mutex_unlock(&x->lock);
    log_generation(out, before, reached, n_servers, job_local_steps(&x->cfg.join.job));
    return ST_OK;
}
