/* ps/monitor/monitor_metrics.c - see monitor_impl.h: a server's metrics. Unknown figures are left
 * out. docs/reference/metrics.md lists all metrics. */
#include "http/metrics.h"
#include "net/wire/table_status.h"
#include "net/wire/tables.h"
#include "ps/monitor/monitor_impl.h"
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

static void write_known(FILE *f, const char *name, const char *help, double value)
{
    if (!isnan(value))
        metrics_gauge(f, name, help, value);
}

static void write_state(FILE *f, const struct net_status *s)
{
    metrics_family(f, "weir_ps_state", "gauge", "1 for the present state of the job, else 0.");
    for (int i = 0; i < STATE_N_KINDS; i++) {
        const char *const labels[] = {"state", net_status_state_name((enum status_state)i), NULL};
        metrics_value(f, "weir_ps_state", labels, (int)s->state == i);
    }
}

static void write_progress(FILE *f, const struct ps_monitor *m)
{
    const struct net_status *s = &m->status;
    if (s->generation == 0)
        return;
    metrics_gauge(f, "weir_ps_generation", "Number of the generation in force.",
                  (double)s->generation);
    if (s->step >= 0)
        metrics_gauge(f, "weir_ps_step", "Steps that all of this server's chunks have made.",
                      (double)s->step);
    metrics_gauge(f, "weir_ps_train_steps", "Step at which the job ends.",
                  (double)s->job.train_steps);
    if (m->moved_ns && monitor_has_chunks(m))
        metrics_gauge(f, "weir_ps_last_step_timestamp_seconds",
                      "Time at which the step last changed, in seconds since 1970.",
                      m->moved_unix_s);
    if (s->step >= 0)
        metrics_gauge(f, "weir_ps_learning_rate", "Learning rate of the servers' next update.",
                      (double)optim_rate(&s->job.optim, (uint64_t)s->step));
    write_known(f, "weir_ps_loss", "Mean training loss of the latest steps that workers reported.",
                monitor_loss(m));
    if (s->best.step >= 0) {
        metrics_gauge(f, "weir_ps_best_validation_loss", "Lowest validation loss so far.",
                      s->best.loss);
        metrics_gauge(f, "weir_ps_best_validation_step", "Step of the lowest validation loss.",
                      (double)s->best.step);
        write_known(f, "weir_ps_best_validation_accuracy_ratio",
                    "Validation accuracy at the step of the lowest validation loss.",
                    s->best.accuracy);
    }
}

static void write_totals(FILE *f, const struct ps_monitor *m)
{
    if (monitor_has_chunks(m)) {
        metrics_counter(f, "weir_ps_steps_total", "Steps made since this process joined the job.",
                        (double)m->window[0].steps);
        metrics_counter(
            f, "weir_ps_samples_total",
            "Training samples of all workers in the steps since this process joined the job.",
            (double)m->window[0].samples);
    }
    metrics_counter(f, "weir_ps_received_bytes_total", "Payload of the received contributions.",
                    (double)m->stats.received_bytes);
    metrics_counter(f, "weir_ps_sent_bytes_total", "Payload of the sent parameters.",
                    (double)m->stats.sent_bytes);
}

/* Writes the metric of waiting, which has no value while training waits for no program. */
static void write_waiting(FILE *f, const struct net_status *s)
{
    char whom[STATUS_WAITING_BYTES];
    const char *const labels[] = {"for", whom, NULL};
    net_status_waiting_label(s->waiting, whom);
    metrics_family(f, "weir_ps_waiting_seconds", "gauge",
                   "Time for which training has waited, by the awaited workers or servers.");
    if (s->waiting[0])
        metrics_value(f, "weir_ps_waiting_seconds", labels, (double)s->waiting_ms * 1e-3);
}

static void write_members(FILE *f, const struct net_status *s)
{
    int n[MEMBER_N_STATES] = {0};
    for (int i = 0; i < s->n_members; i++)
        n[s->members[i].state]++;
    metrics_family(f, "weir_ps_members", "gauge", "Workers of the job, by state.");
    for (int i = 0; i < MEMBER_N_STATES; i++) {
        const char *const labels[] = {"state", net_status_member_name((enum member_state)i), NULL};
        metrics_value(f, "weir_ps_members", labels, n[i]);
    }
}

/* Metric family with one figure for each worker. */
struct worker_family {
    const char *name, *type, *help;
    double (*value)(const struct net_status_member *w);
};

static double is_present(const struct net_status_member *w)
{
    return w->state == MEMBER_TRAINING || w->state == MEMBER_LEAVING || w->state == MEMBER_DONE;
}

static double times_last(const struct net_status_member *w)
{
    return (double)w->times;
}

static double waited_seconds(const struct net_status_member *w)
{
    return w->seconds;
}

static double skipped_steps(const struct net_status_member *w)
{
    return (double)w->skipped;
}

static double is_awaited(const struct net_status_member *w)
{
    return w->awaited;
}

static double missing_seconds(const struct net_status_member *w)
{
    return w->state == MEMBER_MISSING ? (double)w->ms * 1e-3 : 0;
}

static const struct worker_family families[] = {
    /* this family must be the first, since it also covers lost workers */
    {"weir_ps_worker_present", "gauge", "1 for a worker that is connected or done, else 0.",
     is_present},
    {"weir_ps_worker_missing_seconds", "gauge", "Time for which the worker has been missing.",
     missing_seconds},
    {"weir_ps_worker_last_total", "counter", "Steps in which the worker was the last.", times_last},
    {"weir_ps_worker_waited_seconds_total", "counter",
     "Seconds for which other workers waited for the worker in the steps in which it was the last.",
     waited_seconds},
    {"weir_ps_worker_skipped_total", "counter", "Contributions of the worker with weight 0.",
     skipped_steps},
    {"weir_ps_worker_awaited_chunks", "gauge",
     "Chunks of this server that have waited for this worker for 100 ms or longer.", is_awaited},
};

/* Returns true if the worker was written already: it may be listed as a member and also as a
 * joiner. */
static bool is_listed_before(const struct net_status *s, int i)
{
    for (int k = 0; k < i && s->members[i].rank < 0; k++)
        if (s->members[k].member == s->members[i].member)
            return true;
    return false;
}

/* Writes the lost workers. A job continues without a lost worker; the operator sees it until it is
 * back. */
static void write_lost(FILE *f, struct ps_monitor *m)
{
    char number[16];
    const char *const labels[] = {"worker", number, NULL};
    for (int i = 0; i < JOB_MAX_WORKERS; i++) {
        snprintf(number, sizeof number, "%d", i);
        if (monitor_is_lost(m, i))
            metrics_value(f, families[0].name, labels, 0);
    }
}

static void write_workers(FILE *f, struct ps_monitor *m)
{
    const struct net_status *s = &m->status;
    char number[16];
    if (s->n_members > 0)
        metrics_family(f, "weir_ps_worker_info", "gauge", "Address of the worker; always 1.");
    for (int i = 0; i < s->n_members; i++) {
        const char *const labels[] = {"worker", number, "address", s->members[i].address, NULL};
        snprintf(number, sizeof number, "%d", s->members[i].member);
        if (!is_listed_before(s, i))
            metrics_value(f, "weir_ps_worker_info", labels, 1);
    }
    for (size_t k = 0; k < sizeof families / sizeof *families && s->n_members > 0; k++) {
        metrics_family(f, families[k].name, families[k].type, families[k].help);
        for (int i = 0; i < s->n_members; i++) {
            const char *const labels[] = {"worker", number, NULL};
            snprintf(number, sizeof number, "%d", s->members[i].member);
            if (!is_listed_before(s, i))
                metrics_value(f, families[k].name, labels, families[k].value(&s->members[i]));
        }
        if (k == 0)
            write_lost(f, m);
    }
}

static void write_servers(FILE *f, const struct net_status *s)
{
    int n[SERVER_N_STATES] = {0};
    for (int i = 0; i < s->n_servers; i++) {
        const struct net_status_server *v = &s->servers[i];
        n[v->state]++;
        if (v->server != s->server || v->server < 0)
            continue;
        metrics_gauge(f, "weir_ps_parameter_bytes", "Size of the parameters that this server has.",
                      (double)v->bytes);
        metrics_gauge(f, "weir_ps_chunks", "Chunks that this server has.", v->n_chunks);
    }
    metrics_family(f, "weir_ps_servers", "gauge", "Servers of the job, by state.");
    for (int i = 0; i < SERVER_N_STATES; i++) {
        const char *const labels[] = {"state", net_status_server_name((enum server_state)i), NULL};
        metrics_value(f, "weir_ps_servers", labels, n[i]);
    }
}

static double table_rows(const struct net_status_table *t)
{
    return (double)t->rows;
}

static double table_pending(const struct net_status_table *t)
{
    return (double)t->pending;
}

static double table_bytes(const struct net_status_table *t)
{
    return (double)t->bytes;
}

static double table_removed(const struct net_status_table *t)
{
    return (double)t->removed;
}

static double table_keys(const struct net_status_table *t)
{
    return (double)t->keys;
}

static const struct table_family {
    const char *name, *type, *help;
    double (*value)(const struct net_status_table *t);
} table_families[] = {
    {"weir_ps_table_rows", "gauge", "Rows that this server has.", table_rows},
    {"weir_ps_table_pending_keys", "gauge", "Keys that have no row yet (admit_after).",
     table_pending},
    {"weir_ps_table_bytes", "gauge", "Memory of the rows that this server has.", table_bytes},
    {"weir_ps_table_removed_total", "counter",
     "Rows that were evicted, or freed after they had expired.", table_removed},
    {"weir_ps_table_keys_total", "counter", "Keys in the requests to this server.", table_keys},
    {"weir_ps_table_imbalance", "gauge",
     "Keys of the bucket with the most of them, divided by the average of this server's buckets.",
     net_status_table_imbalance},
};

/* Writes this server's part of each table. */
static void write_tables(FILE *f, const struct net_status *s)
{
    for (size_t k = 0; k < sizeof table_families / sizeof *table_families && s->n_tables > 0; k++) {
        const struct table_family *family = &table_families[k];
        metrics_family(f, family->name, family->type, family->help);
        for (int i = 0; i < s->n_tables; i++) {
            const char *const labels[] = {"table", s->chunks->tables[i].name, NULL};
            metrics_value(f, family->name, labels, family->value(&s->tables[i]));
        }
    }
}

static void write_checkpoints(FILE *f, const struct ps_monitor *m)
{
    const struct net_status_checkpoints *c = &m->status.checkpoints;
    struct monitor_disk disk;
    int64_t unsaved = monitor_unsaved_steps(m);
    monitor_disk(m, &disk);
    if (c->last >= 0)
        metrics_gauge(f, "weir_ps_checkpoint_last_step", "Step of the last complete checkpoint.",
                      (double)c->last);
    if (c->last >= 0)
        write_known(f, "weir_ps_checkpoint_last_timestamp_seconds",
                    "Time at which the last checkpoint was written, in seconds since 1970.",
                    m->saved_unix_s);
    write_known(f, "weir_ps_checkpoint_unsaved_since_timestamp_seconds",
                "Time of the last checkpoint, or, if later, of this process' first unsaved step.",
                monitor_unsaved_unix_s(m));
    if (unsaved >= 0)
        metrics_gauge(f, "weir_ps_checkpoint_unsaved_steps",
                      "Steps made since the last checkpoint.", (double)unsaved);
    if (c->folder[0])
        metrics_gauge(f, "weir_ps_checkpoint_in_progress",
                      "1 while a checkpoint is being made, else 0.",
                      c->ordered >= 0 && m->status.highest >= c->ordered);
    write_known(f, "weir_ps_checkpoint_disk_available_bytes",
                "Free space for this user in the file system of the checkpoints.", disk.free_bytes);
    write_known(f, "weir_ps_checkpoint_disk_size_bytes",
                "Size of the file system of the checkpoints.", disk.size_bytes);
}

int monitor_metrics(void *ctx, FILE *f)
{
    struct ps_monitor *m = ctx;
    char why[MONITOR_WHY_BYTES];
    monitor_look(m);
    metrics_process(f, "ps", m->cfg.task);
    metrics_gauge(f, "weir_ps_ready", "1 if /healthz returns 200, 0 if it returns 503.",
                  monitor_is_ready(m, why));
    write_state(f, &m->status);
    write_waiting(f, &m->status);
    write_progress(f, m);
    write_totals(f, m);
    write_members(f, &m->status);
    write_workers(f, m);
    write_servers(f, &m->status);
    write_tables(f, &m->status);
    write_checkpoints(f, m);
    return 200;
}
