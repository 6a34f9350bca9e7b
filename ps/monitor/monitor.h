/* ps/monitor/monitor.h - a server's pages over HTTP: metrics, health, the status page and what it
 * shows; and what workers report of themselves for it. They are made of copies: no lock that
 * training takes is held longer than for reading a few numbers.
 *     /             the status page       /status.json   what it shows
 *     /metrics      for Prometheus        /healthz       200, or 503 and why
 * Owns:    the HTTP server, the last report of each worker, the job's course since this process
 *          was started.
 * Threads: reported from any.
 * Errors:  as http_server_create. */
#ifndef PS_MONITOR_MONITOR_H
#define PS_MONITOR_MONITOR_H
#include "net/wire/report.h"
#include "net/wire/status.h"

struct service;

struct ps_monitor_config {
    int listen_fd;      /* http/listen.h; given to it, also where that cannot be made */
    const char *folder; /* of checkpoints; borrowed for ever; NULL: none are kept */
    int task;
    /* 1: takes part in the job, 0: does not, -1: there is no job here yet. Called from any thread.
     */
    int (*takes_part)(void *ctx, int worker);
    struct service *service; /* borrowed until destroy */
    /* As net_admin_handlers's. */
    enum status (*status)(void *ctx, int with_model, struct net_status *out);
    void *ctx;
};

struct ps_monitor;
enum status ps_monitor_create(const struct ps_monitor_config *cfg, struct ps_monitor **out);
/* Nobody is answered any more, nothing is asked for; before what it asks goes. NULL is fine. */
void ps_monitor_stop(struct ps_monitor *m);
void ps_monitor_destroy(struct ps_monitor *m); /* NULL is fine */
/* The worker is not to be there any more. From any thread; NULL is fine. */
void ps_monitor_removed(struct ps_monitor *m, int worker);
/* ctx: the monitor. Returns in how many ms the next is wanted. One of a worker that takes no part
 * is not looked at; a line says so, where it never did. */
int ps_monitor_reported(void *ctx, const struct net_report *report);

#endif
