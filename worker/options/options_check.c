/* worker/options/options_check.c - checks the worker's flags, each by itself and together, and sets
 * the values that are derived from them. Flags that contradict each other are an error. An operator
 * may use a command line for servers without servers, or for inference after training. Then a log
 * line names the flags that have no effect. */
#include "base/job_name.h"
#include "cluster/cluster.h"
#include "kernels/tuning.h"
#include "worker/device/devices.h"
#include "worker/events/event_writer.h"
#include "worker/options/options_impl.h"
#include "worker/place/placement.h"
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { DEFAULT_SAVE_SECS = 600 };

/* Logs that each task of a Slurm step trains by itself, because the operator may have intended one
 * job for all tasks. */
static void log_alone(const struct cluster_step *s)
{
    if (s->step_id && s->task && s->n_tasks && strcmp(s->n_tasks, "1") != 0)
        LOG_I(
            "this is task %.10s of the %.10s of a Slurm step, and trains alone: --slurm_ps=N makes one job of all tasks, with N servers",
            s->task, s->n_tasks);
}

/* Drops the list of workers in TF_CONFIG: a worker that joins does not decide the number of
 * workers. */
static void leave_out_workers(struct cluster *c)
{
    if (c->source == CLUSTER_TF_CONFIG)
        hosts_free(&c->workers);
}

enum status options_find_cluster(struct options *o)
{
    enum status st = ST_OK;
    struct cluster c = {0};
    int is_alone = o->list_devices >= 0 || o->self_test >= 0 || o->evaluate || o->predict;
    struct cluster_request r = {.ps_hosts = o->typed.ps_hosts,
                                .worker_hosts = o->typed.worker_hosts,
                                .slurm_ps = is_alone ? 0 : o->slurm_ps,
                                .slurm_port = o->slurm_port,
                                .task_index = o->typed.task_index,
                                .job_name = o->typed.job_name,
                                .no_task = o->join};
    if (!is_alone)
        cluster_environment(&r);
    TRY(cluster_find(&r, &c));
    if (o->join)
        leave_out_workers(&c);
    else
        TRY(cluster_check_role(&c, CLUSTER_WORKER));
    if (c.source == CLUSTER_TF_CONFIG && c.ps.n == 0 && c.workers.n > 1) {
        LOG_E(
            "TF_CONFIG: cluster.ps is missing: %d workers need at least one server to train together",
            c.workers.n);
        TRY(ST_INVALID);
    }
    if (!o->join && c.index >= 0)
        o->typed.task_index = c.index;
    o->join |= c.joins;
    cluster_log(&c);
    if (c.source == CLUSTER_NONE && !o->join)
        log_alone(&r.step);
    o->ps_hosts = c.ps;
    o->worker_hosts = c.workers;
    c.ps = c.workers = (struct hosts){0};
done:
    cluster_free(&c);
    return st;
}

/* Checks the flags of a worker that joins. Such a worker has an index of its own only with
 * --task_index. */
static enum status check_joining(struct options *o)
{
    const char *wrong = NULL;
    if (o->ps_hosts.n == 0)
        wrong = "--ps_hosts is missing: the worker requests the job from the first server";
    else if (o->worker_hosts.n > 0)
        wrong = "--worker_hosts lists the workers with which a job begins; remove the flag";
    else if (o->init)
        wrong = "--init: the running job already has parameters; remove the flag";
    else if (o->epochs > 0)
        wrong = "--epochs: the running job already has a number of steps; remove the flag";
    if (wrong) {
        LOG_E("--join: %s", wrong);
        return ST_INVALID;
    }
    o->task_index = (int)o->typed.task_index;
    o->n_workers = 0;
    return ST_OK;
}

static enum status check_cluster(struct options *o)
{
    if (o->address &&
        (!*o->address || strlen(o->address) >= JOB_ADDRESS_BYTES || strpbrk(o->address, " \t\n"))) {
        LOG_E("--address: '%.300s' is not a host name", o->address);
        return ST_INVALID;
    }
    long long task_index = o->typed.task_index;
    if (job_name_check_worker(o->typed.job_name, &task_index) != ST_OK)
        return ST_INVALID;
    o->typed.task_index = task_index;
    if (o->join)
        return check_joining(o);
    o->n_workers = o->worker_hosts.n > 0 ? o->worker_hosts.n : 1;
    if (o->n_workers > JOB_MAX_WORKERS) {
        LOG_E("--worker_hosts: %d entries; at most %d are supported", o->n_workers,
              JOB_MAX_WORKERS);
        return ST_INVALID;
    }
    if (o->ps_hosts.n == 0 && o->n_workers > 1) {
        LOG_E("--ps_hosts is missing: %d workers need at least one server to train together",
              o->n_workers);
        return ST_INVALID;
    }
    if (o->typed.task_index < 0 && o->n_workers > 1) {
        LOG_E(
            "--task_index is missing; set it to the number of this worker's entry in --worker_hosts, from 0 to %d",
            o->n_workers - 1);
        return ST_INVALID;
    }
    if (o->typed.task_index >= o->n_workers) {
        LOG_E(
            "--task_index: %lld is out of range; the highest number is %d, since --worker_hosts has %d %s",
            (long long)o->typed.task_index, o->n_workers - 1, o->n_workers,
            o->n_workers == 1 ? "entry" : "entries");
        return ST_INVALID;
    }
    o->task_index = o->typed.task_index < 0 ? 0 : (int)o->typed.task_index;
    return ST_OK;
}

static enum status check_pages(struct options *o)
{
    int i = o->task_index;
    const char *own = i >= 0 && i < o->worker_hosts.n ? o->worker_hosts.addr[i] : NULL;
    if (o->typed.metrics_port > 0)
        return http_listen_address(o->metrics_bind, own, (int)o->typed.metrics_port, o->pages);
    if (!options_is_given(o, &o->metrics_bind))
        return ST_OK;
    LOG_E("--metrics_bind needs --metrics_port");
    return ST_INVALID;
}

static enum status check_mode(struct options *o)
{
    int by_replicas = o->typed.sync_replicas ? JOB_SYNC : JOB_ASYNC;
    if (o->typed.sync_replicas >= 0 && o->job.sync_mode >= 0 && by_replicas != o->job.sync_mode) {
        LOG_E("--sync_replicas and --sync_mode contradict each other; set one of them");
        return ST_INVALID;
    }
    o->sync_mode = o->job.sync_mode >= 0         ? (enum job_sync_mode)o->job.sync_mode
                   : o->typed.sync_replicas >= 0 ? (enum job_sync_mode)by_replicas
                                                 : JOB_SYNC;
    if ((o->job.replicas > o->n_workers && !o->join) ||
        (o->job.replicas != 0 && o->sync_mode != JOB_SYNC && !o->join)) {
        LOG_E(
            "--replicas_to_aggregate=%lld: the flag is for --sync_mode=sync, and at most the number of workers, %d",
            (long long)o->job.replicas, o->n_workers);
        return ST_INVALID;
    }
    o->aggregate = o->job.replicas > 0 ? (int)o->job.replicas : o->n_workers;
    if ((o->job.staleness >= 0) != (o->sync_mode == JOB_SSP) && !o->join) {
        LOG_E("--staleness and --sync_mode=ssp need each other; set both or neither");
        return ST_INVALID;
    }
    o->staleness = o->job.staleness >= 0 ? o->job.staleness : 0;
    if (o->job.compensation > 0 && o->sync_mode == JOB_SYNC && !o->join) {
        LOG_E(
            "--delay_compensation: in --sync_mode=sync no gradient arrives late; remove the flag, or choose async or ssp");
        return ST_INVALID;
    }
    o->delay_compensation = (float)o->job.compensation;
    return ST_OK;
}

static enum status check_dtypes(struct options *o)
{
    struct net_job job;
    if (job_settings_dtypes(&o->job, "--", &job) != ST_OK)
        return ST_INVALID;
    o->wire_auto = job.wire_auto;
    o->wire_step_ms = (int)o->job.wire_step_ms;
    o->push_dtype = job.push_dtype;
    o->version_dtype = job.version_dtype;
    int lockstep = o->sync_mode == JOB_SYNC && (o->aggregate <= 0 || o->aggregate == o->n_workers);
    if (!o->wire_auto && options_is_given(o, &o->job.wire_step_ms)) {
        LOG_E("--wire_step_ms is for --wire_dtype=auto; set both or neither");
        return ST_INVALID;
    }
    if (dtype_block(o->version_dtype) == 1 || lockstep)
        return ST_OK;
    LOG_E(
        "--wire_dtype: changes of parameters in %s need --sync_mode=sync without backup workers; set --wire_dtype=%s,fp32 for gradients alone",
        dtype_name(o->version_dtype), dtype_name(o->push_dtype));
    return ST_INVALID;
}

static enum status check_tuning(struct options *o)
{
    const char *bad;
    int n;
    if (tuning_parse(o->typed.gpu_tuning, &o->gpu_tuning, &bad, &n) == ST_OK)
        return ST_OK;
    char names[200] = "";
    for (int k = 0; tuning_name(k) != NULL; k++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ", tuning_name(k));
    LOG_E("--gpu_tuning: '%.*s' is not one of %sall, auto and none", n < 100 ? n : 100, bad, names);
    return ST_INVALID;
}

static enum status check_bf16(const struct options *o)
{
    if (!o->bf16_layers || o->precision == BACKEND_BF16)
        return ST_OK;
    LOG_E("--bf16_layers is for --precision=bf16; set both or neither");
    return ST_INVALID;
}

/* Checks the flags that limit gradients. If there are backup workers, the chunks of one step are
 * sums over different workers, so they have no common norm. */
enum status options_check_clipping(const struct options *o)
{
    const char *wrong = NULL;
    if (o->optim.clip_norm > 0 && o->optim.clip_value > 0)
        wrong = "--clip_value and --clip_norm exclude each other; set one of them";
    else if (o->optim.clip_norm > 0 && options_rounds(o) == 1 && o->sync_mode == JOB_SYNC &&
             o->aggregate > 0 && (o->aggregate < o->n_workers || o->n_workers == 0))
        wrong =
            "--clip_norm in --sync_mode=sync is not for jobs with backup workers (--replicas_to_aggregate); choose --clip_value, async or ssp";
    return options_refuse(wrong);
}

/* Checks the flags that --ema_decay excludes. Without servers these flags have no effect, so they
 * are allowed. */
enum status options_check_average(const struct options *o)
{
    const char *wrong = NULL;
    if (o->optim.ema_decay <= 0 || o->ps_hosts.n == 0)
        return ST_OK;
    if (options_rounds(o) > 1)
        wrong =
            "--ema_decay averages the parameters of each step, but with --local_steps the servers do not have them; remove one of the two";
    else if (o->wire_auto || dtype_block(o->version_dtype) > 1)
        wrong =
            "with --ema_decay parameters cannot be sent in int8, int4, topk or auto: set --wire_dtype=int8,fp32, which sends only gradients in int8, or remove --ema_decay";
    return options_refuse(wrong);
}

static enum status check_training(struct options *o)
{
    if (check_bf16(o) != ST_OK || job_settings_optim(&o->job, "--", o->join, &o->optim) != ST_OK ||
        (!o->join && options_check_clipping(o) != ST_OK))
        return ST_INVALID;
    o->optim.ema_decay = (float)o->ema_decay;
    if (!o->join && options_check_average(o) != ST_OK)
        return ST_INVALID;
    if (o->skip_nonfinite == 0 && options_is_given(o, &o->max_nonfinite)) {
        LOG_E("--max_nonfinite is for --on_nonfinite=skip; set both or neither");
        return ST_INVALID;
    }
    if (o->init_map && !o->init && !o->evaluate && !o->predict) {
        LOG_E(
            "--init_map names the tensors of --init=FILE, --evaluate=FILE or --predict=FILE; set one of these, too");
        return ST_INVALID;
    }
    if (o->train_steps > 0 && o->epochs > 0) {
        LOG_E("--train_steps and --epochs exclude each other; set one of them");
        return ST_INVALID;
    }
    if (o->batch_size < o->towers) {
        LOG_E("--towers: %lld towers cannot share a --batch_size of %lld", (long long)o->towers,
              (long long)o->batch_size);
        return ST_INVALID;
    }
    if (o->cpu_batch_size > 0 && o->towers == 0) {
        LOG_E(
            "--cpu_batch_size is the part of the batch for towers on the CPU beside towers on GPUs; set the number of towers on the CPU by --towers=N");
        return ST_INVALID;
    }
    if (o->job.chunk_bytes != 0 &&
        (o->job.chunk_bytes % 4 || o->job.chunk_bytes < CHUNKS_MIN_BYTES)) {
        LOG_E("--chunk_bytes: %lld is not a multiple of 4, or is below %d",
              (long long)o->job.chunk_bytes, CHUNKS_MIN_BYTES);
        return ST_INVALID;
    }
    return ST_OK;
}

static enum status check_validation(struct options *o)
{
    const char *wrong = NULL;
    int has = o->validation_split > 0 || o->validation_dir;
    if (o->validation_split > 0 && o->validation_dir)
        wrong = "--validation_split and --validation_dir exclude each other; set one of them";
    else if (o->early_stopping > 0 && (!has || o->eval_every == 0))
        wrong =
            "--early_stopping counts evaluations: set --eval_every, and --validation_split or --validation_dir";
    else if (o->early_stopping > 0 && o->ps_hosts.n > 0 && !o->join && o->sync_mode != JOB_SYNC)
        wrong =
            "--early_stopping: with servers the flag is for --sync_mode=sync, where all workers are at the same step; end this job by --train_steps";
    return options_refuse(wrong);
}

enum status options_check_rounds(const struct options *o)
{
    if (options_rounds(o) == 1)
        return ST_OK;
    if (job_settings_check_steps(o->train_steps, o->local_steps, "--") != ST_OK)
        return ST_INVALID;
    int moves = o->job.outer_optimizer > OPTIM_SGD || o->job.outer_momentum > 0;
    if (o->sync_mode != JOB_SYNC && moves) {
        LOG_E(
            "%s: momentum is for --sync_mode=sync, because it diverges if it is applied to each worker's contribution alone; with %s remove the flag, or choose --outer_optimizer=sgd",
            o->job.outer_momentum > 0 ? "--outer_momentum" : "--outer_optimizer",
            job_sync_mode_name(o->sync_mode));
        return ST_INVALID;
    }
    if (o->delay_compensation > 0) {
        LOG_E(
            "--delay_compensation corrects gradients, but --local_steps sends none; remove one of them");
        return ST_INVALID;
    }
    if (o->batch_size * o->local_steps > JOB_MAX_BATCH) {
        LOG_E("--local_steps: %" PRId64 " steps of %" PRId64
              " samples are more than %d samples; set fewer steps",
              o->local_steps, o->batch_size, JOB_MAX_BATCH);
        return ST_INVALID;
    }
    if (o->eval_every % o->local_steps != 0) {
        LOG_E("--eval_every: %" PRId64 " steps are not a multiple of --local_steps=%" PRId64
              ", after which a worker has the servers' parameters",
              o->eval_every, o->local_steps);
        return ST_INVALID;
    }
    return ST_OK;
}

/* Refuses a folder in which no file can be written. If the only reason is a full disk, warns
 * instead. index: index of this worker, whose folder is checked; below 0: the index is not known
 * yet, and the folder of all workers is checked. */
static enum status check_folder(const char *logdir, int index)
{
    char folder[PATH_MAX] = "";
    int n = snprintf(folder, sizeof folder, index < 0 ? "%s" : "%s/worker_%d", logdir, index);
    int err = n < (int)sizeof folder ? event_writer_folder(folder) : ENAMETOOLONG;
    if (!err)
        return ST_OK;
    if (status_of_errno(err) != ST_INVALID) {
        LOG_W("--logdir=%.400s: cannot write there now: %s; training continues", logdir,
              status_errno_text(err));
        return ST_OK;
    }
    LOG_E("--logdir=%.400s: cannot write event files there%s: %s; choose another folder", logdir,
          index < 0 ? "" : " (in its folder worker_N)", status_errno_text(err));
    return ST_INVALID;
}

static enum status check_logdir(struct options *o)
{
    int given = o->logdir && *o->logdir;
    if (!given &&
        (options_is_given(o, &o->summary_steps) || options_is_given(o, &o->histogram_steps)))
        LOG_W("--summary_steps and --histogram_steps: no effect without --logdir");
    if (given && (o->evaluate || o->predict)) {
        LOG_E("--evaluate and --predict train nothing; remove --logdir");
        return ST_INVALID;
    }
    if (!given || o->list_devices >= 0 || o->self_test >= 0)
        o->logdir = NULL;
    return !o->logdir ? ST_OK : check_folder(o->logdir, o->task_index);
}

static enum status check_checkpoints(struct options *o)
{
    const char *wrong = NULL, *dir = o->checkpoint_dir;
    if (dir && !*dir)
        dir = NULL;
    bool has_more = o->save_steps > 0 || o->save_secs > 0 || o->restore || o->take_over ||
                    options_is_given(o, &o->keep_checkpoint_max);
    o->checkpoint_dir = NULL;
    if (o->list_devices >= 0 || o->self_test >= 0)
        return ST_OK;
    /* the flags are meant for the servers, which may share this command line */
    if (o->ps_hosts.n > 0) {
        if (!o->restore) /* --restore may name the folder of a job that has ended */
            o->servers_dir = dir;
        if (has_more)
            LOG_I(
                "--save_steps, --save_secs, --keep_checkpoint_max, --restore and --take_over are for the servers of this job, which keep its checkpoints; this worker does not use them");
        return ST_OK;
    }
    if (!dir && has_more)
        wrong =
            "--save_steps, --save_secs, --keep_checkpoint_max, --restore and --take_over need --checkpoint_dir";
    else if (dir && o->sync_mode != JOB_SYNC)
        wrong =
            "--checkpoint_dir: a worker alone keeps checkpoints only in --sync_mode=sync; remove --sync_mode, which has no other effect without servers";
    o->checkpoint_dir = dir;
    if (o->save_secs < 0)
        o->save_secs = o->save_steps > 0 ? 0 : DEFAULT_SAVE_SECS;
    return options_refuse(wrong);
}

/* Flags that are refused with --gpus=none. If --gpus=auto is set, they are allowed, because it
 * is not known yet whether there is a GPU. */
static const char for_gpus[] =
    "gpu_memory_fraction gpu_allow_growth towers_per_gpu cuda_graphs gpu_tuning";
/* Flags without effect in a worker without servers. */
static const char for_exchange[] =
    "sync_mode sync_replicas replicas_to_aggregate staleness delay_compensation wire_dtype wire_step_ms shared_memory data_shard address local_steps outer_optimizer outer_learning_rate outer_momentum tls_cert tls_key tls_ca token_file";
/* Flags without effect with --evaluate and --predict. */
static const char for_training[] =
    "train_steps epochs seed optimizer learning_rate lr_schedule lr_decay lr_decay_steps lr_warmup_steps lr_boundaries clip_value clip_norm momentum decay beta1 beta2 epsilon weight_decay ema_decay label_smoothing on_nonfinite max_nonfinite eval_every log_every chunk_bytes cuda_graphs train_data train_labels metrics_port metrics_bind";

static enum status check_unused(const struct options *o)
{
    char flags[FLAGS_TEXT_BYTES];
    if (o->self_test < 0 && options_is_given(o, &o->self_test_seconds)) {
        LOG_E("--self_test_seconds is for --self_test; set both or neither");
        return ST_INVALID;
    }
    if (strcmp(o->gpus, "none") != 0 || !options_list_given(for_gpus, flags))
        return ST_OK;
    flags[strcspn(flags, ",")] = 0; /* the first */
    LOG_E("%s is for GPUs, but --gpus=none uses none; remove one of the two", flags);
    return ST_INVALID;
}

void options_warn_unused(const struct options *o)
{
    char flags[FLAGS_TEXT_BYTES];
    if (o->ps_hosts.n > 0 || o->list_devices >= 0 || o->self_test >= 0)
        return;
    if (options_list_given(for_exchange, flags))
        LOG_W("%s: no effect without --ps_hosts: a worker alone exchanges no gradients", flags);
    if ((o->evaluate || o->predict) && options_list_given(for_training, flags))
        LOG_W("%s: no effect with --evaluate and --predict, which train nothing", flags);
}

enum status options_check(struct options *o)
{
    enum status st = ST_OK;
    TRY(check_cluster(o));
    TRY(check_pages(o));
    TRY(check_mode(o));
    TRY(check_dtypes(o));
    TRY(check_tuning(o));
    TRY(check_training(o));
    TRY(check_validation(o));
    TRY(job_settings_check_outer(&o->job, "--", o->join));
    TRY(options_check_rounds(o));
    TRY(options_check_inference(o));
    TRY(options_check_outputs(o));
    TRY(check_logdir(o));
    TRY(check_checkpoints(o));
    TRY(options_check_data(o));
    TRY(options_check_input(o));
    TRY(check_unused(o));
    TRY(devices_check(o->gpus, (int)o->gpu_wait));
    TRY(placement_check(o->placement));
done:
    return st;
}
