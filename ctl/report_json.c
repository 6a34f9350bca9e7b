/* ctl/report_json.c - builds the JSON documents with jansson; see report.h. */
#include "base/float_text.h"
#include "base/log.h"
#include "ctl/names.h"
#include "ctl/report.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Prints and frees the document `all`; NULL: memory was lacking, which is reported. */
static enum status print_take(json_t *all)
{
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    json_decref(all);
    if (!text) {
        LOG_E("out of memory");
        return ST_NOMEM;
    }
    puts(text);
    fflush(stdout);
    free(text);
    return ST_OK;
}

static double seconds(int64_t ms)
{
    return (double)ms / 1000;
}

/* Returns the number, or null if it is below 0, which means unknown. */
static json_t *number_or_null(int64_t n)
{
    return n < 0 ? json_null() : json_integer(n);
}

static json_t *seconds_or_null(int64_t ms)
{
    return ms < 0 ? json_null() : json_real(seconds(ms));
}

static json_t *member_json(const struct net_status_member *m, int n_recent)
{
    json_t *refused =
        m->refused[0] ? json_pack("{s:s, s:f}", "why", m->refused, "ago_s", seconds(m->refused_ms))
                      : json_null();
    return json_pack("{s:i, s:o, s:s, s:s, s:o, s:{s:I, s:f}, s:{s:i, s:I, s:f}, s:i, s:I, s:o}",
                     "index", m->member, "rank", number_or_null(m->rank), "address", m->address,
                     "state", net_status_member_name(m->state), "missing_s",
                     seconds_or_null(m->state == MEMBER_MISSING ? m->ms : -1), "waited_for",
                     "steps", (json_int_t)m->times, "seconds", m->seconds, "waited_for_recently",
                     "of_steps", n_recent, "steps", (json_int_t)m->recent_times, "seconds",
                     m->recent_seconds, "awaited_chunks", m->awaited, "skipped",
                     (json_int_t)m->skipped, "refused", refused);
}

static json_t *members_json(const struct net_status *s)
{
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; !failed && i < s->n_members; i++)
        failed = json_array_append_new(list, member_json(&s->members[i], s->n_recent)) != 0;
    if (!failed)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *server_json(const struct net_status_server *v)
{
    return json_pack("{s:o, s:s, s:s, s:I, s:i, s:o, s:o}", "index", number_or_null(v->server),
                     "address", v->address, "state", net_status_server_name(v->state), "bytes",
                     (json_int_t)v->bytes, "chunks", v->n_chunks, "heard_s",
                     seconds_or_null(v->heard_ms), "up_s", seconds_or_null(v->up_ms));
}

static json_t *servers_json(const struct net_status *s)
{
    json_t *list = json_array();
    int failed = !list;
    for (int i = 0; !failed && i < s->n_servers; i++)
        failed = json_array_append_new(list, server_json(&s->servers[i])) != 0;
    if (!failed)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *data_json(const struct job_data *d)
{
    if (!d->n_train)
        return json_null();
    static const char *const kinds[JOB_LABELS_N_KINDS] = {NULL, "classes", "targets"};
    return json_pack("{s:s, s:I, s:I, s:[i,i,i], s:i, s:b, s:s?}", "folder", d->name,
                     "training_samples", (json_int_t)d->n_train, "test_samples",
                     (json_int_t)d->n_test, "shape", d->dim[0], d->dim[1], d->dim[2], "classes",
                     d->classes, "own_shards", d->own, "labels", kinds[d->labels]);
}

/* Returns a JSON array of the n numbers, or JSON null if n is 0. */
static json_t *numbers_json(const float *value, int n)
{
    json_t *list = n > 0 ? json_array() : json_null();
    int failed = !list;
    for (int i = 0; !failed && i < n; i++)
        failed = json_array_append_new(list, json_real(float_text_to_double(value[i]))) != 0;
    if (!failed)
        return list;
    json_decref(list);
    return NULL;
}

static json_t *job_json(const struct net_status *s)
{
    const struct net_job *j = &s->job;
    char augment[JOB_AUGMENT_BYTES];
    if (!s->chunks)
        return json_null();
    job_input_augment_text(&j->augment, augment);
    return json_pack(
        "{s:i, s:s?, s:s, s:I, s:i, s:i, s:I, s:i, s:I, s:{s:s, s:f}, s:s, s:s, s:i, s:I, s:i, "
        "s:o, s:s, s:o, s:o, s:o, s:s?}",
        "workers", j->n_workers, "model", s->model_name[0] ? s->model_name : NULL, "sync_mode",
        job_sync_mode_name(j->sync_mode), "train_steps", (json_int_t)j->train_steps, "batch_size",
        j->batch, "local_steps", job_local_steps(j), "seed", (json_int_t)j->seed, "aggregate",
        job_aggregate(j), "staleness", (json_int_t)j->staleness, "optimizer", "name",
        optim_name(j->optim.kind), "learning_rate", float_text_to_double(j->optim.learning_rate),
        "push_dtype", dtype_name(j->push_dtype), "version_dtype", dtype_name(j->version_dtype),
        "parameters", s->chunks->n_params, "elements", (json_int_t)s->chunks->n_elems, "chunks",
        s->chunks->n_chunks, "data", data_json(&j->data), "arithmetic", j->arithmetic,
        "asked_steps", j->asked_steps ? json_integer((json_int_t)j->asked_steps) : json_null(),
        "mean", numbers_json(j->normal.mean, j->normal.n), "std",
        numbers_json(j->normal.std, j->normal.n), "augment", *augment ? augment : NULL);
}

static json_t *checkpoints_json(const struct net_status_checkpoints *c)
{
    if (!c->folder[0])
        return json_null();
    return json_pack("{s:s, s:o, s:o, s:o, s:I, s:I}", "folder", c->folder, "last_step",
                     number_or_null(c->last), "making_step", number_or_null(c->ordered), "next_s",
                     seconds_or_null(c->next_ms), "wanted", (json_int_t)c->wanted, "given",
                     (json_int_t)c->given);
}

static json_t *best_json(const struct net_best *b)
{
    if (b->step < 0)
        return json_null();
    return json_pack("{s:I, s:f, s:o}", "step", (json_int_t)b->step, "validation_loss", b->loss,
                     "validation_accuracy",
                     isnan(b->accuracy) ? json_null() : json_real(b->accuracy));
}

static json_t *status_json(const struct net_status *s)
{
    json_t *waiting = s->waiting[0] ? json_pack("{s:s, s:f}", "for", s->waiting, "seconds",
                                                seconds(s->waiting_ms))
                                    : json_null();
    return json_pack("{s:o, s:I, s:s, s:o, s:I, s:o, s:o, s:I, s:f, s:f, s:o, s:o, s:o, s:o, s:o, "
                     "s:o}",
                     "server", number_or_null(s->server), "generation", (json_int_t)s->generation,
                     "state", net_status_state(s), "waiting", waiting, "first_step",
                     (json_int_t)s->first_step, "step", number_or_null(s->step), "highest_step",
                     number_or_null(s->highest), "position", (json_int_t)s->position, "steps_per_s",
                     s->steps_per_s, "up_s", seconds(s->up_ms), "change",
                     s->change[0] ? json_string(s->change) : json_null(), "job", job_json(s),
                     "members", members_json(s), "servers", servers_json(s), "checkpoints",
                     checkpoints_json(&s->checkpoints), "best", best_json(&s->best));
}

enum status ctl_report_json(const struct net_status *s, enum ctl_view view)
{
    switch (view) {
    case VIEW_STATUS:
        return print_take(status_json(s));
    case VIEW_MEMBERS:
        return print_take(json_pack("{s:o}", "members", members_json(s)));
    case VIEW_SERVERS:
        return print_take(json_pack("{s:o}", "servers", servers_json(s)));
    case VIEW_LATE:
        return print_take(json_pack("{s:s, s:o, s:o}", "sync_mode",
                                    job_sync_mode_name(s->job.sync_mode), "step",
                                    number_or_null(s->step), "members", members_json(s)));
    case VIEW_TABLES: /* ctl_tables_show */
        break;
    }
    return ST_INTERNAL;
}

enum status ctl_report_reply_json(const struct net_command_reply *reply)
{
    return print_take(
        json_pack("{s:s, s:s}", "answer", ctl_answer_name(reply->answer), "text", reply->text));
}

enum status ctl_report_line_json(const char *line)
{
    return print_take(json_pack("{s:s}", "command", line));
}
