/* ps/lead_census.c - see lead_impl.h: which workers are there, by what ps 0 and the others see. A
 * worker whose stream is gone anywhere is away; one that never came is waited for without end,
 * unless --min_workers says with how few training may begin, or the job is older than ps 0. */
#include "base/clock.h"
#include "ps/lead_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lead_census_free(struct census *c)
{
    free(c->who);
    *c = (struct census){.n = 0};
}

/* Since when the others miss it; INT64_MAX: nobody does. */
static int64_t missed_since(struct lead *l, int member)
{
    int64_t since = INT64_MAX;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_remotes; i++) {
        const struct remote *r = &l->remotes[i];
        for (int k = 0; r->server > 0 && k < r->n_missing; k++)
            if (r->missing[k].member == member && r->missing[k].ms < since)
                since = r->missing[k].ms;
    }
    pthread_mutex_unlock(&l->lock);
    return since;
}

/* 1: this process took up a job that others were in: who never came to it may be gone. */
static int lives_on(struct lead *l)
{
    pthread_mutex_lock(&l->lock);
    int lives = l->lives_on;
    pthread_mutex_unlock(&l->lock);
    return lives;
}

/* 1: it began with the last version. Then those that never come may have left by name, in an
 * earlier life of this process. */
static int has_all_steps(const struct net_plan *p)
{
    return p && p->step >= p->job.train_steps;
}

/* 1: its time is up; else *due_ns is when it is, if it is away. To come into a new generation it
 * has a while in any case. Once a Stop is out, streams end by themselves: then who asks to join is
 * here, whoever was late before is late, and a missing stream counts if it was missing before. */
static int is_late(struct lead *l, const struct ps_person *p, int64_t *due_ns)
{
    int64_t now = clock_now_ns(), since = INT64_MAX, allowed = l->cfg.worker_timeout_ms;
    int running = l->phase == PHASE_RUNNING, is_back = !running && p->asked;
    if (!p->joined && !lives_on(l) && l->cfg.min_workers == 0 && !has_all_steps(l->plan))
        return 0;
    if (!running && !is_back && l->late[p->member])
        return 1;
    if (p->missing_ms >= 0)
        since = now - p->missing_ms * 1000000;
    if (p->spoke && !is_back && missed_since(l, p->member) < since)
        since = missed_since(l, p->member);
    if (since == INT64_MAX)
        return 0;
    if ((!p->spoke || (!running && since >= l->stop_ns)) && allowed < REJOIN_MS)
        allowed = REJOIN_MS;
    since += allowed * 1000000;
    if (since > now && since < *due_ns)
        *due_ns = since;
    return since <= now;
}

/* This process was told to go. */
static int was_removed(struct lead *l, const struct ps_person *p)
{
    int removed = 0;
    pthread_mutex_lock(&l->lock);
    for (int i = 0; i < l->n_removed && !removed; i++) {
        struct removed *r = &l->removed[i];
        if (r->member == p->member && r->incarnation == 0)
            r->incarnation = p->incarnation;
        removed = r->member == p->member && r->incarnation == p->incarnation;
    }
    pthread_mutex_unlock(&l->lock);
    return removed;
}

static enum lot lot_of(struct lead *l, const struct ps_person *p, int64_t *due_ns)
{
    if (p->done)
        return LOT_DONE;
    if (was_removed(l, p))
        return LOT_REMOVED;
    if (p->leaving)
        return LOT_LEAVES;
    return is_late(l, p, due_ns) ? LOT_LATE : LOT_STAYS;
}

static void add(struct census *c, const struct ps_person *p, enum lot lot)
{
    for (int i = 0; i < c->n; i++)
        if (c->who[i].member == p->member)
            return; /* one that waits in another's name */
    struct who *w = &c->who[c->n++];
    *w = (struct who){.member = p->member, .lot = lot};
    snprintf(w->address, sizeof w->address, "%s", p->address);
    c->n_by[lot]++;
    c->n_next += lot == LOT_STAYS || lot == LOT_JOINS;
}

static int by_index(const void *a, const void *b)
{
    const struct who *x = a, *y = b;
    return (x->member > y->member) - (x->member < y->member);
}

enum status lead_census_take(struct lead *l, struct census *out)
{
    struct ps_person *members = NULL, *waiting = NULL;
    int n = 0, n_waiting = 0;
    struct census c = {.due_ns = INT64_MAX};
    enum status st = ps_service_people(l->cfg.service, &members, &n, &waiting, &n_waiting);
    if (st == ST_OK)
        c.who = calloc((size_t)(n + n_waiting) + 1, sizeof *c.who);
    if (st == ST_OK && !c.who)
        st = ST_NOMEM;
    if (l->phase == PHASE_RUNNING)
        memset(l->late, 0, sizeof l->late);
    for (int i = 0; st == ST_OK && i < n; i++) {
        const struct ps_person *p = &members[i];
        enum lot lot = lot_of(l, p, &c.due_ns);
        int goes = lot == LOT_LEAVES || lot == LOT_REMOVED;
        c.n_gone += goes && (p->missing_ms >= 0 || missed_since(l, p->member) != INT64_MAX);
        if (l->phase == PHASE_RUNNING)
            l->late[p->member] = lot == LOT_LATE;
        add(&c, p, lot);
    }
    for (int i = 0; st == ST_OK && i < n_waiting; i++)
        if (waiting[i].member >= 0 && waiting[i].member < JOB_MAX_WORKERS && l->plan &&
            net_plan_rank(l->plan, waiting[i].member) < 0 && !was_removed(l, &waiting[i]))
            add(&c, &waiting[i], LOT_JOINS);
    if (st == ST_OK) {
        qsort(c.who, (size_t)c.n, sizeof *c.who, by_index);
        *out = c;
    }
    free(members);
    free(waiting);
    return st;
}
