/* worker/data/dataset_csv.c - see dataset_csv.h. */
#include "worker/data/dataset_csv.h"
#include "base/log.h"
#include "worker/data/data_csv.h"
#include <stdlib.h>
#include <string.h>

bool dataset_csv_is(const char *path)
{
    size_t n = strlen(path);
    if (n > 3 && strcmp(path + n - 3, ".gz") == 0)
        n -= 3;
    return n > 4 &&
           (strncmp(path + n - 4, ".csv", 4) == 0 || strncmp(path + n - 4, ".tsv", 4) == 0);
}

/* Moves the keys of a CSV file to the set. */
static void take_keys(struct source *s, struct data_csv *csv, int n)
{
    for (int i = 0; i < n; i++) {
        struct data_csv_keys *k = &csv->keys[i];
        s->keys.input[i] = (struct dataset_key_input){k->n_columns, k->keys, k->first};
        s->own_keys[i] = k->keys;
        s->own_first[i] = k->first;
        s->key_columns[i] = k->columns;
    }
    s->d.key_columns = n > 0 ? (const char *const *)s->key_columns : NULL;
}

static enum status check_features(struct source *s, const struct dataset_request *r)
{
    struct data_array *samples = &s->array[SAMPLES];
    const char *path = s->file[SAMPLES]->path;
    if (samples->dim[1] > 0)
        return ST_OK;
    if (!r->no_dense) {
        LOG_E(
            "%s: all its columns except labels and ignored ones have keys, but input '%s' of the model reads numbers; add a column of numbers, or remove the input from the model",
            path, r->dense_input ? r->dense_input : "image");
        return ST_UNSUPPORTED;
    }
    int64_t n = samples->dim[0];
    free(samples->unpacked);
    samples->unpacked = NULL;
    return dataset_keys_alone(path, n, samples);
}

enum status dataset_csv_open(struct source *s, const struct dataset_request *r,
                             const struct dataset_paths *p)
{
    if (*p->labels) {
        LOG_E(
            "--%s_labels: %s has its labels in a column; remove the flag, and name the column with --label_column",
            r->part, p->data);
        return ST_INVALID;
    }
    struct data_csv_key_input keys[DATASET_MAX_KEY_INPUTS];
    CHECK(r->n_keys <= DATASET_MAX_KEY_INPUTS);
    for (int i = 0; i < r->n_keys; i++)
        keys[i] = (struct data_csv_key_input){.name = r->keys[i].input,
                                              .columns = r->keys[i].columns,
                                              .listed_by = r->keys[i].listed_by,
                                              .are_numbers = r->keys[i].are_numbers,
                                              .is_resolved = r->keys[i].is_resolved};
    const struct data_csv_columns columns = {
        .label = r->label_column,
        .targets = r->target_columns,
        .ignored = r->ignore_columns,
        .classes = r->class_names,
        .features = r->no_dense ? 0 : r->features,
        .no_features = r->no_dense,
        .feature_names = r->feature_names,
        .label_names = r->label_names,
        .ignored_names = r->ignored_names,
        .roles = r->csv_roles,
        .are_targets = r->are_targets,
        .may_lack = r->to_predict,
        .header = (enum data_csv_header)r->csv_header,
        .describe = r->describe,
        .warn = r->warn,
        .keys = keys,
        .n_keys = r->n_keys,
        .key_separator = r->key_separator,
    };
    struct data_csv csv;
    enum status st =
        data_csv_decode(s->file[SAMPLES]->bytes, s->file[SAMPLES]->n, p->data, &columns, &csv);
    if (st != ST_OK)
        return st;
    s->array[SAMPLES] = csv.samples;
    s->array[LABELS] = csv.labels;
    s->class_names = csv.classes;
    s->columns = csv.columns;
    s->label_names = csv.label_names;
    s->ignored_names = csv.ignored_names;
    s->csv_roles = csv.roles;
    s->d.scale = csv.scale;
    take_keys(s, &csv, r->n_keys);
    return check_features(s, r);
}
