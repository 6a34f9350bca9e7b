/* ps/monitor/monitor_impl.h - shared by the files monitor*.c; private to them.
 * Threads: the HTTP server's thread alone, except for the reports. */
#ifndef PS_MONITOR_MONITOR_IMPL_H
#define PS_MONITOR_MONITOR_IMPL_H
#include "http/server.h"
#include "ps/monitor/history.h"
#include "ps/monitor/monitor.h"
#include "ps/service/service.h"
#include <pthread.h>
#include <stdbool.h>

enum { MONITOR_WINDOW = 11, MONITOR_WHY_BYTES = 512, REPORT_STALE_MS = 90000 };

/* Whether a worker is still expected: a job continues without a worker that was missing for long,
 * and its status then no longer lists the worker. */
enum monitor_seen { NOT_SEEN, SEEN, REMOVED };

/* A worker's last report, and the figures from its reports. */
struct monitor_worker {
    struct net_report last; /* last report; life 0: none yet */
    int64_t at_ns;
    double images_per_s; /* speed between the last two reports; NaN: unknown */
    double loss;         /* mean of the last report with losses; NaN: unknown */
    enum monitor_seen seen;
    bool has_reported; /* a report of the worker was accepted at some time */
};

/* State of the job, recorded once a second. Totals keep growing when training goes back to an
 * earlier step. */
struct monitor_pulse {
    int64_t at_ns;
    uint64_t generation; /* 0: no job yet */
    int64_t step;        /* step of the store; -1: none yet, or no chunks */
    uint64_t position;
    int no_chunks, ended;
    int64_t began; /* first step of the generation */
    uint64_t began_position;
    int64_t steps, samples; /* counts since this process was started */
};

struct monitor_disk {
    double free_bytes, size_bytes; /* NaN: unknown */
};

struct ps_monitor {
    struct ps_monitor_config cfg;
    struct http_server *http;
    int64_t start_ns;
    struct monitor_pulse window[MONITOR_WINDOW]; /* [n_window] newest first */
    int n_window;
    int64_t moved_ns;    /* time of the last new step, or of the job's appearance here; 0: none */
    double moved_unix_s; /* moved_ns as Unix time */
    int64_t paced_step, paced_ns; /* step and time from which the generation's pace is measured */
    double step_s;                /* mean duration of a step until the last new step; 0: unknown */
    struct history history;
    struct net_status status; /* copy of the status */
    int64_t status_ns;        /* time of that copy; 0: no copy yet */
    struct service_stats stats;
    int64_t saved_step; /* last checkpoint whose time is known; -1: none */
    double saved_unix_s;
    double began_unix_s; /* first time at which this process had steps to save; NaN: none yet */

    pthread_mutex_t lock;           /* guards the fields below */
    struct monitor_worker *workers; /* [JOB_MAX_WORKERS] by index */
    int n_workers;                  /* 1 + the highest index of a worker that reported */
    double loss_sum;                /* sum of the losses reported since the last pulse */
    int64_t n_losses;
    int64_t refused_ns; /* time of the last line on a report of a worker outside the job; 0: none */
};

/* monitor.c */

/* Copies the status again if the copy is old. */
void monitor_look(struct ps_monitor *m);
/* Returns the rate of steps, or of samples, over the window; 0: none, or unknown. */
double monitor_rate(const struct ps_monitor *m, int samples);
/* Updates the records of the workers after the status was copied. */
void monitor_see_workers(struct ps_monitor *m);
/* Returns true if the worker was in the job, has not left, and the status no longer lists it. */
bool monitor_is_lost(struct ps_monitor *m, int worker);
/* Records the state of the second that has passed. */
void monitor_pulse(struct ps_monitor *m, struct monitor_pulse *p);
/* Returns false if this server has no chunks, and therefore no step. */
bool monitor_has_chunks(const struct ps_monitor *m);
/* Returns the time since the last new step; NaN: none was seen. */
double monitor_step_age_s(const struct ps_monitor *m);
/* Returns true if the server is ready; otherwise `why` is one sentence with the reason. Call
 * monitor_look before. */
bool monitor_is_ready(const struct ps_monitor *m, char why[MONITOR_WHY_BYTES]);
/* Copies the worker's last report. Returns false if there is no recent one. */
bool monitor_reports_latest(struct ps_monitor *m, int worker, struct monitor_worker *out);
/* Returns the mean loss of the newest point that has one; NaN: none. */
double monitor_loss(const struct ps_monitor *m);
/* Returns the step since which no worker has reported a finite loss; 0: a worker's loss is finite,
 * or no worker has reported recently. */
int64_t monitor_reports_nonfinite_since(struct ps_monitor *m);
/* Returns the time since which steps are in no checkpoint: that of the last checkpoint or of this
 * process's first step, whichever is later; NaN: no checkpoints, or no steps. */
double monitor_unsaved_unix_s(const struct ps_monitor *m);
/* Returns the number of steps that the last checkpoint lacks; -1: unknown. */
int64_t monitor_unsaved_steps(const struct ps_monitor *m);
void monitor_disk(const struct ps_monitor *m, struct monitor_disk *out);

/* Writes pages of the HTTP server (monitor_metrics.c, monitor_json.c); ctx is the monitor. */
int monitor_metrics(void *ctx, FILE *f);
int monitor_json(void *ctx, FILE *f);

#endif
