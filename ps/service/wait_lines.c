/* ps/service/wait_lines.c - see service.h: logs which workers training waits for, at intervals that
 * double while it waits for the same workers. */
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "ps/service/service_impl.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PULSE_LOOK_MS = 500,
    LONGEST_PAUSE_MS = 60000, /* longest pause between two lines about the same wait */
    MIN_REFUSAL_BYTES = 64    /* least space for the beginning of a reason */
};

/* Text such as "worker 1 (10.0.0.7:2223), worker 3, and 5 more". */
struct names {
    char text[400];
    size_t at;
    int n;
    char refused[480]; /* "; worker 1 was refused 12 s ago: ...", for the workers named */
    size_t refused_at;
};

/* The wait that was logged last. */
struct wait_line {
    char text[sizeof((struct names *)0)->text + 32]; /* the awaited workers; empty: no wait */
    /* the server has refused one of the awaited workers */
    bool is_refused;
    int64_t begin_ns, next_ns; /* start of the wait; time of its next line */
};

/* Returns true if a line about the wait for `whom` is due, and schedules the next one. If the
 * list of names changes, or the server first refuses a worker of the list, a line is due at
 * once. The thread calls this function every wait_ns. *seconds becomes the duration of the wait
 * so far. */
static bool is_due(struct wait_line *l, int64_t wait_ns, const char *whom, bool is_refused,
                   int64_t *seconds)
{
    int64_t now_ns = clock_now_ns(), longest_ns = LONGEST_PAUSE_MS * INT64_C(1000000);
    if (strcmp(l->text, whom) != 0) {
        *l = (struct wait_line){.begin_ns = now_ns - wait_ns, .next_ns = now_ns};
        snprintf(l->text, sizeof l->text, "%s", whom);
    }
    if (is_refused && !l->is_refused)
        l->next_ns = now_ns;
    l->is_refused = is_refused;
    int64_t age_ns = now_ns - l->begin_ns;
    *seconds = age_ns / 1000000000;
    if (now_ns < l->next_ns)
        return false;
    l->next_ns = now_ns + (age_ns < longest_ns ? age_ns : longest_ns) - PULSE_LOOK_MS * 1000000;
    return true;
}

/* Adds the last refusal of a worker to the line, since the operator who waits for the worker may
 * not have seen it. The caller holds the lock. */
static void add_refusal(struct names *l, const struct service *s, int member)
{
    const struct refusal *r = refusals_find(&s->refusals, member);
    char text[STATUS_REFUSAL_BYTES + 64];
    size_t room = sizeof l->refused - l->refused_at;
    if (!r || room < MIN_REFUSAL_BYTES)
        return;
    snprintf(text, sizeof text, "; worker %d was refused %" PRId64 " s ago: %s", member,
             (clock_now_ns() - r->at_ns) / 1000000000, r->why);
    l->refused_at += utf8_copy_words(l->refused + l->refused_at, room, text);
}

/* Adds a worker's name. The caller holds the lock. */
static void add_name(struct names *l, struct service *s, int member, const char *note)
{
    if (l->n++ >= 4)
        return;
    add_refusal(l, s, member);
    const char *sep = l->n > 1 ? ", " : "";
    int n =
        member < s->cfg.worker_hosts->n
            ? snprintf(l->text + l->at, sizeof l->text - l->at, "%sworker %d (%.60s)%s", sep,
                       member, s->cfg.worker_hosts->addr[member], note)
            : snprintf(l->text + l->at, sizeof l->text - l->at, "%sworker %d%s", sep, member, note);
    l->at += (size_t)n < sizeof l->text - l->at ? (size_t)n : 0;
}

static void end_names(struct names *l)
{
    if (l->n > 4)
        snprintf(l->text + l->at, sizeof l->text - l->at, ", and %d more", l->n - 4);
}

/* Names the absent workers: before the first worker joins, all workers; later those that have not
 * joined or have left. Returns true if the caller is to log them. */
static bool name_absent(struct service *s, struct run *r, struct names *l)
{
    int n = r ? r->plan->n_members : s->cfg.worker_hosts->n;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++) {
        const struct member *m = r ? &r->members[i] : NULL;
        int index = r ? r->plan->member[i] : i;
        if (m && m->done)
            continue;
        if (!m || m->incarnation == 0)
            add_name(l, s, index, "");
        else if (m->leaving && m->missing_ns)
            add_name(l, s, index, ", which left");
    }
    /* the flags name no worker, so any worker may join: the line reports the latest refusals */
    for (int i = 0; n == 0 && i < s->refusals.n; i++)
        add_refusal(l, s, s->refusals.refusal[i].member);
    pthread_mutex_unlock(&s->lock);
    end_names(l);
    return l->n > 0 || !r;
}

static void log_missing(struct service *s, struct run *r, int64_t wait_ns, struct wait_line *l)
{
    char whom[sizeof l->text];
    struct names absent = {.n = 0}, late = {.n = 0};
    int64_t step = 0, seconds;
    if (!r && s->cfg.self > 0)
        return; /* ps 0 logs the workers that it waits for, and this server waits only for ps 0 */
    if (name_absent(s, r, &absent)) {
        snprintf(whom, sizeof whom, "waiting for %s to join",
                 absent.n ? absent.text : "the first worker");
        if (is_due(l, wait_ns, whom, absent.refused[0], &seconds))
            LOG_I("%s, %" PRId64 " s so far%s", whom, seconds, absent.refused);
        return;
    }
    int *missing = calloc((size_t)r->plan->n_members, sizeof *missing);
    if (!missing)
        return;
    int n = store_missing(r->store, clock_now_ns() - wait_ns, missing, &step);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; n > 0 && i < r->plan->n_members; i++)
        if (missing[i])
            add_name(&late, s, r->plan->member[i], "");
    pthread_mutex_unlock(&s->lock);
    end_names(&late);
    whom[0] = 0;
    if (late.n > 0)
        snprintf(whom, sizeof whom, "step %" PRId64 " waits for %s", step, late.text);
    if (is_due(l, wait_ns, whom, late.refused[0], &seconds) && late.n > 0)
        LOG_W("%s, %" PRId64 " s so far%s", whom, seconds, late.refused);
    free(missing);
}

static void log_present_run(struct service *s, int64_t wait_ns, struct wait_line *l)
{
    int ended;
    struct run *r = service_run(s, &ended);
    if (!r || (!ended && !handover_is_stopped(r->store)))
        log_missing(s, r, wait_ns, l);
    run_unref(r);
}

void service_pace(struct service *s, struct service_pace *out)
{
    int ended;
    struct run *r = service_run(s, &ended);
    int64_t step = r && r->n_bytes > 0 ? store_step(r->store) : -1;
    pthread_mutex_lock(&s->lock);
    int64_t now_ns = clock_now_ns();
    if (ended) /* the figures restart with the next job */
        s->pulse = (struct pulse){.n = 0};
    else
        pulse_note(&s->pulse, r ? r->generation : 0, step, now_ns);
    *out = (struct service_pace){pulse_rate(&s->pulse, now_ns), pulse_stood_ms(&s->pulse, now_ns),
                                 pulse_stands(&s->pulse, now_ns)};
    pthread_mutex_unlock(&s->lock);
    run_unref(r);
}

void *wait_lines_main(void *arg)
{
    struct service *s = arg;
    struct service_pace pace;
    struct wait_line line = {.text = ""};
    int64_t ms = s->cfg.wait_line_ms > 0 ? s->cfg.wait_line_ms : 5000;
    int64_t line_ns = clock_deadline_ns(ms), look_ns = clock_deadline_ns(PULSE_LOOK_MS);
    pthread_mutex_lock(&s->lock);
    while (!s->stopping) {
        int64_t due_ns = look_ns < line_ns ? look_ns : line_ns;
        if (clock_cond_wait(&s->wake, &s->lock, due_ns) == 0)
            continue;
        bool says = due_ns == line_ns;
        *(says ? &line_ns : &look_ns) = clock_deadline_ns(says ? ms : PULSE_LOOK_MS);
        pthread_mutex_unlock(&s->lock);
        if (says) {
            log_present_run(s, ms * 1000000, &line);
        } else {
            service_pace(s, &pace);
            if (pace.is_slow)
                net_path_look(&s->path, 0);
        }
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}
