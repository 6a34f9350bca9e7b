/* ps/service/admission.c - see service.h: decides which worker may begin a job, records which
 * worker did, and checks whether the job may have one more worker. */
#include "base/clock.h"
#include "base/utf8.h"
#include "ps/service/service_impl.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int admission_max_workers(const struct service *s)
{
    return s->cfg.max_workers > 0 ? s->cfg.max_workers : JOB_MAX_WORKERS;
}

bool admission_waits_for_first(struct service *s, const struct net_join *req, char *why,
                               size_t why_bytes)
{
    int64_t now_ns = clock_now_ns();
    if (req->member == 0 || req->job.n_workers == 0 || req->generation > 0 || !s->cfg.first_wait_ms)
        return false;
    /* true: the number of the job's steps cannot be computed from this worker's own part of the
     * data alone */
    int follows = req->job.data.own && req->job.epochs > 0;
    if (s->has_all_steps && job_local_steps(&req->job) > 1 && !follows)
        return false;
    if (!s->first_asked_ns)
        s->first_asked_ns = now_ns;
    if (s->cfg.first_wait_ms > 0 && now_ns - s->first_asked_ns >= s->cfg.first_wait_ms * 1000000)
        return false;
    const struct refusal *refused = refusals_find(&s->refusals, 0);
    char text[STATUS_REFUSAL_BYTES + 64];
    if (refused)
        snprintf(text, sizeof text, "worker 0 decides the job's settings, and was refused: %s",
                 refused->why);
    else
        snprintf(text, sizeof text, "worker 0 decides the job's settings, and has not joined yet");
    utf8_copy_words(why, why_bytes, text);
    return true;
}

/* Records the number format that the request asks for. ST_NOMEM. */
static enum status note_format(struct admission_formats *f, const struct net_join *req,
                               int64_t now_ns)
{
    const struct net_job *job = &req->job;
    if (req->member >= f->n_asked) {
        int n = req->member + 1;
        struct admission_format *more = realloc(f->asked, (size_t)n * sizeof *more);
        if (!more)
            return ST_NOMEM;
        memset(more + f->n_asked, 0, (size_t)(n - f->n_asked) * sizeof *more);
        f->asked = more;
        f->n_asked = n;
    }
    f->asked[req->member] = (struct admission_format){.incarnation = req->incarnation,
                                                      .heard_ns = now_ns,
                                                      .push_dtype = job->push_dtype,
                                                      .version_dtype = job->version_dtype,
                                                      .is_auto = job->wire_auto,
                                                      .in_lockstep = job_in_lockstep(job)};
    return ST_OK;
}

/* Frees the entries of processes that no longer ask: such a process has ended or was refused, and
 * another process may get its place. Returns the number of the remaining entries. */
static int count_formats(struct admission_formats *f, int64_t now_ns)
{
    int n = 0;
    for (int i = 0; i < f->n_asked; i++) {
        struct admission_format *a = &f->asked[i];
        if (a->incarnation && now_ns - a->heard_ns > JOIN_QUEUE_EXPIRY_MS * INT64_C(1000000))
            *a = (struct admission_format){.incarnation = 0};
        n += a->incarnation != 0;
    }
    return n;
}

/* Finds the format for a job of this mode. Returns true if the format is fixed, by a checkpoint or
 * by the flags of a member. *by becomes the index of the member whose flags fixed the format; if
 * the format is not fixed, the index of the member with the slowest connection; -1: a checkpoint
 * fixed the format, or no member has asked. */
static bool find_format(const struct admission_formats *f, int in_lockstep,
                        struct admission_format *out, int *by)
{
    *by = -1;
    *out =
        (struct admission_format){.push_dtype = f->push_dtype, .version_dtype = f->version_dtype};
    if (f->fixed)
        return true;
    for (int i = 0; i < f->n_asked; i++) {
        const struct admission_format *a = &f->asked[i];
        if (!a->incarnation || a->in_lockstep != in_lockstep)
            continue;
        if (*by < 0 || !a->is_auto || a->push_dtype > out->push_dtype) {
            *out = *a;
            *by = i;
        }
        if (!a->is_auto)
            return true;
    }
    return false;
}

bool admission_waits_for_formats(struct service *s, const struct net_join *req, char *why,
                                 size_t why_bytes)
{
    struct admission_formats *f = &s->formats;
    const struct net_job *job = &req->job;
    int64_t now_ns = clock_now_ns(), wait_ms = s->cfg.first_wait_ms;
    struct admission_format found;
    int by;
    if (req->member < 0 || req->member >= JOB_MAX_WORKERS || job->n_workers == 0)
        return false;
    f->since_ns = f->since_ns ? f->since_ns : now_ns;
    if (note_format(f, req, now_ns) != ST_OK) {
        snprintf(why, why_bytes, "the server is out of memory");
        return true;
    }
    int n = count_formats(f, now_ns);
    if (!job->wire_auto || find_format(f, job_in_lockstep(job), &found, &by) ||
        n >= job->n_workers || !wait_ms ||
        (wait_ms > 0 && now_ns - f->since_ns >= wait_ms * 1000000))
        return false;
    snprintf(
        why, why_bytes,
        "the number format is chosen when all workers have measured their links (--wire_dtype=auto); %d of the %d workers have done so",
        n, job->n_workers);
    return true;
}

void admission_fix_format(struct service *s, const struct net_job *job)
{
    pthread_mutex_lock(&s->lock);
    s->formats.fixed = 1;
    s->formats.push_dtype = job->push_dtype;
    s->formats.version_dtype = job->version_dtype;
    pthread_mutex_unlock(&s->lock);
}

void admission_choose_format(struct service *s, struct net_job *job)
{
    struct admission_format found;
    int by;
    if (!job->wire_auto)
        return;
    bool is_fixed = find_format(&s->formats, job_in_lockstep(job), &found, &by);
    job->push_dtype = found.push_dtype;
    job->version_dtype = s->cfg.outer ? DTYPE_F32 : found.version_dtype;
    /* The checkpoint may have fixed a format that a job of this mode cannot use. */
    if (job_sends_changes(job) && !job_in_lockstep(job))
        job->version_dtype = DTYPE_F32;
    if (by >= 0 && !s->formats.is_logged)
        LOG_I("number format %s, chosen %s worker %d", dtype_name(found.push_dtype),
              is_fixed ? "by the flags of" : "by the link of", by);
    s->formats.is_logged |= by >= 0;
}

void admission_drop_formats(struct service *s)
{
    free(s->formats.asked);
    s->formats = (struct admission_formats){.n_asked = 0};
}

void admission_set_all_steps(struct service *s, int64_t wait_ms)
{
    pthread_mutex_lock(&s->lock);
    s->has_all_steps = 1;
    if (s->cfg.first_wait_ms < 0)
        s->cfg.first_wait_ms = wait_ms > 0 ? wait_ms : 1;
    pthread_mutex_unlock(&s->lock);
}

void admission_note_setter(struct service *s, const struct net_join *req, const char *peer)
{
    struct join_queue_entry *setter = &s->setter;
    int64_t now_ns = clock_now_ns();
    if (setter->incarnation != req->incarnation && setter->incarnation &&
        now_ns - setter->heard_ns < JOIN_QUEUE_EXPIRY_MS * 1000000LL)
        return; /* the earlier worker is about to begin the job */
    *setter = (struct join_queue_entry){
        .member = req->member, .incarnation = req->incarnation, .heard_ns = now_ns};
    snprintf(setter->peer, sizeof setter->peer, "%s", peer);
}

void admission_name_setter(const struct service *s, const struct net_join *req, char *why,
                           size_t why_bytes)
{
    size_t n = strlen(why);
    if (!s->setter.incarnation || s->setter.incarnation == req->incarnation || n >= why_bytes)
        return;
    snprintf(
        why + n, why_bytes - n,
        "; worker %d from %s decided this job's settings: start both workers with the same flags; if that worker had wrong flags, restart the servers, too",
        s->setter.member, s->setter.peer);
}

/* Returns a member that is missing or has left, with its index in *index, or NULL if all are
 * present. */
static const struct member *missing_member(const struct run *r, int *index)
{
    for (int i = 0; i < r->plan->n_members; i++) {
        const struct member *m = &r->members[i];
        if (m->done || m->leaving || m->missing_ns) {
            *index = r->plan->member[i];
            return m;
        }
    }
    return NULL;
}

enum join_answer admission_check_room(const struct service *s, const struct run *r,
                                      const struct net_join *req, char *why, size_t why_bytes)
{
    int n = 0, index = 0;
    for (int i = 0; i < r->plan->n_members; i++)
        n += !r->members[i].done && !r->members[i].leaving;
    for (int i = 0; i < s->waiting.n; i++) {
        if (s->waiting.waiter[i].incarnation == req->incarnation)
            return JOIN_WELCOME;
        n++;
    }
    if (n < admission_max_workers(s))
        return JOIN_WELCOME;
    const struct member *gone = missing_member(r, &index);
    snprintf(why, why_bytes,
             "the job has %d workers, and accepts no more: --max_workers=%d of ps:0", n,
             admission_max_workers(s));
    if (gone) {
        size_t at = strlen(why);
        snprintf(why + at, why_bytes - at, "; worker %d is missing and can be removed", index);
    }
    return gone ? JOIN_RETRY : JOIN_REFUSED;
}
