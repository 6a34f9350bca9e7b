/* worker/input.c - opens the data sets, checks that they fit each other, and sets their
 * normalisation. See input.h. */
#include "worker/input.h"
#include "base/digest.h"
#include "worker/data/data_csv.h"
#include "worker/data/data_words.h"
#include "worker/data/dataset_classes.h"
#include "worker/data/dataset_same.h"
#include "worker/data/dataset_standard.h"
#include "worker/data/dataset_targets.h"
#include "worker/input_keys.h"
#include "worker/input_range.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum status check_flags(const struct worker *w)
{
    const struct dataset_request *r = &w->opt.test;
    const struct {
        const char *flag, *those;
        int given;
        unsigned use;
    } flags[] = {
        {"images_name", "npz and safetensors files", r->images_name != NULL,
         DATASET_USES_IMAGES_NAME},
        {"labels_name", "npz and safetensors files", r->labels_name != NULL,
         DATASET_USES_LABELS_NAME},
        {"label_column", "CSV files", r->label_column != NULL, DATASET_USES_COLUMN},
        {"target_columns", "CSV files", r->target_columns != NULL, DATASET_USES_COLUMN},
        {"ignore_columns", "CSV files", r->ignore_columns != NULL, DATASET_USES_COLUMN},
        {"key_columns", "CSV files", w->opt.typed.key_columns != NULL, DATASET_USES_COLUMN},
        {"key_separator", "CSV files", w->opt.typed.key_separator != NULL, DATASET_USES_COLUMN},
        {"input_names", "npz and safetensors files", w->opt.typed.input_names != NULL,
         DATASET_USES_IMAGES_NAME},
        {"csv_header", "CSV files", r->csv_header != DATA_CSV_HEADER_AUTO, DATASET_USES_COLUMN},
        {"data_layout=nhwc", "arrays of more than three extents", r->nhwc, DATASET_USES_LAYOUT},
    };
    const struct dataset *sets[] = {w->train, w->test, w->validation};
    unsigned uses = 0;
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        uses |= sets[i] ? sets[i]->uses : 0;
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        if (!flags[i].given || uses & flags[i].use)
            continue;
        LOG_E("--%s is for %s, but %s is not of this kind; remove the flag", flags[i].flag,
              flags[i].those, (w->test ? w->test : w->train)->path);
        return ST_INVALID;
    }
    return ST_OK;
}

/* Checks the names of columns. Columns are matched by index, so if both files name their columns,
 * the names must be equal. */
static enum status check_columns(const struct worker *w)
{
    const struct options *o = &w->opt;
    const char *columns = w->train ? w->train->columns : w->trained_on.columns;
    const struct dataset *sets[] = {w->test, w->validation};
    char here[DATA_WORDS_TEXT_BYTES], there[DATA_WORDS_TEXT_BYTES];
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const char *names = sets[i] && columns ? sets[i]->columns : NULL;
        int64_t place = names ? data_words_differ(names, columns, here, there) : -1;
        if (place < 0)
            continue;
        LOG_E(
            "%s: line 1: feature %" PRId64
            " is the column '%s', but in %s it is '%s'; use the same column names in the same order, and exclude the columns of only one file by --ignore_columns",
            sets[i]->path, place + 1, here,
            w->train     ? w->train->path
            : o->predict ? o->predict
                         : o->evaluate,
            there);
        return ST_MISMATCH;
    }
    return ST_OK;
}

/* Checks that all sets have samples of the same size, and that each given flag has an effect. */
static enum status check_sets(const struct worker *w)
{
    const struct dataset *first = w->train ? w->train : w->test;
    const struct dataset *sets[] = {w->test, w->validation};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const int64_t *a = first->sample.dim, *b = sets[i] ? sets[i]->sample.dim : a;
        if (a[0] == b[0] && a[1] == b[1] && a[2] == b[2])
            continue;
        LOG_E("%s has samples of %" PRId64 "x%" PRId64 "x%" PRId64
              " (channels, height, width), but the training set, %s, has %" PRId64 "x%" PRId64
              "x%" PRId64 "; use samples of the same size in both",
              sets[i]->path, b[0], b[1], b[2], first->path, a[0], a[1], a[2]);
        return ST_MISMATCH;
    }
    return check_flags(w);
}

/* --evaluate, --predict: refuses samples with another number of channels than in training, because
 * their layout probably differs, and a dense layer would then read the numbers in another order.
 * This function does not check height and width, and it allows rows of features instead of
 * pictures. */
static enum status check_layout(const struct worker *w)
{
    const struct options *o = &w->opt;
    const struct shape *was = &w->trained_on.sample, *is = &w->test->sample;
    int has_rows = is->dim[0] * is->dim[1] == 1 || was->dim[0] * was->dim[1] == 1;
    if (was->n_dims == 0 || has_rows || was->dim[0] == is->dim[0])
        return ST_OK;
    LOG_E("--%s: %s was trained on samples of %" PRId64 "x%" PRId64 "x%" PRId64
          " (channels, height, width), but those of %s are %" PRId64 "x%" PRId64 "x%" PRId64
          "; use samples with the same number of channels%s",
          o->predict ? "predict" : "evaluate", o->predict ? o->predict : o->evaluate, was->dim[0],
          was->dim[1], was->dim[2], w->test->path, is->dim[0], is->dim[1], is->dim[2],
          o->test.nhwc ? ", and remove --data_layout=nhwc if the first extent is the channels"
                       : ", and add --data_layout=nhwc if the last extent is the channels");
    return ST_MISMATCH;
}

/* --evaluate, --predict: refuses the default data unless training used them. Otherwise a user who
 * forgot to name data could mistake the figures for those of other data. */
static enum status check_named(const struct worker *w, const char *file)
{
    const struct options *o = &w->opt;
    const char *was = w->trained_on.data;
    if (o->data_named || trained_on_default_data(&w->trained_on))
        return ST_OK;
    if (access(file, R_OK) != 0) {
        LOG_E("--%s: %s cannot be opened: %s", o->predict ? "predict" : "evaluate", file,
              status_errno_text(errno));
        return ST_NOT_FOUND;
    }
    LOG_E(
        "--%s: no flag names the data; %s %s%s; name the data with --data_dir=DIR or --test_data=FILE (Fashion-MNIST is --data_dir=" DATASET_DEFAULT_DIR
        ")",
        o->predict ? "predict" : "evaluate", file,
        *was ? "was trained on " : "does not record its training data", was);
    return ST_INVALID;
}

/* --evaluate, --predict: refuses a checkpoint without the numbers of --standardize. */
static enum status check_standardized(const struct worker *w, const char *file)
{
    const struct trained_on *was = &w->trained_on;
    if (!was->standardized || was->standard.n > 0)
        return ST_OK;
    LOG_E(
        "--%s: %s is a checkpoint of a job with --standardize, and lacks the means and deviations of the columns, like checkpoints of very many columns or of earlier versions; evaluate the file of --export instead (restart the job with the same flags and --export=FILE: it writes the file at its end)",
        w->opt.predict ? "predict" : "evaluate", file);
    return ST_UNSUPPORTED;
}

enum status input_read_file(struct worker *w)
{
    enum status st = ST_OK;
    struct options *o = &w->opt;
    const char *file = o->predict ? o->predict : o->evaluate;
    TRY(trained_on_read(file, w->begins_with, &w->trained_on));
    TRY(check_named(w, file));
    TRY(check_standardized(w, file));
    o->test.to_predict = o->predict != NULL;
    o->test.feature_names = w->trained_on.columns;
    o->test.label_names = w->trained_on.label_names;
    o->test.ignored_names = w->trained_on.ignored_names;
    o->test.csv_roles = w->trained_on.csv_roles;
    o->test.are_targets = w->trained_on.labels == JOB_LABELS_TARGETS;
    if (!o->test.key_separator)
        o->test.key_separator = w->trained_on.key_separator;
    if (w->trained_on.sample.n_dims > 0)
        o->test.features = shape_elems(&w->trained_on.sample);
done:
    return st;
}

/* Opens the training set, if the worker trains. Then finds the names of the classes for the test
 * set: those of the training set, or those in the evaluated file. "": there are no names, or they
 * are unknown. */
static enum status open_train(struct worker *w)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    const char *names = w->trained_on.class_names;
    char text[DATA_WORDS_TEXT_BYTES];
    if (!o->predict && !o->evaluate) {
        TRY(dataset_open(&o->train, &w->train));
        names = w->train->class_names;
        if (names)
            LOG_I("classes, from 0 on: %s", data_words_text(names, text));
    }
    w->opt.test.class_names = names ? names : "";
done:
    return st;
}

/* Standardizes all sets by the numbers of the training set, before any sample is summed or read. */
static enum status standardize_sets(struct worker *w)
{
    enum status st = ST_OK;
    struct dataset *sets[] = {w->test, w->validation};
    if (w->train && w->opt.standardize)
        TRY(dataset_standard_measure(w->train));
    const struct dataset_standard *by = w->train ? &w->train->standard : &w->trained_on.standard;
    for (size_t i = 0; i < sizeof sets / sizeof *sets && by->n > 0; i++)
        if (sets[i])
            TRY(dataset_standard_set(sets[i], by));
    if (by->n > 0)
        LOG_I("--standardize scales %" PRId64 " %s of the samples by the mean and deviation %s",
              by->n, by->n == 1 ? "column" : "columns",
              w->train ? "of the training set"
                       : "of the training, which the file of parameters has");
done:
    return st;
}

static void log_no_test(const struct options *o)
{
    int validates = o->validation_dir || o->validation_split > 0;
    const char *hint =
        validates ? "" : "; --validation_split holds out training samples to measure the accuracy";
    if (o->test.dir)
        LOG_I(
            "no test data in %s (neither test nor t10k under the names of docs/guide/data.md): test accuracy will not be reported%s",
            o->test.dir, hint);
    else
        LOG_I("no --test_data: test accuracy will not be reported%s", hint);
}

/* Warns if a test or validation set has the samples of the training set, because its accuracy then
 * does not show the accuracy on new data. */
static void warn_same_samples(const struct worker *w)
{
    const struct dataset *sets[] = {w->test, w->validation};
    for (size_t i = 0; w->train && i < sizeof sets / sizeof *sets; i++)
        if (sets[i] && dataset_same_samples(w->train, sets[i]))
            LOG_W(
                "%s: the %s samples are the same as the training samples: their accuracy does not predict that of new samples; name other samples with --%s",
                sets[i]->path, i == 0 ? "test" : "validation",
                i == 0 ? "test_data" : "validation_dir");
}

enum status input_open(struct worker *w)
{
    enum status st = ST_OK;
    TRY(input_keys_set(w));
    TRY(open_train(w));
    TRY(input_keys_follow(w));
    /* samples of other classes may be on other workers if --data_shard=own is set */
    if (w->train && !w->opt.data_own)
        TRY(dataset_classes_check(w->train));
    w->opt.test.may_be_absent = w->train != NULL;
    if (w->train && w->train->has_test_beside && w->opt.train.data && !w->opt.test.data)
        w->opt.test.data = w->opt.train.data;
    TRY(dataset_open(&w->opt.test, &w->test));
    if (w->train && w->opt.validation_dir) {
        struct dataset_request r = w->opt.test;
        r.dir = w->opt.validation_dir;
        r.part = "validation";
        r.dir_flag = "validation_dir";
        r.data = r.labels = NULL;
        r.may_be_absent = false;
        TRY(dataset_open(&r, &w->validation));
    }
    if (!w->test)
        log_no_test(&w->opt);
    TRY(dataset_targets_alike(w->train, w->test));
    TRY(dataset_targets_alike(w->train, w->validation));
    TRY(check_columns(w));
    TRY(check_sets(w));
    TRY(input_keys_check(w));
    warn_same_samples(w);
    if (!w->train)
        TRY(check_layout(w));
    TRY(standardize_sets(w));
done:
    return st;
}

static bool is_given(const struct options_list *l)
{
    return l->n > 0 || l->measured;
}

/* Writes a number for each channel: the list's numbers; if the list has only one number, that
 * number for all channels; if it is empty, `usual`. */
static enum status spread_numbers(const char *flag, const struct options_list *from,
                                  const struct dataset *d, float usual, float *to)
{
    int64_t channels = d->sample.dim[0];
    if (from->n > 1 && from->n != channels) {
        LOG_E("--%s has %d numbers, but samples of %s have %" PRId64
              " %s; set one number for each channel, or one for all",
              flag, from->n, d->path, channels, channels == 1 ? "channel" : "channels");
        return ST_INVALID;
    }
    for (int64_t c = 0; c < channels; c++)
        to[c] = from->n == 0 ? usual : from->value[from->n > 1 ? c : 0];
    return ST_OK;
}

static enum status measure_set(const struct options *o, const struct dataset *d,
                               struct job_normal *n)
{
    enum status st = ST_OK;
    double mean[JOB_MAX_CHANNELS], std[JOB_MAX_CHANNELS];
    TRY(dataset_measure(d, mean, std));
    for (int64_t c = 0; c < d->sample.dim[0]; c++) {
        if (o->mean.measured)
            n->mean[c] = (float)mean[c];
        if (o->std.measured)
            n->std[c] = (float)std[c];
        if (n->std[c] > 0)
            continue;
        LOG_E("--std=measured: channel %" PRId64
              " of %s has the same value everywhere, so its deviation is 0; set --std to numbers",
              c + 1, d->path);
        TRY(ST_INVALID);
    }
done:
    return st;
}

/* Sets *out according to the flags, for the shape of the samples in d. If a flag is `measured`, the
 * statistics are measured over d. */
static enum status by_flags(const struct options *o, const struct dataset *d,
                            struct job_normal *out)
{
    enum status st = ST_OK;
    struct job_normal n = {0};
    *out = n;
    if (!is_given(&o->mean) && !is_given(&o->std))
        return ST_OK;
    if (d->sample.dim[0] > JOB_MAX_CHANNELS) {
        LOG_E("--mean, --std: samples of %s have %" PRId64
              " channels; normalisation supports at most %d",
              d->path, d->sample.dim[0], JOB_MAX_CHANNELS);
        return ST_INVALID;
    }
    TRY(spread_numbers("mean", &o->mean, d, 0, n.mean));
    TRY(spread_numbers("std", &o->std, d, 1, n.std));
    TRY(input_range_check_flags(o, d));
    if (o->mean.measured || o->std.measured)
        TRY(measure_set(o, d, &n));
    n.n = (int)d->sample.dim[0];
    *out = n;
done:
    return st;
}

static void apply_normalisation(struct worker *w, const char *how)
{
    char mean[JOB_NUMBERS_BYTES], std[JOB_NUMBERS_BYTES];
    struct dataset *sets[3] = {w->train, w->test, w->validation};
    for (int i = 0; i < 3; i++)
        if (sets[i])
            sets[i]->normal = w->normal;
    if (w->normal.n > 0)
        LOG_I("samples are normalised: mean %s, standard deviation %s%s",
              job_input_numbers_text(w->normal.mean, w->normal.n, mean),
              job_input_numbers_text(w->normal.std, w->normal.n, std), how);
}

static enum status check_augment(const struct job_augment *a, const struct dataset *d)
{
    int64_t height = d->sample.dim[1], width = d->sample.dim[2];
    int64_t shorter = height < width ? height : width;
    const struct {
        const char *name;
        int pixels;
    } sized[] = {{"shift", a->shift}, {"crop", a->crop}, {"cutout", a->cutout}};
    if (!job_input_augments(a))
        return ST_OK;
    if (height == 1) {
        LOG_E("--augment is for pictures; samples of %s are rows of %" PRId64
              " features, without height and width; remove the flag",
              d->path, width);
        return ST_INVALID;
    }
    for (size_t i = 0; i < sizeof sized / sizeof *sized; i++)
        if (sized[i].pixels >= shorter) {
            LOG_E("--augment=%s:%d: samples of %s have %" PRId64 "x%" PRId64
                  " pixels; N must be below the shorter side",
                  sized[i].name, sized[i].pixels, d->path, height, width);
            return ST_INVALID;
        }
    return ST_OK;
}

/* --init: warns if the parameters were trained on differently normalised samples, because no other
 * check shows this. */
static void compare_init(const struct worker *w)
{
    const struct job_normal *was = &w->init_result.origin.normal, *is = &w->normal;
    char text[4][JOB_NUMBERS_BYTES];
    const char *of;
    if (!w->init_result.origin.normal_known || job_input_normal_differ(was, is, &of) < 0)
        return;
    LOG_W(
        "--init=%s: the file was trained on samples of mean %.150s and standard deviation %.150s, but this job normalises with mean %.150s and standard deviation %.150s. If both use similar samples, set the same --mean and --std",
        w->opt.init, job_input_numbers_text(was->mean, was->n, text[0]),
        job_input_numbers_text(was->std, was->n, text[1]),
        job_input_numbers_text(is->mean, is->n, text[2]),
        job_input_numbers_text(is->std, is->n, text[3]));
}

#define LEAVE_OUT                                                                                  \
    "the output layer has learnt other classes; exclude this layer by a line '%.*s = -' in "       \
    "--init_map, or rename the classes"

/* --init: warns if the parameters were trained on other classes. Row k of the output layer is used
 * for class k, whatever the name of that class is. */
static void compare_classes(const struct worker *w, const struct trained_on *was)
{
    int head = w->model->classes_param;
    const char *names = w->train->class_names;
    char here[DATA_WORDS_TEXT_BYTES], there[DATA_WORDS_TEXT_BYTES];
    if (!names || (head >= 0 && !w->given[head]))
        return;
    const char *layer = head < 0 ? "LAYER" : w->model->params[head].name;
    int n = (int)strcspn(layer, "/");
    int64_t class = was->class_names ? data_words_differ(was->class_names, names, there, here) : -1;
    if (class >= 0)
        LOG_W("--init=%s: its class %" PRId64 " is '%s', but that of %s is '%s': " LEAVE_OUT,
              w->opt.init, class, there, w->train->path, here, n, layer);
    else if (was->names_sum && was->names_sum != digest_crc32c(0, names, strlen(names)))
        LOG_W("--init=%s: was trained on classes with other names than those of %s, %s: " LEAVE_OUT,
              w->opt.init, w->train->path, data_words_text(names, here), n, layer);
}

/* --init: warns if the columns that the first layer was trained on had other units than the columns
 * of this job. */
static void compare_standard(const struct worker *w, const struct trained_on *was)
{
    const struct dataset_standard *is = &w->train->standard;
    bool here = is->n > 0, there = was->standardized;
    if (was->sample.n_dims == 0) /* unknown: another program may have written the file */
        return;
    if (here != there)
        LOG_W(
            "--init=%s: was trained %s --standardize, but this job runs %s it: the columns have another scale than in training; if that training's samples had the same units as this job's, %s --standardize",
            w->opt.init, there ? "with" : "without", here ? "with" : "without",
            there ? "add" : "remove");
    else if (here && was->standard.n > 0 && !dataset_standard_same(is, &was->standard))
        LOG_W(
            "--init=%s: was trained with --standardize on a table whose columns have other means and deviations than those of %s: the same number in a column reaches the first layer as another number than in training",
            w->opt.init, w->train->path);
}

static enum status compare_trained_on(const struct worker *w)
{
    struct trained_on was;
    enum status st = trained_on_read(w->opt.init, w->begins_with, &was);
    if (st == ST_OK) {
        compare_standard(w, &was);
        compare_classes(w, &was);
    }
    trained_on_free(&was);
    return st;
}

/* Warns of classes in the test or validation set that have no training sample. Does nothing for
 * --data_shard=own: another worker may have such samples. */
static void log_lacking_classes(const struct worker *w)
{
    const struct dataset *sets[] = {w->test, w->validation};
    char name[DATA_WORDS_TEXT_BYTES];
    for (size_t i = 0; i < sizeof sets / sizeof *sets && !w->opt.data_own; i++) {
        int first, n = sets[i] ? dataset_classes_lacking(w->train, sets[i], &first) : 0;
        char more[48] = "";
        if (n == 0)
            continue;
        data_words_name(w->train->class_names, first, name);
        if (n > 1)
            snprintf(more, sizeof more, " and %d more", n - 1);
        LOG_W(
            "%s: has samples of class %d%s%s%s%s, but the training set, %s, has none: training cannot learn it",
            sets[i]->path, first, *name ? " ('" : "", name, *name ? "')" : "", more,
            w->train->path);
    }
}

enum status input_prepare(struct worker *w)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    char how[64] = "";
    TRY(check_augment(&o->augment, w->train));
    TRY(by_flags(o, w->train, &w->normal));
    if (o->mean.measured || o->std.measured)
        snprintf(how, sizeof how, " (measured over %" PRId64 " training samples)", w->train->n);
    apply_normalisation(w, how);
    compare_init(w);
    if (w->init)
        TRY(compare_trained_on(w));
    TRY(input_range_compare(w));
    input_range_check_columns(w);
    log_lacking_classes(w);
done:
    return st;
}

enum status input_normalise_as(struct worker *w, const char *flag, const char *file,
                               const struct weights_origin *origin)
{
    enum status st = ST_OK;
    const struct options *o = &w->opt;
    const struct job_normal *there = &origin->normal;
    char was[JOB_NUMBERS_BYTES], is[JOB_NUMBERS_BYTES];
    const char *of;
    TRY(by_flags(o, w->test, &w->normal));
    if (!origin->normal_known) {
        apply_normalisation(w, "");
        return ST_OK;
    }
    if (there->n > 0 && there->n != w->test->sample.dim[0]) {
        LOG_E("--%s: %s was trained on samples of %d channels, but those of %s have %" PRId64, flag,
              file, there->n, w->test->path, w->test->sample.dim[0]);
        return ST_MISMATCH;
    }
    if ((is_given(&o->mean) || is_given(&o->std)) &&
        job_input_normal_differ(&w->normal, there, &of) >= 0) {
        int mean = strcmp(of, "mean") == 0;
        LOG_E("--%s: %s was trained with %s, but this job has %s; remove --mean and --std", of,
              file, job_input_numbers_text(mean ? there->mean : there->std, there->n, was),
              job_input_numbers_text(mean ? w->normal.mean : w->normal.std, w->normal.n, is));
        return ST_MISMATCH;
    }
    w->normal = *there;
    apply_normalisation(w, ", as in training");
    TRY(input_range_compare_file(w, flag, file));
done:
    return st;
}
