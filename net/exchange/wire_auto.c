/* net/exchange/wire_auto.c - see wire_auto.h. */
#include "net/exchange/wire_auto.h"
#include "base/clock.h"
#include "base/guarded.h"
#include "base/log.h"
#include "net/exchange/line.h"
#include "net/exchange/residuals.h"
#include <stdbool.h>
#include <stdlib.h>

enum { PAUSE_MS = 500, STEP_MS = 100 };

enum status wire_auto_make_staged(struct net_exchange *x)
{
    const struct chunks *chunks = x->cfg.join.chunks;
    if (x->push_dtype == DTYPE_F32)
        return ST_OK;
    if (dtype_block(x->push_dtype) > 1 && !x->residuals) {
        enum status st = residuals_create(chunks, &x->residuals);
        if (st != ST_OK)
            return st;
    }
    /* A segment that was made before the format was known has room only for the floats. */
    x->stages_in_segment = x->segment && !x->cfg.segment && !x->cfg.join.job.wire_auto;
    if (x->stages_in_segment)
        x->staged = segment_data(x->segment);
    else
        x->staged = malloc(chunks_wire_bytes(chunks, x->push_dtype));
    return x->staged ? ST_OK : ST_NOMEM;
}

/* Returns the load of an exchange, which sends only one fragment of the model if the job has
 * fragments. */
static struct net_line_use use_of(const struct net_exchange *x)
{
    const struct net_join *join = &x->cfg.join;
    int parts = join->job.fragments > 1 ? join->job.fragments : 1;
    int step_ms = x->cfg.step_ms > 0 ? x->cfg.step_ms : STEP_MS;
    return (struct net_line_use){.bytes = 4.0 * (double)join->chunks->n_elems / parts,
                                 .steps = job_local_steps(&join->job),
                                 .step_s = 1e-3 * step_ms};
}

/* Proposes the format of the numbers in messages for a line of this bandwidth. Versions use it only
 * in lockstep, because other modes cannot send changes. */
static void propose(struct net_exchange *x, const struct net_line *line)
{
    char text[LINE_TEXT_BYTES];
    struct net_line_use use = use_of(x);
    struct net_job *job = &x->cfg.join.job;
    enum dtype dtype = net_line_choose(line, &use, text);
    LOG_I("number format for the link to ps:0 (%s): %s", x->links[0]->addr, text);
    job->push_dtype = dtype;
    job->version_dtype = job_in_lockstep(job) ? dtype : DTYPE_F32;
}

/* Counts a failed connection to ps 0 as a failed join, and waits before the next one. */
static enum status await_ps0(struct net_exchange *x, int64_t began_ns, int64_t *logged_ns,
                             const char *why) REQUIRES(x->lock)
{
    int64_t now = clock_now_ns(), deadline = clock_deadline_ns(PAUSE_MS);
    x->links[0]->silent_ns = now - began_ns;
    if (now - *logged_ns >= x->cfg.wait_line_ms * INT64_C(1000000)) {
        *logged_ns = now;
        LOG_W("waiting for ps:0 (%s), %lld s so far: %s", x->links[0]->addr,
              (long long)((now - began_ns) / 1000000000), why);
    }
    while (x->st == ST_OK && clock_cond_wait(&x->changed, &x->lock, deadline) == 0)
        ;
    return x->st == ST_OK && exchange_session_ask_if_over(x) ? ST_CANCELLED : x->st;
}

/* Returns true for an error that would occur again in a further attempt. The join that follows
 * reports it. */
static bool is_for_good(enum status st)
{
    return st == ST_REFUSED || st == ST_PROTOCOL || st == ST_INVALID || st == ST_NOMEM;
}

enum status wire_auto_propose(struct net_exchange *x)
{
    const struct net_job *job = &x->cfg.join.job;
    int64_t began = clock_now_ns(), said = began;
    char why[CONTROL_TEXT_BYTES] = "";
    struct net_line line = {.has_job = 1};
    enum status st = ST_OK;
    if (!job->wire_auto || job->n_workers == 0 || x->proposed)
        return ST_OK;
    pthread_mutex_lock(&x->lock);
    x->n_waiting++; /* so that silence of ps 0 is also counted during the measurement */
    for (int reached = 0; !reached && st == ST_OK;) {
        pthread_mutex_unlock(&x->lock);
        enum status measured = net_line_measure(x->links[0]->addr, &line, why);
        reached = measured == ST_OK || is_for_good(measured);
        if (is_for_good(measured))
            LOG_W("the link to ps:0 (%s) cannot be measured: %s", x->links[0]->addr, why);
        pthread_mutex_lock(&x->lock);
        st = reached ? x->st : await_ps0(x, began, &said, why);
        if (reached)
            x->links[0]->silent_ns = 0;
    }
    x->n_waiting--;
    pthread_mutex_unlock(&x->lock);
    x->proposed = st == ST_OK && !line.has_job;
    if (x->proposed)
        propose(x, &line);
    return st;
}

enum status wire_auto_adopt(struct net_exchange *x, const struct net_place *place)
{
    struct net_job *job = &x->cfg.join.job;
    enum status st = ST_OK;
    pthread_mutex_lock(&x->lock);
    bool adopts = job->wire_auto && place->n_members > 0;
    if (adopts) {
        x->push_dtype = job->push_dtype = place->push_dtype;
        x->version_dtype = job->version_dtype = place->version_dtype;
        st = wire_auto_make_staged(x);
        job->wire_auto = st != ST_OK; /* after an error the member joins again */
    }
    pthread_mutex_unlock(&x->lock);
    if (adopts && st == ST_OK)
        LOG_I("this job's number format: %s for contributions, %s for parameters",
              dtype_name(place->push_dtype), dtype_name(place->version_dtype));
    return st;
}
