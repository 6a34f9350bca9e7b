/* worker/data/data_csv.h - rows of features with a label or targets: numbers with commas (or
 * semicolons, or tabs) between them, a line for each sample, perhaps a line of names before them.
 *     A name in quotes must have no such sign in it.
 * Threads: none of its own.
 * Errors:  ST_CORRUPT, ST_NOT_FOUND (no such column), ST_NOMEM; one line with file, line, column.
 */
#ifndef WORKER_DATA_DATA_CSV_H
#define WORKER_DATA_DATA_CSV_H
#include "worker/data/data_array.h"

enum { DATA_CSV_MAX_COLUMNS = 65537 };

/* Columns by their names or their numbers, from 1 on. A value. */
struct data_csv_columns {
    const char *label;   /* NULL: the one named "label", else the last */
    const char *targets; /* instead of a label: "a,b,..."; NULL: none */
};

/* label: the file's name, in errors. samples: (rows, the other columns) of DATA_F32; labels: (rows)
 * of DATA_I32, or (rows, targets) of DATA_F32, as they are named; both unpacked. */
enum status data_csv_decode(const uint8_t *bytes, uint64_t n, const char *label,
                            const struct data_csv_columns *columns, struct data_array *samples,
                            struct data_array *labels);

#endif
