/* ps/service/membership.c - see service.h: handles members that leave, and reports the roster. */
#include "base/clock.h"
#include "base/log.h"
#include "ps/service/service_impl.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the rank of that process in the run; -1: none. The caller holds the lock. */
static int rank_of_process(const struct run *r, int member, uint64_t incarnation)
{
    int rank = r && incarnation ? net_plan_rank(r->plan, member) : -1;
    if (rank < 0)
        return -1;
    const struct member *m = &r->members[rank];
    return m->incarnation == incarnation || (!m->incarnation && m->expected == incarnation) ? rank
                                                                                            : -1;
}

/* Returns true if the process was in a run that is over. The caller holds the lock. */
static bool left_earlier(struct run *r, int member, uint64_t incarnation)
{
    for (; r; r = r->older) {
        int rank = rank_of_process(r, member, incarnation);
        if (rank >= 0)
            return true;
    }
    return false;
}

/* Marks a member that asked to leave. The member continues until the next generation, which begins
 * without it. Returns true if the member was not marked before. */
static bool note_leaver(struct service *s, const struct net_leave *leave)
{
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    int rank = rank_of_process(r, leave->member, leave->incarnation);
    int news = rank >= 0 && !r->members[rank].leaving;
    if (news)
        r->members[rank].leaving = 1;
    pthread_mutex_unlock(&s->lock);
    if (news)
        LOG_MEMBER("worker %d requests to leave", leave->member);
    return news;
}

/* Removes a member from its run. `complete` is the run that has all steps, or NULL. *left
 * becomes a new reference to the run that the member left, or stays unchanged; *rank becomes the
 * member's rank in it. Returns true if the member was the last one of its job. The caller holds
 * the lock. */
static bool take_out(struct service *s, const struct net_leave *leave, const struct run *complete,
                     struct run **left, int *rank)
{
    struct run *r = s->run;
    *rank = rank_of_process(r, leave->member, leave->incarnation);
    if (*rank < 0 || r->ended)
        return false;
    struct member *m = &r->members[*rank];
    int here = m->incarnation == leave->incarnation &&
               (!leave->generation || leave->generation == r->generation);
    m->done = leave->done && (here || r == complete);
    /* true even if the member made steps that the servers have lost since then */
    m->leaving = !m->done;
    m->failed = m->leaving && leave->error[0];
    if (!m->missing_ns)
        m->missing_ns = clock_now_ns();
    m->stream = 0;
    *left = run_ref(r);
    return generation_end_run(r);
}

/* Returns a new reference to the run in force if it has all steps, or NULL. */
static struct run *complete_run(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run ? run_ref(s->run) : NULL;
    pthread_mutex_unlock(&s->lock);
    if (r && store_step(r->store) >= r->plan->job.train_steps)
        return r;
    run_unref(r);
    return NULL;
}

/* Logs a worker's error. The worker sends its error to all servers; only ps 0 logs it. */
static void log_error(const struct service *s, const struct net_leave *leave)
{
    static struct log_kind kind = {.limit = {.burst = MEMBER_LINES}};
    if (s->cfg.self == 0)
        log_write_few(&kind, LOG_LEVEL_WARN, "worker %d ended with an error: %s", leave->member,
                      leave->error);
}

void membership_leave(void *ctx, const struct net_leave *leave)
{
    struct service *s = ctx;
    struct run *left = NULL;
    int rank;
    if (leave->soon) {
        if (note_leaver(s, leave))
            service_roster_changed(s);
        return;
    }
    struct run *complete = complete_run(s);
    pthread_mutex_lock(&s->lock);
    struct join_queue_entry *w = join_queue_find(&s->waiting, leave->incarnation);
    if (w)
        join_queue_drop(&s->waiting, w);
    bool over = take_out(s, leave, complete, &left, &rank);
    int earlier = !left && s->run && left_earlier(s->run->older, leave->member, leave->incarnation);
    pthread_mutex_unlock(&s->lock);
    if (left)
        store_leave(left->store, rank);
    if (left && leave->error[0])
        log_error(s, leave);
    if (left || earlier)
        LOG_MEMBER("worker %d left%s", leave->member,
                   leave->done || earlier ? "" : " before the job's end");
    if (over)
        generation_report_done(s, left);
    if (left || w)
        service_roster_changed(s);
    run_unref(left);
    run_unref(complete);
}

void membership_forget_stream(struct service *s, uint64_t stream)
{
    int found = 0;
    pthread_mutex_lock(&s->lock);
    struct run *r = s->run;
    for (int i = 0; r && i < r->plan->n_members; i++) {
        if (r->members[i].stream != stream)
            continue;
        r->members[i].stream = 0;
        r->members[i].missing_ns = clock_now_ns();
        found = 1;
    }
    pthread_mutex_unlock(&s->lock);
    if (found)
        service_roster_changed(s);
}

/* Fills in a member's entry. A member sends no pieces to a server without chunks. So if ps 0 has no
 * chunks, it does not report a joined member as missing, and any other server without chunks
 * reports no member as missing. */
static void fill_entry(struct roster_entry *out, const struct run *r, int is_ps0, int rank,
                       int64_t now_ns)
{
    const struct member *m = &r->members[rank];
    bool is_needed = r->n_bytes > 0 || (!m->incarnation && (is_ps0 || !r->plan->ps0));
    int64_t missing_ns = is_needed ? m->missing_ns : 0;
    out->member = r->plan->member[rank];
    out->incarnation = m->incarnation ? m->incarnation : m->expected;
    out->missing_ms = missing_ns ? (now_ns - missing_ns) / 1000000 : -1;
    out->joined = m->joined;
    out->leaving = m->leaving;
    out->failed = m->failed;
    out->done = m->done;
    out->spoke = m->spoke;
    out->came = m->came;
    out->asked = m->asked;
    memcpy(out->address, m->address[0] ? m->address : m->peer, sizeof out->address);
}

enum status membership_roster(struct service *s, struct roster_entry **members, int *n_members,
                              struct roster_entry **waiting, int *n_waiting)
{
    int64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&s->lock);
    const struct run *r = s->run;
    int n = r ? r->plan->n_members : 0;
    join_queue_expire(&s->waiting, now_ns);
    struct roster_entry *in = calloc((size_t)n + 1, sizeof *in);
    struct roster_entry *out = calloc((size_t)s->waiting.n + 1, sizeof *out);
    for (int i = 0; in && i < n; i++)
        fill_entry(&in[i], r, s->cfg.self == 0, i, now_ns);
    for (int i = 0; out && i < s->waiting.n; i++) {
        const struct join_queue_entry *w = &s->waiting.waiter[i];
        out[i] = (struct roster_entry){
            .member = w->member, .incarnation = w->incarnation, .missing_ms = -1};
        memcpy(out[i].address, w->address[0] ? w->address : w->peer, sizeof out[i].address);
    }
    int n_out = s->waiting.n;
    pthread_mutex_unlock(&s->lock);
    if (!in || !out) {
        free(in);
        free(out);
        return ST_NOMEM;
    }
    *members = in;
    *n_members = n;
    *waiting = out;
    *n_waiting = n_out;
    return ST_OK;
}

enum status membership_refusals(struct service *s, struct refusals **out)
{
    struct refusals *copy = malloc(sizeof *copy);
    if (!copy)
        return ST_NOMEM;
    pthread_mutex_lock(&s->lock);
    *copy = s->refusals;
    pthread_mutex_unlock(&s->lock);
    *out = copy;
    return ST_OK;
}

void membership_close(struct service *s, const char *why)
{
    pthread_mutex_lock(&s->lock);
    snprintf(s->closed, sizeof s->closed, "%s", why);
    pthread_mutex_unlock(&s->lock);
}

int membership_n_present(struct service *s)
{
    int n = 0;
    pthread_mutex_lock(&s->lock);
    const struct run *r = s->run;
    for (int i = 0; r && i < r->plan->n_members; i++)
        n += !r->members[i].leaving && !r->members[i].done;
    pthread_mutex_unlock(&s->lock);
    return n;
}

bool membership_was_removed(const struct service *s, uint64_t incarnation)
{
    int i = 0;
    while (i < s->n_removed && s->removed[i] != incarnation)
        i++;
    return i < s->n_removed;
}

enum status membership_remove(struct service *s, int member)
{
    enum status st = ST_OK;
    pthread_mutex_lock(&s->lock);
    const struct run *r = s->run;
    int rank = r ? net_plan_rank(r->plan, member) : -1;
    const struct member *m = rank >= 0 ? &r->members[rank] : NULL;
    uint64_t incarnation = m ? (m->incarnation ? m->incarnation : m->expected) : 0;
    if (!m) {
        st = ST_NOT_FOUND;
    } else if (incarnation && !membership_was_removed(s, incarnation)) {
        uint64_t *grown = realloc(s->removed, ((size_t)s->n_removed + 1) * sizeof *grown);
        if (grown) {
            s->removed = grown;
            grown[s->n_removed++] = incarnation;
        }
        st = grown ? ST_OK : ST_NOMEM;
    }
    pthread_mutex_unlock(&s->lock);
    return st;
}
