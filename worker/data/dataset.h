/* worker/data/dataset.h - samples with their labels, from any format of file, and the assignment of
 * samples to readers (I6). docs/guide/data.md has the formats and the names of the files.
 * Owns:    the files, mapped or unpacked, and the labels.
 * Threads: immutable once open; open, split and destroy: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_CORRUPT, ST_UNSUPPORTED, ST_MISMATCH, ST_IO, ST_NOMEM;
 *          logged in one line with file, position and fix. */
#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H
#include "base/bar.h"
#include "base/shape.h"
#include "member/dataset_order.h"
#include "net/wire/job_input.h"
#include "worker/data/data_csv.h"
#include "worker/data/dataset_request.h"
#include "worker/data/dataset_standard.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DATASET_MAX_SIDE = 65536,    /* limit on channels, height and width */
    DATASET_MAX_ELEMS = 1 << 28, /* limit on the values of a sample */
    DATASET_MAX_CLASSES = 65536,
    DATASET_BYTE_CLASSES = 256, /* number of classes up to which a label fits in a byte */
};

/* Folder of Debian's package dataset-fashion-mnist. */
#define DATASET_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"

/* Flags that apply only to some file formats. */
enum dataset_use {
    DATASET_USES_IMAGES_NAME = 1, /* the samples are an array that has a name in its file */
    DATASET_USES_LABELS_NAME = 2, /* the labels are an array that has a name in its file */
    DATASET_USES_COLUMN = 4,      /* labels are a column of the samples' table */
    DATASET_USES_LAYOUT = 8,      /* the order of the samples' axes may be chosen */
};

struct dataset {
    int64_t n;             /* samples */
    struct shape sample;   /* shape (C,H,W) of a sample */
    int classes;           /* 1 + the largest label; or the number of targets of a sample */
    const uint32_t *rows;  /* [n] of a subset: row of sample i in the arrays below; NULL: row i */
    const int32_t *labels; /* label of each row, below DATASET_MAX_CLASSES; NULL: none */
    const float *targets;  /* [classes] targets of each row, all finite; NULL: none */
    const uint8_t *bytes;  /* pixels of each row; NULL: only dataset_sample returns them */
    bool floats;           /* some number may not be finite; then dataset_plain fails */
    bool in_file;          /* samples are in a mapped file, so a read may wait for the disk */
    struct job_normal normal; /* normalisation; set after dataset_open, before any sample is read */
    struct dataset_standard standard; /* see dataset_standard.h; shared by subsets */
    const struct dataset_keys *keys;  /* inputs of keys; NULL: none */
    const char *path, *labels_path;   /* samples; labels or targets; both for log lines */
    const char *class_names; /* names from folders or CSV, as in data_words.h; NULL: none */
    const char *label_names, *ignored_names, *csv_roles; /* CSV: see data_csv.h; otherwise NULL */
    const char *columns; /* CSV: list of the names of a sample's columns; otherwise NULL */
    /* [keys->n] CSV: columns of each input, as data_csv_keys.columns; NULL: keys are arrays */
    const char *const *key_columns;
    struct data_csv_scale scale;  /* CSV with `describe` set: the feature with the largest values */
    const char *names;            /* names of pictures to predict (data_images.h); otherwise NULL */
    enum progress_style progress; /* how a reader of all samples reports its progress */
    bool has_test_beside;         /* the file of the samples also contains a test set */
    unsigned uses;                /* flags of enum dataset_use that apply to the set's format */
};

/* Returns the noun for the set's samples in log lines: "images" if they have rows and columns. */
static inline const char *dataset_unit(const struct dataset *d)
{
    return d->sample.dim[1] > 1 && d->sample.dim[2] > 1 ? "images" : "samples";
}

static inline bool dataset_has_labels(const struct dataset *d)
{
    return d->labels || d->targets;
}

/* Returns the row of the i-th sample. */
static inline int64_t dataset_row(const struct dataset *d, int64_t i)
{
    return d->rows ? (int64_t)d->rows[i] : i;
}

/* Returns the pixels of the i-th sample. The set must have bytes. */
static inline const uint8_t *dataset_bytes(const struct dataset *d, int64_t i)
{
    return d->bytes + dataset_row(d, i) * shape_elems(&d->sample);
}

/* Returns the label of the i-th sample. The set must have labels. */
static inline int32_t dataset_label(const struct dataset *d, int64_t i)
{
    return d->labels[dataset_row(d, i)];
}

static inline const float *dataset_targets(const struct dataset *d, int64_t i)
{
    return d->targets + dataset_row(d, i) * d->classes;
}

/* Returns true if the set's samples can be sent to a backend as bytes. */
static inline bool dataset_is_bytes(const struct dataset *d)
{
    return d->bytes && (d->targets || d->classes <= DATASET_BYTE_CLASSES) && d->normal.n == 0;
}

/* Opens a set. *out becomes NULL if the set does not exist and may_be_absent is set. */
enum status dataset_open(const struct dataset_request *r, struct dataset **out);
void dataset_destroy(struct dataset *d); /* NULL is fine */
/* Moves floor(share_of * n) samples, chosen by the seed, to a new set; both sets keep the order. No
 * sample is copied: both sets list rows of the same samples, which the last set frees. ST_INVALID:
 * one of the sets would be empty. */
enum status dataset_split(struct dataset *d, double share_of, uint64_t seed,
                          struct dataset **held_out);
/* Returns ST_MISMATCH, and logs the first such label, if a label is not below `classes`. */
enum status dataset_check_classes(const struct dataset *d, int classes);
/* Reads sample i as (C,H,W): whole numbers are divided by 255, floats are unchanged. ST_CORRUPT: a
 * float is not finite. */
enum status dataset_plain(const struct dataset *d, int64_t i, float *dst);
/* Reads all samples if they are floats. ST_CORRUPT: a number is not finite (logged). */
enum status dataset_check_finite(const struct dataset *d);
/* Normalises the sample that dataset_plain read to dst. ST_INVALID: a number became infinite. */
enum status dataset_normalise(const struct dataset *d, int64_t i, float *dst);
/* Reads and normalises the i-th sample, as a model needs it. */
enum status dataset_sample(const struct dataset *d, int64_t i, float *dst);
/* Returns the bytes of sample i in the mapped file. The set must be in a mapped file, and must have
 * been opened, not split. */
const void *dataset_place(const struct dataset *d, int64_t i, size_t *bytes);
/* Measures the plain numbers of each channel over all samples, in double and in a fixed order: mean
 * and standard deviation (divided by n, not n - 1). mean, std: [channels]. */
enum status dataset_measure(const struct dataset *d, double *mean, double *std);

#endif
