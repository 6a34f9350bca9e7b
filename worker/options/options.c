/* worker/options/options.c - see options.h. The flags are parsed into `typed`. A copy is checked
 * (options_check.c, options_input.c), and a worker that joins adopts the job's values for the flags
 * that were not set. A flag that TensorFlow's mnist_replica.py also has uses that script's name and
 * default (batch 100, 200 steps, Adam), except that training is synchronous by default. */
#include "base/flags_tensorflow.h"
#include "base/float_text.h"
#include "cluster/cluster.h"
#include "flags/rows.h"
#include "member/device_lock.h"
#include "net/rpc/environment.h"
#include "worker/device/gpus.h"
#include "worker/options/options_impl.h"
#include "worker/place/tower_plan.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TRAIN_STEPS = 200 };

static const struct options defaults = {
    .typed = {.task_index = -1, .sync_replicas = -1, .gpu_tuning = "auto"},
    .job = JOB_SETTINGS_DEFAULTS,
    .security = {.role = ROLE_WORKER},
    .slurm_port = CLUSTER_SLURM_PORT,
    .data_dir = DATASET_DEFAULT_DIR,
    .model = "mlp",
    .batch_size = 100,
    .log_every = 100,
    .summary_steps = 100,
    .histogram_steps = -1,
    .towers_per_gpu = 1,
    .gpus = "auto",
    .gpu_allow_growth = -1,
    .list_devices = -1,
    .self_test = -1,
    .self_test_seconds = 120,
    .log_level = LOG_LEVEL_INFO,
    .save_secs = -1,
    .keep_checkpoint_max = 5,
    .max_nonfinite = 100,
};
static struct options typed; /* values of the flags as parsed */

/* Flags of ps are not stored: the worker accepts them, but does not use them. */
#define FOR_PS(name, type, field, ...) FLAG_ROW(name, type, NULL, __VA_ARGS__)
#define FOR_WORKER(name, type, field, ...) FLAG_ROW(name, type, &typed.field, __VA_ARGS__)
#define FOR_JOB(name, type, field, ...) FLAG_ROW(name, type, &typed.job.field, __VA_ARGS__)
#define FOR_BOTH FOR_WORKER
#define FOR_ALL FOR_WORKER
#define PS_ALONE(...)
#define WORKER_ALONE FOR_WORKER

static const struct flag table[] = {
#include "flags/table.inc"
};
_Static_assert(TOWERS_MAX == 256, "the bound of --towers in flags/table.inc");
static unsigned char given[sizeof table / sizeof *table];
static const struct flags_program program = {
    .name = "worker",
    .installed = "weir-worker",
    .doc =
        "Trains a neural network: computes gradients on its part of the data and exchanges them "
        "with the servers of the job for new parameters. Without a cluster it trains alone. Exits "
        "with 0 when training is done, 1 after a permanent error, 2 after an error in the flags, "
        "138 where starting it again may help. On SIGTERM and Ctrl-C it leaves the job and exits "
        "with 0; where it cannot leave, and alone (after a last checkpoint if it keeps "
        "checkpoints), it exits with 143 and 130. The worker also accepts the flags of ps and does "
        "not use them, so that one command line can serve both programs.",
    .flags = table,
    .n_flags = sizeof table / sizeof *table,
    .given = given,
    .foreign = flags_tensorflow,
};

bool options_is_given(const struct options *o, const void *field)
{
    return flags_given_name(&program, (char *)&typed + ((char *)field - (char *)o)) != NULL;
}

bool options_list_given(const char *names, char text[FLAGS_TEXT_BYTES])
{
    size_t at = 0;
    for (size_t n; *names; names += n + strspn(names + n, " ")) {
        size_t i = 0;
        n = strcspn(names, " ");
        while (strncmp(table[i].name, names, n) != 0 || table[i].name[n] || !table[i].target)
            CHECK(++i < sizeof table / sizeof *table);
        if (given[i] && at < FLAGS_TEXT_BYTES)
            at += (size_t)snprintf(text + at, FLAGS_TEXT_BYTES - at, "%s--%s", at ? ", " : "",
                                   table[i].name);
    }
    return at > 0;
}

enum status options_refuse(const char *wrong)
{
    if (wrong)
        LOG_E("%s", wrong);
    return wrong ? ST_INVALID : ST_OK;
}

/* Sets each field that is derived from a single flag. */
static void derive(struct options *o)
{
    o->local_steps = o->job.local_steps;
    o->chunk_bytes = o->job.chunk_bytes;
    o->shared_memory = o->job.shared_memory == 0;
    o->cuda_graphs = o->typed.cuda_graphs == 0;
    o->model_given = options_is_given(o, &o->model);
    o->gpus_by_default = !options_is_given(o, &o->gpus) && !options_is_given(o, &o->gpu_wait);
    if (!o->gpu_lock_dir)
        o->gpu_lock_dir = device_lock_default_dir();
    if (o->typed.quiet) {
        o->progress = PROGRESS_LINES;
        if (o->log_level < LOG_LEVEL_WARN)
            o->log_level = LOG_LEVEL_WARN;
    }
}

enum status options_read(int argc, char **argv, struct options *out, int *exit_now)
{
    enum status st = ST_OK;
    typed = defaults;
    memset(given, 0, sizeof given);
    st = flags_parse(&program, argc, argv, exit_now);
    if (st != ST_OK || *exit_now)
        return st;
    struct options o = typed;
    derive(&o);
    log_init("worker", -1, o.log_level);
    TRY(options_find_cluster(&o));
    TRY(net_environment_check());
    TRY(gpus_growth_check(getenv("TF_FORCE_GPU_ALLOW_GROWTH")));
    TRY(options_check(&o));
    log_init("worker", o.task_index, o.log_level);
    flags_dump(&program);
    options_warn_unused(&o);
    if (o.ps_hosts.n > 0)
        TRY(security_start(&o.security));
done:
    if (st == ST_OK)
        *out = o;
    else
        options_free(&o);
    return st;
}

void options_free(struct options *o)
{
    hosts_free(&o->ps_hosts);
    hosts_free(&o->worker_hosts);
}

static void adopt_optimizer(struct options *o, const struct net_job *job)
{
    struct optim_config optim = job->local_steps > 1 ? job->local : job->optim;
    const struct {
        const double *flag;
        float *to;
        float value;
    } numbers[] = {{&o->job.learning_rate, &optim.learning_rate, o->optim.learning_rate},
                   {&o->job.momentum, &optim.momentum, o->optim.momentum},
                   {&o->job.decay, &optim.decay, o->optim.decay},
                   {&o->job.beta1, &optim.beta1, o->optim.beta1},
                   {&o->job.beta2, &optim.beta2, o->optim.beta2},
                   {&o->job.epsilon, &optim.epsilon, o->optim.epsilon},
                   {&o->job.weight_decay, &optim.weight_decay, o->optim.weight_decay},
                   {&o->job.lr_decay, &optim.lr_decay, o->optim.lr_decay},
                   {&o->job.clip_value, &optim.clip_value, o->optim.clip_value},
                   {&o->job.clip_norm, &optim.clip_norm, o->optim.clip_norm},
                   {&o->ema_decay, &optim.ema_decay, o->optim.ema_decay}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (options_is_given(o, numbers[i].flag))
            *numbers[i].to = numbers[i].value;
    if (options_is_given(o, &o->job.optimizer))
        optim.kind = o->optim.kind;
    if (options_is_given(o, &o->job.schedule))
        optim.schedule = o->optim.schedule;
    if (options_is_given(o, &o->job.lr_warmup_steps))
        optim.warmup_steps = o->optim.warmup_steps;
    if (options_is_given(o, &o->job.lr_decay_steps))
        optim.lr_decay_steps = o->optim.lr_decay_steps;
    if (options_is_given(o, &o->job.lr_boundaries)) {
        optim.n_boundaries = o->optim.n_boundaries;
        memcpy(optim.boundary, o->optim.boundary, sizeof optim.boundary);
    }
    o->optim = optim;
}

/* Adopts the job's local steps and outer optimizer for the flags that are not set. */
static void adopt_outer(struct options *o, const struct net_job *job)
{
    if (!options_is_given(o, &o->job.local_steps))
        o->local_steps = job_local_steps(job);
    /* a job without local steps has no outer optimizer; flags that differ from the job are reported
     * by another check */
    if (job->local_steps <= 1)
        return;
    o->outer = job->optim;
    if (o->job.outer_optimizer >= 0)
        o->outer.kind = (enum optim_kind)o->job.outer_optimizer;
    if (o->job.outer_rate >= 0)
        o->outer.learning_rate = (float)o->job.outer_rate;
    if (o->job.outer_momentum >= 0)
        o->outer.momentum = (float)o->job.outer_momentum;
    o->outer_known = 1;
}

/* Adopts the job's steps, batch and validation for the flags that are not set. */
static enum status adopt_training(struct options *o, const struct net_job *job)
{
    int64_t n = job_local_steps(job);
    if (!options_is_given(o, &o->train_steps))
        o->train_steps = (job->asked_steps ? job->asked_steps : job->train_steps) * n;
    if (!options_is_given(o, &o->batch_size) && job->batch > 0)
        o->batch_size = job->batch / n;
    adopt_outer(o, job);
    if (!options_is_given(o, &o->validation_split))
        o->validation_split = job->validation_split;
    if (o->validation_split > 0 && o->validation_dir) {
        char text[FLOAT_TEXT_BYTES];
        LOG_E(
            "--validation_dir: the job holds out %s of its training set (--validation_split); remove this flag",
            float_text_double(o->validation_split, text));
        return ST_INVALID;
    }
    if (job->validation.data.n > 0 && !options_is_given(o, &o->eval_every))
        o->eval_every = job->validation.every * n;
    if (job->validation.data.n > 0 && !options_is_given(o, &o->early_stopping))
        o->early_stopping = job->validation.patience;
    if (!options_is_given(o, &o->seed))
        o->seed = (int64_t)job->seed;
    return ST_OK;
}

static void copy_list(struct options_list *to, const float *value, int n)
{
    to->n = n;
    memcpy(to->value, value, (size_t)n * sizeof *value);
}

/* Adopts the job's preprocessing of samples for the flags that are not set. */
static void adopt_samples(struct options *o, const struct net_job *job)
{
    if (!options_is_given(o, &o->typed.mean))
        copy_list(&o->mean, job->normal.mean, job->normal.n);
    if (!options_is_given(o, &o->typed.std))
        copy_list(&o->std, job->normal.std, job->normal.n);
    if (!options_is_given(o, &o->standardize))
        o->standardize = job->data.standardized;
    if (!options_is_given(o, &o->typed.augment))
        o->augment = job->augment;
    if (!options_is_given(o, &o->label_smoothing))
        o->label_smoothing = (double)job->label_smoothing;
}

enum status options_adopt(struct options *o, const struct net_status *s)
{
    const struct net_job *job = &s->job;
    adopt_optimizer(o, job);
    if (adopt_training(o, job) != ST_OK)
        return ST_INVALID;
    if (!options_is_given(o, &o->job.sync_mode) && !options_is_given(o, &o->typed.sync_replicas))
        o->sync_mode = job->sync_mode;
    if (!options_is_given(o, &o->data_own))
        o->data_own = job->data.own;
    if (options_check_shard(o) != ST_OK)
        return ST_INVALID;
    if (!options_is_given(o, &o->job.replicas)) /* stays 0, which means all workers */
        o->aggregate = job->aggregate == job->n_workers ? 0 : job->aggregate;
    if (!options_is_given(o, &o->job.staleness))
        o->staleness = job->staleness;
    if (!options_is_given(o, &o->job.compensation))
        o->delay_compensation = job->delay_compensation;
    if (!options_is_given(o, &o->job.wire_dtype) || o->wire_auto) {
        o->wire_auto = 0;
        o->push_dtype = job->push_dtype;
        o->version_dtype = job->version_dtype;
    }
    if (!options_is_given(o, &o->job.chunk_bytes))
        o->chunk_bytes = s->chunks->chunk_bytes;
    if (!options_is_given(o, &o->hidden_units) && !options_is_given(o, &o->model))
        o->hidden_units = s->hidden_units;
    if (!options_is_given(o, &o->model)) {
        o->model_text = s->model;
        if (!s->model) {
            LOG_E(
                "--join: the servers do not have the text of the model; set --model (and --hidden_units)");
            return ST_NOT_FOUND;
        }
    }
    adopt_samples(o, job);
    if (options_check_clipping(o) != ST_OK || options_check_samples(o) != ST_OK ||
        options_check_rounds(o) != ST_OK || options_check_average(o) != ST_OK)
        return ST_INVALID;
    if (o->batch_size < o->towers) {
        LOG_E("--towers: %" PRId64 " towers cannot share the job's batch of %" PRId64, o->towers,
              o->batch_size);
        return ST_INVALID;
    }
    return ST_OK;
}

int64_t options_rounds(const struct options *o)
{
    return o->local_steps > 1 && o->ps_hosts.n > 0 ? o->local_steps : 1;
}

int64_t options_train_steps(const struct options *o, int64_t n)
{
    if (o->epochs > 0) {
        double batch = (double)o->batch_size * (o->sync_mode == JOB_SYNC ? o->aggregate : 1);
        return (int64_t)ceil(o->epochs * (double)n / batch);
    }
    return o->train_steps > 0 ? o->train_steps : DEFAULT_TRAIN_STEPS;
}

struct net_job options_job(const struct options *o, int64_t n)
{
    struct net_job job = {.n_workers = o->n_workers,
                          .sync_mode = o->sync_mode,
                          .optim = o->optim,
                          .train_steps = options_train_steps(o, n),
                          .epochs = o->data_own ? o->epochs : 0,
                          .seed = (uint64_t)o->seed,
                          .aggregate = o->aggregate,
                          .staleness = o->staleness,
                          .delay_compensation = o->delay_compensation,
                          .validation_split = o->validation_split,
                          .label_smoothing = (float)o->label_smoothing,
                          .augment = o->augment,
                          .push_dtype = o->push_dtype,
                          .version_dtype = o->version_dtype,
                          .wire_auto = o->wire_auto,
                          .batch = (int)o->batch_size};
    job.optim.total_steps = (uint64_t)job.train_steps;
    if (o->ps_hosts.n == 0 &&
        /* versions of a worker without servers are floats, because it sends no changes, and keeps
         * no residuals */
        job_sends_changes(&job))
        job.version_dtype = DTYPE_F32;
    int64_t n_local = options_rounds(o);
    if (n_local > 1) {
        job_settings_round(&job, n_local, &o->outer);
        job.outer_unsaid = job_settings_outer_unsaid(&o->job);
    }
    return job;
}

void options_settle_outer(struct options *o, int64_t n_samples, int64_t n_params)
{
    const struct net_job job = {.sync_mode = o->sync_mode,
                                .n_workers = o->n_workers,
                                .train_steps = options_train_steps(o, n_samples)};
    if (!o->outer_known) /* a known outer optimizer is that of the job */
        job_settings_outer(&o->job, &job, o->optim.kind >= OPTIM_ADAGRAD, n_params, &o->outer);
    o->outer_known = 1;
}
