/* libweir/settings.c - see settings.h. Names, bounds and meanings are those of the worker's flags
 * (worker/options_table.c): all members of a job give the same, whatever program they are. */
#include "libweir/settings.h"
#include "base/flags.h"
#include "base/log.h"
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *name;
    enum flag_type type;
    size_t offset;
    double min, max;
    const char *choices;
};

#define AT(member) offsetof(struct settings, member)
#define OWN 1e6 /* -1: the optimizer's own */

static const struct row rows[] = {
    {"ps_hosts", FLAG_STRING, AT(ps_hosts), 0, 0, NULL},
    {"worker_hosts", FLAG_STRING, AT(worker_hosts), 0, 0, NULL},
    {"n_workers", FLAG_INT, AT(n_workers), 1, JOB_MAX_WORKERS, NULL},
    {"task_index", FLAG_INT, AT(task_index), 0, JOB_MAX_WORKERS - 1, NULL},
    {"slurm_ps", FLAG_INT, AT(slurm_ps), 0, HOSTS_MAX - 1, NULL},
    {"slurm_port", FLAG_INT, AT(slurm_port), 1, 65535, NULL},
    {"join", FLAG_BOOL, AT(join), 0, 0, NULL},
    {"address", FLAG_STRING, AT(address), 0, 0, NULL},
    {"tls_cert", FLAG_STRING, AT(tls_cert), 0, 0, NULL},
    {"tls_key", FLAG_STRING, AT(tls_key), 0, 0, NULL},
    {"tls_ca", FLAG_STRING, AT(tls_ca), 0, 0, NULL},
    {"token_file", FLAG_STRING, AT(token_file), 0, 0, NULL},
    {"sync_mode", FLAG_CHOICE, AT(sync_mode), 0, 0, JOB_SYNC_MODES},
    {"replicas_to_aggregate", FLAG_INT, AT(aggregate), 0, JOB_MAX_WORKERS, NULL},
    {"staleness", FLAG_INT, AT(staleness), -1, 1e15, NULL},
    {"delay_compensation", FLAG_DOUBLE, AT(delay_compensation), 0, 1e6, NULL},
    {"wire_dtype", FLAG_STRING, AT(wire_dtype), 0, 0, NULL},
    {"wire_step_ms", FLAG_INT, AT(wire_step_ms), 1, 1000000, NULL},
    {"shared_memory", FLAG_CHOICE, AT(shared_memory), 0, 0, "auto|off"},
    {"chunk_bytes", FLAG_INT, AT(chunk_bytes), 0, CHUNKS_MAX_BYTES, NULL},
    {"train_steps", FLAG_INT, AT(train_steps), 1, 1e15, NULL},
    {"batch_size", FLAG_INT, AT(batch_size), 1, 1 << 20, NULL},
    {"seed", FLAG_INT, AT(seed), 0, 0x1p53, NULL},
    {"optimizer", FLAG_CHOICE, AT(optimizer), 0, 0, OPTIM_NAMES},
    {"learning_rate", FLAG_DOUBLE, AT(learning_rate), -1, OWN, NULL},
    {"momentum", FLAG_DOUBLE, AT(momentum), -1, 1, NULL},
    {"decay", FLAG_DOUBLE, AT(decay), -1, 1, NULL},
    {"beta1", FLAG_DOUBLE, AT(beta1), -1, 1, NULL},
    {"beta2", FLAG_DOUBLE, AT(beta2), -1, 1, NULL},
    {"epsilon", FLAG_DOUBLE, AT(epsilon), -1, 1, NULL},
    {"weight_decay", FLAG_DOUBLE, AT(weight_decay), -1, 1e3, NULL},
    {"clip_value", FLAG_DOUBLE, AT(clip_value), 0, 1e30, NULL},
    {"clip_norm", FLAG_DOUBLE, AT(clip_norm), 0, 1e30, NULL},
    {"lr_schedule", FLAG_CHOICE, AT(schedule), 0, 0, SCHEDULE_NAMES},
    {"lr_warmup_steps", FLAG_INT, AT(lr_warmup_steps), 0, 1e15, NULL},
    {"lr_boundaries", FLAG_STRING, AT(lr_boundaries), 0, 0, NULL},
    {"lr_decay", FLAG_DOUBLE, AT(lr_decay), -1, 1, NULL},
    {"lr_decay_steps", FLAG_INT, AT(lr_decay_steps), 0, 1e15, NULL},
    {"local_steps", FLAG_INT, AT(local_steps), 1, JOB_MAX_LOCAL_STEPS, NULL},
    {"own_local_steps", FLAG_BOOL, AT(own_local_steps), 0, 0, NULL},
    {"outer_optimizer", FLAG_CHOICE, AT(outer_optimizer), 0, 0, "sgd|momentum|nesterov"},
    {"outer_learning_rate", FLAG_DOUBLE, AT(outer_rate), -1, 100, NULL},
    {"outer_momentum", FLAG_DOUBLE, AT(outer_momentum), -1, 1, NULL},
    {"data_name", FLAG_STRING, AT(data_name), 0, 0, NULL},
    {"data_samples", FLAG_INT, AT(data_samples), 0, 1e15, NULL},
    {"data_checksum", FLAG_INT, AT(data_checksum), 0, UINT32_MAX, NULL},
    {"arithmetic", FLAG_STRING, AT(arithmetic), 0, 0, NULL},
    {"checkpoint_dir", FLAG_STRING, AT(checkpoint_dir), 0, 0, NULL},
};

void settings_init(struct settings *s)
{
    *s = (struct settings){.task_index = -1,
                           .slurm_port = 8888,
                           .staleness = -1,
                           .optimizer = OPTIM_ADAM,
                           .outer_optimizer = -1,
                           .train_steps = 200,
                           .batch_size = 32,
                           .local_steps = 1,
                           .learning_rate = -1,
                           .momentum = -1,
                           .decay = -1,
                           .beta1 = -1,
                           .beta2 = -1,
                           .epsilon = -1,
                           .weight_decay = -1,
                           .lr_decay = -1,
                           .outer_rate = -1,
                           .outer_momentum = -1};
}

void settings_free(struct settings *s)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == FLAG_STRING)
            free(*(char **)((char *)s + rows[i].offset));
}

enum status settings_set(struct settings *s, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        if (strcmp(r->name, name) != 0)
            continue;
        char *at = (char *)s + r->offset;
        const struct flag f = {.name = r->name,
                               .type = r->type,
                               .target = at,
                               .min = r->min,
                               .max = r->max,
                               .choices = r->choices};
        if (r->type != FLAG_STRING)
            return flags_set(&f, value);
        char *copy = strdup(value);
        if (!copy)
            return ST_NOMEM;
        free(*(char **)at);
        *(char **)at = copy;
        return ST_OK;
    }
    LOG_E("there is no setting '%.100s'; docs/own-model.md lists all", name);
    return ST_NOT_FOUND;
}

static const char *text_or(const char *text, const char *other)
{
    return text ? text : other;
}

struct security_config settings_security(const struct settings *s)
{
    return (struct security_config){text_or(s->tls_cert, ""), text_or(s->tls_key, ""),
                                    text_or(s->tls_ca, ""), text_or(s->token_file, ""),
                                    ROLE_WORKER};
}

static enum status check_numbers(const struct settings *s, const struct cluster *c)
{
    if (s->join && c->ps.n == 0) {
        LOG_E("join: needs ps_hosts, with ps 0 at least");
        return ST_INVALID;
    }
    if (s->join || c->ps.n == 0)
        return ST_OK;
    if (c->workers.n > 0 && s->n_workers > 0 && s->n_workers != c->workers.n) {
        LOG_E("n_workers: %" PRId64 ", but worker_hosts has %d entries; give one of them",
              s->n_workers, c->workers.n);
        return ST_INVALID;
    }
    if (c->workers.n == 0 && s->n_workers == 0) {
        LOG_E("how many workers the job has is not said; set n_workers, or worker_hosts");
        return ST_INVALID;
    }
    return ST_OK;
}

enum status settings_cluster(struct settings *s, struct cluster *out)
{
    enum status st = ST_OK;
    struct cluster c = {0};
    struct cluster_request r = {.ps_hosts = s->ps_hosts,
                                .worker_hosts = s->worker_hosts,
                                .slurm_ps = s->slurm_ps,
                                .slurm_port = s->slurm_port,
                                .task_index = s->task_index,
                                .no_task = s->join};
    cluster_environment(&r);
    TRY(cluster_find(&r, &c));
    if (!s->join)
        TRY(cluster_check_role(&c, CLUSTER_WORKER));
    s->join |= c.joins;
    TRY(check_numbers(s, &c));
    if (!s->join && c.index >= 0)
        s->task_index = c.index;
    if (!s->join)
        s->n_workers = c.ps.n == 0 ? 1 : c.workers.n > 0 ? c.workers.n : s->n_workers;
    if (!s->join && s->task_index < 0 && s->n_workers == 1)
        s->task_index = 0;
    if (!s->join && (s->task_index < 0 || s->task_index >= s->n_workers)) {
        LOG_E("task_index: which of the %" PRId64 " workers this is has to be said, from 0 on",
              s->n_workers);
        TRY(ST_INVALID);
    }
    *out = c;
    c = (struct cluster){0};
done:
    cluster_free(&c);
    return st;
}

static void set_if_given(float *field, double value)
{
    if (value >= 0)
        *field = (float)value;
}

static enum status read_boundaries(const char *text, struct optim_config *out)
{
    for (const char *at = text; at;) {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(at, &end, 10);
        int n = out->n_boundaries;
        if (*at < '0' || *at > '9' || errno || (*end && *end != ',') || v < 1 || v > INT64_MAX ||
            n == OPTIM_MAX_BOUNDARIES || (n > 0 && v <= out->boundary[n - 1])) {
            LOG_E("lr_boundaries: '%.100s' is no list of at most %d rising numbers of steps, as in "
                  "1000,2000",
                  text, OPTIM_MAX_BOUNDARIES);
            return ST_INVALID;
        }
        out->boundary[out->n_boundaries++] = v;
        at = *end ? end + 1 : NULL;
    }
    return ST_OK;
}

static enum status read_optimizer(const struct settings *s, struct optim_config *o)
{
    optim_defaults((enum optim_kind)s->optimizer, o);
    set_if_given(&o->learning_rate, s->learning_rate);
    set_if_given(&o->momentum, s->momentum);
    set_if_given(&o->decay, s->decay);
    set_if_given(&o->beta1, s->beta1);
    set_if_given(&o->beta2, s->beta2);
    set_if_given(&o->epsilon, s->epsilon);
    set_if_given(&o->weight_decay, s->weight_decay);
    set_if_given(&o->lr_decay, s->lr_decay);
    o->clip_value = (float)s->clip_value;
    o->clip_norm = (float)s->clip_norm;
    o->schedule = (enum optim_schedule)s->schedule;
    o->warmup_steps = (uint64_t)s->lr_warmup_steps;
    o->lr_decay_steps = (uint64_t)s->lr_decay_steps;
    o->total_steps = (uint64_t)s->train_steps;
    enum status st = read_boundaries(s->lr_boundaries, o);
    return st == ST_OK ? optim_check(o) : st;
}

/* As --local_steps of a worker: the servers' step is a round of the members' steps. */
static void read_rounds(const struct settings *s, int64_t n_elems, struct net_job *job)
{
    int64_t n = s->local_steps;
    int adaptive = job->optim.kind >= OPTIM_ADAGRAD || s->own_local_steps;
    int kind = s->outer_optimizer;
    if (n <= 1)
        return;
    if (kind < 0)
        kind = adaptive || s->outer_momentum > 0 ? OPTIM_NESTEROV : OPTIM_SGD;
    job->local_steps = (int)n;
    job->local = job->optim;
    optim_outer_defaults((enum optim_kind)kind, n_elems, &job->optim);
    set_if_given(&job->optim.learning_rate, s->outer_rate);
    if (kind != OPTIM_SGD)
        set_if_given(&job->optim.momentum, s->outer_momentum);
    job->train_steps = (job->train_steps + n - 1) / n;
    job->batch *= (int)n;
    job->optim.total_steps = (uint64_t)job->train_steps;
    job->local.total_steps = (uint64_t)(job->train_steps * n);
}

static void read_data(const struct settings *s, struct net_job *job)
{
    if (s->data_samples > 0) {
        job->data = (struct job_data){.n_train = s->data_samples,
                                      .dim = {1, 1, 1},
                                      .train_samples = (uint32_t)s->data_checksum};
        job_data_set_name(&job->data, text_or(s->data_name, ""));
    }
    if (s->arithmetic)
        snprintf(job->arithmetic, sizeof job->arithmetic, "%s", s->arithmetic);
}

/* What the members, or a program alone, would have to do to all gradients together. */
static enum status check_job(const struct settings *s, int n_servers, const struct net_job *job)
{
    const char *wrong = job->n_workers > 0 ? job_check_mode(job) : NULL;
    int clips = job->optim.clip_norm > 0 || job->local.clip_norm > 0;
    if ((s->staleness >= 0) != (job->sync_mode == JOB_SSP) && !s->join)
        wrong = "staleness and sync_mode=ssp go together; set both or none of them";
    else if (s->batch_size * s->local_steps > JOB_MAX_BATCH)
        wrong = "batch_size times local_steps is too much; fewer local steps will do";
    else if (s->own_local_steps && job_local_steps(job) == 1)
        wrong = "own_local_steps needs local_steps, above 1, and servers";
    if (job_local_steps(job) > 1 && !job_in_lockstep(job)) { /* workers do, by more rules */
        LOG_E(
            "local_steps: this library takes them in sync_mode=sync without backup workers alone");
        return ST_UNSUPPORTED;
    }
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    if (clips && (n_servers == 0 || !job_servers_clip(job))) {
        LOG_E("clip_norm: servers clip in sync_mode=sync without local steps and backup workers; "
              "else clip what is pushed, and leave the setting out");
        return ST_UNSUPPORTED;
    }
    return ST_OK;
}

static enum status read_wire_dtype(const char *text, struct net_job *job)
{
    job->wire_auto = strcmp(text, "auto") == 0;
    if (dtype_read_two(job->wire_auto ? "fp32" : text, &job->push_dtype, &job->version_dtype))
        return ST_OK;
    LOG_E("wire_dtype: '%.100s' is not auto, nor one or two (with a comma) of %s", text,
          DTYPE_NAMES);
    return ST_INVALID;
}

/* What the running job is, for one more. */
static enum status read_joined(const struct net_status *joined, struct net_job *job)
{
    if (joined->job.validation.data.n > 0) {
        LOG_E("join: the job's workers evaluate its validation data, each its part, which this "
              "library does not do");
        return ST_UNSUPPORTED;
    }
    *job = joined->job;
    job->train_steps = job->asked_steps ? job->asked_steps : job->train_steps;
    job->asked_steps = 0;
    job->aggregate = job->aggregate == job->n_workers ? 0 : job->aggregate;
    job->n_workers = 0;
    job->rounding.n_bytes = job->wire_auto = 0;
    job->data = (struct job_data){0};
    job->arithmetic[0] = 0;
    return ST_OK;
}

enum status settings_job(const struct settings *s, int n_servers, int64_t n_elems,
                         const struct net_status *joined, struct net_job *out)
{
    enum status st = ST_OK;
    struct net_job job = {.n_workers = (int)s->n_workers,
                          .sync_mode = (enum job_sync_mode)s->sync_mode,
                          .aggregate = (int)s->aggregate,
                          .staleness = s->staleness > 0 ? s->staleness : 0,
                          .delay_compensation = (float)s->delay_compensation,
                          .train_steps = s->train_steps,
                          .seed = (uint64_t)s->seed,
                          .batch = (int)s->batch_size};
    if (joined) {
        TRY(read_joined(joined, &job));
    } else {
        TRY(read_optimizer(s, &job.optim));
        if (job.aggregate == 0)
            job.aggregate = job.n_workers;
        TRY(read_wire_dtype(text_or(s->wire_dtype, "fp32"), &job));
        if (n_servers > 0)
            read_rounds(s, n_elems, &job);
    }
    read_data(s, &job);
    TRY(check_job(s, n_servers, &job));
    *out = job;
done:
    return st;
}
