/* worker/data/dataset.h - samples with their labels, whatever file they come from, and who reads
 * which (I6). docs/guide/data.md has the formats and the names under which they are found.
 * Owns:    the files, mapped or unpacked, and the labels.
 * Threads: immutable once open; open, split and destroy: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_CORRUPT, ST_UNSUPPORTED, ST_MISMATCH, ST_IO, ST_NOMEM; one
 *          line with file, place and fix. */
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
    DATASET_MAX_ELEMS = 1 << 28, /* of a sample */
    DATASET_MAX_CLASSES = 65536,
    DATASET_BYTE_CLASSES = 256, /* whose labels fit a byte */
};

/* Where Debian's package dataset-fashion-mnist lies. */
#define DATASET_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"

/* Flags that some formats of files have a use for. */
enum dataset_use {
    DATASET_USES_IMAGES_NAME = 1, /* the samples are an array that has a name */
    DATASET_USES_LABELS_NAME = 2, /* likewise the labels */
    DATASET_USES_COLUMN = 4,      /* labels are a column of the samples' table */
    DATASET_USES_LAYOUT = 8,      /* the order of the samples' axes is not the format's own */
};

struct dataset {
    int64_t n;            /* samples */
    struct shape sample;  /* (C,H,W) of each */
    int classes;          /* 1 + the largest label; or how many targets a sample has */
    const uint32_t *rows; /* [n] of the arrays below, where the samples are some of theirs; NULL:
                           * sample i is in row i */
    /* A row: 0 to DATASET_MAX_CLASSES - 1; NULL: there are targets, or (--predict) no labels */
    const int32_t *labels;
    const float *targets; /* a row: [classes] finite, what the outputs are to be; NULL: none */
    /* A row: [elems of sample] pixels as in the file; NULL: dataset_sample alone has them */
    const uint8_t *bytes;
    int floats;               /* 1: its numbers may be not finite; dataset_plain says so */
    int in_file;              /* 1: these lie in a mapped file, and may have to be read first */
    struct job_normal normal; /* what is done with each; once it is open, before anybody reads */
    struct dataset_standard standard; /* see dataset_standard.h; subsets share it */
    const char *path;                 /* of the samples, for lines */
    const char *labels_path;          /* likewise of labels or targets */
    const char *class_names;          /* folders, words in CSV: a list of data_words.h; else NULL */
    const char *label_names, *ignored_names, *csv_roles; /* CSV: see data_csv.h; else NULL */
    const char *columns; /* CSV: the names of those that a sample has, a list likewise; else NULL */
    struct data_csv_scale scale; /* CSV, if it was described: its feature of the largest numbers */
    const char *names; /* of pictures that are predicted from: see data_images.h; else NULL */
    enum progress_style progress; /* how it is said how far who reads all of it is */
    bool has_test_beside;         /* its file has the arrays of a test set, too */
    unsigned uses;                /* of enum dataset_use: what its format can be told */
};

/* Returns the word for its samples in lines: a sample of one row or one column is no image. */
static inline const char *dataset_unit(const struct dataset *d)
{
    return d->sample.dim[1] > 1 && d->sample.dim[2] > 1 ? "images" : "samples";
}

static inline int dataset_has_labels(const struct dataset *d)
{
    return d->labels || d->targets;
}

/* Of the i-th sample: where it lies, */
static inline int64_t dataset_row(const struct dataset *d, int64_t i)
{
    return d->rows ? (int64_t)d->rows[i] : i;
}

/* its pixels, of a set of bytes, */
static inline const uint8_t *dataset_bytes(const struct dataset *d, int64_t i)
{
    return d->bytes + dataset_row(d, i) * shape_elems(&d->sample);
}

/* its label, of a set of labels, and its targets, of one of targets. */
static inline int32_t dataset_label(const struct dataset *d, int64_t i)
{
    return d->labels[dataset_row(d, i)];
}

static inline const float *dataset_targets(const struct dataset *d, int64_t i)
{
    return d->targets + dataset_row(d, i) * d->classes;
}

/* May its samples go to a backend as bytes? */
static inline int dataset_is_bytes(const struct dataset *d)
{
    return d->bytes && (d->targets || d->classes <= DATASET_BYTE_CLASSES) && d->normal.n == 0;
}

struct dataset_request {
    const char *dir;           /* where the files have known names */
    const char *dir_flag;      /* that named dir, without "--"; NULL: data_dir */
    const char *part;          /* "train", "test" or "validation" */
    const char *data, *labels; /* files instead of dir; NULL: none; labels NULL: in data */
    const char *images_name, *labels_name; /* in files of several arrays; NULL: images, labels */
    const char *label_column;              /* of a CSV file: name or number; NULL: see data_csv.h */
    const char *target_columns;            /* instead, "a,b" likewise: targets; NULL: a label */
    const char *ignore_columns;            /* "a,b" likewise: left out; NULL: none */
    int csv_header;          /* CSV: of enum data_csv_header, whether line 1 names the columns */
    int describe, warn;      /* CSV: log what each column is; warn of doubtful ones */
    const char *class_names; /* CSV: what words are numbered by, see data_csv.h; NULL: here */
    const char *feature_names, *label_names, *ignored_names, *csv_roles; /* CSV: see data_csv.h */
    int are_targets;   /* CSV: label_names are those of targets */
    int64_t features;  /* CSV: that a sample must have; 0: any number */
    int may_be_absent; /* neither in dir nor by data: then there is no set, which is no error */
    int to_predict;    /* labels may be missing, and pictures' names are kept */
    enum progress_style progress; /* where it takes long to read */
    int nhwc;                     /* samples of rank 3 are (H,W,C), not (C,H,W) */
};

/* *out NULL: it is absent, and may be. */
enum status dataset_open(const struct dataset_request *r, struct dataset **out);
void dataset_destroy(struct dataset *d); /* NULL is fine */
/* Takes floor(share_of * n) items out of the set, chosen by the seed, into a set of their own; both
 * keep their order. No sample is copied: both are lists of rows of what they then share, which goes
 * with the last of them. ST_INVALID: none would be taken, or none left. */
enum status dataset_split(struct dataset *d, double share_of, uint64_t seed,
                          struct dataset **held_out);
/* ST_MISMATCH with the first label that is not below classes. */
enum status dataset_check_classes(const struct dataset *d, int classes);
/* The i-th sample, (C,H,W): whole numbers divided by 255, floats as they are. ST_CORRUPT: one of
 * those is not a finite number. */
enum status dataset_plain(const struct dataset *d, int64_t i, float *dst);
/* All samples are read, if they are floats as in a file: ST_CORRUPT as above, of the first. */
enum status dataset_check_finite(const struct dataset *d);
/* That sample by `normal`. ST_INVALID: a number is not finite any more. */
enum status dataset_normalise(const struct dataset *d, int64_t i, float *dst);
/* Both: the i-th sample as a model reads it. */
enum status dataset_sample(const struct dataset *d, int64_t i, float *dst);
/* Of a set that was opened, and is in a mapped file: the file's bytes of the i-th sample. */
const void *dataset_place(const struct dataset *d, int64_t i, size_t *bytes);
/* Over the plain numbers of each channel in all samples, in double and in one order: mean and
 * standard deviation (the root of the mean square, not of n - 1). mean, std: [channels]. */
enum status dataset_measure(const struct dataset *d, double *mean, double *std);

#endif
