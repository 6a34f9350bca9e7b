/* worker/data/data_csv_impl.h - shared by data_csv*.c: the text, and the role of each column.
 * Owns:    see data_csv_decode. Threads: one at a time. Errors: as in data_csv.h. */
#ifndef WORKER_DATA_DATA_CSV_IMPL_H
#define WORKER_DATA_DATA_CSV_IMPL_H
#include "worker/data/data_csv.h"
#include "worker/data/data_words.h"
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Role of a column; 0 or more: index of a target; DATA_CSV_KEY - i: keys of input i. */
enum { DATA_CSV_FEATURE = -1, DATA_CSV_LABEL = -2, DATA_CSV_IGNORED = -3, DATA_CSV_KEY = -4 };

struct data_csv_index;
struct csv_keys; /* see data_csv_keys.h */

struct csv {
    const char *at, *end;
    const char *path;
    const char *line_1;
    const struct data_csv_columns *columns;
    char between;
    int64_t line; /* number of the current line, from 1 */
    int64_t n_columns, n_features, n_targets;
    int64_t *role; /* [n_columns] */
    /* [n_columns] index in the sample of each feature; NULL: features have the file's order */
    int64_t *place;
    bool has_label;
    bool label_by_place;  /* the label was found by its index in training */
    int label_by_default; /* no flag named the label */
    bool has_names;       /* line 1 names the columns; it is not a sample */
    int labels_known;     /* true: the first label has decided the kind of all labels */
    bool are_words;
    int64_t first_line; /* line of the first label */
    struct data_words *words;
    struct data_csv_index *names; /* index of the names in line 1 */
    struct csv_keys *keys;        /* NULL: no column has keys */
};

enum { DATA_CSV_SHOWN_BYTES = 32, DATA_CSV_COLUMN_BYTES = 80, DATA_CSV_PLACE_BYTES = 240 };

/* A field of line 1. */
struct data_csv_field {
    const char *at;
    size_t n;
};

/* Returns true if a trained model reads the file: the file must then have all features of the
 * training file. */
static inline bool data_csv_has_model(const struct csv *c)
{
    return c->columns->features > 0 || c->columns->feature_names;
}

/* Returns the end of the line at p, without its line break. */
const char *data_csv_line_end(const struct csv *c, const char *p);
/* Returns the field at *p without the blanks and the pair of quotes around it, and moves *p to
 * after its separator. NULL: the line has no further field. */
const char *data_csv_next_field(const struct csv *c, const char **p, const char *end, size_t *n);
/* Returns false if the field is not a finite number. */
bool data_csv_read_number(const char *field, size_t n, double *out);
/* Copies a field as printable ASCII, cut to the size of dst. */
const char *data_csv_show(const char *field, size_t n, char dst[DATA_CSV_SHOWN_BYTES]);
/* Refuses bytes that are not UTF-8 text; logs their line and the fix (data_csv_text.c). */
enum status data_csv_text_check(const uint8_t *bytes, uint64_t n, const char *path);
/* Refuses a field of the current line that is not UTF-8; the second function does so for all fields
 * of line 1. */
enum status data_csv_text_check_word(const struct csv *c, int64_t column, const char *field,
                                     size_t n);
enum status data_csv_text_check_names(const struct csv *c);
/* Creates an index of the columns by the names in line 1 (data_csv_index.c). Release with
 * free(). */
enum status data_csv_index_create(const struct csv *c, struct data_csv_index **out);
/* Returns the first column with this name, and sets *second to the next one; -1: none. */
int64_t data_csv_index_find(const struct data_csv_index *x, const char *name, size_t n,
                            int64_t *second);
/* Returns the next name of a list and its length, and moves *list to after it; NULL: the list has
 * ended. */
static inline const char *data_csv_next_name(const char **list, size_t *n)
{
    const char *name = *list, *end = name;
    while (*end && *end != '\n') /* AddressSanitizer makes strcspn read the whole list */
        end++;
    *n = (size_t)(end - name);
    *list = *end ? end + 1 : NULL;
    return name;
}
/* Compares the names with those of the training file. If several columns had the same name in
 * training, and this file has as many columns with that name, then column k with this name has the
 * role of column k with this name in training. */
void data_csv_index_train(struct data_csv_index *x, const struct csv *c);
/* Counts the columns with this name that no flag ignores, in this file and in the training file. */
void data_csv_index_count(const struct data_csv_index *x, const char *name, size_t n, int64_t *here,
                          int64_t *trained);
/* Returns the first feature with this name that no earlier call has returned and that may have the
 * role of this letter in the training file; -1: none. */
int64_t data_csv_index_take(struct data_csv_index *x, const struct csv *c, const char *name,
                            size_t n, char role);

/* Columns with the same name. Ignored columns are not included, unless columns are found by the
 * names of the training file. */
struct data_csv_equal {
    struct data_csv_field name;
    int64_t n, n_trained;
    int64_t column[2]; /* indices of the first two columns */
    int64_t feature;   /* index of the last column that is a feature; -1: none */
    bool is_used;      /* at least one of the columns is not ignored */
};
/* Finds the next name, from entry *at on, that several columns have in this file or in training.
 * Returns false at the end. */
bool data_csv_index_next_equal(const struct data_csv_index *x, const struct csv *c, int64_t *at,
                               struct data_csv_equal *out);
/* Logs one warning about columns with equal names, which do not identify them. */
void data_csv_equal_warn_names(const struct csv *c);
/* Returns true for a word that stands for a missing value. Not for "none", which may be a class;
 * but Python writes "None". */
bool data_csv_equal_is_missing(const char *at, size_t n);
/* Warns of words that are probably not classes: words that stand for a missing label, and pairs
 * that differ only in case or surrounding spaces. numbers: classes of the rows. */
enum status data_csv_equal_warn_words(const struct csv *c, const int32_t *numbers, int64_t rows);
/* Finds a column by its name or number; -1: none. ST_INVALID: two have the name (logged). */
enum status data_csv_columns_find(struct csv *c, const char *name, size_t n, int64_t *out);
/* Counts the columns and assigns their roles (data_csv_columns.c). */
enum status data_csv_columns_read(struct csv *c);
/* Logs which columns are features, label and ignored, and warns of columns that are rarely meant as
 * features (data_csv_report.c). */
enum status data_csv_report(const struct csv *c, const float *samples, int64_t rows,
                            struct data_csv_scale *scale);
/* Writes a text such as "5 'label'", or "5" if the file or this column has no name. */
const char *data_csv_report_column(const struct csv *c, int64_t column,
                                   char dst[DATA_CSV_COLUMN_BYTES]);
/* Writes the beginning of line 1, for messages. */
const char *data_csv_report_line_1(const struct csv *c, char dst[DATA_CSV_PLACE_BYTES]);
/* Writes a text that begins with ", or" and contains the label's column in training, and the fix.
 * Writes "" if the file has names, or the label was not found by its index. */
const char *data_csv_layout_label_place(const struct csv *c, char dst[DATA_CSV_PLACE_BYTES]);
/* Sets the names of features, labels or targets, and ignored columns if line 1 names the columns;
 * otherwise sets them to NULL. */
enum status data_csv_columns_name(const struct csv *c, struct data_csv *out);
/* Logs the role of each column, and stores it in out->roles. */
enum status data_csv_columns_log_roles(const struct csv *c, struct data_csv *out);
/* Finds the columns by the names of the training file, if line 1 contains them. */
enum status data_csv_layout_match_names(struct csv *c, bool *matched);
/* Finds the columns by their indices in the training file. */
enum status data_csv_layout_match_places(struct csv *c, bool *matched);
/* Warns if only one of this file and the training file has names, because columns are then matched
 * by their order. */
void data_csv_layout_warn_places(const struct csv *c);

#endif
