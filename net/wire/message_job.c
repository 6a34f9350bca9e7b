/* net/wire/message_job.c - see message.h: a job with its table of parameters, in the messages that
 * carry one. */
#include "base/flags.h"
#include "net/wire/job_steps.h"
#include "net/wire/message_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void optim_to_wire(const struct optim_config *from, Weir__V1__Optimizer *to)
{
    weir__v1__optimizer__init(to);
    to->name = (char *)(uintptr_t)optim_name(from->kind);
    to->learning_rate = from->learning_rate;
    to->momentum = from->momentum;
    to->decay = from->decay;
    to->beta1 = from->beta1;
    to->beta2 = from->beta2;
    to->epsilon = from->epsilon;
    to->weight_decay = from->weight_decay;
    to->schedule = (char *)(uintptr_t)optim_schedule_name(from->schedule);
    to->warmup_steps = from->warmup_steps;
    to->n_boundaries = (size_t)from->n_boundaries;
    to->boundaries = (uint64_t *)(uintptr_t)from->boundary; /* read alone */
    to->lr_decay = from->lr_decay;
    to->lr_decay_steps = from->lr_decay_steps;
    to->clip_value = from->clip_value;
    to->clip_norm = from->clip_norm;
}

static void params_to_wire(const struct chunks *chunks, Weir__V1__Parameter *params,
                           Weir__V1__Parameter **list, uint64_t *dims)
{
    for (int i = 0; i < chunks->n_params; i++, dims += SHAPE_MAX_DIMS) {
        const struct net_param *from = &chunks->params[i];
        weir__v1__parameter__init(&params[i]);
        params[i].name = (char *)(uintptr_t)from->name;
        params[i].n_dims = (size_t)from->shape.n_dims;
        params[i].dims = dims;
        for (int d = 0; d < from->shape.n_dims; d++)
            dims[d] = (uint64_t)from->shape.dim[d];
        params[i].rule = from->rule == PARAM_AVERAGE ? WEIR__V1__PARAMETER__RULE__AVERAGE
                                                     : WEIR__V1__PARAMETER__RULE__TRAINED;
        params[i].keep = from->keep;
        list[i] = &params[i];
    }
}

static void fields_to_wire(const struct net_job *from, Weir__V1__Job *to)
{
    to->n_workers = (uint32_t)from->n_workers;
    to->sync_mode = (char *)(uintptr_t)job_sync_mode_name(from->sync_mode);
    to->train_steps = (uint64_t)from->train_steps;
    to->asked_steps = (uint64_t)from->asked_steps;
    to->epochs = from->epochs;
    to->seed = from->seed;
    to->aggregate = (uint32_t)from->aggregate;
    to->staleness = (uint64_t)from->staleness;
    to->delay_compensation = from->delay_compensation;
    to->push_dtype = (char *)(uintptr_t)dtype_name(from->push_dtype);
    to->version_dtype = (char *)(uintptr_t)dtype_name(from->version_dtype);
    to->batch_size = (uint64_t)from->batch;
    to->local_steps = (uint64_t)from->local_steps;
    to->wire_auto = from->wire_auto != 0;
    to->outer_unsaid = (uint32_t)from->outer_unsaid;
    to->fragments = (uint32_t)from->fragments;
    to->validation_split = from->validation_split;
    to->arithmetic = (char *)(uintptr_t)from->arithmetic;
    to->rounded.len = (size_t)from->rounding.n_bytes;
    to->rounded.data = (uint8_t *)(uintptr_t)from->rounding.bits;
    message_data_normal_to_wire(&from->normal, to);
}

void message_job_free(struct message_job *job)
{
    free(job->dims);
    free(job->list);
    free(job->params);
}

enum status message_job_to_wire(const struct net_job *job, const struct chunks *chunks,
                                struct message_job *out)
{
    size_t n = (size_t)chunks->n_params;
    out->params = calloc(n, sizeof *out->params);
    out->list = calloc(n, sizeof *out->list);
    out->dims = calloc(n * SHAPE_MAX_DIMS, sizeof *out->dims);
    if (!out->params || !out->list || !out->dims) {
        message_job_free(out);
        return ST_NOMEM;
    }
    weir__v1__job__init(&out->wire);
    params_to_wire(chunks, out->params, out->list, out->dims);
    optim_to_wire(&job->optim, &out->optimizer);
    if (job->local_steps > 1) {
        optim_to_wire(&job->local, &out->local);
        out->wire.local = &out->local;
    }
    fields_to_wire(job, &out->wire);
    message_data_to_wire(&job->data, out);
    out->wire.augment = (char *)(uintptr_t)job_input_augment_text(&job->augment, out->augment);
    message_data_validation_to_wire(&job->validation, out);
    out->wire.optimizer = &out->optimizer;
    out->wire.chunk_bytes = (uint64_t)chunks->chunk_bytes;
    out->wire.n_parameters = n;
    out->wire.parameters = out->list;
    return ST_OK;
}

static enum status optim_from_wire(const Weir__V1__Optimizer *from, struct optim_config *to,
                                   char why[MESSAGE_WHY_BYTES])
{
    struct optim_config defaults;
    if (!from)
        return message_invalid(why, "the job names no optimizer");
    int kind = flags_choice_find(OPTIM_NAMES, from->name);
    if (kind < 0) {
        snprintf(why, MESSAGE_WHY_BYTES, "unknown optimizer '%.40s', this server knows %s",
                 from->name, OPTIM_NAMES);
        return ST_INVALID;
    }
    *to = (struct optim_config){.kind = (enum optim_kind)kind};
    optim_defaults(to->kind, &defaults);
    to->learning_rate = from->learning_rate;
    to->momentum = from->momentum;
    to->decay = from->decay;
    to->beta1 = from->beta1;
    to->beta2 = from->beta2;
    to->epsilon = from->epsilon;
    if (kind <= OPTIM_NESTEROV && from->epsilon == 0) /* they have none; any value is as good */
        to->epsilon = defaults.epsilon;
    to->weight_decay = from->weight_decay;
    int schedule = from->schedule[0] ? flags_choice_find(SCHEDULE_NAMES, from->schedule) : 0;
    if (schedule < 0) {
        snprintf(why, MESSAGE_WHY_BYTES, "unknown schedule '%.40s', this server knows %s",
                 from->schedule, SCHEDULE_NAMES);
        return ST_INVALID;
    }
    to->schedule = (enum optim_schedule)schedule;
    if (from->n_boundaries > OPTIM_MAX_BOUNDARIES)
        return message_invalid(why, "the learning rate has too many boundaries");
    to->warmup_steps = from->warmup_steps;
    to->n_boundaries = (int)from->n_boundaries;
    for (size_t i = 0; i < from->n_boundaries; i++)
        to->boundary[i] = from->boundaries[i];
    to->lr_decay = from->lr_decay == 0 ? defaults.lr_decay : from->lr_decay;
    to->lr_decay_steps = from->lr_decay_steps;
    to->clip_value = from->clip_value;
    to->clip_norm = from->clip_norm;
    if (optim_check(to) != ST_OK) {
        snprintf(why, MESSAGE_WHY_BYTES, "a setting of optimizer %s is out of bounds", from->name);
        return ST_INVALID;
    }
    return ST_OK;
}

static enum status param_from_wire(const Weir__V1__Parameter *from, size_t index,
                                   struct net_param *to, char why[MESSAGE_WHY_BYTES])
{
    const char *wrong = NULL;
    if (from->n_dims > SHAPE_MAX_DIMS)
        wrong = "too many dimensions";
    else if (from->rule != WEIR__V1__PARAMETER__RULE__TRAINED &&
             from->rule != WEIR__V1__PARAMETER__RULE__AVERAGE)
        wrong = "an unknown rule";
    else if (!(from->keep >= 0 && from->keep <= 1))
        wrong = "a `keep` outside 0..1";
    for (size_t d = 0; !wrong && d < from->n_dims; d++) {
        if (from->dims[d] > (uint64_t)1 << 40)
            wrong = "a dimension above 2^40";
        else
            to->shape.dim[d] = (int64_t)from->dims[d];
    }
    if (wrong) {
        snprintf(why, MESSAGE_WHY_BYTES, "parameter %zu '%.255s' has %s", index, from->name, wrong);
        return ST_INVALID;
    }
    to->name = from->name;
    to->shape.n_dims = (int)from->n_dims;
    to->rule = from->rule == WEIR__V1__PARAMETER__RULE__AVERAGE ? PARAM_AVERAGE : PARAM_TRAINED;
    to->keep = from->keep;
    return ST_OK;
}

static enum status chunks_from_wire(const Weir__V1__Job *job, struct chunks **out,
                                    char why[MESSAGE_WHY_BYTES])
{
    if (job->n_parameters < 1 || job->n_parameters > CHUNKS_MAX_PARAMS)
        return message_invalid(why, "the number of parameters is out of bounds");
    if (job->chunk_bytes > CHUNKS_MAX_BYTES)
        return message_invalid(why, "chunk_bytes is out of bounds");
    struct net_param *params = calloc(job->n_parameters, sizeof *params);
    if (!params)
        return ST_NOMEM;
    enum status st = ST_OK;
    for (size_t i = 0; i < job->n_parameters; i++)
        TRY(param_from_wire(job->parameters[i], i, &params[i], why));
    st = chunks_create(params, (int)job->n_parameters, (int64_t)job->chunk_bytes, out);
    if (st != ST_OK && st != ST_NOMEM)
        st = message_invalid(why,
                             "the table of parameters is malformed (names, shapes or chunk_bytes)");
done:
    free(params);
    return st;
}

int message_job_dtype_from_wire(const char *name, enum dtype *out)
{
    int dtype = name[0] ? flags_choice_find(DTYPE_NAMES, name) : DTYPE_F32;
    if (dtype >= 0)
        *out = (enum dtype)dtype;
    return dtype >= 0;
}

/* The fields that are numbers within bounds: NULL, or which is not. */
static const char *number_problem(const Weir__V1__Job *from)
{
    const uint64_t most = (uint64_t)MESSAGE_MAX_STEP;
    if (from->n_workers > JOB_MAX_WORKERS)
        return "n_workers is out of bounds";
    if (from->train_steps > most)
        return "train_steps is out of bounds";
    if (from->asked_steps > most || (from->asked_steps && from->asked_steps < from->train_steps))
        return "asked_steps is out of bounds";
    if (from->aggregate > (from->n_workers ? from->n_workers : JOB_MAX_WORKERS))
        return "aggregate is above n_workers";
    if (from->staleness > most)
        return "staleness is out of bounds";
    if (from->local_steps > JOB_MAX_LOCAL_STEPS)
        return "local_steps is out of bounds";
    if (from->local_steps > 1 &&
        (from->train_steps > most / from->local_steps ||
         from->asked_steps > most / from->local_steps || from->batch_size % from->local_steps != 0))
        return "local_steps does not go with train_steps or batch_size";
    if (from->fragments > JOB_MAX_FRAGMENTS)
        return "fragments is out of bounds";
    if (from->outer_unsaid > JOB_OUTER_ALL)
        return "outer_unsaid is out of bounds";
    if (!(from->epochs >= 0 && from->epochs <= JOB_MAX_EPOCHS))
        return "epochs is out of bounds";
    if (!(from->validation_split >= 0 && from->validation_split < 1))
        return "validation_split is out of bounds";
    return from->batch_size > JOB_MAX_BATCH ? "batch_size is out of bounds" : NULL;
}

/* All but the optimizer and the table of chunks. */
static enum status fields_from_wire(const Weir__V1__Job *from, struct net_job *to,
                                    char why[MESSAGE_WHY_BYTES])
{
    const char *wrong = number_problem(from);
    if (wrong)
        return message_invalid(why, wrong);
    int mode = flags_choice_find(JOB_SYNC_MODES, from->sync_mode);
    if (mode < 0)
        return message_invalid(why, "sync_mode is none of sync, async, ssp");
    *to = (struct net_job){.n_workers = (int)from->n_workers,
                           .sync_mode = (enum job_sync_mode)mode,
                           .train_steps = (int64_t)from->train_steps,
                           .asked_steps = (int64_t)from->asked_steps,
                           .epochs = from->epochs,
                           .seed = from->seed,
                           .aggregate = (int)from->aggregate,
                           .staleness = (int64_t)from->staleness,
                           .delay_compensation = from->delay_compensation,
                           .validation_split = from->validation_split,
                           .batch = (int)from->batch_size,
                           .local_steps = (int)from->local_steps,
                           .fragments = (int)from->fragments,
                           .outer_unsaid = (int)from->outer_unsaid,
                           .wire_auto = from->wire_auto != 0};
    if (to->aggregate == 0)
        to->aggregate = to->n_workers;
    if (!message_job_dtype_from_wire(from->push_dtype, &to->push_dtype) ||
        !message_job_dtype_from_wire(from->version_dtype, &to->version_dtype))
        return message_invalid(why, "push_dtype or version_dtype is none of " DTYPE_NAMES);
    return ST_OK;
}

/* What goes together, once the optimizer is known. */
static enum status check_mode(const struct net_job *job, char why[MESSAGE_WHY_BYTES])
{
    const char *wrong = job_check_asked(job);
    return wrong ? message_invalid(why, wrong) : ST_OK;
}

static enum status rounding_from_wire(const ProtobufCBinaryData *from, struct net_rounding *to,
                                      char why[MESSAGE_WHY_BYTES])
{
    *to = (struct net_rounding){.n_bytes = (int)from->len};
    if (from->len > ROUNDING_MAX_BYTES)
        return message_invalid(why, "the job says of too many layers what they round");
    if (from->len > 0)
        memcpy(to->bits, from->data, from->len);
    return ST_OK;
}

enum status message_job_from_wire(const Weir__V1__Job *from, struct net_job *job,
                                  struct chunks **chunks, char why[MESSAGE_WHY_BYTES])
{
    struct net_job plain;
    if (!from)
        return message_invalid(why, "there is no job in it");
    enum status st = fields_from_wire(from, &plain, why);
    if (st == ST_OK)
        st = optim_from_wire(from->optimizer, &plain.optim, why);
    if (st == ST_OK && plain.local_steps > 1)
        st = optim_from_wire(from->local, &plain.local, why);
    if (st == ST_OK && (plain.local_steps > 1 || plain.fragments > 1) &&
        (plain.optim.clip_norm > 0 || plain.optim.clip_value > 0))
        st = message_invalid(why, "with local_steps, or fragments, servers do not clip");
    if (st == ST_OK)
        st = check_mode(&plain, why);
    if (st == ST_OK)
        st = message_data_from_wire(from->data, &plain.data, why);
    if (st == ST_OK)
        st = message_data_validation_from_wire(from->validation, &plain.validation, why);
    if (st == ST_OK)
        st = message_data_arithmetic_from_wire(from->arithmetic, plain.arithmetic, why);
    if (st == ST_OK)
        st = rounding_from_wire(&from->rounded, &plain.rounding, why);
    if (st == ST_OK)
        st = message_data_normal_from_wire(from, &plain.normal, why);
    if (st == ST_OK)
        st = message_data_augment_from_wire(from->augment, &plain.augment, why);
    plain.optim.total_steps = from->asked_steps ? from->asked_steps : from->train_steps;
    plain.local.total_steps = plain.optim.total_steps * (uint64_t)job_local_steps(&plain);
    if (st == ST_OK)
        st = chunks_from_wire(from, chunks, why);
    if (st == ST_OK && plain.fragments > 1 && plain.fragments > (*chunks)->n_chunks) {
        chunks_destroy(*chunks);
        *chunks = NULL;
        st = message_invalid(why, "the model has fewer chunks than fragments");
    }
    if (st == ST_OK)
        *job = plain;
    return st;
}

void message_job_model_to_wire(const char *text, int hidden_units, Weir__V1__Job *to)
{
    if (!text || strlen(text) > JOB_MAX_MODEL_BYTES)
        return;
    to->model = (char *)(uintptr_t)text;
    to->hidden_units = (uint32_t)hidden_units;
}

enum status message_job_model_from_wire(const Weir__V1__Job *from, char **text, int *hidden_units,
                                        char why[MESSAGE_WHY_BYTES])
{
    if (strlen(from->model) > JOB_MAX_MODEL_BYTES || from->hidden_units > INT32_MAX)
        return message_invalid(why, "the model's text or its hidden units are out of bounds");
    char *copy = from->model[0] ? strdup(from->model) : NULL;
    if (from->model[0] && !copy)
        return ST_NOMEM;
    *text = copy;
    *hidden_units = (int)from->hidden_units;
    return ST_OK;
}
