/* worker/results/monitor.h - a worker's pages over HTTP (--metrics_port): metrics, health.
 *     /metrics      for Prometheus        /healthz       200, or 503 with the reason
 * Owns:    the HTTP server.
 * Threads: all functions from one thread.
 * Errors:  those of http/listen.h and http/server.h. */
#ifndef WORKER_RESULTS_MONITOR_H
#define WORKER_RESULTS_MONITOR_H
#include "base/status.h"
#include "member/updates.h"
#include "worker/train/figures.h"

enum monitor_phase {
    MONITOR_SETTING_UP,
    MONITOR_WAITING, /* the worker waits for the servers; from this phase on, `updates` exists */
    MONITOR_TRAINING,
    MONITOR_ENDING, /* the worker evaluates, and writes its outputs */
    MONITOR_N_PHASES
};

struct monitor_config {
    const char *addr;        /* host:port */
    int task;                /* -1: unknown */
    struct figures *figures; /* this and the next two pointers are borrowed until monitor_destroy */
    const struct updates *updates;
    const char *folder; /* checkpoint folder of a worker without servers; NULL: none */
};

struct monitor;
enum status monitor_create(const struct monitor_config *cfg, struct monitor **out);
void monitor_at(struct monitor *m, enum monitor_phase phase); /* NULL is fine */
void monitor_destroy(struct monitor *m);                      /* NULL is fine */

#endif
