/* ps/monitor/monitor_impl.h - what the monitor*.c share. Private to them.
 * Threads: all but the reports are the HTTP server's thread's alone. */
#ifndef PS_MONITOR_MONITOR_IMPL_H
#define PS_MONITOR_MONITOR_IMPL_H
#include "http/server.h"
#include "ps/monitor/history.h"
#include "ps/monitor/monitor.h"
#include "ps/service/service.h"
#include <pthread.h>

enum { MONITOR_WINDOW = 11, MONITOR_WHY_BYTES = 512, REPORT_STALE_MS = 90000 };

/* Whether a worker is still to be there: a job goes on without one that was gone for long, and its
 * status then has it no more. */
enum monitor_seen { NOT_SEEN, SEEN, REMOVED };

/* A worker's last report, and what came of those before. */
struct monitor_worker {
    struct net_report last; /* life 0: none came */
    int64_t at_ns;
    double images_per_s; /* between the last two; NaN: not known */
    double loss;         /* the mean of those that the last told that had some, likewise */
    enum monitor_seen seen;
    int was_taken; /* one of its reports, at some time */
};

/* Once a second; totals go on where training goes back to an earlier step. */
struct monitor_pulse {
    int64_t at_ns;
    uint64_t generation; /* 0: no job yet */
    int64_t step;        /* -1: there is none yet, or no chunks */
    uint64_t position;
    int no_chunks, ended;
    int64_t began; /* of the generation, */
    uint64_t began_position;
    int64_t steps, samples; /* made since this process was started */
};

struct monitor_disk {
    double free_bytes, size_bytes; /* NaN: not known */
};

struct ps_monitor {
    struct ps_monitor_config cfg;
    struct http_server *http;
    int64_t start_ns;
    struct monitor_pulse window[MONITOR_WINDOW]; /* the newest first */
    int n_window;
    int64_t moved_ns;             /* when the step grew last, or the job came; 0: there was none */
    double moved_unix_s;          /* likewise */
    int64_t paced_step, paced_ns; /* from which on a generation's pace counts */
    double step_s;                /* of a step, up to the last move; 0: not known */
    struct history history;
    struct net_status status; /* a copy, */
    int64_t status_ns;        /* made then; 0: none was */
    struct service_stats stats;
    int64_t saved_step; /* of which the next is known; -1: none */
    double saved_unix_s;
    double began_unix_s; /* when this process first had steps to save; NaN: it had none yet */

    pthread_mutex_t lock;           /* guards what follows */
    struct monitor_worker *workers; /* [JOB_MAX_WORKERS] by index */
    int n_workers;                  /* 1 + the highest that reported */
    double loss_sum;                /* reported since the last pulse */
    int64_t n_losses;
    int64_t refused_ns; /* when a line said last that a report was of nobody; 0: none has */
};

/* monitor.c */

/* A new copy of how things stand, if the one there is old. */
void monitor_look(struct ps_monitor *m);
/* Over the window; 0: none, or not known. */
double monitor_rate(const struct ps_monitor *m, int samples);
/* The status is new. */
void monitor_see_workers(struct ps_monitor *m);
/* 1: it was here, has not left, and the status has it no more. */
int monitor_is_lost(struct ps_monitor *m, int worker);
/* A second has gone by. */
void monitor_pulse(struct ps_monitor *m, struct monitor_pulse *p);
/* 0: none are here, so that there is no step. */
int monitor_has_chunks(const struct ps_monitor *m);
/* NaN: it was never seen to move. */
double monitor_step_age_s(const struct ps_monitor *m);
/* 1: ready; 0: why not, one sentence. After a look. */
int monitor_is_ready(const struct ps_monitor *m, char why[MONITOR_WHY_BYTES]);
/* Of a worker, a copy; 0: none came lately. */
int monitor_reports_latest(struct ps_monitor *m, int worker, struct monitor_worker *out);
/* Mean loss of the newest point that has one; NaN. */
double monitor_loss(const struct ps_monitor *m);
/* Step from which on no worker's losses were finite, up to its last report; 0: some worker's are,
 * or none has reported lately. */
int64_t monitor_reports_nonfinite_since(struct ps_monitor *m);
/* Since when steps are in no checkpoint: the last one's time, or when this process came to have
 * some, whichever is later; NaN: no checkpoints, or no steps. */
double monitor_unsaved_unix_s(const struct ps_monitor *m);
/* Steps of the job that the last checkpoint does not have; -1: not known. */
int64_t monitor_unsaved_steps(const struct ps_monitor *m);
void monitor_disk(const struct ps_monitor *m, struct monitor_disk *out);

/* monitor_metrics.c, monitor_json.c: pages of the HTTP server; ctx: the monitor. */
int monitor_metrics(void *ctx, FILE *f);
int monitor_json(void *ctx, FILE *f);

#endif
