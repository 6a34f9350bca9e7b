/* worker/data/data_csv_keys.h - columns of keys of a CSV file: see data_csv.h. Calls without inputs
 * of keys do nothing.
 * Owns:    struct csv_keys, which belongs to one struct csv.
 * Threads: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_CORRUPT, ST_UNSUPPORTED, ST_NOMEM; logged in one line with
 *          file, line and column. */
#ifndef WORKER_DATA_DATA_CSV_KEYS_H
#define WORKER_DATA_DATA_CSV_KEYS_H
#include "worker/data/data_csv_impl.h"

/* Contents of a column's cells, from line 2 on. A line is 0 if there is no such cell. */
struct csv_seen {
    int64_t text_line, number_line;
    struct data_csv_field text, number;
};

/* A column of keys. */
struct csv_key_column {
    int64_t column;
    int input;
    bool by_number;             /* the column's number stands for its name */
    struct data_csv_field cell; /* cell of the current row */
    struct data_csv_field name;
    int64_t n_missing, missing_line; /* cells whose text often stands for a missing value */
    struct data_csv_field missing;
};

/* Lists of one input that grow with the rows. */
struct csv_key_list {
    int n_columns;
    uint64_t *keys;
    uint32_t *first;
    size_t n_keys, most_keys, n_cells, most_cells;
    bool is_ragged; /* some cell has not one key */
};

struct csv_keys {
    int auto_input; /* input whose columns are guessed; -1: none */
    size_t n_columns, most_columns;
    struct csv_key_column *column; /* [n_columns] sorted by input once the rows begin */
    int32_t *slot;                 /* [columns of the file] index in `column` */
    struct csv_seen *seen;         /* [columns of the file]; NULL: nothing was guessed */
    struct csv_key_list list[DATA_CSV_MAX_KEY_INPUTS];
    char *text; /* the text of a key */
    size_t text_bytes;
};

/* Creates c->keys and assigns the columns that inputs list. */
enum status data_csv_keys_create(struct csv *c);
/* Makes this column one of an input. by_number: its number stands for its name. */
enum status data_csv_keys_add(struct csv *c, int input, int64_t column, bool by_number);
/* Assigns the columns of the input without a list. Label, targets and ignored columns must be
 * known (data_csv_guess.c). */
enum status data_csv_keys_guess(struct csv *c);
/* Refuses columns with numbers and text, after it is known whether line 1 is a sample
 * (data_csv_guess.c). */
enum status data_csv_keys_check_guess(const struct csv *c);
/* Warns of columns that were found but whose texts may be numbers (data_csv_guess.c). */
void data_csv_keys_warn_guess(const struct csv *c);
/* Logs the columns whose cells probably have several keys, if there is no separator
 * (data_csv_separator.c). */
void data_csv_keys_log_separators(const struct csv *c);
/* Prepares the reading of rows, and logs the columns. */
enum status data_csv_keys_begin(struct csv *c);
/* Stores a cell of the current row. */
void data_csv_keys_put(struct csv *c, int64_t column, const char *field, size_t n);
/* Makes keys of the row's cells. */
enum status data_csv_keys_end_row(struct csv *c);
/* Moves the keys to *out, and warns of texts that stand for missing values. */
enum status data_csv_keys_finish(struct csv *c, struct data_csv *out);
void data_csv_keys_destroy(struct csv_keys *k); /* NULL is fine */

#endif
