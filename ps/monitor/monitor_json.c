/* ps/monitor/monitor_json.c - see monitor_impl.h: the data of the status page, as one document. An
 * unknown number is null. */
#include "base/clock.h"
#include "base/term.h"
#include "base/utf8.h"
#include "http/metrics.h"
#include "net/wire/table_status.h"
#include "net/wire/tables.h"
#include "ps/monitor/monitor_impl.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static json_t *real_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

/* Returns a JSON text. Names from peers and names of folders may not be UTF-8: then '?' replaces
 * each byte that is not ASCII. */
static json_t *make_text(const char *s)
{
    char *copy = strdup(s);
    if (copy)
        utf8_mask(copy);
    json_t *out = copy ? json_string(copy) : NULL;
    free(copy);
    return out;
}

static json_t *integer_or_null(int64_t n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *seconds_or_null(int64_t ms)
{
    return ms < 0 ? json_null() : json_real((double)ms * 1e-3);
}

static json_t *member_json(struct ps_monitor *m, const struct net_status_member *v)
{
    struct monitor_worker r;
    bool is_here = v->state == MEMBER_TRAINING || v->state == MEMBER_LEAVING;
    int has_report = is_here && monitor_reports_latest(m, v->member, &r);
    int64_t none_since = has_report ? r.last.nonfinite_since : 0;
    return json_pack(
        "{s:i, s:o, s:o, s:s, s:o, s:I, s:f, s:i, s:I, s:f, s:i, s:I, s:o, s:o, s:o, s:o, s:o}",
        "index", v->member, "rank", integer_or_null(v->rank), "address", make_text(v->address),
        "state", net_status_member_name(v->state), "missing_s",
        seconds_or_null(v->state == MEMBER_MISSING ? v->ms : -1), "late_steps",
        (json_int_t)v->times, "late_s", v->seconds, "recent_of", m->status.n_recent,
        "recent_late_steps", (json_int_t)v->recent_times, "recent_late_s", v->recent_seconds,
        "awaited_chunks", v->awaited, "skipped", (json_int_t)v->skipped, "refused",
        make_text(v->refused), "images_per_s",
        real_or_null(has_report ? r.images_per_s : (double)NAN), "loss",
        real_or_null(has_report ? r.loss : (double)NAN), "loss_not_finite_since",
        integer_or_null(none_since ? none_since : -1), "memory_bytes",
        integer_or_null(has_report && r.last.memory_bytes > 0 ? r.last.memory_bytes : -1));
}

static json_t *server_json(const struct net_status_server *v)
{
    return json_pack("{s:o, s:o, s:s, s:I, s:i, s:o, s:o}", "index", integer_or_null(v->server),
                     "address", make_text(v->address), "state", net_status_server_name(v->state),
                     "bytes", (json_int_t)v->bytes, "chunks", v->n_chunks, "heard_s",
                     seconds_or_null(v->heard_ms), "up_s", seconds_or_null(v->up_ms));
}

/* Appends an item to the list and returns the list. Owns both from now on: on failure it
 * releases the list and returns NULL. */
static json_t *append_item(json_t *list, json_t *item)
{
    if (list && json_array_append_new(list, item) == 0)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *members_json(struct ps_monitor *m)
{
    json_t *list = json_array();
    for (int i = 0; list && i < m->status.n_members; i++)
        list = append_item(list, member_json(m, &m->status.members[i]));
    return list;
}

static json_t *servers_json(const struct net_status *s)
{
    json_t *list = json_array();
    for (int i = 0; list && i < s->n_servers; i++)
        list = append_item(list, server_json(&s->servers[i]));
    return list;
}

/* Returns this server's part of each table. */
static json_t *tables_json(const struct net_status *s)
{
    json_t *list = json_array();
    for (int i = 0; list && i < s->n_tables; i++) {
        const struct net_status_table *t = &s->tables[i];
        list = append_item(list, json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:f}", "name",
                                           s->chunks->tables[i].name, "buckets", t->n_buckets,
                                           "rows", (json_int_t)t->rows, "pending",
                                           (json_int_t)t->pending, "bytes", (json_int_t)t->bytes,
                                           "removed", (json_int_t)t->removed, "keys",
                                           (json_int_t)t->keys, "hottest_bucket", t->hottest,
                                           "imbalance", net_status_table_imbalance(t)));
    }
    return list;
}

static json_t *data_json(const struct job_data *d)
{
    if (!d->n_train)
        return json_null();
    return json_pack("{s:o, s:I, s:[i,i,i]}", "name",
                     make_text(d->own ? "each worker's own" : d->name), "training_samples",
                     (json_int_t)d->n_train, "shape", d->dim[0], d->dim[1], d->dim[2]);
}

static json_t *job_json(const struct net_status *s)
{
    const struct net_job *j = &s->job;
    double rate = s->step < 0 ? (double)j->optim.learning_rate
                              : (double)optim_rate(&j->optim, (uint64_t)s->step);
    if (!s->chunks)
        return json_null();
    return json_pack("{s:o, s:o, s:s, s:I, s:i, s:i, s:s, s:o, s:i, s:I, s:i}", "model",
                     make_text(s->model_name), "data", data_json(&j->data), "sync_mode",
                     job_sync_mode_name(j->sync_mode), "train_steps", (json_int_t)j->train_steps,
                     "batch_size", j->batch, "local_steps", job_local_steps(j), "optimizer",
                     optim_name(j->optim.kind), "learning_rate", real_or_null(rate), "parameters",
                     s->chunks->n_params, "elements", (json_int_t)s->chunks->n_elems, "chunks",
                     s->chunks->n_chunks);
}

static json_t *checkpoints_json(const struct ps_monitor *m)
{
    const struct net_status_checkpoints *c = &m->status.checkpoints;
    struct monitor_disk disk;
    struct timespec now;
    if (!m->cfg.folder || !c->folder[0]) /* servers other than ps 0 may have no folder */
        return json_null();
    clock_gettime(CLOCK_REALTIME, &now);
    monitor_disk(m, &disk);
    double age = c->last >= 0 ? (double)now.tv_sec - m->saved_unix_s : (double)NAN;
    double unsaved = (double)now.tv_sec - monitor_unsaved_unix_s(m);
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "folder", make_text(c->folder),
        "last_step", integer_or_null(c->last), "age_s", real_or_null(age), "unsaved_s",
        real_or_null(unsaved > 0      ? unsaved
                     : isnan(unsaved) ? unsaved
                                      : 0),
        "unsaved_steps", integer_or_null(monitor_unsaved_steps(m)), "ordered_step",
        integer_or_null(c->ordered), "next_s", seconds_or_null(c->next_ms), "disk_available_bytes",
        real_or_null(disk.free_bytes), "disk_size_bytes", real_or_null(disk.size_bytes));
}

static json_t *best_json(const struct net_status *s)
{
    if (s->best.step < 0)
        return json_null();
    return json_pack("{s:I, s:o, s:o}", "step", (json_int_t)s->best.step, "loss",
                     real_or_null(s->best.loss), "accuracy", real_or_null(s->best.accuracy));
}

static json_t *history_json(const struct history *h)
{
    json_t *list = json_array();
    for (int i = 0; list && i < h->n; i++) {
        const struct history_point *p = &h->point[i];
        double loss = p->n_losses > 0 ? p->loss_sum / (double)p->n_losses : (double)NAN;
        double speed = p->seconds > 0 ? (double)p->samples / p->seconds : (double)NAN;
        list = append_item(list, json_pack("[f, o, o, o]", p->unix_s, integer_or_null(p->step),
                                           real_or_null(loss), real_or_null(speed)));
    }
    return list;
}

static json_t *waiting_json(const struct net_status *s)
{
    char sentence[STATUS_SENTENCE_BYTES];
    net_status_waiting_text(s->waiting, s->waiting_ms, sentence);
    return s->waiting[0] ? make_text(sentence) : json_null();
}

static json_t *make_document(struct ps_monitor *m)
{
    const struct net_status *s = &m->status;
    char why[MONITOR_WHY_BYTES] = "", generation[48] = "";
    int ready = monitor_is_ready(m, why), stands = s->waiting[0] != 0;
    int64_t none_since = monitor_reports_nonfinite_since(m);
    if (s->generation)
        snprintf(generation, sizeof generation, TERM_FMT, TERM_ARG(s->generation));
    return json_pack(
        "{s:s, s:i, s:s, s:s, s:o, s:o, s:b, s:o, s:f, s:o, s:o, s:f, s:f, s:o, s:o, s:o, s:I, "
        "s:I, "
        "s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "version", WEIR_VERSION, "task", m->cfg.task, "generation", generation, "state",
        net_status_state(s), "waiting", waiting_json(s), "change", make_text(s->change), "ready",
        ready, "why_not_ready", make_text(why), "up_s",
        (double)(clock_now_ns() - m->start_ns) * 1e-9, "step", integer_or_null(s->step),
        "step_age_s", real_or_null(monitor_step_age_s(m)), "steps_per_s",
        stands ? 0 : monitor_rate(m, 0), "images_per_s", stands ? 0 : monitor_rate(m, 1), "loss",
        real_or_null(monitor_loss(m)), "loss_not_finite_since",
        integer_or_null(none_since ? none_since : -1), "best", best_json(s), "received_bytes",
        (json_int_t)m->stats.received_bytes, "sent_bytes", (json_int_t)m->stats.sent_bytes,
        "memory_bytes", (json_int_t)metrics_resident_bytes(), "job", job_json(s), "members",
        members_json(m), "servers", servers_json(s), "tables", tables_json(s), "checkpoints",
        checkpoints_json(m), "history", history_json(&m->history), "reports",
        m->cfg.task == 0 ? json_true() : json_false());
}

int monitor_json(void *ctx, FILE *f)
{
    struct ps_monitor *m = ctx;
    monitor_look(m);
    json_t *all = make_document(m);
    char *make_text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(13)) : NULL;
    json_decref(all);
    if (!make_text) {
        fputs("{\"error\": \"out of memory\"}\n", f);
        return 503;
    }
    fputs(make_text, f);
    fputc('\n', f);
    free(make_text);
    return 200;
}
