/* worker/data/data_csv.h - rows of features with a label or targets: numbers with commas (or
 * semicolons, or tabs) between them, a line for each sample, perhaps a line of names before them.
 * Labels are whole numbers, or all of them words.
 *     A name or a word in quotes must have no such sign in it.
 * Threads: none of its own.
 * Errors:  ST_CORRUPT, ST_NOT_FOUND (no such column), ST_INVALID, ST_MISMATCH (a word that is none
 *          of the classes), ST_UNSUPPORTED (too many words), ST_NOMEM; one line with file, line,
 *          column. */
#ifndef WORKER_DATA_DATA_CSV_H
#define WORKER_DATA_DATA_CSV_H
#include "worker/data/data_array.h"

enum { DATA_CSV_MAX_COLUMNS = 65537 };

enum data_csv_header { DATA_CSV_HEADER_AUTO, DATA_CSV_HEADER_YES, DATA_CSV_HEADER_NO };

/* Columns by their names or their numbers, from 1 on. A value. */
struct data_csv_columns {
    const char *label;   /* NULL: the one named "label", else the last; see also may_lack */
    const char *targets; /* instead of a label: "a,b,..."; NULL: none */
    const char *ignored; /* "a,b,...": neither features nor a label; NULL: none */
    /* Of labels that are words: each one's number is its place in this list (see data_words.h);
     * NULL: they are numbered here. */
    const char *classes;
    int64_t features; /* that a sample must have; 0: any number */
    /* 1: labels or targets may be missing. They are where `label` is DATA_CSV_NO_LABEL, and where
     * none of their columns has its name in the first line and there are as many columns as
     * features. If these are not known, the label must be named. */
    int may_lack;
    /* Lists of names of the training file, as in data_words.h; NULL: not known. Where line 1 has
     * one of them, and not as a number, all columns are found by their names, unless a flag names
     * the label. A line that has all of the features' names, as numbers, may be a sample:
     * ST_INVALID, unless `header` says which it is. */
    const char *feature_names, *label_names, *ignored_names;
    int are_targets; /* label_names are those of targets */
    /* Of the training file, as in struct data_csv; NULL: not known. Where names do not find the
     * columns and no flag does, a file of as many columns has them in these places, and one that
     * may lack labels also without them. */
    const char *roles;
    enum data_csv_header header; /* whether line 1 names the columns; AUTO: judged by its fields */
    int describe;                /* log which columns are used, */
    int warn;                    /* and warn of doubtful ones, which no model needs yet */
};
#define DATA_CSV_NO_LABEL "none"

enum { DATA_CSV_NAME_BYTES = 48 };

/* The feature of the largest numbers, if they are more than a hundred times those of all others. A
 * value. */
struct data_csv_scale {
    int64_t column;        /* from 1 on; 0: there is none */
    float largest, others; /* largest absolute values: its own, and of all other features */
    char name[DATA_CSV_NAME_BYTES]; /* "": none */
};

struct data_csv {
    struct data_array samples; /* (rows, the other columns) of DATA_F32, unpacked */
    struct data_array labels;  /* (rows) of DATA_I32, or (rows, targets) of DATA_F32; unpacked.
                                  n_dims 0: there are none */
    char *classes;             /* labels are words: the list, malloc'd; NULL: numbers */
    char *label_names, *ignored_names; /* likewise those of labels or targets, and of the rest */
    char *columns; /* the names of the samples' columns, a list likewise; NULL: there are none */
    char *roles;   /* a letter for each column: f feature, l label, t target, i ignored; behind a ;
                      the targets' numbers, if they are not in the file's order: "tft;1,0". NULL:
                      names found the columns */
    struct data_csv_scale scale; /* where `describe` asks for it */
};

/* path: the file's name, in errors. */
enum status data_csv_decode(const uint8_t *bytes, uint64_t n, const char *path,
                            const struct data_csv_columns *columns, struct data_csv *out);
/* Frees all that data_csv_decode made, and leaves nothing. */
void data_csv_free(struct data_csv *csv);

#endif
