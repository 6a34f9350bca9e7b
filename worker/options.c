/* worker/options.c - the worker's one table of flags. Names and defaults are those of TensorFlow's
 * mnist_replica.py where it has them (learning rate 0.01, batch 100, 200 steps, Adam), but training
 * is synchronous unless asked otherwise. */
#include "worker/options.h"
#include "base/flags.h"
#include "worker/data/dataset.h"
#include "worker/device/device_lock.h"
#include "worker/device/devices.h"
#include "worker/place/placement.h"
#include "worker/place/tower_plan.h"
#include <math.h>
#include <string.h>

/* What argp fills in before it is checked. Static: the table below points into it. */
static struct raw {
    const char *ps_hosts, *worker_hosts, *job_name, *address;
    int64_t task_index;
    const char *data_dir, *model, *models_dir, *backend_dir, *summary_json, *export_file, *trace;
    const char *record_samples;
    const char *wire_dtype, *gpus, *gpu_lock_dir, *placement;
    int64_t hidden_units, train_steps, batch_size, replicas, eval_every, log_every, seed;
    int64_t chunk_bytes, towers, towers_per_gpu, cpu_batch_size, intra_op_threads, push_delay_ms;
    int64_t staleness, gpu_wait, self_test_seconds;
    double gpu_memory_fraction, epochs, learning_rate, momentum, decay, beta1, beta2, epsilon,
        weight_decay, compensation;
    int sync_replicas, sync_mode, optimizer, schedule, progress, log_level, list_devices, self_test;
    int soft_placement, log_placement, precision, deterministic, gpu_allow_growth;
    int join;
    int shared_memory; /* 0: auto */
    int cuda_graphs;   /* 0: on */
} raw;

static const struct raw raw_defaults = {
    .task_index = -1,
    .data_dir = DATASET_DEFAULT_DIR,
    .model = "mlp",
    .train_steps = 0,
    .batch_size = 100,
    .log_every = 100,
    .towers_per_gpu = 1,
    .learning_rate = -1,
    .momentum = -1,
    .decay = -1,
    .beta1 = -1,
    .beta2 = -1,
    .epsilon = -1,
    .weight_decay = -1,
    .sync_replicas = -1,
    .sync_mode = -1,
    .staleness = -1,
    .wire_dtype = "fp32",
    .optimizer = OPTIM_ADAM,
    .gpus = "auto",
    .gpu_allow_growth = -1,
    .list_devices = -1,
    .self_test = -1,
    .self_test_seconds = 120,
    .log_level = LOG_LEVEL_INFO,
};

enum { DEFAULT_TRAIN_STEPS = 200 };
static const double default_learning_rate = 0.01;

#define STR(n, t, a, h, g)                                                                         \
    {                                                                                              \
        n, FLAG_STRING, &raw.t, 0, 0, a, NULL, h, g                                                \
    }
#define INT(n, t, lo, hi, h)                                                                       \
    {                                                                                              \
        n, FLAG_INT, &raw.t, lo, hi, NULL, NULL, h, NULL                                           \
    }
#define NUM(n, t, lo, hi, h)                                                                       \
    {                                                                                              \
        n, FLAG_DOUBLE, &raw.t, lo, hi, NULL, NULL, h, NULL                                        \
    }
#define ONE(n, t, c, h, g)                                                                         \
    {                                                                                              \
        n, FLAG_CHOICE, &raw.t, 0, 0, NULL, c, h, g                                                \
    }

static const struct flag table[] = {
    STR("ps_hosts", ps_hosts, "HOST:PORT,...",
        "servers of the job; left out, the worker trains alone", "Cluster:"),
    STR("worker_hosts", worker_hosts, "HOST:PORT,...",
        "workers of the job; their number and order count, workers do not listen", NULL),
    STR("job_name", job_name, "NAME", "may be left out; anything but 'worker' is an error", NULL),
    INT("task_index", task_index, 0, JOB_MAX_WORKERS - 1,
        "which entry of --worker_hosts this process is; needed with more than one"),
    {"join", FLAG_BOOL, &raw.join, 0, 0, NULL, NULL,
     "become one more worker of the job that the servers train now; ps 0 gives it its number, and "
     "all flags of the job that are left out",
     NULL},
    STR("address", address, "HOST",
        "how lines and tables name this worker's host; left out, its own name", NULL),
    ONE("sync_mode", sync_mode, JOB_SYNC_MODES,
        "sync: a step is the mean of all workers' gradients; async: each is applied as it comes; "
        "ssp: likewise, but no worker runs away from the slowest (default sync)",
        NULL),
    {"sync_replicas", FLAG_BOOL, &raw.sync_replicas, 0, 0, NULL, NULL,
     "TensorFlow's name: true is --sync_mode=sync, false is async", NULL},
    INT("replicas_to_aggregate", replicas, 0, JOB_MAX_WORKERS,
        "sync: gradients in a step; fewer than workers: the first so many count, the others are "
        "backup workers; 0: all"),
    INT("staleness", staleness, -1, 1e15,
        "ssp, which needs it: steps that a worker may be ahead of the slowest"),
    NUM("delay_compensation", compensation, 0, 1e6,
        "async, ssp: DC-ASGD's lambda, which corrects gradients that come late; 0: none"),
    STR("wire_dtype", wire_dtype, "DTYPE[,DTYPE]",
        "number format of gradients, and of parameters (left out: the same), on their "
        "way: " DTYPE_NAMES,
        NULL),
    ONE("shared_memory", shared_memory, "auto|off",
        "gradients and parameters through shared memory, with servers on this host (default auto)",
        NULL),
    INT("chunk_bytes", chunk_bytes, 0, CHUNKS_MAX_BYTES,
        "largest piece of a parameter that is sent and sharded as one; equal on all workers; 0: "
        "1 MB, less if so many servers would not get about four pieces each"),
    STR("model", model, "FILE|NAME", "JSON file, or a name in the models folder",
        "Model and data:"),
    STR("models_dir", models_dir, "DIR", "models folder; left out, the one that came with Weir",
        NULL),
    INT("hidden_units", hidden_units, 0, 65536,
        "units of the first dense layer; 0: as the model file says"),
    STR("data_dir", data_dir, "DIR", "folder with the four IDX files, gzipped or not", NULL),
    INT("train_steps", train_steps, 0, 1e15, "global steps; 0: by --epochs, else 200"),
    NUM("epochs", epochs, 0, 1e9, "passes over the training set, instead of --train_steps"),
    INT("batch_size", batch_size, 1, 1 << 20, "samples of one worker in one step"),
    INT("seed", seed, 0, 0x1p53,
        "of initial values, sample order and dropout; equal on all workers"),
    ONE("optimizer", optimizer, OPTIM_NAMES, "applied on the servers (default adam)", "Optimizer:"),
    NUM("learning_rate", learning_rate, -1, 1e6, "-1: 0.01"),
    ONE("lr_schedule", schedule, SCHEDULE_NAMES,
        "the learning rate's course over the job: as it is, down to 0 in a line, or in half a wave",
        NULL),
    NUM("momentum", momentum, -1, 1, "momentum, nesterov, rmsprop; -1: the optimizer's own"),
    NUM("decay", decay, -1, 1, "rmsprop's smoothing; -1: the optimizer's own"),
    NUM("beta1", beta1, -1, 1, "adam, adamw; -1: the optimizer's own"),
    NUM("beta2", beta2, -1, 1, "adam, adamw; -1: the optimizer's own"),
    NUM("epsilon", epsilon, -1, 1, "adam*, adagrad, rmsprop; -1: the optimizer's own"),
    NUM("weight_decay", weight_decay, -1, 1e3, "-1: the optimizer's own"),
    {"towers", FLAG_INT, &raw.towers, 0, TOWERS_MAX, NULL, NULL,
     "copies of the model on the CPU, each computing its part of the batch; with GPUs: beside "
     "theirs; 0: none beside GPUs, one without",
     "Computing:"},
    INT("towers_per_gpu", towers_per_gpu, 1, 16, "copies of the model on each GPU"),
    INT("cpu_batch_size", cpu_batch_size, 0, 1 << 20,
        "with GPUs, which share the rest: samples of --batch_size for the CPU's towers together; "
        "0: all towers have equal parts"),
    INT("intra_op_threads", intra_op_threads, 0, 4096,
        "threads inside one operation of one CPU tower; 0: the cores, less one for each GPU tower, "
        "divided by the CPU towers"),
    ONE("precision", precision, "fp32|tf32|bf16",
        "what factors of products are rounded to, on GPUs; sums are in fp32", NULL),
    {"deterministic", FLAG_BOOL, &raw.deterministic, 0, 0, NULL, NULL,
     "GPUs: the same bits on every run, at some cost; the CPU always does so", NULL},
    STR("gpus", gpus, "auto[:N]|all|none|LIST",
        "auto: a GPU (or up to N) that nobody uses, among those that CUDA shows, reserved for this "
        "process, else the CPU; all: each that CUDA shows; LIST: CUDA's numbers or UUIDs, or "
        "beginnings of UUIDs, as in 0,2 or GPU-8932f937",
        NULL),
    INT("gpu_wait", gpu_wait, 0, 30 * 24 * 3600, "--gpus=auto: seconds to wait until one is free"),
    NUM("gpu_memory_fraction", gpu_memory_fraction, 0, 1,
        "the most of each GPU's memory that this process takes, as in 0.4, and takes at once; 0: "
        "no limit, and only what is needed is taken"),
    {"gpu_allow_growth", FLAG_BOOL, &raw.gpu_allow_growth, 0, 0, NULL, NULL,
     "of --gpu_memory_fraction only what is needed is taken; the environment's "
     "TF_FORCE_GPU_ALLOW_GROWTH=true or false wins",
     NULL},
    STR("gpu_lock_dir", gpu_lock_dir, "DIR",
        "where GPUs are reserved; the same for all who share the machine; left out, /run/lock, or "
        "/tmp where not everybody may write there",
        NULL),
    ONE("cuda_graphs", cuda_graphs, "on|off",
        "where training stays on a GPU (one tower, no servers): launch each step as one CUDA "
        "graph, or kernel by kernel",
        NULL),
    STR("placement", placement, "RULE,...",
        "which device computes which layer, as in fc*=cpu:0,conv*=gpu:1: layers by name (* ? "
        "[a-c]), the first rule that fits counts, and before the model file; devices are cpu, gpu "
        "(the tower's own), gpu:K (of those chosen by --gpus; the worker is then one tower over "
        "them) and round_robin",
        NULL),
    {"allow_soft_placement", FLAG_BOOL, &raw.soft_placement, 0, 0, NULL, NULL,
     "a layer whose device is not there goes to its tower's own, instead of an error", NULL},
    {"log_device_placement", FLAG_BOOL, &raw.log_placement, 0, 0, NULL, NULL,
     "say of each layer where it lies, and why", NULL},
    {"list_devices", FLAG_MAYBE, &raw.list_devices, 0, 0, NULL, "text|json",
     "print the devices of this machine and exit", NULL},
    {"self_test", FLAG_MAYBE, &raw.self_test, 0, 0, NULL, "text|json",
     "take a small training step on each GPU (or those of --gpus) and on the CPU, compare, say "
     "which device works or why not, and exit",
     NULL},
    INT("self_test_seconds", self_test_seconds, 1, 24 * 3600,
        "longest time that --self_test gives one device"),
    STR("backend_dir", backend_dir, "DIR", "where backends lie; left out, lib beside the program",
        NULL),
    {"eval_every", FLAG_INT, &raw.eval_every, 0, 1e15, NULL, NULL,
     "steps between evaluations on the test set; 0: only at the end", "Output:"},
    INT("log_every", log_every, 1, 1e15, "steps between lines of progress"),
    ONE("progress", progress, "auto|bar|lines", "auto: a bar on a terminal, lines elsewhere", NULL),
    STR("summary_json", summary_json, "FILE", "write the final figures here", NULL),
    STR("export", export_file, "FILE", "write the trained parameters here, as safetensors", NULL),
    STR("trace", trace, "FILE",
        "write here, at the end, what each thread did when (Chrome trace JSON)", NULL),
    STR("record_samples", record_samples, "FILE",
        "add a line to this for each step that has all its parameters: generation, step, position "
        "of its first sample in the order of all passes, samples",
        NULL),
    ONE("log_level", log_level, "debug|info|warn|error", "least important lines to log", NULL),
    INT("fault_push_delay_ms", push_delay_ms, 0, 10000,
        "for tests: each push waits a random time up to this, which disturbs the order of arrival"),
};

static unsigned char given[sizeof table / sizeof *table];

static const struct flags_program program = {
    .name = "worker",
    .doc =
        "Trains a neural network: computes gradients on its part of the data and exchanges them "
        "with the servers of the job for new parameters. Without --ps_hosts it trains alone. Exits "
        "with 0 when all is done, 1 after an error that stays, 2 after one in the flags, 138 where "
        "starting it again may help. SIGTERM: leaves the job by name, 0, or 143 where that cannot "
        "be; 130 after Ctrl-C.",
    .flags = table,
    .n_flags = sizeof table / sizeof *table,
    .given = given,
};

/* 1: the flag that is stored there was on the command line. */
static int is_given(const void *target)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].target == target)
            return given[i];
    return 0;
}

/* A worker that joins has no number of its own, unless it says so. */
static enum status check_joining(struct options *o)
{
    const char *wrong = NULL;
    if (o->ps_hosts.n == 0)
        wrong = "--ps_hosts is missing: the first of them is asked for the job";
    else if (o->worker_hosts.n > 0)
        wrong = "--worker_hosts is for the workers that a job begins with; leave it out";
    else if (raw.epochs > 0)
        wrong = "--epochs: the job has its steps already; leave it out";
    if (wrong) {
        LOG_E("--join: %s", wrong);
        return ST_INVALID;
    }
    o->task_index = (int)raw.task_index;
    o->n_workers = 0;
    return ST_OK;
}

static enum status check_cluster(struct options *o)
{
    if (raw.address && (!*raw.address || strlen(raw.address) >= JOB_ADDRESS_BYTES ||
                        strpbrk(raw.address, " \t\n"))) {
        LOG_E("--address: '%.300s' is no name of a host", raw.address);
        return ST_INVALID;
    }
    if (raw.job_name && strcmp(raw.job_name, "worker") != 0) {
        LOG_E("--job_name: this program is 'worker', not '%s'; start build/bin/%s for that role or "
              "leave --job_name out",
              raw.job_name, strcmp(raw.job_name, "ps") == 0 ? "ps" : "worker");
        return ST_INVALID;
    }
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
    if (raw.task_index < 0 && o->n_workers > 1) {
        LOG_E("Must specify an explicit --task_index (0 to %d)", o->n_workers - 1);
        return ST_INVALID;
    }
    if (raw.task_index >= o->n_workers) {
        LOG_E("--task_index: %lld is out of range; --worker_hosts has %d %s",
              (long long)raw.task_index, o->n_workers, o->n_workers == 1 ? "entry" : "entries");
        return ST_INVALID;
    }
    o->task_index = raw.task_index < 0 ? 0 : (int)raw.task_index;
    return ST_OK;
}

static enum status check_mode(struct options *o)
{
    int by_replicas = raw.sync_replicas ? JOB_SYNC : JOB_ASYNC;
    if (raw.sync_replicas >= 0 && raw.sync_mode >= 0 && by_replicas != raw.sync_mode) {
        LOG_E("--sync_replicas and --sync_mode contradict each other; give one of them");
        return ST_INVALID;
    }
    o->sync_mode = raw.sync_mode >= 0       ? (enum job_sync_mode)raw.sync_mode
                   : raw.sync_replicas >= 0 ? (enum job_sync_mode)by_replicas
                                            : JOB_SYNC;
    if ((raw.replicas > o->n_workers && !o->join) ||
        (raw.replicas != 0 && o->sync_mode != JOB_SYNC && !o->join)) {
        LOG_E(
            "--replicas_to_aggregate: %lld cannot be; it is for --sync_mode=sync, and at most the "
            "number of workers, %d",
            (long long)raw.replicas, o->n_workers);
        return ST_INVALID;
    }
    o->aggregate = raw.replicas > 0 ? (int)raw.replicas : o->n_workers;
    if ((raw.staleness >= 0) != (o->sync_mode == JOB_SSP) && !o->join) {
        LOG_E("--staleness and --sync_mode=ssp go together; give both or none of them");
        return ST_INVALID;
    }
    o->staleness = raw.staleness >= 0 ? raw.staleness : 0;
    if (raw.compensation > 0 && o->sync_mode == JOB_SYNC && !o->join) {
        LOG_E("--delay_compensation: in --sync_mode=sync no gradient comes late; leave it out, or "
              "take async or ssp");
        return ST_INVALID;
    }
    o->delay_compensation = (float)raw.compensation;
    return ST_OK;
}

static int dtype_read(const char *name, size_t n, enum dtype *out)
{
    for (int i = 0; i < DTYPE_N_KINDS; i++) {
        *out = (enum dtype)i;
        if (strlen(dtype_name(*out)) == n && !memcmp(name, dtype_name(*out), n))
            return 1;
    }
    return 0;
}

static enum status check_dtypes(struct options *o)
{
    const char *comma = strchr(raw.wire_dtype, ',');
    size_t first = comma ? (size_t)(comma - raw.wire_dtype) : strlen(raw.wire_dtype);
    const char *second = comma ? comma + 1 : raw.wire_dtype;
    if (dtype_read(raw.wire_dtype, first, &o->push_dtype) &&
        dtype_read(second, strlen(second), &o->version_dtype))
        return ST_OK;
    LOG_E("--wire_dtype: '%.100s' is not one or two (with a comma) of %s", raw.wire_dtype,
          DTYPE_NAMES);
    return ST_INVALID;
}

static void set_if_given(float *field, double value)
{
    if (value >= 0)
        *field = (float)value;
}

static enum status check_training(struct options *o)
{
    optim_defaults((enum optim_kind)raw.optimizer, &o->optim);
    o->optim.learning_rate = (float)default_learning_rate;
    set_if_given(&o->optim.learning_rate, raw.learning_rate);
    o->optim.schedule = (enum optim_schedule)raw.schedule;
    set_if_given(&o->optim.momentum, raw.momentum);
    set_if_given(&o->optim.decay, raw.decay);
    set_if_given(&o->optim.beta1, raw.beta1);
    set_if_given(&o->optim.beta2, raw.beta2);
    set_if_given(&o->optim.epsilon, raw.epsilon);
    set_if_given(&o->optim.weight_decay, raw.weight_decay);
    enum status st = optim_check(&o->optim);
    if (st != ST_OK)
        return st;
    if (raw.train_steps > 0 && raw.epochs > 0) {
        LOG_E("--train_steps and --epochs are both given; give one of them");
        return ST_INVALID;
    }
    if (raw.batch_size < raw.towers) {
        LOG_E("--towers: %lld towers cannot share a --batch_size of %lld", (long long)raw.towers,
              (long long)raw.batch_size);
        return ST_INVALID;
    }
    if (raw.cpu_batch_size > 0 && raw.towers == 0) {
        LOG_E("--cpu_batch_size is the part of the CPU's towers beside those on GPUs; say how many "
              "by --towers=N");
        return ST_INVALID;
    }
    if (raw.chunk_bytes != 0 && (raw.chunk_bytes % 4 || raw.chunk_bytes < CHUNKS_MIN_BYTES)) {
        LOG_E("--chunk_bytes: %lld is no multiple of 4, or below %d", (long long)raw.chunk_bytes,
              CHUNKS_MIN_BYTES);
        return ST_INVALID;
    }
    return ST_OK;
}

static void copy_plain(struct options *o)
{
    o->join = raw.join;
    o->address = raw.address;
    o->data_dir = raw.data_dir;
    o->model = raw.model;
    o->models_dir = raw.models_dir;
    o->backend_dir = raw.backend_dir;
    o->summary_json = raw.summary_json;
    o->export_file = raw.export_file;
    o->trace = raw.trace;
    o->record_samples = raw.record_samples;
    o->hidden_units = raw.hidden_units;
    o->train_steps = raw.train_steps;
    o->epochs = raw.epochs;
    o->batch_size = raw.batch_size;
    o->eval_every = raw.eval_every;
    o->log_every = raw.log_every;
    o->seed = raw.seed;
    o->chunk_bytes = raw.chunk_bytes;
    o->towers = (int)raw.towers;
    o->towers_per_gpu = (int)raw.towers_per_gpu;
    o->cpu_batch_size = (int)raw.cpu_batch_size;
    o->intra_op_threads = (int)raw.intra_op_threads;
    o->precision = (enum backend_precision)raw.precision;
    o->deterministic = raw.deterministic;
    o->progress = (enum progress_style)raw.progress;
    o->log_level = (enum log_level)raw.log_level;
    o->push_delay_ms = raw.push_delay_ms;
    o->gpus = raw.gpus;
    o->gpu_lock_dir = raw.gpu_lock_dir ? raw.gpu_lock_dir : device_lock_default_dir();
    o->gpu_wait = (int)raw.gpu_wait;
    o->gpu_memory_fraction = raw.gpu_memory_fraction;
    o->gpu_allow_growth = raw.gpu_allow_growth;
    o->placement = raw.placement;
    o->soft_placement = raw.soft_placement;
    o->log_placement = raw.log_placement;
    o->list_devices = raw.list_devices;
    o->self_test = raw.self_test;
    o->self_test_seconds = (int)raw.self_test_seconds;
    o->shared_memory = raw.shared_memory == 0;
    o->cuda_graphs = raw.cuda_graphs == 0;
}

enum status options_read(int argc, char **argv, struct options *out, int *exit_now)
{
    enum status st = ST_OK;
    struct options o = {0};
    raw = raw_defaults;
    memset(given, 0, sizeof given);
    TRY(flags_parse(&program, argc, argv, exit_now));
    if (*exit_now)
        return ST_OK;
    copy_plain(&o);
    TRY(hosts_parse(raw.ps_hosts, "ps_hosts", &o.ps_hosts));
    TRY(hosts_parse(raw.worker_hosts, "worker_hosts", &o.worker_hosts));
    TRY(check_cluster(&o));
    TRY(check_mode(&o));
    TRY(check_dtypes(&o));
    TRY(check_training(&o));
    TRY(devices_check(o.gpus, o.gpu_wait));
    TRY(placement_check(o.placement));
    log_init("worker", o.task_index, o.log_level);
    flags_dump(&program);
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
static void adopt_training(struct options *o, const struct net_job *job)
{
    struct optim_config optim = job->optim;
    const struct {
        const double *flag;
        float *to;
        float value;
    } numbers[] = {{&raw.learning_rate, &optim.learning_rate, o->optim.learning_rate},
                   {&raw.momentum, &optim.momentum, o->optim.momentum},
                   {&raw.decay, &optim.decay, o->optim.decay},
                   {&raw.beta1, &optim.beta1, o->optim.beta1},
                   {&raw.beta2, &optim.beta2, o->optim.beta2},
                   {&raw.epsilon, &optim.epsilon, o->optim.epsilon},
                   {&raw.weight_decay, &optim.weight_decay, o->optim.weight_decay}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (is_given(numbers[i].flag))
            *numbers[i].to = numbers[i].value;
    if (is_given(&raw.optimizer))
        optim.kind = o->optim.kind;
    if (is_given(&raw.schedule))
        optim.schedule = o->optim.schedule;
    o->optim = optim;
    if (!is_given(&raw.train_steps))
        o->train_steps = job->train_steps;
    if (!is_given(&raw.batch_size) && job->batch > 0)
        o->batch_size = job->batch;
    if (!is_given(&raw.seed))
        o->seed = (int64_t)job->seed;
}

enum status options_adopt(struct options *o, const struct net_status *s)
{
    const struct net_job *job = &s->job;
    adopt_training(o, job);
    if (!is_given(&raw.sync_mode) && !is_given(&raw.sync_replicas))
        o->sync_mode = job->sync_mode;
    if (!is_given(&raw.replicas)) /* 0: all that there are */
        o->aggregate = job->aggregate == job->n_workers ? 0 : job->aggregate;
    if (!is_given(&raw.staleness))
        o->staleness = job->staleness;
    if (!is_given(&raw.compensation))
        o->delay_compensation = job->delay_compensation;
    if (!is_given(&raw.wire_dtype)) {
        o->push_dtype = job->push_dtype;
        o->version_dtype = job->version_dtype;
    }
    if (!is_given(&raw.chunk_bytes))
        o->chunk_bytes = s->chunks->chunk_bytes;
    if (!is_given(&raw.hidden_units) && !is_given(&raw.model))
        o->hidden_units = s->hidden_units;
    if (!is_given(&raw.model)) {
        o->model_text = s->model;
        if (!s->model) {
            LOG_E("--join: the servers do not know the model's text; give --model (and "
                  "--hidden_units)");
            return ST_NOT_FOUND;
        }
    }
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
                          .seed = (uint64_t)o->seed,
                          .aggregate = o->aggregate,
                          .staleness = o->staleness,
                          .delay_compensation = o->delay_compensation,
                          .push_dtype = o->push_dtype,
                          .version_dtype = o->version_dtype,
                          .batch = (int)o->batch_size};
    job.optim.total_steps = (uint64_t)job.train_steps;
    return job;
}
