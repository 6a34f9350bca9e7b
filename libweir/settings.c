/* libweir/settings.c - see settings.h. Names, bounds and meanings are those of the worker's flags,
 * in flags/table.inc: all members of a job, workers or other programs, must set the same values. */
#include "libweir/settings.h"
#include "base/flags_tensorflow.h"
#include "base/log.h"
#include "cluster/cluster.h"
#include "flags/rows.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Serves only to compute the offset of a row's field, which is the same in each object. */
static struct settings layout;

#define TEXT(n, field)                                                                             \
    {                                                                                              \
        n, FLAG_STRING, &layout.field, 0, 0, NULL, NULL, NULL, NULL                                \
    }
#define PATH(n, field)                                                                             \
    {                                                                                              \
        n, FLAG_STRING, &layout.field, 0, 0, "PATH", NULL, NULL, NULL                              \
    }
#define NUMBER(n, field, lo, hi)                                                                   \
    {                                                                                              \
        n, FLAG_INT, &layout.field, lo, hi, NULL, NULL, NULL, NULL                                 \
    }
#define YES_NO(n, field)                                                                           \
    {                                                                                              \
        n, FLAG_BOOL, &layout.field, 0, 0, NULL, NULL, NULL, NULL                                  \
    }
#define FOR_PS(...)
#define FOR_WORKER(...)
#define FOR_BOTH(...)
#define FOR_JOB(name, type, field, ...) FLAG_ROW(name, type, &layout.job.field, __VA_ARGS__)
#define FOR_ALL(name, type, field, ...) FLAG_ROW(name, type, &layout.field, __VA_ARGS__)
#define PS_ALONE(...)
#define WORKER_ALONE(...)

static const struct flag rows[] = {
    TEXT("ps_hosts", ps_hosts),
    TEXT("worker_hosts", worker_hosts),
    NUMBER("n_workers", n_workers, 1, JOB_MAX_WORKERS),
    NUMBER("task_index", task_index, 0, JOB_MAX_WORKERS - 1),
    YES_NO("join", join),
    TEXT("address", address),
    PATH("tls_cert", tls_cert),
    PATH("tls_key", tls_key),
    PATH("tls_ca", tls_ca),
    PATH("token_file", token_file),
    NUMBER("train_steps", train_steps, 1, 1e15),
    NUMBER("batch_size", batch_size, 1, 1 << 20),
    NUMBER("seed", seed, 0, 0x1p53),
    YES_NO("own_local_steps", own_local_steps),
    TEXT("data_name", data_name),
    NUMBER("data_samples", data_samples, 0, 1e15),
    NUMBER("data_checksum", data_checksum, 0, UINT32_MAX),
    TEXT("arithmetic", arithmetic),
    PATH("checkpoint_dir", checkpoint_dir),
#include "flags/table.inc"
};

static void *field_of(struct settings *s, const struct flag *row)
{
    return (char *)s + ((char *)row->target - (char *)&layout);
}

void settings_init(struct settings *s)
{
    *s = (struct settings){
        .task_index = -1, .slurm_port = CLUSTER_SLURM_PORT, .job = JOB_SETTINGS_DEFAULTS};
    /* the default is a static text, which settings_free must not free; NULL means the same */
    s->job.wire_dtype = NULL;
}

void settings_free(struct settings *s)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == FLAG_STRING)
            free(*(char **)field_of(s, &rows[i]));
}

enum status settings_set(struct settings *s, const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct flag f = rows[i];
        if (strcmp(f.name, name) != 0)
            continue;
        f.target = field_of(s, &rows[i]);
        if (f.type != FLAG_STRING)
            return flags_set(&f, value);
        char *copy = NULL;
        enum status st = flags_is_path(&f)        ? flags_path_take(&f, value, &copy)
                         : (copy = strdup(value)) ? ST_OK
                                                  : ST_NOMEM;
        if (st != ST_OK)
            return st;
        free(*(char **)f.target);
        *(char **)f.target = copy;
        return ST_OK;
    }
    const struct flags_program all = {
        .flags = rows, .n_flags = sizeof rows / sizeof *rows, .foreign = flags_tensorflow};
    const char *meant = flags_suggest(&all, name);
    LOG_E("there is no setting '%.100s'%s%s%s; docs/reference/weir-h.md lists all", name,
          meant ? "; did you mean '" : "", meant ? meant : "", meant ? "'?" : "");
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
        LOG_E("join needs ps_hosts, with at least ps 0");
        return ST_INVALID;
    }
    int64_t n_workers = c->workers.n > 0 ? c->workers.n : s->n_workers;
    if (!s->join && c->ps.n == 0 && n_workers > 1) {
        LOG_E("ps_hosts: %" PRId64 " workers need at least one server to train together, and %s",
              n_workers,
              c->source == CLUSTER_TF_CONFIG ? "TF_CONFIG's cluster names none" : "none is named");
        return ST_INVALID;
    }
    if (s->join || c->ps.n == 0)
        return ST_OK;
    if (c->workers.n > 0 && s->n_workers > 0 && s->n_workers != c->workers.n) {
        LOG_E("n_workers: %" PRId64 ", but worker_hosts has %d entries; set only one of them",
              s->n_workers, c->workers.n);
        return ST_INVALID;
    }
    if (c->workers.n == 0 && s->n_workers == 0) {
        LOG_E("the number of workers is missing; set n_workers or worker_hosts");
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
    if (!s->join && s->task_index >= s->n_workers) {
        LOG_E("task_index: %" PRId64 " is out of range; %" PRId64 " workers have 0 to %" PRId64,
              s->task_index, s->n_workers, s->n_workers - 1);
        TRY(ST_INVALID);
    }
    if (!s->join && s->task_index < 0) {
        LOG_E("task_index is missing: set it to this worker's number, from 0 to %" PRId64,
              s->n_workers - 1);
        TRY(ST_INVALID);
    }
    *out = c;
    c = (struct cluster){0};
done:
    cluster_free(&c);
    return st;
}

/* Reads local_steps as a worker reads --local_steps: a step of the servers is a round of several
 * steps of the members. */
static void read_rounds(const struct settings *s, int64_t n_elems, struct net_job *job)
{
    struct optim_config outer;
    int adaptive = job->optim.kind >= OPTIM_ADAGRAD || s->own_local_steps;
    if (s->job.local_steps <= 1)
        return;
    job_settings_outer(&s->job, job, adaptive, n_elems, &outer);
    job_settings_round(job, s->job.local_steps, &outer);
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

/* Refuses settings that contradict each other, and settings that this library does not support. */
static enum status check_job(const struct settings *s, int n_servers, const struct net_job *job)
{
    const char *wrong = job->n_workers > 0 ? job_check_mode(job) : NULL;
    int clips = job->optim.clip_norm > 0 || job->local.clip_norm > 0;
    if ((s->job.staleness >= 0) != (job->sync_mode == JOB_SSP) && !s->join)
        wrong = "staleness and sync_mode=ssp go together; set both or none of them";
    else if (s->batch_size * s->job.local_steps > JOB_MAX_BATCH)
        wrong = "batch_size times local_steps is too large; set fewer local steps";
    else if (s->own_local_steps && job_local_steps(job) == 1)
        wrong = "own_local_steps needs servers, and local_steps above 1";
    /* only Weir's worker supports this combination; it has more rules, which it checks itself */
    if (job_local_steps(job) > 1 && !job_in_lockstep(job)) {
        LOG_E("in this library local_steps needs sync_mode=sync without backup workers");
        return ST_UNSUPPORTED;
    }
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    if (clips && (n_servers == 0 || !job_servers_clip(job))) {
        LOG_E(
            "clip_norm: servers clip only in sync_mode=sync without local steps and backup workers; otherwise clip the gradients before you push them, and leave the setting out");
        return ST_UNSUPPORTED;
    }
    return ST_OK;
}

/* Reads the running job, which this member joins. */
static enum status read_joined(const struct net_status *joined, struct net_job *job)
{
    if (joined->job.validation.data.n > 0) {
        LOG_E(
            "join: each worker of this job evaluates a part of the validation data, which this library cannot do");
        return ST_UNSUPPORTED;
    }
    *job = joined->job;
    job->train_steps = job->asked_steps ? job->asked_steps : job->train_steps;
    job->asked_steps = 0;
    job->epochs = 0;
    job->aggregate = job->aggregate == job->n_workers ? 0 : job->aggregate;
    job->n_workers = 0;
    job->rounding.n_bytes = job->wire_auto = 0;
    job->data = (struct job_data){0};
    job->arithmetic[0] = 0;
    return ST_OK;
}

/* Returns the settings with the defaults of the job's numbers. Logs that of the steps; weir_sample
 * logs that of the batch. */
static struct settings with_defaults(const struct settings *s, bool are_used)
{
    struct settings out = *s;
    out.train_steps = s->train_steps ? s->train_steps : 200;
    out.batch_size = s->batch_size ? s->batch_size : SETTINGS_BATCH;
    if (are_used && !s->train_steps)
        LOG_W("train_steps is not set: the job has %" PRId64 " steps", out.train_steps);
    return out;
}

enum status settings_job(const struct settings *set, int n_servers, int64_t n_elems,
                         const struct net_status *joined, struct net_job *out)
{
    enum status st = ST_OK;
    const struct settings with = with_defaults(set, !joined), *s = &with;
    int mode = s->job.sync_mode;
    struct net_job job = {.n_workers = (int)s->n_workers,
                          .sync_mode = mode >= 0 ? (enum job_sync_mode)mode : JOB_SYNC,
                          .aggregate = (int)s->job.replicas,
                          .staleness = s->job.staleness > 0 ? s->job.staleness : 0,
                          .delay_compensation = (float)s->job.compensation,
                          .train_steps = s->train_steps,
                          .seed = (uint64_t)s->seed,
                          .batch = (int)s->batch_size};
    if (joined) {
        TRY(read_joined(joined, &job));
    } else {
        TRY(job_settings_optim(&s->job, "", 0, &job.optim));
        TRY(job_settings_check_outer(&s->job, "", 0));
        job.optim.total_steps = (uint64_t)s->train_steps;
        if (job.aggregate == 0)
            job.aggregate = job.n_workers;
        TRY(job_settings_dtypes(&s->job, "", &job));
        if (n_servers > 0) {
            TRY(job_settings_check_steps(s->train_steps, s->job.local_steps, ""));
            read_rounds(s, n_elems, &job);
            job_settings_warn_few(&job);
        }
    }
    read_data(s, &job);
    TRY(check_job(s, n_servers, &job));
    *out = job;
done:
    return st;
}
