/* worker/data/data_csv.h - rows of features with a label: numbers with commas (or semicolons, or
 * tabs) between them, a line for each sample, perhaps a line of names before them.
 *     A name in quotes must have no such sign in it.
 * Threads: none of its own.
 * Errors:  ST_CORRUPT, ST_NOT_FOUND (no such column), ST_NOMEM; one line with file, line, column.
 */
#ifndef WORKER_DATA_DATA_CSV_H
#define WORKER_DATA_DATA_CSV_H
#include "worker/data/data_array.h"

enum { DATA_CSV_MAX_COLUMNS = 65537 };

/* label: the file's name, in errors; column: the label's, by its name or its number from 1 on;
 * NULL: the one named "label", else the last. samples: (rows, columns - 1) of DATA_F32; labels:
 * (rows) of DATA_I32; both unpacked. */
enum status data_csv_decode(const uint8_t *bytes, uint64_t n, const char *label, const char *column,
                            struct data_array *samples, struct data_array *labels);

#endif
