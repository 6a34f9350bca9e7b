/* worker/data/dataset_request.h - the files of a data set to be opened, and how they are read.
 * Owns: nothing. Threads: a plain value. Errors: none. */
#ifndef WORKER_DATA_DATASET_REQUEST_H
#define WORKER_DATA_DATASET_REQUEST_H
#include "base/bar.h"
#include <stdbool.h>
#include <stdint.h>

/* An input of keys, and where a file has its keys. */
struct dataset_key_source {
    const char *input; /* name of the model's input, for log lines */
    /* Name of the array in a file with named arrays. In a file with Keras' names, "_train", "_test"
     * or "_val" follows, as in these. */
    const char *array;
    /* CSV: see struct data_csv_key_input */
    const char *columns, *listed_by;
    bool are_numbers, is_resolved;
    int n_columns; /* number of columns that the input must have; 0: any */
};

struct dataset_request {
    const char *dir;      /* folder that contains files with known names */
    const char *dir_flag; /* flag that named dir, without "--"; NULL: data_dir */
    const char *part;     /* "train", "test" or "validation" */
    /* files to use instead of dir; NULL: none; labels NULL: the labels are in `data` */
    const char *data, *labels;
    const char *images_name, *labels_name; /* names of arrays in the files; NULL: images, labels */
    const char *label_column;              /* CSV: name or number; NULL: see data_csv.h */
    const char *target_columns;            /* CSV: names or numbers of targets, "a,b"; NULL: none */
    const char *ignore_columns; /* CSV: names or numbers of ignored columns, "a,b"; NULL: none */
    int csv_header; /* CSV: enum data_csv_header, which decides whether line 1 names the columns */
    bool describe, warn; /* CSV: log the role of each column; warn of doubtful ones */
    /* CSV: classes that are words, see data_csv.h; NULL: the file determines them */
    const char *class_names;
    const char *feature_names, *label_names, *ignored_names, *csv_roles; /* CSV: see data_csv.h */
    bool are_targets;             /* CSV: label_names are names of targets */
    int64_t features;             /* CSV: number of features that a sample must have; 0: any */
    bool may_be_absent;           /* it is no error if neither `dir` nor `data` contains the set */
    bool to_predict;              /* labels may be missing, and pictures' names are kept */
    enum progress_style progress; /* style of progress reports during slow reads */
    bool nhwc;                    /* samples of rank 3 are (H,W,C) instead of (C,H,W) */
    const char *dense_input; /* name of the model's dense input; NULL: arrays have no such name */
    bool no_dense;           /* the model reads only keys: see dataset_keys_alone */
    const struct dataset_key_source *keys; /* [n_keys] inputs of keys, in the model's order */
    int n_keys;                            /* at most DATASET_MAX_KEY_INPUTS; 0: none */
    char key_separator; /* CSV: between the keys of a cell; 0: a cell has at most one key */
};

#endif
