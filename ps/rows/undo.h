/* ps/rows/undo.h - older versions of the rows of a table. While a version is made, the old content
 * of each changed row goes into the undo log of that version, or a mark that the row was absent. An
 * older version is the present rows with the logs after it applied backwards. Logs that begin at a
 * version that is not needed any more are merged into the log before them, which keeps the older
 * content of a row. Merges join logs of similar size, so a hold that lasts for n versions costs
 * log(n) copies of each record, and at most about twice the memory of the rows that changed.
 * Owns:    the logs.
 * Threads: one at a time.
 * Errors:  ST_NOMEM, only when a version begins. If a merge lacks memory, the logs stay apart. */
#ifndef PS_ROWS_UNDO_H
#define PS_ROWS_UNDO_H
#include "ps/rows/row_table.h"

struct undo_log;
struct undo {
    size_t row_bytes;
    size_t last_n;           /* records for which the last version allocated memory */
    struct undo_log *newest; /* logs, linked from the newest to the oldest */
    struct undo_log *open;   /* log of the version that is being made; NULL: nothing is recorded */
    struct undo_log *spare;  /* memory for the next version */
};

void undo_init(struct undo *u, size_t row_bytes);
void undo_destroy(struct undo *u);

/* Allocates memory for at most n records of the next version. */
enum status undo_begin(struct undo *u, size_t n);
/* Records a row before it changes, or the key of an absent row, at most once for each key of a
 * version. Without undo_begin they do nothing. */
void undo_record(struct undo *u, const struct row *row);
void undo_record_absent(struct undo *u, uint64_t key);
/* Forgets what was recorded since undo_begin. */
void undo_cancel(struct undo *u);
/* Ends the log of `version`. needed: the older versions that must stay readable, ascending. */
void undo_end(struct undo *u, uint64_t version, const uint64_t *needed, int n_needed);
/* Frees and merges logs, after a version is not needed any more. */
void undo_settle(struct undo *u, const uint64_t *needed, int n_needed);

/* Replaces rows[i], the present row of keys[i] or NULL, by its content in a needed version. A
 * record with the step ROW_ABSENT stands for an absent row. keys: ascending, of any alignment. */
void undo_find(const struct undo *u, uint64_t version, const void *keys, size_t n,
               struct row **rows);
/* Turns the present rows into those of a needed version, and frees the logs after it. The caller
 * has reserved memory in `rows` for undo_keys(u, version, NULL) rows. */
void undo_rewind(struct undo *u, uint64_t version, struct row_table *rows);
/* Writes the keys of all records after `version`, and returns their number; a key may occur several
 * times. keys: NULL to count only. */
size_t undo_keys(const struct undo *u, uint64_t version, uint64_t *keys);
/* Returns the bytes that the logs have allocated. */
size_t undo_bytes(const struct undo *u);

#endif
