/* ps/waits.c - names the members and servers that hold up training (waits.h). */
#include "ps/waits.h"
#include <inttypes.h>
#include <stdio.h>

enum { NAMED = 3, NOTE_BYTES = STATUS_REFUSAL_BYTES + 64 };

struct names {
    char *text;
    size_t at;
    int n;
};

static void add(struct names *l, const char *what, int index, const char *note)
{
    size_t room = STATUS_WAITING_BYTES - l->at;
    if (l->n++ >= NAMED)
        return;
    int n = snprintf(l->text + l->at, room, "%s%s%d (%s)", l->n > 1 ? ", " : "", what, index, note);
    l->at += (size_t)n < room ? (size_t)n : room - 1;
}

static void end(struct names *l)
{
    if (l->n > NAMED)
        snprintf(l->text + l->at, STATUS_WAITING_BYTES - l->at, ", and %d more", l->n - NAMED);
}

static bool is_absent(const struct net_status_member *m)
{
    return m->state == MEMBER_EXPECTED || m->state == MEMBER_MISSING || m->state == MEMBER_LEFT;
}

/* Returns true if every step needs all members, or if no member is present. */
static bool needs_all(const struct net_status *s)
{
    bool is_lockstep = job_in_lockstep(&s->job) && job_aggregate(&s->job) >= s->job.n_workers;
    int n_here = 0;
    for (int i = 0; i < s->n_members; i++)
        n_here += s->members[i].rank >= 0 && !is_absent(&s->members[i]);
    return is_lockstep || n_here == 0;
}

static void add_absent(struct names *l, const struct net_status_member *m)
{
    char note[NOTE_BYTES];
    if (m->refused[0])
        snprintf(note, sizeof note, "refused %" PRId64 " s ago: %s", m->refused_ms / 1000,
                 m->refused);
    else if (m->state == MEMBER_MISSING)
        snprintf(note, sizeof note, "no connection for %" PRId64 " s", m->ms / 1000);
    else
        snprintf(note, sizeof note, "%s", m->state == MEMBER_LEFT ? "left" : "never joined");
    add(l, "worker ", m->member, note);
}

static bool is_training(const struct net_status_member *m)
{
    return m->state == MEMBER_TRAINING && m->rank >= 0;
}

static void add_part(struct names *l, int worker, const char *of, int64_t step)
{
    char note[NOTE_BYTES] = "connected; the first values are missing";
    if (step >= 0)
        snprintf(note, sizeof note, "connected; its part of %s %" PRId64 " is missing", of, step);
    add(l, "worker ", worker, note);
}

static void name_members(const struct ps_waits_config *cfg, struct names *l)
{
    const struct net_status *s = cfg->status;
    bool all = needs_all(s);
    for (int i = 0; i < s->n_members; i++) {
        const struct net_status_member *m = &s->members[i];
        bool is_first = s->step < 0 && m->rank == 0; /* this worker sends the initial values */
        if (m->rank >= 0 && is_absent(m) && (all || is_first || m->awaited > 0))
            add_absent(l, m);
    }
    int n_absent = l->n;
    for (int i = 0; i < s->n_members && cfg->evaluates; i++)
        if (is_training(&s->members[i]) && cfg->evaluates[s->members[i].rank] >= 0)
            add_part(l, s->members[i].member, "the validation at step",
                     cfg->evaluates[s->members[i].rank]);
    /* true: even late workers wait for this evaluation, so they are not named */
    bool validates = l->n > n_absent;
    for (int i = 0; i < s->n_members && cfg->late && !validates; i++)
        if (is_training(&s->members[i]) && cfg->late[s->members[i].rank] > 0)
            add_part(l, s->members[i].member, "step", s->step);
}

/* Names the worker that has to begin the job: worker 0, or the first one that joins. */
static void name_first(const struct ps_waits_config *cfg, struct names *l)
{
    const struct net_status *s = cfg->status;
    for (int i = 0; i < s->n_members; i++)
        if (s->members[i].refused[0])
            add_absent(l, &s->members[i]);
    if (l->n == 0 && cfg->n_hosts > 0)
        add(l, "worker ", 0, "never joined");
    else if (l->n == 0)
        snprintf(l->text, STATUS_WAITING_BYTES, "the first worker");
}

static void name_servers(const struct net_status *s, struct names *l)
{
    for (int i = 0; i < s->n_servers; i++) {
        const struct net_status_server *v = &s->servers[i];
        char note[NOTE_BYTES];
        snprintf(note, sizeof note, "%.95s; no message for %" PRId64 " s", v->address,
                 v->heard_ms / 1000);
        if (v->state == SERVER_MISSING && v->server >= 0 && v->n_chunks > 0)
            add(l, "ps:", v->server, note);
    }
}

void ps_waits_name(const struct ps_waits_config *cfg, char text[STATUS_WAITING_BYTES])
{
    const struct net_status *s = cfg->status;
    struct names l = {.text = text};
    text[0] = 0;
    if (s->state == STATE_DONE)
        return;
    name_servers(s, &l);
    if (l.n == 0 && s->change[0] && s->state != STATE_TRAINING)
        snprintf(text, STATUS_WAITING_BYTES, "%s: %s",
                 cfg->lacks_workers ? "workers" : "the servers", s->change);
    else if (l.n == 0 && s->generation == 0 && s->server <= 0)
        name_first(cfg, &l);
    else if (l.n == 0 && cfg->parent && cfg->parent[0])
        snprintf(text, STATUS_WAITING_BYTES, "%s", cfg->parent);
    else if (l.n == 0)
        name_members(cfg, &l);
    end(&l);
}
