/* worker/options/options.c - see options.h: what was typed, checked, and what one that joins takes
 * from the job. */
#include "base/float_text.h"
#include "net/rpc/environment.h"
#include "worker/device/device_lock.h"
#include "worker/device/devices.h"
#include "worker/device/gpus.h"
#include "worker/options/options_impl.h"
#include "worker/place/placement.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TRAIN_STEPS = 200 };

static void copy_lines(struct options *o)
{
    o->log_level = (enum log_level)options_raw.log_level;
    o->progress = (enum progress_style)options_raw.progress;
    if (!options_raw.quiet)
        return;
    o->progress = PROGRESS_LINES;
    if (o->log_level < LOG_LEVEL_WARN)
        o->log_level = LOG_LEVEL_WARN;
}

static void copy_plain(struct options *o)
{
    o->local_steps = options_raw.job.local_steps;
    o->join = options_raw.join;
    o->address = options_raw.address;
    o->security = (struct security_config){options_raw.tls_cert, options_raw.tls_key,
                                           options_raw.tls_ca, options_raw.token_file, ROLE_WORKER};
    o->data_dir = options_raw.data_dir;
    o->data_own = options_raw.data_shard;
    o->model = options_raw.model;
    o->model_given = options_table_is_given(&options_raw.model);
    o->models_dir = options_raw.models_dir;
    o->backend_dir = options_raw.backend_dir;
    o->summary_json = options_raw.summary_json;
    o->export_file = options_raw.export_file;
    o->trace = options_raw.trace;
    o->record_samples = options_raw.record_samples;
    o->init = options_raw.init;
    o->init_map = options_raw.init_map;
    o->freeze = options_raw.freeze;
    o->hidden_units = options_raw.hidden_units;
    o->train_steps = options_raw.train_steps;
    o->epochs = options_raw.epochs;
    o->batch_size = options_raw.batch_size;
    o->eval_every = options_raw.eval_every;
    o->log_every = options_raw.log_every;
    o->seed = options_raw.seed;
    o->chunk_bytes = options_raw.job.chunk_bytes;
    o->towers = (int)options_raw.towers;
    o->towers_per_gpu = (int)options_raw.towers_per_gpu;
    o->cpu_batch_size = (int)options_raw.cpu_batch_size;
    o->intra_op_threads = (int)options_raw.intra_op_threads;
    o->precision = (enum backend_precision)options_raw.precision;
    o->deterministic = options_raw.deterministic;
    copy_lines(o);
    o->push_delay_ms = options_raw.push_delay_ms;
    o->skip_nonfinite = options_raw.on_nonfinite == 1;
    o->max_nonfinite = options_raw.max_nonfinite;
    o->fault_nonfinite = options_raw.fault_nonfinite;
    o->bf16_layers = options_raw.bf16_layers;
    o->gpus = options_raw.gpus;
    o->gpus_by_default = !options_table_is_given(&options_raw.gpus) &&
                         !options_table_is_given(&options_raw.gpu_wait);
    o->gpu_lock_dir =
        options_raw.gpu_lock_dir ? options_raw.gpu_lock_dir : device_lock_default_dir();
    o->gpu_wait = (int)options_raw.gpu_wait;
    o->gpu_memory_fraction = options_raw.gpu_memory_fraction;
    o->gpu_allow_growth = options_raw.gpu_allow_growth;
    o->placement = options_raw.placement;
    o->soft_placement = options_raw.soft_placement;
    o->log_placement = options_raw.log_placement;
    o->list_devices = options_raw.list_devices;
    o->self_test = options_raw.self_test;
    o->self_test_seconds = (int)options_raw.self_test_seconds;
    o->shared_memory = options_raw.job.shared_memory == 0;
    o->cuda_graphs = options_raw.cuda_graphs == 0;
}

enum status options_read(int argc, char **argv, struct options *out, int *exit_now)
{
    enum status st = ST_OK;
    struct options o = {0};
    TRY(options_table_parse(argc, argv, exit_now));
    if (*exit_now)
        return ST_OK;
    copy_plain(&o);
    log_init("worker", -1, o.log_level);
    TRY(options_cluster_find(&o));
    TRY(net_environment_check());
    TRY(gpus_growth_check(getenv("TF_FORCE_GPU_ALLOW_GROWTH")));
    TRY(options_check_cluster(&o));
    TRY(options_cluster_check_pages(&o));
    TRY(options_check_mode(&o));
    TRY(options_check_dtypes(&o));
    TRY(options_check_tuning(&o));
    TRY(options_check_training(&o));
    TRY(options_check_validation(&o));
    TRY(options_local_check(&o));
    TRY(options_check_inference(&o));
    TRY(options_check_outputs(&o));
    TRY(options_logdir_check(&o));
    TRY(options_check_checkpoints(&o));
    TRY(options_check_data(&o));
    TRY(options_input_check(&o));
    TRY(options_unused_check(&o));
    TRY(devices_check(o.gpus, o.gpu_wait));
    TRY(placement_check(o.placement));
    log_init("worker", o.task_index, o.log_level);
    options_table_dump();
    options_unused_warn(&o);
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

/* What the joiner was not told itself. */
static enum status adopt_training(struct options *o, const struct net_job *job)
{
    struct optim_config optim = job->local_steps > 1 ? job->local : job->optim;
    int64_t n = job_local_steps(job);
    const struct {
        const double *flag;
        float *to;
        float value;
    } numbers[] = {{&options_raw.job.learning_rate, &optim.learning_rate, o->optim.learning_rate},
                   {&options_raw.job.momentum, &optim.momentum, o->optim.momentum},
                   {&options_raw.job.decay, &optim.decay, o->optim.decay},
                   {&options_raw.job.beta1, &optim.beta1, o->optim.beta1},
                   {&options_raw.job.beta2, &optim.beta2, o->optim.beta2},
                   {&options_raw.job.epsilon, &optim.epsilon, o->optim.epsilon},
                   {&options_raw.job.weight_decay, &optim.weight_decay, o->optim.weight_decay}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (options_table_is_given(numbers[i].flag))
            *numbers[i].to = numbers[i].value;
    if (options_table_is_given(&options_raw.job.optimizer))
        optim.kind = o->optim.kind;
    options_schedule_adopt(&o->optim, &optim);
    o->optim = optim;
    if (!options_table_is_given(&options_raw.train_steps))
        o->train_steps = (job->asked_steps ? job->asked_steps : job->train_steps) * n;
    if (!options_table_is_given(&options_raw.batch_size) && job->batch > 0)
        o->batch_size = job->batch / n;
    options_local_adopt_outer(o, job);
    if (!options_table_is_given(&options_raw.validation_split))
        o->validation_split = job->validation_split;
    if (o->validation_split > 0 && o->validation_dir) {
        char text[FLOAT_TEXT_BYTES];
        LOG_E("--validation_dir: the job holds out %s of its training set (--validation_split); "
              "leave it out",
              float_text_double(o->validation_split, text));
        return ST_INVALID;
    }
    if (job->validation.data.n > 0 && !options_table_is_given(&options_raw.eval_every))
        o->eval_every = job->validation.every * n;
    if (job->validation.data.n > 0 && !options_table_is_given(&options_raw.early_stopping))
        o->early_stopping = job->validation.patience;
    if (!options_table_is_given(&options_raw.seed))
        o->seed = (int64_t)job->seed;
    return ST_OK;
}

enum status options_adopt(struct options *o, const struct net_status *s)
{
    const struct net_job *job = &s->job;
    if (adopt_training(o, job) != ST_OK)
        return ST_INVALID;
    if (!options_table_is_given(&options_raw.job.sync_mode) &&
        !options_table_is_given(&options_raw.sync_replicas))
        o->sync_mode = job->sync_mode;
    if (!options_table_is_given(&options_raw.data_shard))
        o->data_own = job->data.own;
    if (options_check_shard(o) != ST_OK)
        return ST_INVALID;
    if (!options_table_is_given(&options_raw.job.replicas)) /* 0: all that there are */
        o->aggregate = job->aggregate == job->n_workers ? 0 : job->aggregate;
    if (!options_table_is_given(&options_raw.job.staleness))
        o->staleness = job->staleness;
    if (!options_table_is_given(&options_raw.job.compensation))
        o->delay_compensation = job->delay_compensation;
    if (!options_table_is_given(&options_raw.job.wire_dtype) || o->wire_auto) {
        o->wire_auto = 0;
        o->push_dtype = job->push_dtype;
        o->version_dtype = job->version_dtype;
    }
    if (!options_table_is_given(&options_raw.job.chunk_bytes))
        o->chunk_bytes = s->chunks->chunk_bytes;
    if (!options_table_is_given(&options_raw.hidden_units) &&
        !options_table_is_given(&options_raw.model))
        o->hidden_units = s->hidden_units;
    if (!options_table_is_given(&options_raw.model)) {
        o->model_text = s->model;
        if (!s->model) {
            LOG_E("--join: the servers do not know the model's text; give --model (and "
                  "--hidden_units)");
            return ST_NOT_FOUND;
        }
    }
    if (options_schedule_check_clipping(o) != ST_OK || options_input_adopt(o, job) != ST_OK ||
        options_local_check_rounds(o) != ST_OK)
        return ST_INVALID;
    if (o->batch_size < o->towers) {
        LOG_E("--towers: %d towers cannot share the job's batch of %lld", o->towers,
              (long long)o->batch_size);
        return ST_INVALID;
    }
    return ST_OK;
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
                          .augment = o->augment,
                          .push_dtype = o->push_dtype,
                          .version_dtype = o->version_dtype,
                          .wire_auto = o->wire_auto,
                          .batch = (int)o->batch_size};
    job.optim.total_steps = (uint64_t)job.train_steps;
    if (o->ps_hosts.n == 0 && job_sends_changes(&job)) /* to whom? It has no slot for that */
        job.version_dtype = DTYPE_F32;
    options_local_job(o, &job);
    return job;
}
