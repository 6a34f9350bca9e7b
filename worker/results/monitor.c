/* worker/results/monitor.c - writes the metrics and judges health, see monitor.h. */
#include "worker/results/monitor.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/listen.h"
#include "http/metrics.h"
#include "http/server.h"
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/statvfs.h>

enum {
    FRESH_MS = 1000,
    STALL_S = 60,    /* least duration of a stall in seconds */
    STALL_STEPS = 10 /* least duration of a stall, in multiples of the mean duration of a step */
};

struct monitor {
    struct monitor_config cfg;
    struct http_server *http;
    _Atomic int phase;
};

static const char *const phase_names[MONITOR_N_PHASES] = {"setting up", "waiting for servers",
                                                          "training", "ending"};

static double step_age_s(const struct figures_view *v)
{
    return (double)(clock_now_ns() - v->moved_ns) * 1e-9;
}

static bool is_stalled(const struct figures_view *v)
{
    double mean = v->steps > 0 ? v->seconds / (double)v->steps : 0;
    double limit = STALL_STEPS * mean > STALL_S ? STALL_STEPS * mean : STALL_S;
    return step_age_s(v) > limit;
}

static bool is_ready(enum monitor_phase phase, const struct figures_view *v)
{
    return phase == MONITOR_ENDING || (phase == MONITOR_TRAINING && !is_stalled(v));
}

static void write_steps(FILE *f, const struct figures_view *v)
{
    const struct metrics_histogram taken = {FIGURES_BOUNDS, figures_bounds, v->taken, v->seconds};
    metrics_gauge(f, "weir_worker_step", "The job's step, in this worker's view.",
                  (double)v->global_step);
    metrics_gauge(f, "weir_worker_train_steps", "Step at which the job ends.",
                  (double)v->train_steps);
    metrics_gauge(f, "weir_worker_last_step_timestamp_seconds",
                  "Time at which this worker's last step ended, in seconds since 1970.",
                  v->moved_unix_s);
    if (v->steps > 0)
        metrics_gauge(f, "weir_worker_loss", "Training loss of the last step.", (double)v->loss);
    metrics_counter(f, "weir_worker_nonfinite_losses_total",
                    "Training losses that were not finite.", (double)v->n_nonfinite);
    metrics_counter(f, "weir_worker_steps_total", "Steps of this worker.", (double)v->steps);
    metrics_counter(f, "weir_worker_samples_total",
                    "Training samples that this worker has read for its steps.", (double)v->images);
    metrics_histogram(f, "weir_worker_step_seconds",
                      "Time from the end of a step to the end of the next, with all waits.",
                      &taken);
}

/* Writes the metric of waiting. The metric has no value unless the worker waits for a program. */
static void write_waiting(FILE *f, const struct figures_view *v)
{
    char whom[STATUS_WAITING_BYTES];
    const char *const labels[] = {"for", whom, NULL};
    net_status_waiting_label(v->waiting, whom);
    metrics_family(f, "weir_worker_waiting_seconds", "gauge",
                   "Time that this worker has waited so far, and for which workers or servers.");
    if (v->waiting[0])
        metrics_value(f, "weir_worker_waiting_seconds", labels, (double)v->waiting_ms * 1e-3);
}

static void write_exchange(FILE *f, const struct updates *x)
{
    struct net_exchange_stats s;
    static const char *const answers[] = {"applied", "duplicate", "stale"};
    x->ops->stats(x->ctx, &s);
    const uint64_t n[] = {s.applied, s.duplicate, s.stale};
    metrics_counter(f, "weir_worker_sent_bytes_total",
                    "Bytes of contributions that this worker has sent.", (double)s.sent_bytes);
    metrics_counter(f, "weir_worker_received_bytes_total",
                    "Bytes of parameters that this worker has received.", (double)s.received_bytes);
    metrics_counter(f, "weir_worker_shared_memory_bytes_total",
                    "Bytes of contributions and parameters that went through shared memory.",
                    (double)s.shared_bytes);
    metrics_counter(f, "weir_worker_reconnects_total", "Streams that this worker has opened again.",
                    (double)s.reconnects);
    metrics_family(f, "weir_worker_answers_total", "counter",
                   "Answers to contributions of one chunk.");
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const char *const labels[] = {"answer", answers[i], NULL};
        metrics_value(f, "weir_worker_answers_total", labels, (double)n[i]);
    }
}

static void write_disk(FILE *f, const char *folder)
{
    struct statvfs v;
    if (!folder || statvfs(folder, &v) != 0)
        return;
    metrics_gauge(f, "weir_worker_checkpoint_disk_available_bytes",
                  "Bytes free for this user on the file system of the checkpoints.",
                  (double)v.f_bavail * (double)v.f_frsize);
    metrics_gauge(f, "weir_worker_checkpoint_disk_size_bytes",
                  "Bytes of the file system of the checkpoints.",
                  (double)v.f_blocks * (double)v.f_frsize);
}

static int on_metrics(void *ctx, FILE *f)
{
    struct monitor *m = ctx;
    struct figures_view v;
    enum monitor_phase phase = (enum monitor_phase)atomic_load(&m->phase);
    figures_read(m->cfg.figures, &v);
    metrics_process(f, "worker", v.member >= 0 ? v.member : m->cfg.task);
    metrics_gauge(f, "weir_worker_ready", "1 if /healthz returns 200, 0 if it returns 503.",
                  is_ready(phase, &v));
    metrics_family(f, "weir_worker_phase", "gauge",
                   "1 for the current phase of the worker, 0 for other phases.");
    for (int i = 0; i < MONITOR_N_PHASES; i++) {
        const char *const labels[] = {"phase", phase_names[i], NULL};
        metrics_value(f, "weir_worker_phase", labels, (int)phase == i);
    }
    write_waiting(f, &v);
    if (v.moved_ns)
        write_steps(f, &v);
    if (phase >= MONITOR_WAITING)
        write_exchange(f, m->cfg.updates);
    write_disk(f, m->cfg.folder);
    return 200;
}

static void write_wait(FILE *f, const struct figures_view *v)
{
    char text[STATUS_SENTENCE_BYTES];
    net_status_waiting_text(v->waiting, v->waiting_ms, text);
    fprintf(f, "%s%s\n", v->waiting[0] ? "; " : "", v->waiting[0] ? text : "");
}

static int on_health(void *ctx, FILE *f)
{
    struct monitor *m = ctx;
    struct figures_view v;
    enum monitor_phase phase = (enum monitor_phase)atomic_load(&m->phase);
    figures_read(m->cfg.figures, &v);
    if (is_ready(phase, &v)) {
        fprintf(f, "ok: %s, step %" PRId64, phase_names[phase], v.global_step);
        write_wait(f, &v);
        return 200;
    }
    if (phase == MONITOR_TRAINING)
        fprintf(f, "step %" PRId64 " has not moved for %.0f s", v.global_step, step_age_s(&v));
    else
        fputs(phase_names[phase], f);
    write_wait(f, &v);
    return 503;
}

static int on_index(void *ctx, FILE *f)
{
    fputs("A Weir worker: /metrics, /healthz. The job's status page is that of ps:0.\n", f);
    return 200;
}

static const struct http_page pages[] = {
    {"/", "text/plain; charset=utf-8", -1, on_index},
    {"/metrics", METRICS_TYPE, FRESH_MS, on_metrics},
    {"/healthz", "text/plain; charset=utf-8", FRESH_MS, on_health},
};

enum status monitor_create(const struct monitor_config *cfg, struct monitor **out)
{
    enum status st = ST_NOMEM;
    struct http_server_config http = {.pages = pages, .n_pages = sizeof pages / sizeof *pages};
    struct monitor *m = calloc(1, sizeof *m);
    if (!m)
        return st;
    m->cfg = *cfg;
    http.ctx = m;
    TRY(http_listen(cfg->addr, &http.listen_fd));
    TRY(http_server_create(&http, &m->http));
    LOG_I("metrics: http://%s/metrics", cfg->addr);
    *out = m;
    m = NULL;
done:
    free(m);
    return st;
}

void monitor_at(struct monitor *m, enum monitor_phase phase)
{
    if (m)
        atomic_store(&m->phase, (int)phase);
}

void monitor_destroy(struct monitor *m)
{
    if (!m)
        return;
    http_server_destroy(m->http);
    free(m);
}
