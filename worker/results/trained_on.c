/* worker/results/trained_on.c - reads and writes the description of the training data in exports
 * and checkpoints, see trained_on.h. */
#include "worker/results/trained_on.h"
#include "base/float_text.h"
#include "base/log.h"
#include "files/json_text.h"
#include "files/safetensors.h"
#include "net/wire/job.h"
#include "worker/weights/weights_source.h"
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES_BYTES = 1 << 20 };

static const char *const elements_text[] = {"whole", "float32"};
static const char *const kinds[JOB_LABELS_N_KINDS] = {NULL, "classes", "targets"};

static void read_sample(const char *text, struct shape *out)
{
    struct shape s = {3, {0}};
    char rest;
    if (text &&
        sscanf(text, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%c", &s.dim[0], &s.dim[1], &s.dim[2],
               &rest) == 3 &&
        s.dim[0] > 0 && s.dim[1] > 0 && s.dim[2] > 0 && s.dim[0] <= DATASET_MAX_SIDE &&
        s.dim[1] <= DATASET_MAX_SIDE && s.dim[2] <= DATASET_MAX_SIDE)
        *out = s;
}

static void read_range(const char *elements, const char *text, struct dataset_range *out)
{
    struct dataset_range r = {.enough = 1};
    char rest;
    if (!elements || !text || sscanf(text, "%f,%f%c", &r.least, &r.most, &rest) != 2 ||
        !isfinite(r.least) || !isfinite(r.most))
        return;
    r.floats = strcmp(elements, elements_text[1]) == 0;
    if (r.floats || strcmp(elements, elements_text[0]) == 0)
        *out = r;
}

/* Source of texts that are found by name; path: the file's name, for errors. */
struct texts {
    const char *path;
    /* export whose metadata are the texts; NULL: the file is not an export */
    const struct safetensors_file *export;
    /* object with the texts, as trained_on_text writes it; NULL: there are no texts */
    const json_t *checkpoint;
};

static const char *text_of(const struct texts *t, const char *key)
{
    return t->export ? safetensors_metadata(t->export, key)
                     : json_string_value(json_object_get(t->checkpoint, key));
}

static enum status copy_text(const struct texts *t, const char *key, char **out)
{
    const char *text = text_of(t, key);
    if (!text || !*text || (*out = strdup(text)))
        return ST_OK;
    LOG_E("%s: no memory for its metadata \"%s\"", t->path, key);
    return ST_NOMEM;
}

/* Copies a list of names. Refuses a list that is longer than any that Weir exports. */
static enum status copy_names(const struct texts *t, const char *key, char **out)
{
    const char *names = text_of(t, key);
    if (!names || strlen(names) <= MOST_NAMES_BYTES)
        return copy_text(t, key, out);
    LOG_E(
        "%s: its metadata \"%s\" is longer than 1 MB, so it is not from an export; export the parameters again",
        t->path, key);
    return ST_CORRUPT;
}

/* Reads the numbers of --standardize. If they are damaged, the file must not be used. */
static enum status read_standard(const struct texts *t, struct trained_on *out)
{
    const char *mean = text_of(t, "column_mean"), *std = text_of(t, "column_std");
    if (!mean && !std)
        return ST_OK;
    enum status st = mean && std ? dataset_standard_parse(mean, std, &out->standard) : ST_CORRUPT;
    out->standardized = st == ST_OK;
    if (st == ST_CORRUPT)
        LOG_E(
            "%s: its metadata column_mean and column_std, the numbers of --standardize, are damaged; export the parameters again",
            t->path);
    return st;
}

static enum status read_model(const struct texts *t, struct trained_on *out)
{
    const char *text = text_of(t, "model_json"), *units = text_of(t, "hidden_units");
    long n = units ? strtol(units, NULL, 10) : 0;
    if (!text || strlen(text) > JOB_MAX_MODEL_BYTES || n < 0 || n > INT_MAX)
        return ST_OK;
    out->hidden_units = (int)n;
    return copy_text(t, "model_json", &out->model);
}

static enum status read_texts(const struct texts *t, struct trained_on *out)
{
    enum status st = ST_OK;
    const char *labels = text_of(t, "labels"), *data = text_of(t, "data");
    const char *interrupted = text_of(t, "interrupted");
    const char *separator = text_of(t, "key_separator");
    out->interrupted = interrupted && strcmp(interrupted, "true") == 0;
    read_sample(text_of(t, "sample"), &out->sample);
    read_range(text_of(t, "elements"), text_of(t, "range"), &out->range);
    for (int i = JOB_LABELS_CLASSES; labels && i < JOB_LABELS_N_KINDS; i++)
        if (strcmp(labels, kinds[i]) == 0)
            out->labels = (enum job_labels)i;
    snprintf(out->data, sizeof out->data, "%s", data ? data : "");
    TRY(copy_names(t, "classes", &out->class_names));
    TRY(copy_names(t, "columns", &out->columns));
    TRY(copy_names(t, "label_columns", &out->label_names));
    TRY(copy_names(t, "ignored_columns", &out->ignored_names));
    TRY(copy_names(t, "column_roles", &out->csv_roles));
    out->key_separator = separator && strlen(separator) == 1 ? *separator : 0;
    TRY(read_standard(t, out));
    TRY(read_model(t, out));
done:
    return st;
}

/* Reads an export. A file of another program, without "global_step", is ignored: its keys may have
 * another meaning. */
static enum status read_export(const char *path, struct trained_on *out)
{
    char why[SAFETENSORS_WHY_BYTES];
    struct safetensors_file *f;
    if (safetensors_open_any(path, &f, why) != ST_OK)
        return ST_OK;
    const struct texts texts = {path, f, NULL};
    enum status st = text_of(&texts, "global_step") ? read_texts(&texts, out) : ST_OK;
    safetensors_close(f);
    return st;
}

/* Reads a checkpoint. Values that the servers recorded by themselves replace those of the
 * checkpoint's text. */
static enum status read_checkpoint(const char *path, const struct checkpoint_restore *r,
                                   struct trained_on *out)
{
    json_t *document = NULL;
    const struct checkpoint_manifest *m = checkpoint_restore_manifest(r);
    const struct job_data *d = &m->job.data;
    enum status st =
        m->trained_on ? json_text_load(m->trained_on, strlen(m->trained_on), &document) : ST_OK;
    const struct texts texts = {path, NULL, document};
    if (st == ST_NOMEM)
        LOG_E("%s: no memory for its description of the training data", path);
    else
        st = read_texts(&texts, out); /* a text that is not JSON is ignored */
    json_decref(document);
    out->names_sum = d->class_names;
    out->standardized = d->standardized != 0;
    if (d->n_train) {
        out->labels = d->labels;
        memcpy(out->data, d->name, sizeof out->data);
        out->sample = (struct shape){3, {d->dim[0], d->dim[1], d->dim[2]}};
    }
    return st;
}

enum status trained_on_read(const char *path, const struct checkpoint_restore *checkpoint,
                            struct trained_on *out)
{
    *out = (struct trained_on){.sample = {0}};
    return checkpoint ? read_checkpoint(path, checkpoint, out) : read_export(path, out);
}

void trained_on_free(struct trained_on *t)
{
    free(t->class_names);
    free(t->columns);
    free(t->label_names);
    free(t->ignored_names);
    free(t->csv_roles);
    free(t->model);
    dataset_standard_free(&t->standard);
    t->model = t->class_names = t->columns = t->label_names = t->ignored_names = t->csv_roles =
        NULL;
}

bool trained_on_default_data(const struct trained_on *t)
{
    struct job_data here = {0};
    char *full = realpath(DATASET_DEFAULT_DIR, NULL);
    job_data_set_name(&here, full ? full : DATASET_DEFAULT_DIR);
    free(full);
    return strcmp(t->data, here.name) == 0 || strcmp(t->data, DATASET_DEFAULT_DIR) == 0;
}

/* Returns true if the names can be stored: they are not too long, and are UTF-8, as JSON requires
 * (the name of a folder may contain any bytes). of: noun for the log line, such as "classes". */
static bool can_be_kept(const char *names, const char *of)
{
    size_t n = strlen(names);
    json_t *text = n <= MOST_NAMES_BYTES ? json_string(names) : NULL;
    int can = text != NULL;
    json_decref(text);
    if (!can)
        LOG_W("exports and checkpoints omit the names of the %s: %s", of,
              n > MOST_NAMES_BYTES ? "they are longer than 1 MB" : "one of them is not UTF-8");
    return can;
}

static void put_pair(const char *pairs[TRAINED_ON_PAIRS][2], int *n, const char *key,
                     const char *value)
{
    pairs[*n][0] = key;
    pairs[(*n)++][1] = value;
}

static void put_data(const struct job_data *data, struct trained_on_texts *texts,
                     const char *pairs[TRAINED_ON_PAIRS][2], int *n)
{
    if (data->n_train == 0)
        return;
    snprintf(texts->data_samples, sizeof texts->data_samples, "%" PRId64, data->n_train);
    snprintf(texts->data_crc32c, sizeof texts->data_crc32c, "%08x", data->train_samples);
    put_pair(pairs, n, "data", data->name);
    put_pair(pairs, n, "data_samples", texts->data_samples);
    put_pair(pairs, n, "data_crc32c", texts->data_crc32c);
}

static enum status put_standard(const struct dataset_standard *s, struct trained_on_texts *texts,
                                const char *pairs[TRAINED_ON_PAIRS][2], int *n)
{
    if (s->n == 0)
        return ST_OK;
    texts->column_mean = dataset_standard_text(s->mean, s->n);
    texts->column_std = dataset_standard_text(s->std, s->n);
    if (!texts->column_mean || !texts->column_std) {
        LOG_E("--standardize: no memory for the numbers of %" PRId64 " columns", s->n);
        return ST_NOMEM;
    }
    put_pair(pairs, n, "column_mean", texts->column_mean);
    put_pair(pairs, n, "column_std", texts->column_std);
    return ST_OK;
}

void trained_on_texts_free(struct trained_on_texts *texts)
{
    free(texts->column_mean);
    free(texts->column_std);
    texts->column_mean = texts->column_std = NULL;
}

static void put_model(const struct trained_on_source *s, struct trained_on_texts *texts,
                      const char *pairs[TRAINED_ON_PAIRS][2], int *n)
{
    if (strlen(s->model) > JOB_MAX_MODEL_BYTES) {
        LOG_W(
            "exports and checkpoints omit the model's text, because it is longer than %d bytes: --evaluate and --predict of them need --model",
            JOB_MAX_MODEL_BYTES);
        return;
    }
    put_pair(pairs, n, "model_json", s->model);
    if (s->hidden_units == 0)
        return;
    snprintf(texts->hidden_units, sizeof texts->hidden_units, "%d", s->hidden_units);
    put_pair(pairs, n, "hidden_units", texts->hidden_units);
}

enum status trained_on_metadata(const struct trained_on_source *s, struct trained_on_texts *texts,
                                const char *pairs[TRAINED_ON_PAIRS][2], int *n_pairs)
{
    const struct dataset *train = s->train;
    const struct dataset_range *range = s->range;
    const int64_t *is = train->sample.dim;
    const char *names[][2] = {{"classes", train->class_names},
                              {"columns", train->columns},
                              {"label_columns", train->label_names},
                              {"ignored_columns", train->ignored_names},
                              {"column_roles", train->csv_roles}};
    int n = 0;
    texts->column_mean = texts->column_std = NULL;
    char least[FLOAT_TEXT_BYTES], most[FLOAT_TEXT_BYTES];
    snprintf(texts->sample, sizeof texts->sample, "%" PRId64 "x%" PRId64 "x%" PRId64, is[0], is[1],
             is[2]);
    put_pair(pairs, &n, "sample", texts->sample);
    put_pair(pairs, &n, "labels", kinds[train->targets ? JOB_LABELS_TARGETS : JOB_LABELS_CLASSES]);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i][1] && can_be_kept(names[i][1], names[i][0]))
            put_pair(pairs, &n, names[i][0], names[i][1]);
    if (range->enough) {
        snprintf(texts->range, sizeof texts->range, "%s,%s", float_text(range->least, least),
                 float_text(range->most, most));
        put_pair(pairs, &n, "elements", elements_text[range->floats]);
        put_pair(pairs, &n, "range", texts->range);
    }
    snprintf(texts->key_separator, sizeof texts->key_separator, "%c", s->key_separator);
    if (s->key_separator)
        put_pair(pairs, &n, "key_separator", texts->key_separator);
    put_data(s->data, texts, pairs, &n);
    put_model(s, texts, pairs, &n);
    enum status st = put_standard(&train->standard, texts, pairs, &n);
    *n_pairs = n;
    return st;
}

/* Adds the pair to *o, unless the whole text would then be too long for a checkpoint. */
static enum status add_pair(json_t *o, const char *const pair[2], size_t *bytes)
{
    json_t *value = json_string(pair[1]);
    size_t n = strlen(pair[0]) + 6; /* 6: quotes, colon, comma and braces */
    n += json_dumpb(value, NULL, 0, JSON_COMPACT | JSON_ENCODE_ANY);
    if (value && *bytes + n > JOB_MAX_TRAINED_ON_BYTES) {
        json_decref(value);
        return ST_OK;
    }
    *bytes += n;
    return json_object_set_new(o, pair[0], value) == 0 ? ST_OK : ST_NOMEM;
}

enum status trained_on_text(const struct trained_on_source *s, char **out)
{
    enum status st = ST_OK;
    struct trained_on_texts texts;
    const char *pairs[TRAINED_ON_PAIRS][2];
    int n = 0;
    size_t bytes = 0;
    json_t *o = json_object();
    TRY(trained_on_metadata(s, &texts, pairs, &n));
    for (int i = 0; i < n && st == ST_OK; i++)
        st = add_pair(o, pairs[i], &bytes);
    if (!json_object_get(o, "column_std")) /* without the standard deviation the mean has no use */
        json_object_del(o, "column_mean");
    *out = st == ST_OK ? json_dumps(o, JSON_COMPACT) : NULL;
    st = *out ? ST_OK : ST_NOMEM;
    if (st != ST_OK)
        LOG_E("no memory for the description of the training data in checkpoints");
done:
    trained_on_texts_free(&texts);
    json_decref(o);
    return st;
}
