/* worker/data/dataset.h - samples with their labels, from any format of file, and the assignment of
 * samples to readers (I6). docs/guide/data.md has the formats and the names of the files.
 * Owns:    the files, mapped or unpacked, and the labels.
 * Threads: immutable once open; open, split and destroy: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_CORRUPT, ST_UNSUPPORTED, ST_MISMATCH, ST_IO, ST_NOMEM; one
 *          line with file, position and fix. */
#ifndef WORKER_DATA_DATASET_H
#define WORKER_DATA_DATASET_H
#include "base/bar.h"
#include "base/shape.h"
#include "member/dataset_order.h"
#include "net/wire/job_input.h"
#include "worker/data/data_csv.h"
#include "worker/data/dataset_standard.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DATASET_MAX_SIDE = 65536,    /* channels, height, width */
    DATASET_MAX_ELEMS = 1 << 28, /* limit on the values of a sample */
    DATASET_MAX_CLASSES = 65536,
    DATASET_BYTE_CLASSES = 256, /* labels fit a byte */
};

/* Folder of Debian's package dataset-fashion-mnist. */
#define DATASET_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"

/* Flags that apply to some formats of files only. */
enum dataset_use {
    DATASET_USES_IMAGES_NAME = 1, /* the samples are an array with a name */
    DATASET_USES_LABELS_NAME = 2, /* the labels are an array with a name */
    DATASET_USES_COLUMN = 4,      /* labels are a column of the samples' table */
    DATASET_USES_LAYOUT = 8,      /* the order of the samples' axes may be chosen */
};

struct dataset {
    int64_t n;            /* samples */
    struct shape sample;  /* shape (C,H,W) of a sample */
    int classes;          /* 1 + the largest label; or the number of targets of a sample */
    const uint32_t *rows; /* [n] rows of the arrays below, in a subset; NULL: row i */
    /* Per row: 0 to DATASET_MAX_CLASSES - 1; NULL: there are targets, or (--predict) no labels */
    const int32_t *labels;
    const float *targets; /* per row: [classes] target outputs, all finite; NULL: none */
    /* Per row: [elems of sample] pixels as in the file; NULL: only dataset_sample returns them */
    const uint8_t *bytes;
    bool floats;              /* a number may be not finite; dataset_plain then fails */
    bool in_file;             /* samples lie in a mapped file, and a read may wait for the disk */
    struct job_normal normal; /* normalisation; set after dataset_open, before any sample is read */
    struct dataset_standard standard; /* see dataset_standard.h; shared by subsets */
    const char *path;                 /* path of the samples, for log lines */
    const char *labels_path;          /* path of labels or targets, for log lines */
    const char *class_names; /* folders or words in CSV: a list of data_words.h; otherwise NULL */
    const char *label_names, *ignored_names, *csv_roles; /* CSV: see data_csv.h; otherwise NULL */
    const char *columns;          /* CSV: list of the names of a sample's columns; otherwise NULL */
    struct data_csv_scale scale;  /* CSV with describe set: its feature with the largest numbers */
    const char *names;            /* names of pictures to predict (data_images.h); otherwise NULL */
    enum progress_style progress; /* how a reader of all samples reports its progress */
    bool has_test_beside;         /* the samples' file also has the arrays of a test set */
    unsigned uses;                /* flags that apply to its format, of enum dataset_use */
};

/* Returns the noun for its samples in log lines: a single row or column is not an image. */
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

/* Returns true if its samples can be sent to a backend as bytes. */
static inline bool dataset_is_bytes(const struct dataset *d)
{
    return d->bytes && (d->targets || d->classes <= DATASET_BYTE_CLASSES) && d->normal.n == 0;
}

struct dataset_request {
    const char *dir;           /* folder of files with known names */
    const char *dir_flag;      /* flag that named dir, without "--"; NULL: data_dir */
    const char *part;          /* "train", "test" or "validation" */
    const char *data, *labels; /* files used instead of dir; NULL: none; labels NULL: in data */
    const char *images_name, *labels_name; /* names of arrays in the files; NULL: images, labels */
    const char *label_column;              /* CSV: name or number; NULL: see data_csv.h */
    const char *target_columns;            /* CSV: names or numbers of targets, "a,b"; NULL: none */
    const char *ignore_columns; /* CSV: names or numbers of ignored columns, "a,b"; NULL: none */
    int csv_header;             /* CSV: enum data_csv_header, whether line 1 names the columns */
    bool describe, warn;        /* CSV: log the role of each column; warn of doubtful ones */
    const char *class_names;    /* CSV: numbers the words, see data_csv.h; NULL: numbered here */
    const char *feature_names, *label_names, *ignored_names, *csv_roles; /* CSV: see data_csv.h */
    bool are_targets;             /* CSV: label_names are those of targets */
    int64_t features;             /* CSV: number that a sample must have; 0: any */
    bool may_be_absent;           /* it is no error if neither dir nor data has the set */
    bool to_predict;              /* labels may be missing, and pictures' names are kept */
    enum progress_style progress; /* style of progress reports during slow reads */
    bool nhwc;                    /* samples of rank 3 are (H,W,C) instead of (C,H,W) */
};

/* Opens a set. *out NULL: it is absent, which may_be_absent allows. */
enum status dataset_open(const struct dataset_request *r, struct dataset **out);
void dataset_destroy(struct dataset *d); /* NULL is fine */
/* Moves floor(share_of * n) items, chosen by the seed, to a set of their own; both sets keep the
 * items' order. No sample is copied: both sets list rows of the same samples, which the last set
 * frees. ST_INVALID: one of the sets would be empty. */
enum status dataset_split(struct dataset *d, double share_of, uint64_t seed,
                          struct dataset **held_out);
/* Returns ST_MISMATCH with the first label that is not below classes. */
enum status dataset_check_classes(const struct dataset *d, int classes);
/* Reads the i-th sample, (C,H,W): whole numbers divided by 255, floats unchanged. ST_CORRUPT: a
 * float is not finite. */
enum status dataset_plain(const struct dataset *d, int64_t i, float *dst);
/* Reads all samples if they are floats of a file. ST_CORRUPT: the first one that is not finite. */
enum status dataset_check_finite(const struct dataset *d);
/* Normalises the sample that dataset_plain read to dst. ST_INVALID: a number became infinite. */
enum status dataset_normalise(const struct dataset *d, int64_t i, float *dst);
/* Reads and normalises the i-th sample, as a model needs it. */
enum status dataset_sample(const struct dataset *d, int64_t i, float *dst);
/* Returns the file's bytes of the i-th sample, for a set that was opened (not split) and is in a
 * mapped file. */
const void *dataset_place(const struct dataset *d, int64_t i, size_t *bytes);
/* Measures the plain numbers of each channel over all samples, in double and in one order: mean and
 * standard deviation (the root of the mean square, not of n - 1). mean, std: [channels]. */
enum status dataset_measure(const struct dataset *d, double *mean, double *std);

#endif
