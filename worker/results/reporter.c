/* worker/results/reporter.c - a thread that sends reports at the interval that ps 0 requests, or
 * rarely if ps 0 needs none. */
#include "worker/results/reporter.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/threads.h"
#include "http/metrics.h"
#include "net/exchange/report_client.h"
#include <stdlib.h>
#include <unistd.h>

enum {
    DEADLINE_MS = 5000,
    FIRST_MS = 200,  /* interval until this worker's index is known */
    RARE_MS = 60000, /* interval if ps 0 needs no reports now, or does not accept them */
    LAST_MS = 500,   /* timeout of the last report, which is sent when the worker ends */
};

struct reporter {
    struct figures *figures;
    struct report_client *ps0;
    uint64_t life;
    int64_t start_ns;
    pthread_t thread;
    int runs;
    int watched;                  /* the last reply of ps 0 requested further reports */
    struct figures_losses untold; /* losses that are in no acknowledged report yet */

    pthread_mutex_t lock; /* guards the fields below */
    pthread_cond_t ends;
    int ending;
    int busy; /* true: a call is in flight */
};

/* Sends a report. Returns the time until the next report, in milliseconds. */
static int64_t report(struct reporter *r, int64_t deadline_ms)
{
    struct figures_view v;
    int next_ms = 0;
    figures_read(r->figures, &v);
    if (v.member < 0)
        return FIRST_MS;
    figures_move_losses(r->figures, &r->untold);
    if (r->untold.n > REPORT_MAX_LOSSES)
        r->untold = (struct figures_losses){.n = 0};
    const struct net_report report = {
        .member = v.member,
        .life = r->life,
        .step = v.global_step,
        .steps = v.steps,
        .images = v.images,
        .n_losses = r->untold.n,
        .loss_sum = r->untold.sum,
        .nonfinite_since = v.nonfinite_since,
        .ms = (clock_now_ns() - r->start_ns) / 1000000,
        .memory_bytes = metrics_resident_bytes(),
    };
    enum status st = report_client_send(r->ps0, &report, deadline_ms, &next_ms);
    r->watched = st == ST_OK && next_ms > 0;
    if (st == ST_OK)
        r->untold = (struct figures_losses){.n = 0};
    if (st == ST_UNAVAILABLE || st == ST_DEADLINE)
        return DEADLINE_MS;
    return r->watched ? next_ms : RARE_MS;
}

static void *report_main(void *arg)
{
    struct reporter *r = arg;
    int64_t wait_ms = 0;
    pthread_mutex_lock(&r->lock);
    while (!r->ending) {
        int64_t deadline = clock_deadline_ns(wait_ms);
        while (!r->ending && clock_cond_wait(&r->ends, &r->lock, deadline) == 0)
            ;
        if (r->ending)
            break;
        r->busy = 1;
        pthread_mutex_unlock(&r->lock);
        wait_ms = report(r, DEADLINE_MS);
        pthread_mutex_lock(&r->lock);
        r->busy = 0;
    }
    pthread_mutex_unlock(&r->lock);
    if (r->watched)
        report(r, LAST_MS);
    return NULL;
}

enum status reporter_create(const char *addr, struct figures *figures, struct reporter **out)
{
    enum status st = ST_NOMEM;
    int err = 0;
    struct reporter *r = calloc(1, sizeof *r);
    if (!r)
        goto done;
    r->figures = figures;
    r->start_ns = clock_now_ns();
    r->life = rng_mix((uint64_t)r->start_ns ^ (uint64_t)getpid()) | 1;
    pthread_mutex_init(&r->lock, NULL);
    clock_cond_init(&r->ends);
    TRY(report_client_create(addr, &r->ps0));
    err = pthread_create(&r->thread, NULL, report_main, r);
    st = err ? ST_NOMEM : ST_OK;
    TRY(st);
    r->runs = 1;
    pthread_setname_np(r->thread, "reports");
    *out = r;
    r = NULL;
done:
    if (st != ST_OK)
        LOG_E("this worker cannot send reports to ps:0: %s",
              err ? threads_error(err) : status_text(st));
    reporter_destroy(r);
    return st;
}

void reporter_destroy(struct reporter *r)
{
    if (!r)
        return;
    if (r->runs) {
        pthread_mutex_lock(&r->lock);
        r->ending = 1;
        int busy = r->busy;
        pthread_cond_signal(&r->ends);
        pthread_mutex_unlock(&r->lock);
        if (busy) /* the call may never be answered */
            report_client_cancel(r->ps0);
        pthread_join(r->thread, NULL);
    }
    report_client_destroy(r->ps0);
    pthread_cond_destroy(&r->ends);
    pthread_mutex_destroy(&r->lock);
    free(r);
}
