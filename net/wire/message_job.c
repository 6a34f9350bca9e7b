/* net/wire/message_job.c - see message.h: a job with its table of parameters, in the messages that
 * carry one. */
#include "net/wire/job_steps.h"
#include "net/wire/job_tables.h"
#include "net/wire/message_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SAMPLES = INT32_MAX, MOST_SIDE = 1 << 24 };

static enum status read_optim(const void *message, void *plain, char *why)
{
    const Weir__V1__Optimizer *from = message;
    struct optim_config *to = plain, defaults;
    optim_defaults(to->kind, &defaults);
    /* this optimizer does not use epsilon, but it must be above 0 */
    if (to->kind <= OPTIM_NESTEROV && to->epsilon == 0)
        to->epsilon = defaults.epsilon;
    if (to->lr_decay == 0)
        to->lr_decay = defaults.lr_decay;
    if (optim_check(to) == ST_OK)
        return ST_OK;
    snprintf(why, MESSAGE_WHY_BYTES, "a setting of optimizer %s is out of bounds", from->name);
    return ST_INVALID;
}

#define OF Weir__V1__Optimizer, struct optim_config
static const struct message_row optim_rows[] = {
    CHOICE(OF, name, kind, OPTIM_NAMES, "unknown optimizer", .is_quoted = true),
    ANY(OF, learning_rate, learning_rate),
    ANY(OF, momentum, momentum),
    ANY(OF, decay, decay),
    ANY(OF, beta1, beta1),
    ANY(OF, beta2, beta2),
    ANY(OF, epsilon, epsilon),
    ANY(OF, weight_decay, weight_decay),
    CHOICE(OF, schedule, schedule, SCHEDULE_NAMES, "unknown schedule", .is_quoted = true,
           .is_option = true),
    ANY(OF, warmup_steps, warmup_steps),
    INSIDE(OF, boundaries, n_boundaries, boundary, OPTIM_MAX_BOUNDARIES,
           "the learning rate has too many boundaries"),
    ANY(OF, lr_decay, lr_decay),
    ANY(OF, lr_decay_steps, lr_decay_steps),
    ANY(OF, clip_value, clip_value),
    ANY(OF, clip_norm, clip_norm),
    ANY(OF, ema_decay, ema_decay),
};
static const struct message_type optim_type = {MESSAGE_TYPE(OF, optimizer, optim_rows),
                                               .read = read_optim};
#undef OF

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return false;
    return true;
}

static const char *data_problem(const void *message)
{
    const Weir__V1__DataSet *d = message;
    if (d->n_dims != 3)
        return "the data's shape does not have three dimensions";
    for (int i = 0; i < 3; i++)
        if (d->dims[i] < 1 || d->dims[i] > MOST_SIDE)
            return "the data's shape is out of bounds";
    return is_printable(d->name) ? NULL : "the data's name is not printable ASCII";
}

static enum status read_data(const void *message, void *plain, char *why)
{
    struct job_data *data = plain;
    memcpy(data->dim, ((const Weir__V1__DataSet *)message)->dims, sizeof data->dim);
    return ST_OK;
}

static enum status write_data(const void *plain, void *message, struct message_room *room)
{
    Weir__V1__DataSet *to = message;
    to->n_dims = 3;
    to->dims = message_numbers(((const struct job_data *)plain)->dim);
    return ST_OK;
}

#define OF Weir__V1__DataSet, struct job_data
static const struct message_row data_rows[] = {
    NUMBER(OF, train, n_train, 1, MOST_SAMPLES, "the data's samples are out of bounds"),
    NUMBER(OF, test, n_test, 0, MOST_SAMPLES, "the data's samples are out of bounds"),
    NUMBER(OF, classes, classes, 0, MOST_SIDE, "the data's classes are out of bounds"),
    ANY(OF, train_samples, train_samples),
    ANY(OF, train_labels, train_labels),
    ANY(OF, test_samples, test_samples),
    ANY(OF, test_labels, test_labels),
    ANY(OF, own, own),
    FIT(OF, name, name, "the data's name is too long"),
    NUMBER(OF, labels, labels, 0, JOB_LABELS_N_KINDS - 1,
           "the kind of the data's labels is unknown"),
    ANY(OF, class_names, class_names),
    ANY(OF, files, files),
    ANY(OF, standardized, standardized),
};
static const struct message_type data_type = {MESSAGE_TYPE(OF, data_set, data_rows),
                                              .problem = data_problem, .read = read_data,
                                              .write = write_data};
#undef OF

static const char no_normal[] = "mean and std have different lengths, or are too long";
static const char no_validation[] = "the job's validation is out of bounds";

#define OF Weir__V1__Validation, struct net_validation
static const struct message_row validation_rows[] = {
    NUMBER(OF, samples, data.n, 1, MOST_SAMPLES, no_validation),
    ANY(OF, samples_crc32c, data.samples),
    ANY(OF, labels_crc32c, data.labels),
    NUMBER(OF, eval_every, every, 0, MESSAGE_MAX_STEP, no_validation),
    NUMBER(OF, early_stopping, patience, 0, MESSAGE_MAX_STEP, no_validation),
};
static const struct message_type validation_type = {MESSAGE_TYPE(OF, validation, validation_rows)};
#undef OF

/* Returns the problem if fields contradict each other; NULL: they do not. */
static const char *problem(const void *message)
{
    const Weir__V1__Job *from = message;
    const uint64_t most = (uint64_t)MESSAGE_MAX_STEP;
    if (!from->optimizer)
        return "the job names no optimizer";
    if (from->asked_steps && from->asked_steps < from->train_steps)
        return "asked_steps is out of bounds";
    if (from->aggregate > (from->n_workers ? from->n_workers : JOB_MAX_WORKERS))
        return "aggregate is above n_workers";
    if (from->local_steps > 1 &&
        (from->train_steps > most / from->local_steps ||
         from->asked_steps > most / from->local_steps || from->batch_size % from->local_steps != 0))
        return "local_steps does not fit train_steps or batch_size";
    if (!(from->validation_split >= 0 && from->validation_split < 1))
        return "validation_split is out of bounds";
    if (!(from->label_smoothing >= 0 && from->label_smoothing < 1))
        return "label_smoothing is out of bounds";
    if (from->n_mean != from->n_std)
        return no_normal;
    return is_printable(from->arithmetic) ? NULL
                                          : "the arithmetic is too long, or not printable ASCII";
}

static enum status read_job(const void *message, void *plain, char *why)
{
    const Weir__V1__Job *from = message;
    struct net_job *to = plain;
    const char *wrong = NULL;
    if (to->aggregate == 0)
        to->aggregate = to->n_workers;
    if (to->local_steps > 1) {
        enum status st = from->local ? message_read(&optim_type, from->local, &to->local, why)
                                     : message_invalid(why, "the job names no optimizer");
        if (st != ST_OK)
            return st;
    }
    if ((to->local_steps > 1 || to->fragments > 1) &&
        (to->optim.clip_norm > 0 || to->optim.clip_value > 0))
        wrong = "servers do not clip with local_steps or fragments";
    else if (from->augment[0] && !job_input_augment_parse(from->augment, &to->augment))
        wrong = "augment is not a list of flip, shift:N, crop:N, cutout:N";
    if (!wrong)
        wrong = job_check_asked(to);
    if (!wrong)
        wrong = job_input_normal_problem(&to->normal);
    to->optim.total_steps = from->asked_steps ? from->asked_steps : from->train_steps;
    to->local.total_steps = to->optim.total_steps * (uint64_t)job_local_steps(to);
    return wrong ? message_invalid(why, wrong) : ST_OK;
}

static enum status write_job(const void *plain, void *message, struct message_room *room)
{
    const struct net_job *from = plain;
    Weir__V1__Job *to = message;
    void *local = NULL;
    enum status st = ST_OK;
    if (!from->data.n_train)
        to->data = NULL;
    if (!from->validation.data.n)
        to->validation = NULL;
    TRY((to->augment = message_alloc(room, JOB_AUGMENT_BYTES, 1)) ? ST_OK : ST_NOMEM);
    job_input_augment_text(&from->augment, to->augment);
    if (from->local_steps > 1)
        TRY(message_write(&optim_type, &from->local, room, &local));
    to->local = local;
done:
    return st;
}

#define OF Weir__V1__Job, struct net_job
static const char no_dtype[] = "push_dtype or version_dtype is not one of " DTYPE_NAMES;
static const struct message_row rows[] = {
    NUMBER(OF, n_workers, n_workers, 0, JOB_MAX_WORKERS, "n_workers is out of bounds"),
    NUMBER(OF, train_steps, train_steps, 0, MESSAGE_MAX_STEP, "train_steps is out of bounds"),
    NUMBER(OF, asked_steps, asked_steps, 0, MESSAGE_MAX_STEP, "asked_steps is out of bounds"),
    ANY(OF, aggregate, aggregate),
    NUMBER(OF, staleness, staleness, 0, MESSAGE_MAX_STEP, "staleness is out of bounds"),
    NUMBER(OF, local_steps, local_steps, 0, JOB_MAX_LOCAL_STEPS, "local_steps is out of bounds"),
    NUMBER(OF, fragments, fragments, 0, JOB_MAX_FRAGMENTS, "fragments is out of bounds"),
    NUMBER(OF, outer_unsaid, outer_unsaid, 0, JOB_OUTER_ALL, "outer_unsaid is out of bounds"),
    REAL(OF, epochs, epochs, 0, JOB_MAX_EPOCHS, "epochs is out of bounds"),
    ANY(OF, validation_split, validation_split),
    ANY(OF, label_smoothing, label_smoothing),
    NUMBER(OF, batch_size, batch, 0, JOB_MAX_BATCH, "batch_size is out of bounds"),
    CHOICE(OF, sync_mode, sync_mode, JOB_SYNC_MODES, "sync_mode is not sync, async or ssp",
           .is_option = false),
    ANY(OF, seed, seed),
    ANY(OF, delay_compensation, delay_compensation),
    CHOICE(OF, push_dtype, push_dtype, DTYPE_NAMES, no_dtype, .is_option = true),
    CHOICE(OF, version_dtype, version_dtype, DTYPE_NAMES, no_dtype, .is_option = true),
    ANY(OF, wire_auto, wire_auto),
    PART(OF, optimizer, optim, &optim_type),
    PART(OF, data, data, &data_type),
    PART(OF, validation, validation, &validation_type),
    FIT(OF, arithmetic, arithmetic, "the arithmetic is too long, or not printable ASCII"),
    BYTES(OF, rounded, rounding.n_bytes, rounding.bits, ROUNDING_MAX_BYTES,
          "the job lists the rounding of too many layers"),
    INSIDE(OF, mean, normal.n, normal.mean, JOB_MAX_CHANNELS, no_normal),
    INSIDE(OF, std, normal.n, normal.std, JOB_MAX_CHANNELS, no_normal),
};
static const struct message_type job_type = {MESSAGE_TYPE(OF, job, rows), .problem = problem,
                                             .read = read_job, .write = write_job};
#undef OF

static enum status read_param(const Weir__V1__Parameter *from, size_t index, struct net_param *to,
                              char why[MESSAGE_WHY_BYTES])
{
    const char *wrong = NULL;
    const struct optim_factors factors = {
        from->rate_factor_case == WEIR__V1__PARAMETER__RATE_FACTOR_RATE ? from->rate : 1,
        from->decay_factor_case == WEIR__V1__PARAMETER__DECAY_FACTOR_DECAY ? from->decay : 1};
    if (from->n_dims > SHAPE_MAX_DIMS)
        wrong = "too many dimensions";
    else if (from->rule > (unsigned)PARAM_AVERAGE)
        wrong = "an unknown rule";
    else if (!(from->keep >= 0 && from->keep <= 1))
        wrong = "a `keep` outside 0..1";
    else if (!(optim_factor_ok(factors.rate) && optim_factor_ok(factors.decay)))
        wrong =
            "a factor of the learning rate or of the weight decay that is negative or not finite";
    for (size_t d = 0; !wrong && d < from->n_dims; d++) {
        to->shape.dim[d] = (int64_t)from->dims[d];
        if (from->dims[d] > (uint64_t)1 << 40)
            wrong = "a dimension above 2^40";
    }
    if (wrong) {
        snprintf(why, MESSAGE_WHY_BYTES, "parameter %zu '%.255s' has %s", index, from->name, wrong);
        return ST_INVALID;
    }
    to->name = from->name;
    to->shape.n_dims = (int)from->n_dims;
    to->rule = (enum net_param_rule)from->rule;
    to->keep = from->keep;
    to->has_factors = factors.rate != 1 || factors.decay != 1;
    to->factors = factors;
    return ST_OK;
}

static enum status read_chunks(const Weir__V1__Job *job, struct chunks **out,
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
        TRY(read_param(job->parameters[i], i, &params[i], why));
    st = chunks_create(params, (int)job->n_parameters, (int64_t)job->chunk_bytes, out);
    if (st != ST_OK && st != ST_NOMEM)
        st = message_invalid(why,
                             "the table of parameters is malformed (names, shapes or chunk_bytes)");
done:
    free(params);
    return st;
}

enum status message_job_read(const Weir__V1__Job *from, struct net_job *job, struct chunks **chunks,
                             char why[MESSAGE_WHY_BYTES])
{
    if (!from)
        return message_invalid(why, "the message has no job");
    struct net_job plain = {.n_workers = 0};
    enum status st = ST_OK;
    struct chunks *made = NULL;
    const char *wrong;
    TRY(message_read(&job_type, from, &plain, why));
    TRY(read_chunks(from, &made, why));
    if (plain.fragments > 1 && plain.fragments > made->n_chunks)
        TRY(message_invalid(why, "the model has fewer chunks than fragments"));
    TRY(message_tables_read(from, plain.optim.total_steps, made, why));
    wrong = job_check_tables(&plain, made->n_tables);
    TRY(wrong ? message_invalid(why, wrong) : ST_OK);
    *job = plain;
    *chunks = made;
    made = NULL;
done:
    chunks_destroy(made);
    return st;
}

enum status message_job_read_model(const Weir__V1__Job *from, char **text, int *hidden_units,
                                   char why[MESSAGE_WHY_BYTES])
{
    if (strlen(from->model) > JOB_MAX_MODEL_BYTES || from->hidden_units > INT32_MAX)
        return message_invalid(why, "the model's text or its hidden units are out of bounds");
    *hidden_units = (int)from->hidden_units;
    *text = from->model[0] ? strdup(from->model) : NULL;
    return from->model[0] && !*text ? ST_NOMEM : ST_OK;
}

enum status message_job_write(const struct net_job *job, const struct chunks *chunks,
                              struct message_room *room, Weir__V1__Job **out)
{
    size_t n = (size_t)chunks->n_params;
    Weir__V1__Parameter *params = message_alloc(room, n, sizeof *params);
    Weir__V1__Parameter **list = message_alloc(room, n, sizeof(Weir__V1__Parameter *));
    void *made;
    enum status st = params && list ? message_write(&job_type, job, room, &made) : ST_NOMEM;
    if (st != ST_OK)
        return st;
    for (size_t i = 0; i < n; i++) {
        const struct net_param *from = &chunks->params[i];
        weir__v1__parameter__init(list[i] = &params[i]);
        params[i].name = (char *)(uintptr_t)from->name;
        params[i].n_dims = (size_t)from->shape.n_dims;
        /* protobuf-c only reads the list, and no dimension is negative */
        params[i].dims = (uint64_t *)(uintptr_t)from->shape.dim;
        params[i].rule = (Weir__V1__Parameter__Rule)from->rule;
        params[i].keep = from->keep;
        if (from->factors.rate != 1) {
            params[i].rate_factor_case = WEIR__V1__PARAMETER__RATE_FACTOR_RATE;
            params[i].rate = from->factors.rate;
        }
        if (from->factors.decay != 1) {
            params[i].decay_factor_case = WEIR__V1__PARAMETER__DECAY_FACTOR_DECAY;
            params[i].decay = from->factors.decay;
        }
    }
    *out = made;
    (*out)->chunk_bytes = (uint64_t)chunks->chunk_bytes;
    (*out)->n_parameters = n;
    (*out)->parameters = list;
    return message_tables_write(chunks, room, *out);
}

void message_job_write_model(const char *text, int hidden_units, Weir__V1__Job *to)
{
    if (!text || strlen(text) > JOB_MAX_MODEL_BYTES)
        return;
    to->model = (char *)(uintptr_t)text;
    to->hidden_units = (uint32_t)hidden_units;
}
