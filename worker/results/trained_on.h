/* worker/results/trained_on.h - what a file of parameters says of the data that they were trained
 * on. An export has metadata for it: `sample` "1x28x28", `labels` "classes" or "targets",
 * `classes`: the classes' names, one a line, `columns`: those of a CSV file's columns likewise,
 * `elements` "whole" or "float32", `range` "0,1": see dataset_range.h, `label_columns` and
 * `ignored_columns`: those of a CSV file's other columns, `column_roles`: "lffi", what each column
 * of the file is (see data_csv.h), `column_mean` and `column_std`: the numbers of --standardize,
 * `data`: the path of the training data, `data_samples`: how many there are, `data_crc32c`: the
 * CRC-32C of their samples, `interrupted` "true": Ctrl-C or weirctl stop ended it too early,
 * `model_json`: the model file's text, `hidden_units`: those that --hidden_units gave it. A
 * checkpoint's manifest has all of these but `interrupted` in one JSON object, and, of the servers'
 * own knowledge, the first two, the path, the checksum of the classes' names and that the columns
 * were standardized.
 * Owns:    the names. Threads: values.
 * Errors:  ST_NOMEM; ST_CORRUPT: numbers of --standardize, lists of names above 1 MB; logged. What
 * else cannot be read is not said: who loads the parameters says why. */
#ifndef WORKER_RESULTS_TRAINED_ON_H
#define WORKER_RESULTS_TRAINED_ON_H
#include "net/wire/job_data.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_range.h"
#include "worker/data/dataset_standard.h"
#include <stdbool.h>

struct trained_on {
    struct shape sample;    /* n_dims 0: not said */
    enum job_labels labels; /* likewise JOB_LABELS_UNSAID */
    char *class_names;      /* a list as in data_words.h; NULL: not said, or there are none */
    uint32_t names_sum;     /* without them: their CRC-32C; 0: not said, or there are none */
    char *model;            /* JSON text, at most JOB_MAX_MODEL_BYTES; NULL: not said */
    int hidden_units;       /* that the model is read with; 0: as its text says */
    bool interrupted;       /* training was stopped before its last step */
    char *label_names, *ignored_names; /* CSV: of the other columns, lists likewise */
    char *csv_roles;                   /* CSV: see data_csv.h */
    char *columns; /* as class_names, of a CSV file's columns without those of labels */
    struct dataset_range range;       /* enough 0: not said */
    bool standardized;                /* the job had --standardize; */
    struct dataset_standard standard; /* n 0: the file does not have the numbers */
    char
        data[JOB_DATA_NAME_BYTES]; /* path of the training data, as job_data has it; "": not said */
};

enum status trained_on_read(const char *path, struct trained_on *out);
void trained_on_free(struct trained_on *t);
/* Returns true if the training data were those that a worker takes where no flag names any. */
bool trained_on_default_data(const struct trained_on *t);

enum { TRAINED_ON_PAIRS = 16, TRAINED_ON_TEXT_BYTES = 72 };
struct trained_on_texts {
    char sample[TRAINED_ON_TEXT_BYTES], range[TRAINED_ON_TEXT_BYTES];
    char data_samples[TRAINED_ON_TEXT_BYTES], data_crc32c[TRAINED_ON_TEXT_BYTES];
    char *column_mean, *column_std;
    char hidden_units[TRAINED_ON_TEXT_BYTES];
};
struct trained_on_source {
    const struct dataset *train; /* keeps the names */
    const struct job_data *data; /* n_train 0: not summed */
    const struct dataset_range *range;
    const char *model; /* JSON text */
    int hidden_units;  /* 0: as the text says */
};

/* Fills in the metadata of an export after training on this set; texts: room for what the pairs
 * point to, until trained_on_texts_free. *n: how many pairs there are. ST_NOMEM; logged. */
enum status trained_on_metadata(const struct trained_on_source *s, struct trained_on_texts *texts,
                                const char *pairs[TRAINED_ON_PAIRS][2], int *n);
void trained_on_texts_free(struct trained_on_texts *texts);
/* Returns the same as the text of a JSON object, malloc'd, for checkpoints: of at most
 * JOB_MAX_TRAINED_ON_BYTES, without what there is no room for. ST_NOMEM; logged. */
enum status trained_on_text(const struct trained_on_source *s, char **out);

#endif
