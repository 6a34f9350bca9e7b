/* worker/results/trained_on.h - the description of the training data in a file of parameters. An
 * export has it as metadata:
 *     sample               "1x28x28"
 *     labels               "classes" or "targets"
 *     classes, columns     names of the classes, or of a CSV file's columns, one per line
 *     elements, range      "whole" or "float32"; "0,1": see dataset_range.h
 *     label_columns, ignored_columns, column_roles   other CSV columns; "lffi": see data_csv.h
 *     key_separator        " ": the character between the keys of a CSV file's cell
 *     column_mean, column_std                        numbers of --standardize
 *     data, data_samples, data_crc32c   path, number and CRC-32C of the training samples
 *     interrupted          "true": Ctrl-C or weirctl stop ended the training early
 *     model_json, hidden_units          text of the model file; value of --hidden_units
 * The manifest of a checkpoint has all of these except `interrupted` in one JSON object. In
 * addition the servers record themselves: sample, labels, path, the checksum of the class names,
 * and whether columns were standardized.
 * Owns:    the names. Threads: plain values without a lock.
 * Errors:  ST_NOMEM; ST_CORRUPT: numbers of --standardize are damaged, or a list of names is above
 *          1 MB; logged. Files that cannot be read are ignored here: the code that loads the
 *          parameters reports them. */
#ifndef WORKER_RESULTS_TRAINED_ON_H
#define WORKER_RESULTS_TRAINED_ON_H
#include "checkpoint/restore.h"
#include "net/wire/job_data.h"
#include "worker/data/dataset.h"
#include "worker/data/dataset_range.h"
#include "worker/data/dataset_standard.h"
#include <stdbool.h>

struct trained_on {
    struct shape sample;    /* n_dims 0: unknown */
    enum job_labels labels; /* JOB_LABELS_UNSAID: unknown */
    char *class_names;      /* list as in data_words.h; NULL: unknown, or none */
    /* CRC-32C of the class names, if the file has this instead of the names; 0: unknown, or no
     * names */
    uint32_t names_sum;
    char *model;                       /* JSON text, at most JOB_MAX_MODEL_BYTES; NULL: unknown */
    int hidden_units;                  /* value of --hidden_units; 0: as in the model's text */
    bool interrupted;                  /* training was stopped before its last step */
    char *label_names, *ignored_names; /* CSV: names of label and ignored columns */
    char *csv_roles;                   /* CSV: see data_csv.h */
    char key_separator; /* CSV: between the keys of a cell; 0: unknown, or a cell has one key */
    char *columns;      /* names of a CSV file's columns without its label columns, as a list */
    struct dataset_range range;       /* range of the samples; range.enough 0: unknown */
    bool standardized;                /* the job had --standardize */
    struct dataset_standard standard; /* n 0: the file does not have the numbers */
    char data[JOB_DATA_NAME_BYTES];   /* path of the training data, as in job_data; "": unknown */
};

/* Reads the description in the file `path`. checkpoint: the opened checkpoint if `path` is one,
 * otherwise NULL. */
enum status trained_on_read(const char *path, const struct checkpoint_restore *checkpoint,
                            struct trained_on *out);
void trained_on_free(struct trained_on *t);
/* Returns true if the training data were the default data of a worker without flags. */
bool trained_on_default_data(const struct trained_on *t);

enum { TRAINED_ON_PAIRS = 17, TRAINED_ON_TEXT_BYTES = 72 };
struct trained_on_texts {
    char sample[TRAINED_ON_TEXT_BYTES], range[TRAINED_ON_TEXT_BYTES];
    char data_samples[TRAINED_ON_TEXT_BYTES], data_crc32c[TRAINED_ON_TEXT_BYTES];
    char *column_mean, *column_std;
    char hidden_units[TRAINED_ON_TEXT_BYTES];
    char key_separator[2];
};
struct trained_on_source {
    const struct dataset *train; /* source of the names of classes and columns */
    const struct job_data *data; /* description of the data; n_train 0: without checksums */
    const struct dataset_range *range;
    const char *model;  /* JSON text */
    int hidden_units;   /* value of --hidden_units; 0: as in the model's text */
    char key_separator; /* CSV: see data_csv.h; 0: none */
};

/* Writes the metadata of an export; texts: owns the memory that the pairs point to, until
 * trained_on_texts_free. *n: number of pairs. ST_NOMEM; logged. */
enum status trained_on_metadata(const struct trained_on_source *s, struct trained_on_texts *texts,
                                const char *pairs[TRAINED_ON_PAIRS][2], int *n);
void trained_on_texts_free(struct trained_on_texts *texts);
/* Writes the description as a JSON object, malloc'd, for checkpoints. It has at most
 * JOB_MAX_TRAINED_ON_BYTES; texts that do not fit are omitted. ST_NOMEM; logged. */
enum status trained_on_text(const struct trained_on_source *s, char **out);

#endif
