/* worker/options/options_check.c - what was typed, flag by flag and together: see options_impl.h.
 */
#include "base/float_text.h"
#include "base/job_name.h"
#include "files/output_path.h"
#include "kernels/tuning.h"
#include "worker/data/data_csv.h"
#include "worker/options/options_impl.h"
#include "worker/results/predictions.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { DEFAULT_SAVE_SECS = 600 };

static enum status check_bf16(void)
{
    if (!options_raw.bf16_layers || options_raw.precision == BACKEND_BF16)
        return ST_OK;
    LOG_E("--bf16_layers is for --precision=bf16; give both or leave it out");
    return ST_INVALID;
}

/* A worker that joins has no number of its own, unless it says so. */
static enum status check_joining(struct options *o)
{
    const char *wrong = NULL;
    if (o->ps_hosts.n == 0)
        wrong = "--ps_hosts is missing: the first of them is asked for the job";
    else if (o->worker_hosts.n > 0)
        wrong = "--worker_hosts is for the workers that a job begins with; leave it out";
    else if (options_raw.init)
        wrong = "--init: the job has its parameters already; leave it out";
    else if (options_raw.epochs > 0)
        wrong = "--epochs: the job has its steps already; leave it out";
    if (wrong) {
        LOG_E("--join: %s", wrong);
        return ST_INVALID;
    }
    o->task_index = (int)options_raw.task_index;
    o->n_workers = 0;
    return ST_OK;
}

enum status options_check_cluster(struct options *o)
{
    if (options_raw.address &&
        (!*options_raw.address || strlen(options_raw.address) >= JOB_ADDRESS_BYTES ||
         strpbrk(options_raw.address, " \t\n"))) {
        LOG_E("--address: '%.300s' is no name of a host", options_raw.address);
        return ST_INVALID;
    }
    long long task_index = options_raw.task_index;
    if (job_name_check_worker(options_raw.job_name, &task_index) != ST_OK)
        return ST_INVALID;
    options_raw.task_index = task_index;
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
    if (options_raw.task_index < 0 && o->n_workers > 1) {
        LOG_E("Must specify an explicit --task_index (0 to %d)", o->n_workers - 1);
        return ST_INVALID;
    }
    if (options_raw.task_index >= o->n_workers) {
        LOG_E("--task_index: %lld is out of range; --worker_hosts has %d %s",
              (long long)options_raw.task_index, o->n_workers,
              o->n_workers == 1 ? "entry" : "entries");
        return ST_INVALID;
    }
    o->task_index = options_raw.task_index < 0 ? 0 : (int)options_raw.task_index;
    return ST_OK;
}

enum status options_check_mode(struct options *o)
{
    int by_replicas = options_raw.sync_replicas ? JOB_SYNC : JOB_ASYNC;
    if (options_raw.sync_replicas >= 0 && options_raw.job.sync_mode >= 0 &&
        by_replicas != options_raw.job.sync_mode) {
        LOG_E("--sync_replicas and --sync_mode contradict each other; give one of them");
        return ST_INVALID;
    }
    o->sync_mode = options_raw.job.sync_mode >= 0   ? (enum job_sync_mode)options_raw.job.sync_mode
                   : options_raw.sync_replicas >= 0 ? (enum job_sync_mode)by_replicas
                                                    : JOB_SYNC;
    if ((options_raw.job.replicas > o->n_workers && !o->join) ||
        (options_raw.job.replicas != 0 && o->sync_mode != JOB_SYNC && !o->join)) {
        LOG_E(
            "--replicas_to_aggregate: %lld cannot be; it is for --sync_mode=sync, and at most the "
            "number of workers, %d",
            (long long)options_raw.job.replicas, o->n_workers);
        return ST_INVALID;
    }
    o->aggregate = options_raw.job.replicas > 0 ? (int)options_raw.job.replicas : o->n_workers;
    if ((options_raw.job.staleness >= 0) != (o->sync_mode == JOB_SSP) && !o->join) {
        LOG_E("--staleness and --sync_mode=ssp go together; give both or none of them");
        return ST_INVALID;
    }
    o->staleness = options_raw.job.staleness >= 0 ? options_raw.job.staleness : 0;
    if (options_raw.job.compensation > 0 && o->sync_mode == JOB_SYNC && !o->join) {
        LOG_E("--delay_compensation: in --sync_mode=sync no gradient comes late; leave it out, or "
              "take async or ssp");
        return ST_INVALID;
    }
    o->delay_compensation = (float)options_raw.job.compensation;
    return ST_OK;
}

enum status options_check_dtypes(struct options *o)
{
    struct net_job job;
    if (job_settings_dtypes(&options_raw.job, "--", &job) != ST_OK)
        return ST_INVALID;
    o->wire_auto = job.wire_auto;
    o->wire_step_ms = (int)options_raw.job.wire_step_ms;
    o->push_dtype = job.push_dtype;
    o->version_dtype = job.version_dtype;
    int lockstep = o->sync_mode == JOB_SYNC && (o->aggregate <= 0 || o->aggregate == o->n_workers);
    if (!o->wire_auto && options_table_is_given(&options_raw.job.wire_step_ms)) {
        LOG_E("--wire_step_ms is for --wire_dtype=auto; give both or leave it out");
        return ST_INVALID;
    }
    if (dtype_block(o->version_dtype) == 1 || lockstep)
        return ST_OK;
    LOG_E("--wire_dtype: changes of parameters in %s need --sync_mode=sync without backup "
          "workers; write --wire_dtype=%s,fp32 for gradients alone",
          dtype_name(o->version_dtype), dtype_name(o->push_dtype));
    return ST_INVALID;
}

enum status options_check_tuning(struct options *o)
{
    const char *bad;
    int n;
    if (tuning_parse(options_raw.gpu_tuning, &o->gpu_tuning, &bad, &n) == ST_OK)
        return ST_OK;
    char names[200] = "";
    for (int k = 0; tuning_name(k) != NULL; k++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ", tuning_name(k));
    LOG_E("--gpu_tuning: there is no '%.*s'; there are %sall, auto and none", n < 100 ? n : 100,
          bad, names);
    return ST_INVALID;
}

/* The folder that is taken by default is nobody's part. */
enum status options_check_shard(const struct options *o)
{
    if (!o->data_own || o->ps_hosts.n == 0 || options_raw.train_data ||
        options_table_is_given(&options_raw.data_dir))
        return ST_OK;
    LOG_E("%s: each worker of this job has data of its own; give --data_dir (or --train_data)",
          o->join ? "--join" : "--data_shard=own");
    return ST_INVALID;
}

enum status options_check_data(struct options *o)
{
    const struct options_raw *r = &options_raw;
    const char *wrong = NULL;
    int trains = !r->evaluate && !r->predict;
    if (trains && !r->train_data && r->test_data)
        wrong = "--test_data goes with --train_data; give both, or a folder by --data_dir";
    else if (!trains && r->train_data && !r->test_data)
        wrong = "--evaluate and --predict read --test_data; give that, or a folder by --data_dir";
    else if ((r->test_data || r->train_data) && options_table_is_given(&options_raw.data_dir))
        wrong = "--data_dir and --train_data or --test_data are both given; give one of them";
    else if ((!r->train_data && r->train_labels) || (!r->test_data && r->test_labels))
        wrong = "--train_labels and --test_labels are for --train_data and --test_data; give these";
    if ((r->images_name && strlen(r->images_name) >= DATA_MAX_NAME) ||
        (r->labels_name && strlen(r->labels_name) >= DATA_MAX_NAME))
        wrong = "--images_name and --labels_name are at most 255 characters; this one is longer";
    else if (r->label_column && strcmp(r->label_column, DATA_CSV_NO_LABEL) == 0 && !r->predict)
        wrong = "--label_column=" DATA_CSV_NO_LABEL " is for --predict; name the column by its "
                "name or its number";
    else if (r->label_column && r->target_columns)
        wrong = "--label_column and --target_columns are both given; give one of them";
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    o->train = (struct dataset_request){.dir = o->data_dir,
                                        .part = "train",
                                        .data = r->train_data,
                                        .labels = r->train_labels,
                                        .images_name = r->images_name,
                                        .labels_name = r->labels_name,
                                        .label_column = r->label_column,
                                        .target_columns = r->target_columns,
                                        .ignore_columns = r->ignore_columns,
                                        .csv_header = r->csv_header,
                                        .describe = 1,
                                        .warn = 1,
                                        .progress = o->progress,
                                        .nhwc = r->data_layout};
    o->test = o->train;
    o->test.part = "test";
    o->test.data = r->test_data;
    o->test.labels = r->test_labels;
    o->test.describe = !trains;
    o->test.warn = 0;
    if (r->train_data)
        o->test.dir = NULL;
    o->data_named = r->train_data || r->test_data || options_table_is_given(&options_raw.data_dir);
    return options_check_shard(o);
}

enum status options_check_training(struct options *o)
{
    if (check_bf16() != ST_OK ||
        job_settings_optim(&options_raw.job, "--", o->join, &o->optim) != ST_OK ||
        (!o->join && options_schedule_check_clipping(o) != ST_OK))
        return ST_INVALID;
    if (options_raw.on_nonfinite == 0 && options_table_is_given(&options_raw.max_nonfinite)) {
        LOG_E("--max_nonfinite is for --on_nonfinite=skip; give both or leave it out");
        return ST_INVALID;
    }
    if (options_raw.init_map && !options_raw.init && !options_raw.evaluate &&
        !options_raw.predict) {
        LOG_E("--init_map says what the tensors of --init=FILE, --evaluate=FILE or --predict=FILE "
              "are; give one of these, too");
        return ST_INVALID;
    }
    if (options_raw.train_steps > 0 && options_raw.epochs > 0) {
        LOG_E("--train_steps and --epochs are both given; give one of them");
        return ST_INVALID;
    }
    if (options_raw.batch_size < options_raw.towers) {
        LOG_E("--towers: %lld towers cannot share a --batch_size of %lld",
              (long long)options_raw.towers, (long long)options_raw.batch_size);
        return ST_INVALID;
    }
    if (options_raw.cpu_batch_size > 0 && options_raw.towers == 0) {
        LOG_E("--cpu_batch_size is the part of the CPU's towers beside those on GPUs; say how many "
              "by --towers=N");
        return ST_INVALID;
    }
    if (options_raw.job.chunk_bytes != 0 &&
        (options_raw.job.chunk_bytes % 4 || options_raw.job.chunk_bytes < CHUNKS_MIN_BYTES)) {
        LOG_E("--chunk_bytes: %lld is no multiple of 4, or below %d",
              (long long)options_raw.job.chunk_bytes, CHUNKS_MIN_BYTES);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status options_check_validation(struct options *o)
{
    const char *wrong = NULL;
    o->validation_split = options_raw.validation_split;
    o->validation_dir = options_raw.validation_dir;
    o->early_stopping = options_raw.early_stopping;
    int has = o->validation_split > 0 || o->validation_dir;
    if (o->validation_split > 0 && o->validation_dir)
        wrong = "--validation_split and --validation_dir are both given; give one of them";
    else if (o->early_stopping > 0 && (!has || options_raw.eval_every == 0))
        wrong = "--early_stopping counts evaluations: give --eval_every, and --validation_split or "
                "--validation_dir";
    else if (o->early_stopping > 0 && o->ps_hosts.n > 0 && !o->join && o->sync_mode != JOB_SYNC)
        wrong =
            "--early_stopping: with servers it is for --sync_mode=sync, where all workers are at "
            "one step; end this job by --train_steps";
    if (!wrong)
        return ST_OK;
    LOG_E("%s", wrong);
    return ST_INVALID;
}

enum status options_check_inference(struct options *o)
{
    const char *wrong = NULL;
    o->evaluate = options_raw.evaluate;
    o->predict = options_raw.predict;
    o->output = options_raw.output;
    if (o->evaluate && o->predict)
        wrong = "--evaluate and --predict are both given; give one of them";
    else if (o->predict && !o->output)
        wrong = "--predict needs --output=FILE, the file for its results";
    else if (o->output && !o->predict)
        wrong = "--output=FILE is for the results of --predict=FILE, which is missing; "
                "--export=FILE is for the trained parameters";
    else if ((o->evaluate || o->predict) && (o->ps_hosts.n > 0 || o->join))
        wrong = "--evaluate and --predict need no servers; leave --ps_hosts out";
    else if ((o->evaluate || o->predict) && (options_raw.checkpoint_dir || options_raw.export_file))
        wrong = "--evaluate and --predict train nothing; leave --checkpoint_dir and --export out";
    else if ((o->evaluate || o->predict) && (options_raw.init || options_raw.freeze))
        wrong = "--evaluate and --predict train nothing; leave --init and --freeze out";
    else if ((o->evaluate || o->predict) &&
             (options_raw.validation_dir || options_table_is_given(&options_raw.validation_split) ||
              options_table_is_given(&options_raw.early_stopping) || options_raw.record_samples))
        wrong = "--evaluate and --predict train nothing; leave --validation_dir, "
                "--validation_split, --early_stopping and --record_samples out";
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    if (o->output && !predictions_format_known(o->output)) {
        LOG_E("--output: '%s' has none of the ends that say its format: " PREDICTIONS_ENDS,
              o->output);
        return ST_INVALID;
    }
    return ST_OK;
}

/* --export writes safetensors, whatever the name: refuses the ends of other formats. */
static enum status check_export_end(const char *path)
{
    static const char torch[] = "safetensors.torch.load_file() reads it in PyTorch";
    static const char numpy[] = "safetensors.numpy.load_file() reads it in NumPy";
    static const struct {
        const char *end, *way;
    } others[] = {
        {"onnx", "python3 -m weir.onnx MODEL FILE.safetensors FILE.onnx then converts it"},
        {"pt", torch},
        {"pth", torch},
        {"bin", torch},
        {"pkl", torch},
        {"npz", numpy},
        {"npy", numpy},
        {"h5", numpy},
        {"hdf5", numpy},
        {"keras", numpy},
        {"pb", numpy},
        {"tflite", numpy},
        {"ckpt", "--checkpoint_dir=DIR keeps checkpoints"},
    };
    const char *dot = path ? strrchr(path, '.') : NULL;
    for (size_t i = 0; dot && i < sizeof others / sizeof *others; i++) {
        if (strcasecmp(dot + 1, others[i].end) != 0)
            continue;
        LOG_E("--export=%.300s: the file would be safetensors, which %s files are not; let the "
              "name end in .safetensors: %s",
              path, dot, others[i].way);
        return ST_INVALID;
    }
    return ST_OK;
}

enum status options_check_outputs(const struct options *o)
{
    const struct options_raw *r = &options_raw;
    enum { N_AT_END = 3, N_OUTPUTS = 5 };
    const struct output_path list[] = {
        {"export", r->export_file},
        {"output", r->output},
        {"summary_json", r->summary_json},
        {"trace", r->trace},
        {"record_samples", r->record_samples},
        /* what is read */
        {"predict", r->predict},
        {"evaluate", r->evaluate},
        {"init", r->init},
        {"init_map", r->init_map},
        {"restore", r->restore},
        {"train_data", r->train_data},
        {"train_labels", r->train_labels},
        {"test_data", r->test_data},
        {"test_labels", r->test_labels},
        {"model", access(o->model, F_OK) == 0 ? o->model : NULL}, /* else a name */
    };
    enum status st = check_export_end(r->export_file);
    if (st == ST_OK)
        st = output_paths_differ(list, N_OUTPUTS, sizeof list / sizeof *list);
    for (int i = 0; i < N_AT_END && st == ST_OK; i++)
        st = output_path_check(list[i].flag, list[i].path);
    return st;
}

enum status options_check_checkpoints(struct options *o)
{
    const char *wrong = NULL;
    const char *dir = options_raw.checkpoint_dir && *options_raw.checkpoint_dir
                          ? options_raw.checkpoint_dir
                          : NULL;
    int keep = options_table_is_given(&options_raw.keep_checkpoint_max);
    int more = options_raw.save_steps > 0 || options_raw.save_secs > 0 || options_raw.restore ||
               options_raw.take_over || keep;
    if (o->list_devices >= 0 || o->self_test >= 0)
        return ST_OK;
    if (o->ps_hosts.n > 0) {      /* one command line may serve both roles */
        if (!options_raw.restore) /* which begins anew from what may have ended */
            o->servers_dir = dir;
        if (more)
            LOG_I("--save_steps, --save_secs, --keep_checkpoint_max, --restore and --take_over are "
                  "for the servers of this job, which keep its checkpoints; not used by this "
                  "worker");
        return ST_OK;
    }
    if (!dir && more)
        wrong = "--save_steps, --save_secs, --keep_checkpoint_max, --restore and --take_over need "
                "--checkpoint_dir";
    else if (dir && o->sync_mode != JOB_SYNC)
        wrong = "--checkpoint_dir: a worker alone keeps checkpoints in --sync_mode=sync; leave "
                "--sync_mode out, alone it makes no difference";
    if (wrong) {
        LOG_E("%s", wrong);
        return ST_INVALID;
    }
    o->checkpoint_dir = dir;
    o->restore = options_raw.restore;
    o->take_over = options_raw.take_over;
    o->save_steps = options_raw.save_steps;
    o->save_secs = options_raw.save_secs;
    if (o->save_secs < 0)
        o->save_secs = o->save_steps > 0 ? 0 : DEFAULT_SAVE_SECS;
    o->keep_checkpoint_max = options_raw.keep_checkpoint_max;
    return ST_OK;
}
