/* worker/data/data_csv_impl.h - what data_csv*.c share: the text, and what each of its columns is.
 * Owns: see data_csv_decode. Threads: none. Errors: as of data_csv.h. */
#ifndef WORKER_DATA_DATA_CSV_IMPL_H
#define WORKER_DATA_DATA_CSV_IMPL_H
#include "worker/data/data_csv.h"
#include "worker/data/data_words.h"
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* What a column is; from 0 on: the target of that number. */
enum { DATA_CSV_FEATURE = -1, DATA_CSV_LABEL = -2, DATA_CSV_IGNORED = -3 };

struct data_csv_index;

struct csv {
    const char *at, *end;
    const char *path;
    const char *line_1;
    const struct data_csv_columns *columns;
    char between;
    int64_t line; /* from 1 on */
    int64_t n_columns, n_features, n_targets;
    int64_t *role;  /* [n_columns] */
    int64_t *place; /* [n_columns] of a feature: which number of a sample; NULL: as in the file */
    int has_label;
    bool label_by_place;  /* the label is where it was in training */
    int label_by_default; /* no name or number said which column is the label */
    int has_names;        /* the first line is no sample */
    int labels_known;     /* what the first label was: */
    int are_words;
    int64_t first_line; /* and where */
    struct data_words *words;
    struct data_csv_index *names; /* of line 1 */
};

enum { DATA_CSV_SHOWN_BYTES = 32, DATA_CSV_COLUMN_BYTES = 80, DATA_CSV_PLACE_BYTES = 240 };

/* A field of line 1. */
struct data_csv_field {
    const char *at;
    size_t n;
};

/* Returns true if a model reads the file that has learnt its columns, and needs each of them. */
static inline bool data_csv_has_model(const struct csv *c)
{
    return c->columns->features > 0 || c->columns->feature_names;
}

/* The end of the line at p, its line break not included. */
const char *data_csv_line_end(const struct csv *c, const char *p);
/* The field at *p, blanks and one pair of quotes around it taken off; *p: behind what ends it,
 * NULL: the line does. */
const char *data_csv_next_field(const struct csv *c, const char **p, const char *end, size_t *n);
/* 0: it is no finite number. */
int data_csv_read_number(const char *field, size_t n, double *out);
/* Copies a field as printable ASCII, as far as there is room. */
const char *data_csv_show(const char *field, size_t n, char dst[DATA_CSV_SHOWN_BYTES]);
/* data_csv_text.c: refuses bytes that make no lines of text, by their line and the fix. */
enum status data_csv_text_check(const uint8_t *bytes, uint64_t n, const char *path);
/* Refuses a field of the current line that is not UTF-8; then all fields of line 1. */
enum status data_csv_text_check_word(const struct csv *c, int64_t column, const char *field,
                                     size_t n);
enum status data_csv_text_check_names(const struct csv *c);
/* data_csv_index.c: the columns by the names that line 1 would give them. Release with free(). */
enum status data_csv_index_create(const struct csv *c, struct data_csv_index **out);
/* Returns the first column of this name, and sets *second to the next one; -1: there is none. */
int64_t data_csv_index_find(const struct data_csv_index *x, const char *name, size_t n,
                            int64_t *second);
/* Returns the next name of a list and its length, and sets *list to those behind it; NULL: none. */
static inline const char *data_csv_next_name(const char **list, size_t *n)
{
    const char *name = *list;
    *n = strcspn(name, "\n");
    *list = name[*n] ? name + *n + 1 : NULL;
    return name;
}
/* Compares the names with those of the training file. Where a name was that of several columns, and
 * all of them are here, each stands for the one in its place among them. */
void data_csv_index_train(struct data_csv_index *x, const struct csv *c);
/* Returns the number of columns of this name that no flag leaves out, here and in training. */
void data_csv_index_count(const struct data_csv_index *x, const char *name, size_t n, int64_t *here,
                          int64_t *trained);
/* Returns the first column of this name that is a feature, that no call returned before, and that
 * may stand for a column of the training file with this letter in its roles; -1: there is none. */
int64_t data_csv_index_take(struct data_csv_index *x, const struct csv *c, const char *name,
                            size_t n, char role);

/* Columns of one name, those left out not counted; or, where columns are found by the names of the
 * training file, all that were found. */
struct data_csv_equal {
    struct data_csv_field name;
    int64_t n, n_trained;
    int64_t column[2]; /* first two */
    int64_t feature;   /* last one that is a feature; -1: none is */
    bool is_used;      /* not all of them are left out */
};
/* Finds the next name, from *at on, of several columns, here or in training. Returns false if there
 * is none. */
bool data_csv_index_next_equal(const struct data_csv_index *x, const struct csv *c, int64_t *at,
                               struct data_csv_equal *out);
/* data_csv_equal.c: warns in one line of equal names, by which columns cannot be told apart. */
void data_csv_equal_warn_names(const struct csv *c);
/* Warns of classes that are probably none: words for a missing label, and two words that differ
 * only in case or in spaces around them. numbers: of the rows' classes. */
enum status data_csv_equal_warn_words(const struct csv *c, const int32_t *numbers, int64_t rows);
/* data_csv_columns.c: counts the columns, and says what each is. */
enum status data_csv_columns_read(struct csv *c);
/* data_csv_report.c: logs which columns of these rows are features, label and ignored, and warns of
 * columns that a table rarely means as features. */
enum status data_csv_report(const struct csv *c, const float *samples, int64_t rows,
                            struct data_csv_scale *scale);
/* Writes "5 'label'", or "5" where the file has no names, or this column has none. */
const char *data_csv_report_column(const struct csv *c, int64_t column,
                                   char dst[DATA_CSV_COLUMN_BYTES]);
/* Writes where the label was in training and what to do, ", " first; "" where the file has names,
 * or the label is not taken from that place. */
const char *data_csv_layout_label_place(const struct csv *c, char dst[DATA_CSV_PLACE_BYTES]);
/* Of that line, if it names the columns: those that are features, labels or targets, and ignored.
 * Else NULL. */
enum status data_csv_columns_name(const struct csv *c, struct data_csv *out);
/* Adds what each column is. */
enum status data_csv_columns_log_roles(const struct csv *c, struct data_csv *out);
/* data_csv_layout.c: finds the columns by the names of the training file, if line 1 has these. */
enum status data_csv_layout_match_names(struct csv *c, bool *matched);
/* Likewise by their places in the training file. */
enum status data_csv_layout_match_places(struct csv *c, bool *matched);
/* Warns where a file with names, or the training file, has no names to be matched by. */
void data_csv_layout_warn_places(const struct csv *c);

#endif
