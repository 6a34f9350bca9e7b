/* worker/weights/weights_rows.h - the rows of a model's tables for --evaluate and --predict: those
 * of a checkpoint whose keys are in a data set. A key without a row has its initial values, as on
 * the servers. One bucket of the checkpoint is in memory at a time, so the memory follows from the
 * different keys of the set and from the largest bucket, not from the table.
 * Owns:    copies of the keys, and the rows. Threads: one at a time; immutable once read.
 * Errors:  ST_UNSUPPORTED: the source is a file, not a checkpoint; ST_MISMATCH: it is of another
 *          model; ST_INVALID: too many keys; ST_NOT_FOUND, ST_CORRUPT, ST_IO, ST_NOMEM; logged. */
#ifndef WORKER_WEIGHTS_WEIGHTS_ROWS_H
#define WORKER_WEIGHTS_WEIGHTS_ROWS_H
#include "member/row_keys.h"
#include "worker/data/dataset.h"
#include "worker/train/table_reader.h"
#include "worker/weights/weights.h"

struct weights_rows;

/* Reads the rows of all keys of the set, for the tables of q->chunks. source: opened with q->flag
 * and q->path, used only during the call. input: [n_tables] index of each table's input of keys. */
enum status weights_rows_read(const struct weights_request *q, const struct weights_source *source,
                              const struct dataset *d, const int *input, struct weights_rows **out);
void weights_rows_free(struct weights_rows *r); /* NULL is fine */
/* Returns the rows of each table: [n_tables]. */
const struct row_source *weights_rows_sources(const struct weights_rows *r);
/* Returns a reader of the rows, which accepts only keys of the set. It borrows `r`. */
struct table_reader weights_rows_reader(struct weights_rows *r);

#endif
