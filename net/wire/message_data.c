/* net/wire/message_data.c - a job's data set on the wire, what is done with its samples, and what
 * its members compute with. */
#include "net/wire/message_impl.h"
#include <string.h>

enum { MOST_SAMPLES = INT32_MAX, MOST_SIDE = 1 << 24 };

void message_data_to_wire(const struct job_data *from, struct message_job *to)
{
    Weir__V1__DataSet *d = &to->data;
    weir__v1__data_set__init(d);
    if (!from->n_train)
        return;
    d->train = (uint64_t)from->n_train;
    d->test = (uint64_t)from->n_test;
    for (int i = 0; i < 3; i++)
        to->data_dims[i] = (uint32_t)from->dim[i];
    d->n_dims = 3;
    d->dims = to->data_dims;
    d->classes = (uint32_t)from->classes;
    d->train_samples = from->train_samples;
    d->train_labels = from->train_labels;
    d->test_samples = from->test_samples;
    d->test_labels = from->test_labels;
    d->class_names = from->class_names;
    d->own = from->own;
    d->files = from->files;
    d->standardized = from->standardized;
    d->name = (char *)(uintptr_t)from->name;
    d->labels = (Weir__V1__DataSet__Labels)from->labels;
    to->wire.data = d;
}

static int is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < ' ' || *text > '~')
            return 0;
    return 1;
}

static const char *problem(const Weir__V1__DataSet *d)
{
    if (d->train < 1 || d->train > MOST_SAMPLES || d->test > MOST_SAMPLES)
        return "the data's samples are out of bounds";
    if (d->n_dims != 3)
        return "the data's shape has not three dimensions";
    for (int i = 0; i < 3; i++)
        if (d->dims[i] < 1 || d->dims[i] > MOST_SIDE)
            return "the data's shape is out of bounds";
    if (d->classes > MOST_SIDE)
        return "the data's classes are out of bounds";
    if ((int)d->labels < 0 || (int)d->labels >= JOB_LABELS_N_KINDS)
        return "the data's labels are of no kind that there is";
    if (strlen(d->name) >= JOB_DATA_NAME_BYTES)
        return "the data's name is too long";
    return is_printable(d->name) ? NULL : "the data's name is not printable ASCII";
}

enum status message_data_from_wire(const Weir__V1__DataSet *from, struct job_data *to,
                                   char why[MESSAGE_WHY_BYTES])
{
    memset(to, 0, sizeof *to);
    if (!from)
        return ST_OK;
    const char *wrong = problem(from);
    if (wrong)
        return message_invalid(why, wrong);
    *to = (struct job_data){.n_train = (int64_t)from->train,
                            .n_test = (int64_t)from->test,
                            .dim = {(int)from->dims[0], (int)from->dims[1], (int)from->dims[2]},
                            .classes = (int)from->classes,
                            .labels = (enum job_labels)from->labels,
                            .train_samples = from->train_samples,
                            .train_labels = from->train_labels,
                            .test_samples = from->test_samples,
                            .test_labels = from->test_labels,
                            .class_names = from->class_names,
                            .own = from->own != 0,
                            .files = from->files != 0,
                            .standardized = from->standardized != 0};
    strcpy(to->name, from->name); /* its length is checked */
    return ST_OK;
}

void message_data_validation_to_wire(const struct net_validation *from, struct message_job *to)
{
    Weir__V1__Validation *v = &to->validation;
    weir__v1__validation__init(v);
    if (!from->data.n)
        return;
    v->samples = (uint64_t)from->data.n;
    v->samples_crc32c = from->data.samples;
    v->labels_crc32c = from->data.labels;
    v->eval_every = (uint64_t)from->every;
    v->early_stopping = (uint64_t)from->patience;
    to->wire.validation = v;
}

enum status message_data_validation_from_wire(const Weir__V1__Validation *from,
                                              struct net_validation *to,
                                              char why[MESSAGE_WHY_BYTES])
{
    memset(to, 0, sizeof *to);
    if (!from)
        return ST_OK;
    if (from->samples < 1 || from->samples > MOST_SAMPLES ||
        from->eval_every > (uint64_t)MESSAGE_MAX_STEP ||
        from->early_stopping > (uint64_t)MESSAGE_MAX_STEP)
        return message_invalid(why, "the job's validation is out of bounds");
    *to =
        (struct net_validation){{(int64_t)from->samples, from->samples_crc32c, from->labels_crc32c},
                                (int64_t)from->eval_every,
                                (int64_t)from->early_stopping};
    return ST_OK;
}

enum status message_data_arithmetic_from_wire(const char *from, char to[JOB_ARITHMETIC_BYTES],
                                              char why[MESSAGE_WHY_BYTES])
{
    if (strlen(from) >= JOB_ARITHMETIC_BYTES || !is_printable(from))
        return message_invalid(why, "the arithmetic is too long, or not printable ASCII");
    strcpy(to, from); /* its length is checked */
    return ST_OK;
}

void message_data_normal_to_wire(const struct job_normal *from, Weir__V1__Job *to)
{
    to->n_mean = to->n_std = (size_t)from->n;
    to->mean = (float *)(uintptr_t)from->mean; /* read alone */
    to->std = (float *)(uintptr_t)from->std;
}

enum status message_data_normal_from_wire(const Weir__V1__Job *from, struct job_normal *to,
                                          char why[MESSAGE_WHY_BYTES])
{
    memset(to, 0, sizeof *to);
    if (from->n_mean != from->n_std || from->n_mean > JOB_MAX_CHANNELS)
        return message_invalid(why, "mean and std have not as many numbers, or too many");
    to->n = (int)from->n_mean;
    for (int c = 0; c < to->n; c++) {
        to->mean[c] = from->mean[c];
        to->std[c] = from->std[c];
    }
    const char *wrong = job_input_normal_problem(to);
    return wrong ? message_invalid(why, wrong) : ST_OK;
}

enum status message_data_augment_from_wire(const char *from, struct job_augment *to,
                                           char why[MESSAGE_WHY_BYTES])
{
    memset(to, 0, sizeof *to);
    return !from[0] || job_input_augment_parse(from, to)
               ? ST_OK
               : message_invalid(why, "augment is no list of flip, shift:N, crop:N, cutout:N");
}
