/* worker/data/data_csv.h - rows of features with a label or targets: numbers separated by commas
 * (or semicolons, or tabs), one line per sample, with an optional line of names before them. Labels
 * are either all whole numbers or all words. Names and words in quotes must not contain the
 * separator.
 * Threads: none of its own.
 * Errors:  ST_CORRUPT, ST_NOT_FOUND (no such column), ST_INVALID, ST_MISMATCH (a word that is not a
 *          class), ST_UNSUPPORTED (too many words), ST_NOMEM; one line with file, line, column. */
#ifndef WORKER_DATA_DATA_CSV_H
#define WORKER_DATA_DATA_CSV_H
#include "worker/data/data_array.h"

enum { DATA_CSV_MAX_COLUMNS = 65537 };
enum {
    DATA_CSV_MAX_KEY_INPUTS = 16,
    DATA_CSV_MAX_KEY_COLUMNS = 1024, /* limit on the columns of an input */
    DATA_CSV_MAX_KEYS = 65536,       /* limit on the keys that an input has in a row */
    DATA_CSV_MAX_CELL_KEYS = 4096,
};

enum data_csv_header { DATA_CSV_HEADER_AUTO, DATA_CSV_HEADER_YES, DATA_CSV_HEADER_NO };

/* Columns whose cells are keys, for one input of a model. */
struct data_csv_key_input {
    const char *name; /* name of the input, for log lines */
    /* "a,b,...": the columns, in the order of the input. NULL: the columns whose cells are all text
     * or empty, in the file's order, except label, targets and ignored columns. ST_INVALID: the
     * lists of two inputs are NULL. ST_CORRUPT: another such column has both text and numbers, or
     * none has text. */
    const char *columns;
    const char *listed_by; /* name of the list's origin, for log lines: "--key_columns" */
    /* Keys are the cells' whole numbers, of which negative ones keep their 64 bits; otherwise
     * rng_text of the column's name (or number, if the training file has no names), "=" and the
     * cell. */
    bool are_numbers;
    /* The list is data_csv_keys.columns of the training file. So a number in it is a column of a
     * file without names; in any other list, it becomes the name of its column. ST_INVALID: the
     * file has names, but this column's name does not identify it. */
    bool is_resolved;
};

/* Columns, by name or by number from 1. A plain value without ownership. */
struct data_csv_columns {
    /* column of the label; NULL: the column named "label", or the last one if no column has that
     * name; see also may_lack */
    const char *label;
    const char *targets; /* columns used instead of a label: "a,b,..."; NULL: none */
    const char *ignored; /* columns that are neither features nor a label: "a,b,..."; NULL: none */
    /* Classes of labels that are words: the number of a word is its index in this list (see
     * data_words.h); NULL: this file's words determine the classes. */
    const char *classes;
    int64_t features; /* number of features that a sample must have; 0: any */
    /* The model reads only keys: no column may be a feature (ST_INVALID). */
    bool no_features;
    /* The file may lack labels or targets. It lacks them if `label` is DATA_CSV_NO_LABEL, or if
     * line 1 names none of their columns and the file has only as many columns as features. If
     * `features` is 0, a file with labels must name their column. */
    bool may_lack;
    /* Names in the training file, as lists (data_words.h); NULL: unknown. If line 1 contains one of
     * these names, and the name is not a number, all columns are found by name, unless a flag names
     * the label. If line 1 contains the names of all features, and these names are numbers, the
     * line may also be a sample: ST_INVALID, unless `header` decides. */
    const char *feature_names, *label_names, *ignored_names;
    bool are_targets; /* label_names lists targets; false: it names the label */
    /* Roles of the training file's columns, as in struct data_csv; NULL: unknown. If neither names
     * nor a flag identify the columns, a file with the same number of columns is assumed to have
     * them in the same order. If labels may be missing, this is also assumed for a file that lacks
     * only the columns of labels. */
    const char *roles;
    /* decides whether line 1 names the columns; AUTO: its fields decide */
    enum data_csv_header header;
    const struct data_csv_key_input *keys; /* [n_keys]; no column has two roles */
    int n_keys;
    char key_separator; /* between the keys of a cell; 0: a cell has at most one key */
    int describe;       /* true: log the columns that are used */
    int warn; /* true: warn of doubtful columns; set while no model depends on the columns */
};
#define DATA_CSV_NO_LABEL "none"

enum { DATA_CSV_NAME_BYTES = 48 };

/* The feature with the largest numbers, if they are more than a hundred times as large as those of
 * all other features. A plain value without ownership. */
struct data_csv_scale {
    int64_t column;        /* number of its column, from 1; 0: there is no such feature */
    float largest, others; /* largest absolute values: of this feature, and of all other features */
    char name[DATA_CSV_NAME_BYTES]; /* name of the column; "": the file has no names */
};

/* Keys of one input, as in dataset_keys.h. All memory is malloc'd. */
struct data_csv_keys {
    int n_columns;
    uint64_t *keys;
    uint32_t *first; /* NULL: each cell has one key */
    /* "a,b,...": columns by name; by number, if the file that determined them has no names */
    char *columns;
};

struct data_csv {
    struct data_array samples; /* (rows, features) of DATA_F32, unpacked */
    /* (rows) of DATA_I32, or (rows, targets) of DATA_F32, unpacked; n_dims 0: the file has
     * neither */
    struct data_array labels;
    char *classes; /* list of the words that are labels, malloc'd; NULL: labels are numbers */
    /* lists of the names of labels or targets, and of ignored columns */
    char *label_names, *ignored_names;
    char *columns; /* list of the names of the samples' columns; NULL: none */
    /* letters, one per column: f feature, l label, t target, i ignored, k keys. If the targets are
     * not in the file's order, a ";" and the targets' numbers follow: "tft;1,0". NULL: columns were
     * found by name */
    char *roles;
    struct data_csv_scale scale; /* set if `describe` and `warn` were set */
    struct data_csv_keys keys[DATA_CSV_MAX_KEY_INPUTS];
};

/* Decodes a file. path: its name, in errors. */
enum status data_csv_decode(const uint8_t *bytes, uint64_t n, const char *path,
                            const struct data_csv_columns *columns, struct data_csv *out);
/* Frees all memory of data_csv_decode and clears the struct. */
void data_csv_free(struct data_csv *csv);

#endif
