/* ps/monitor/monitor.h - a server's pages over HTTP: metrics, health, the status page and its data.
 * Receives the workers' reports, which the pages show. The pages are made of copies: no lock that
 * training needs is held longer than for reading a few numbers.
 *     /             the status page       /status.json   its data
 *     /metrics      for Prometheus        /healthz       200, or 503 and the reason
 * Owns:    the HTTP server, the last report of each worker, the job's progress since this process
 *          was started.
 * Threads: reported from any.
 * Errors:  those of http_server_create. */
#ifndef PS_MONITOR_MONITOR_H
#define PS_MONITOR_MONITOR_H
#include "net/wire/report.h"
#include "net/wire/status.h"

struct service;

struct ps_monitor_config {
    int listen_fd; /* socket of http_listen; the monitor owns it, even if create fails */
    /* folder of checkpoints; borrowed to the program's end; NULL: none are kept */
    const char *folder;
    int task;
    /* Returns 1 if the worker is in the job, 0 if not, -1 if there is no job here yet.
     * Called from any thread. */
    int (*takes_part)(void *ctx, int worker);
    struct service *service; /* borrowed until destroy */
    /* Returns the job's status, like the function `status` of net_admin_handlers. */
    enum status (*status)(void *ctx, int with_model, struct net_status *out);
    void *ctx;
};

struct ps_monitor;
enum status ps_monitor_create(const struct ps_monitor_config *cfg, struct ps_monitor **out);
/* Answers no more requests and calls no more callbacks. Must be called before the objects that
 * the callbacks use are destroyed. NULL is fine. */
void ps_monitor_stop(struct ps_monitor *m);
void ps_monitor_destroy(struct ps_monitor *m); /* NULL is fine. */
/* Notes that the worker was removed. May be called from any thread; NULL is fine. */
void ps_monitor_removed(struct ps_monitor *m, int worker);
/* Receives a report; ctx is the monitor. Returns the time in ms until the next report is due. A
 * report of a worker that is not in the job is ignored; a log line reports such a worker if it
 * never was in the job. */
int ps_monitor_reported(void *ctx, const struct net_report *report);

#endif
