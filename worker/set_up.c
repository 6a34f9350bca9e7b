/* worker/set_up.c - builds a trainer from the flags: data, model, devices, towers, placement,
 * updates and checkpoints, in this order. See worker.h. */
#include "base/aligned.h"
#include "base/digest.h"
#include "base/float_text.h"
#include "base/process.h"
#include "kernels/vector/vector.h"
#include "member/job_query.h"
#include "member/job_settings.h"
#include "worker/data/data_words.h"
#include "worker/data/dataset_targets.h"
#include "worker/data/fingerprint.h"
#include "worker/device/device_scan.h"
#include "worker/input.h"
#include "worker/place/rounding.h"
#include "worker/worker.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status read_weights(struct worker *w)
{
    const struct weights_request request = set_up_weights(w);
    if (!w->opt.init)
        return ST_OK;
    w->init = aligned_take((size_t)w->chunks->n_elems * sizeof *w->init);
    w->given = calloc((size_t)w->chunks->n_params, sizeof *w->given);
    if (!w->init || !w->given) {
        LOG_E("--init: out of memory for %" PRId64 " parameters", w->chunks->n_elems);
        return ST_NOMEM;
    }
    return weights_read(&request, w->init, w->given, &w->init_result);
}

/* Chooses the devices, and divides the batch among them. */
static enum status make_towers(struct worker *w)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    uint8_t named[DEVICE_MAX];
    TRY(set_up_threads(w));
    const struct placement_request placement = {.layers = w->model->layers,
                                                .n_layers = w->model->n_layers,
                                                .device = w->model->device,
                                                .rules = o->placement};
    int highest = placement_numbers(&placement, named, DEVICE_MAX);
    const struct gpus_request request = {
        .choice = {.gpus = o->gpus,
                   .is_default = o->gpus_by_default && highest <= 0,
                   .wait_seconds = o->gpu_wait,
                   .lock_dir = o->gpu_lock_dir,
                   .named = highest > 0 ? named : NULL,
                   .pause = shutdown_pause,
                   .ctx = w},
        .backend_dir = o->backend_dir,
        .memory_fraction = o->gpu_memory_fraction,
        .allow_growth = gpus_growth(o->gpu_allow_growth, getenv("TF_FORCE_GPU_ALLOW_GROWTH")),
    };
    struct tower_plan_request towers = {
        .gpus = &w->gpus,
        .cpu_towers = o->towers,
        .towers_per_gpu = o->towers_per_gpu,
        .batch = (int)o->batch_size,
        .cpu_batch = o->cpu_batch_size,
        .n_threads = o->intra_op_threads,
        .n_cores = w->n_cores,
        .precision = o->precision,
        .deterministic = o->deterministic,
        .tuning = o->gpu_tuning,
    };
    TRY(gpus_open(&request, &w->gpus));
    TRY(backend_open("cpu", o->backend_dir, &w->cpu));
    towers.cpu = w->cpu;
    TRY(tower_plan_make(&towers, &w->towers));
done:
    return st;
}

/* Places the layers, which may change the towers. */
static enum status place_layers(struct worker *w)
{
    enum status st = ST_OK;
    for (int i = 0; i < w->gpus.chosen.n; i++)
        w->gpu_number[i] = w->gpus.chosen.gpu[i].ordinal;
    const struct placement_request request = {
        .layers = w->model->layers,
        .n_layers = w->model->n_layers,
        .device = w->model->device,
        .rules = w->opt.placement,
        .params = w->model->params,
        .n_params = w->model->n_params,
        .task = w->opt.task_index,
        .n_gpus = w->gpus.chosen.n,
        .number = w->gpus.chosen.by_number ? w->gpu_number : NULL,
        .cpu_towers = w->towers.n > w->towers.n_gpu,
        .soft = w->opt.soft_placement,
    };
    TRY(placement_create(&request, &w->placement));
    if (placement_keeps_on_host(w->placement) && w->opt.ps_hosts.n > 0)
        LOG_W(
            "--placement: with --ps_hosts the servers hold the parameters; the rules for parameters have no effect");
    const struct batch_split_request split = {
        .placement = w->placement,
        .n_layers = w->model->n_layers,
        .cpu = w->cpu,
        .n_threads = w->opt.intra_op_threads,
        .n_cores = w->n_cores,
        .precision = w->opt.precision,
        .batch = (int)w->opt.batch_size,
    };
    TRY(batch_split_create(&split, &w->towers, &w->split));
    for (int i = 0; w->opt.log_placement && i < w->towers.n; i++)
        placement_log(w->placement, i, w->towers.n, w->towers.tower[i].own.gpu_index);
done:
    return st;
}

/* Checks that the class names of this set equal those of the training set, because a label is the
 * index of a name in the sorted list of folders. */
static enum status check_class_names(const struct worker *w, const struct dataset *d)
{
    const struct options *o = &w->opt;
    const char *names = w->train ? w->train->class_names : w->trained_on.class_names;
    uint32_t sum = w->trained_on.names_sum;
    if (!d->class_names ||
        (names ? strcmp(names, d->class_names) == 0
               : !sum || sum == digest_crc32c(0, d->class_names, strlen(d->class_names))))
        return ST_OK;
    char there[DATA_WORDS_TEXT_BYTES], here[DATA_WORDS_TEXT_BYTES];
    LOG_E(
        "%s %s%s, but %s has %s; both need the same classes (a class's folder of pictures may be empty)%s",
        w->train     ? w->train->path
        : o->predict ? o->predict
                     : o->evaluate,
        names ? "has the classes " : "was trained on other classes", data_words_text(names, there),
        d->path, data_words_text(d->class_names, here),
        o->predict ? ", or put pictures without labels into one folder" : "");
    return ST_MISMATCH;
}

static enum status check_data(const struct worker *w)
{
    const struct shape *in = &w->model->input;
    const struct dataset *sets[3] = {w->train, w->test, w->validation};
    for (int i = 0; i < 3; i++) {
        if (sets[i] == NULL)
            continue;
        const int64_t *is = sets[i]->sample.dim;
        if (in->dim[0] != is[0] || in->dim[1] != is[1] || in->dim[2] != is[2]) {
            LOG_E(
                "model '%s' needs samples of %" PRId64 "x%" PRId64 "x%" PRId64
                ", but %s has %" PRId64 "x%" PRId64 "x%" PRId64
                " (channels, height, width); choose another --model, other data, or another --data_layout",
                w->model->name, in->dim[0], in->dim[1], in->dim[2], sets[i]->path, is[0], is[1],
                is[2]);
            return ST_MISMATCH;
        }
        enum status st =
            dataset_targets_check_outputs(sets[i], &w->model->layers[w->model->n_layers - 1]);
        if (st == ST_OK)
            st = check_class_names(w, sets[i]);
        if (st != ST_OK)
            return st;
    }
    return w->train
               ? dataset_targets_check_loss(w->train, &w->model->layers[w->model->n_layers - 1])
               : ST_OK;
}

static enum status open_data(struct worker *w)
{
    enum status st = input_open(w);
    if (st != ST_OK && st != ST_CANCELLED)
        set_up_job_name_flags(w);
    return st;
}

static enum status read_inputs(struct worker *w)
{
    enum status st = ST_OK;
    TRY(place_layers(w));
    TRY(read_weights(w));
    st = check_data(w);
    if (st != ST_OK)
        set_up_job_name_flags(w);
done:
    return st;
}

/* Looks for numbers that are not finite before training begins. Without this check they would be
 * found when their sample is read, which may be hours later. */
static enum status check_finite(struct worker *w)
{
    const struct dataset *sets[] = {w->train, w->test, w->validation};
    enum status st = ST_OK;
    for (size_t i = 0; i < sizeof sets / sizeof *sets && st == ST_OK; i++)
        if (sets[i])
            st = dataset_check_finite(sets[i]);
    return st;
}

/* Computes checksums of the data for a job, a checkpoint or an export. This reads all samples,
 * except those of validation files, which hold_out reads. */
static enum status sum_data(struct worker *w)
{
    const char *files = w->opt.train.data;
    if (w->opt.ps_hosts.n == 0 && !w->opt.checkpoint_dir && !w->opt.export_file)
        return check_finite(w);
    enum status st = fingerprint_compute(
        w->train, w->test, files ? w->train->path : w->opt.data_dir, w->opt.data_own, &w->data);
    w->data.files = files != NULL;
    return st;
}

/* Holds out validation data. Called after sum_data, because the fingerprint is computed over all
 * samples. */
static enum status hold_out(struct worker *w)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    if (o->validation_split > 0)
        TRY(dataset_split(w->train, o->validation_split, (uint64_t)o->seed, &w->validation));
    if (w->validation && (o->ps_hosts.n > 0 || o->checkpoint_dir))
        TRY(fingerprint_validation(w->validation, &w->validation_data));
    if (w->train->n < o->batch_size) {
        LOG_E("--batch_size: %" PRId64 " is more than the %" PRId64 " training samples of %s",
              o->batch_size, w->train->n, w->train->path);
        st = ST_INVALID;
    }
done:
    return st;
}

static enum status first_values(void *ctx, float *params)
{
    const struct worker *w = ctx;
    model_init_params(w->model, (uint64_t)w->opt.seed, params);
    for (int i = 0; w->init && i < w->chunks->n_params; i++) {
        const struct net_param *p = &w->chunks->params[i];
        if (w->given[i])
            memcpy(params + p->first, w->init + p->first, (size_t)p->n_elems * sizeof *params);
    }
    return ST_OK;
}

/* Allocates the parameters in memory to which a server on this host may write versions, except with
 * local steps, which change the parameters between two versions. */
static float *take_params(struct worker *w, size_t bytes)
{
    char why[SEGMENT_WHY_BYTES];
    bool lends = w->train && w->opt.ps_hosts.n > 0 && w->opt.shared_memory;
    lends = lends && w->opt.local_steps <= 1;
    if (!lends || segment_create_lent(bytes, &w->values, why) != ST_OK)
        return aligned_take(bytes);
    return segment_data(w->values);
}

static enum status allocate_params(struct worker *w)
{
    bool averages = w->train && w->opt.optim.ema_decay > 0;
    size_t bytes = (size_t)w->chunks->n_elems * sizeof(float);
    w->params = take_params(w, bytes);
    w->averages = averages ? aligned_take(bytes) : NULL;
    if (w->params && (w->averages || !averages))
        return ST_OK;
    LOG_E("out of memory for %" PRId64 " parameters", w->chunks->n_elems);
    return ST_NOMEM;
}

/* --precision=bf16: measures which layers are faster in bf16 on this CPU. */
static enum status measure_rounding(struct worker *w)
{
    const struct rounding_request r = {.towers = &w->towers,
                                       .model = w->model,
                                       .chunks = w->chunks,
                                       .params = w->params,
                                       .named = w->opt.bf16_layers};
    enum status st = first_values(w, w->params);
    return st == ST_OK ? rounding_measure(&r, &w->rounded) : st;
}

static enum status make_exchange(struct worker *w)
{
    const struct options *o = &w->opt;
    options_settle_outer(&w->opt, w->train->n, w->chunks->n_elems);
    struct net_exchange_config cfg = {
        .ps_hosts = &w->opt.ps_hosts,
        .params = w->params,
        .first_values = first_values,
        .ctx = w,
        .threads = w->threads,
        .step_ms = o->wire_step_ms,
        .shared_memory = o->shared_memory,
        .values = w->values,
        .join = {.member = o->task_index,
                 .job = options_job(o, w->train->n),
                 .chunks = w->chunks,
                 .incarnation = process_incarnation(),
                 .address = o->address ? o->address : member_identity_address(w->address),
                 .model = w->model->text,
                 .hidden_units = w->model->hidden_units,
                 .trained_on = w->data_text}};
    cfg.join.job.data = w->data;
    cfg.join.job.normal = w->normal;
    if (w->validation && !o->data_own) /* all workers have the same validation data */
        cfg.join.job.validation = (struct net_validation){
            w->validation_data, o->eval_every / options_rounds(o), o->early_stopping};
    set_up_threads_arithmetic(w, cfg.join.job.arithmetic);
    if (w->rounded)
        net_rounding_set(&cfg.join.job.rounding, w->rounded, w->model->n_layers);
    set_up_job_over(w, &cfg);
    return updates_create(&cfg, &w->updates);
}

/* --checkpoint_dir of a worker without servers: opens the folder and continues from its newest
 * checkpoint. */
static enum status open_checkpoints(struct worker *w)
{
    const struct options *o = &w->opt;
    struct net_job job = options_job(o, w->train->n);
    job.data = w->data;
    job.normal = w->normal;
    set_up_threads_arithmetic(w, job.arithmetic);
    if (w->rounded)
        net_rounding_set(&job.rounding, w->rounded, w->model->n_layers);
    const struct alone_writer_config cfg = {
        .folder = {.path = o->checkpoint_dir,
                   .restore = o->restore,
                   .take_over = o->take_over,
                   .host = member_identity_host(w->host),
                   .job = &job,
                   .epochs = o->epochs,
                   .chunks = w->chunks,
                   .trained_on = w->data_text,
                   .updates = &w->updates},
        .save_steps = o->save_steps,
        .save_ms = o->save_secs * 1000,
        .keep = (int)o->keep_checkpoint_max,
    };
    enum status st = o->checkpoint_dir ? alone_writer_create(&cfg, &w->saver) : ST_OK;
    /* the steps before the checkpoint used this rounding */
    if (st == ST_OK && w->saver && w->rounded)
        net_rounding_get(alone_writer_rounding(w->saver), w->rounded, w->model->n_layers);
    return st;
}

static void log_network(const struct worker *w)
{
    char label[DEVICE_LABEL_SIZE], name[DATA_WORDS_TEXT_BYTES];
    bool one = dataset_targets_are_labels(w->train, w->model->classes);
    LOG_I("model '%s': %" PRId64 " parameters in %d %s; %d %s, %.0f MB; %" PRId64
          " training samples from %s, %d %s",
          w->model->name, w->chunks->n_elems, w->chunks->n_dense,
          w->chunks->n_dense == 1 ? "chunk" : "chunks", w->towers.n,
          w->towers.n == 1 ? "tower" : "towers", (double)trainer_memory_bytes(w->trainer) / 1e6,
          w->train->n, w->train->path, one ? 2 : w->model->classes,
          w->train->targets ? "targets" : "classes");
    set_up_tables_log(w);
    if (one)
        LOG_I("the output of model '%s' is the probability of class 1%s%s%s", w->model->name,
              w->train->class_names ? " ('" : "", data_words_name(w->train->class_names, 1, name),
              w->train->class_names ? "')" : "");
    for (int i = 0; i < w->towers.n; i++) {
        const struct tower_spec *t = &w->towers.tower[i];
        const struct tower_device *d = &t->own;
        if (d->gpu)
            device_scan_label(d->gpu, label, sizeof label);
        else
            snprintf(label, sizeof label, "CPU, %d %s", d->n_threads,
                     d->n_threads == 1 ? "thread" : "threads");
        LOG_I("tower %d: %s, %d of the %" PRId64 " samples of a batch; %s", i, label, t->n,
              w->opt.batch_size, d->backend->description);
        if (t->stage_of)
            LOG_I("tower %d: %d of its %d layers are on other devices (--log_device_placement)", i,
                  batch_split_n_elsewhere(t, w->model->n_layers), w->model->n_layers);
    }
    if (w->rounded)
        rounding_log(w->model, w->rounded, "as measured");
    if (w->averages)
        LOG_I(
            "evaluations and the export have the average of the parameters (--ema_decay=%g); training continues with the parameters themselves",
            float_text_to_double(w->opt.optim.ema_decay));
    LOG_I("vector loops: %s", vector_description());
}

void set_up_log_rounds(const struct net_job *job, int64_t asked)
{
    int64_t steps = job->train_steps * job->local_steps;
    if (job->local_steps <= 1)
        return;
    LOG_I(
        "%" PRId64
        " rounds: in each, a worker makes %d steps with %s, then the servers make one step with %s",
        job->train_steps, job->local_steps, optim_name(job->local.kind),
        optim_name(job->optim.kind));
    if (asked != steps)
        LOG_I("training runs %" PRId64 " steps instead of %" PRId64
              ": whole rounds of --local_steps=%d",
              steps, asked, job->local_steps);
    job_settings_warn_few(job);
}

static enum status open_validation(struct worker *w, int own_pace)
{
    const struct options *o = &w->opt;
    int servers = o->ps_hosts.n > 0;
    w->validated = (struct validation){.saver = w->saver,
                                       .ps0 = servers && !own_pace ? o->ps_hosts.addr[0] : NULL,
                                       .data = w->validation_data,
                                       .train_steps = options_train_steps(o, w->train->n),
                                       .local_steps = options_rounds(o),
                                       .eval_every = o->eval_every,
                                       .early_stopping = o->early_stopping};
    if (o->early_stopping > 0 && own_pace && servers) {
        LOG_E(
            "--early_stopping: with servers it needs --sync_mode=sync without --replicas_to_aggregate, where all workers are at the same step; end this job by --train_steps");
        return ST_INVALID;
    }
    return w->validation ? validation_resume(&w->validated) : ST_OK;
}

static enum status make_trainer(struct worker *w)
{
    const struct options *o = &w->opt;
    struct net_job job = options_job(o, w->train->n);
    w->server_optim = job.optim;
    struct trainer_config cfg = {
        .model = w->model,
        .chunks = w->chunks,
        .train = w->train,
        .test = w->test,
        .updates = &w->updates,
        .server_optim = o->ps_hosts.n > 0 ? &w->server_optim : NULL,
        .threads = w->threads,
        .params = w->params,
        .params_move = w->values != NULL,
        .averages = w->averages,
        .own_pace = !job_in_lockstep(&job),
        .towers = w->towers.tower,
        .n_towers = w->towers.n,
        .batch = (int)o->batch_size,
        .local_steps = job_local_steps(&job),
        .push_dtype = job.push_dtype,
        .train_steps = job.train_steps * job_local_steps(&job),
        .eval_every = o->eval_every,
        .log_every = o->log_every,
        .observer = events_observer(w->events),
        .progress = o->progress,
        .figures = &w->figures,
        .seed = (uint64_t)o->seed,
        .rounded = w->rounded,
        .augment = o->augment,
        .clip_norm = o->ps_hosts.n > 0 && job_servers_clip(&job) ? 0 : o->optim.clip_norm,
        .skip_nonfinite = o->skip_nonfinite,
        .max_nonfinite = o->max_nonfinite,
        .fault_nonfinite = o->fault_nonfinite,
        .cuda_graphs = o->cuda_graphs,
        .validation = w->validation,
        .validated = validation_note,
        .validated_ctx = &w->validated,
        .at_step = w->saver ? alone_writer_at_step : NULL,
        .at_step_ctx = w->saver,
        .params_on_host = placement_keeps_on_host(w->placement),
        .push_delay_ms = (int)o->push_delay_ms,
    };
    enum status st = ST_OK;
    TRY(open_validation(w, cfg.own_pace));
    if (o->record_samples)
        TRY(sample_log_open(o->record_samples, &w->sample_log));
    cfg.sample_log = w->sample_log;
    TRY(trainer_create(&cfg, &w->trainer));
    log_network(w);
    /* if --epochs is set, another worker's data may change the number of steps later */
    if (job.epochs <= 0)
        set_up_log_rounds(&job, options_train_steps(o, w->train->n));
done:
    return st;
}

static enum status do_parts(struct worker *w, enum status (*const parts[])(struct worker *), int n)
{
    enum status st = ST_OK;
    for (int i = 0; i < n && st == ST_OK && !shutdown_received(w, false); i++)
        st = parts[i](w);
    return st == ST_OK && shutdown_received(w, false) ? ST_CANCELLED : st;
}

enum status set_up(struct worker *w)
{
    enum status (*const parts[])(struct worker *) = {
        set_up_job_ask,    set_up_weights_open,   set_up_tables_inputs, open_data,
        set_up_model_read, make_towers,           read_inputs,          sum_data,
        hold_out,          set_up_tables_add,     input_prepare,        allocate_params,
        measure_rounding,  set_up_job_trained_on, make_exchange,        open_checkpoints,
        set_up_events,     make_trainer};
    enum status st = do_parts(w, parts, sizeof parts / sizeof parts[0]);
    checkpoint_restore_close(w->begins_with); /* all is read */
    w->begins_with = NULL;
    if (st != ST_OK)
        return st;
    pthread_mutex_lock(&w->lock);
    w->ready = !w->signal;
    st = w->ready ? ST_OK : ST_CANCELLED;
    pthread_mutex_unlock(&w->lock);
    return st;
}

enum status set_up_inference(struct worker *w)
{
    enum status (*const parts[])(struct worker *) = {
        set_up_weights_open, input_read_file,   set_up_model_choose, set_up_tables_inputs,
        input_open,          set_up_model_read, set_up_tables_add,   make_towers,
        read_inputs,         allocate_params};
    return do_parts(w, parts, sizeof parts / sizeof parts[0]);
}
