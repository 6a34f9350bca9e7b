/* ps/monitor/monitor_reports.c - see monitor.h: receives the workers' reports. */
#include "base/clock.h"
#include "base/log.h"
#include "ps/monitor/monitor_impl.h"
#include <math.h>
#include <stdbool.h>

enum {
    REPORT_MS = 1000, /* least time between two reports of a worker */
    /* least mean time between two reports of any worker: with many workers each of them reports
     * less often */
    REPORT_EACH_MS = 8,
    /* a worker's speed is shown until this many of its reports in a row are missing */
    SPEED_REPORTS = 5,
    REFUSED_LINE_MS = 60000
};

/* Returns the time between two reports of a worker. The caller holds the lock. */
static int report_ms(const struct ps_monitor *m)
{
    int each = m->n_workers * REPORT_EACH_MS;
    return each > REPORT_MS ? each : REPORT_MS;
}

/* Adds the figures of a report to the worker's record. The caller holds the lock. */
static void add_report(struct ps_monitor *m, struct monitor_worker *w, const struct net_report *r)
{
    const struct net_report *b = &w->last;
    int goes_on = b->life == r->life && r->ms >= b->ms && r->images >= b->images;
    if (!goes_on)
        w->images_per_s = w->loss = (double)NAN;
    else if (r->ms > b->ms)
        w->images_per_s = (double)(r->images - b->images) / (double)(r->ms - b->ms) * 1000;
    if (r->n_losses == 0)
        return;
    w->loss = r->loss_sum / (double)r->n_losses;
    m->loss_sum += r->loss_sum;
    m->n_losses += r->n_losses;
}

/* Logs a refused report, unless the worker was in the job: the last report of a worker that left
 * may arrive late. A report of a worker that never was in the job has a wrong index. */
static void refuse(struct ps_monitor *m, int worker)
{
    int64_t now = clock_now_ns();
    pthread_mutex_lock(&m->lock);
    bool is_news = !m->workers[worker].has_reported &&
                   (!m->refused_ns || now - m->refused_ns > REFUSED_LINE_MS * INT64_C(1000000));
    if (is_news)
        m->refused_ns = now;
    pthread_mutex_unlock(&m->lock);
    if (is_news)
        LOG_W(
            "received a report of worker %d, which is not a member of the job: the status page does not show it (logged at most once a minute)",
            worker);
}

int ps_monitor_reported(void *ctx, const struct net_report *report)
{
    struct ps_monitor *m = ctx;
    int takes_part = m->cfg.takes_part(m->cfg.ctx, report->member);
    if (takes_part == 0)
        refuse(m, report->member);
    pthread_mutex_lock(&m->lock);
    if (takes_part == 1) {
        struct monitor_worker *w = &m->workers[report->member];
        add_report(m, w, report);
        w->last = *report;
        w->at_ns = clock_now_ns();
        w->has_reported = 1;
        if (m->n_workers <= report->member)
            m->n_workers = report->member + 1;
    }
    int each = report_ms(m);
    pthread_mutex_unlock(&m->lock);
    return each;
}

/* Returns true if the last report is recent. The caller holds the lock. */
static bool is_fresh(const struct monitor_worker *w)
{
    return w->last.life && clock_now_ns() - w->at_ns < REPORT_STALE_MS * INT64_C(1000000);
}

bool monitor_reports_latest(struct ps_monitor *m, int worker, struct monitor_worker *out)
{
    pthread_mutex_lock(&m->lock);
    *out = m->workers[worker];
    bool fresh = is_fresh(out);
    if (clock_now_ns() - out->at_ns > SPEED_REPORTS * report_ms(m) * INT64_C(1000000))
        out->images_per_s = (double)NAN; /* the worker stopped reporting: it may hang */
    pthread_mutex_unlock(&m->lock);
    return fresh;
}

int64_t monitor_reports_nonfinite_since(struct ps_monitor *m)
{
    int64_t last = 0;
    int n_finite = 0;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n_workers; i++) {
        if (!is_fresh(&m->workers[i]))
            continue;
        int64_t since = m->workers[i].last.nonfinite_since;
        n_finite += since == 0;
        last = since > last ? since : last;
    }
    pthread_mutex_unlock(&m->lock);
    return n_finite ? 0 : last;
}
