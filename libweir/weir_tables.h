/* weir_tables.h - libweir's sparse tables: embeddings for keys without a fixed vocabulary, kept by
 * Weir's servers. Each row has a 64-bit key and `dim` floats. A member looks up only the rows that
 * its batch needs, and pushes only their gradients. docs/reference/weir-tables-h.md has the
 * settings of a table.
 *
 * A step of a job with tables:
 *
 *     weir_next(w, -1, &step);
 *     weir_lookup(w, table, keys, n, rows, -1);
 *     ... forward and backward ...
 *     weir_next_keys(w, table, keys_of_the_next_batch, n_next);   (may be left out)
 *     weir_push_rows(w, table, keys, n, gradients, samples);
 *     weir_push(w, param, gradient, samples);                     (each parameter, as in weir.h)
 *
 * A job with tables needs servers, and at least one parameter. Tables are numbered from 0, apart
 * from the parameters. Memory: the library borrows arguments for the call only. Threads: any number
 * of threads may call weir_lookup, weir_next_keys and weir_push_rows at the same time, and beside
 * weir_push; calls for one table wait for each other. Codes and errors are those of weir.h. */
#ifndef WEIR_TABLES_H
#define WEIR_TABLES_H
#include "weir.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Adds a table and returns its number; called before the first weir_next. name: up to 255 printable
 * characters without spaces, unique among the tables. dim: floats of a row, 1 to 1024. max_rows:
 * the largest number of rows, 1 to 2^40, which bounds the memory of the servers. All members add
 * the same tables in the same order, with the same settings. */
int weir_table(struct weir *w, const char *name, int dim, int64_t max_rows);
/* Sets a setting of a table before the first weir_next. Values are texts. The names are those of
 * the job's settings where the job has the same one: optimizer, learning_rate, lr_schedule and so
 * on. Without a setting `optimizer` the table has the optimizer of the job. */
int weir_table_set(struct weir *w, int table, const char *name, const char *value);

/* Copies the rows of n keys to rows[n][dim], in the order of the keys, which may repeat. Before the
 * table's push, the rows are those of the step that weir_next began; after it those of the next
 * step (in the modes async and ssp: the newest ones that this member has received or requests). A
 * key that has no row yet has the initial values of its row; a lookup creates no row. After
 * WEIR_DONE, until weir_goodbye, the rows are the last ones.
 * Rows of keys that weir_next_keys has named have arrived with the answer to the last push; for
 * other keys the call sends one request to each server that has them, and waits. timeout_ms -1: no
 * timeout. Other codes: AGAIN (repeat the call with the same keys, which continues it; `rows` may
 * be other memory), REBASED. After another code than OK the contents of `rows` are undefined. */
int weir_lookup(struct weir *w, int table, const uint64_t *keys, int64_t n, float *rows,
                int timeout_ms);
/* Names the keys of this member's next step, whose rows will arrive with the answer to the next
 * weir_push_rows of the table, so that lookups need no request of their own. The keys may be in any
 * order and repeat; the last call before the push counts. In the modes async and ssp a member
 * receives its next samples only with that answer, so it usually cannot name their keys. */
int weir_next_keys(struct weir *w, int table, const uint64_t *keys, int64_t n);
/* Pushes the gradients[n][dim] of n keys in this step, once for each table and step; n is 0 if the
 * batch has no key. Keys may be in any order and repeat: gradients of equal keys are added in the
 * order of the call. Each gradient is a part of the gradient of the mean over `samples` samples, as
 * in weir_push. If samples is 0, the push counts and adds nothing, and gradients are not read. Rows
 * without a gradient from any member do not change. If a bucket of the table would receive more
 * keys than its share of the setting step_rows, the call returns WEIR_E_INVALID. After
 * WEIR_E_INVALID nothing was pushed. WEIR_OK: the gradients are queued, or the generation has
 * ended. */
int weir_push_rows(struct weir *w, int table, const uint64_t *keys, int64_t n,
                   const float *gradients, double samples);

/* Returns a key for a text, for example "country=fr", the same in all programs of all versions. Two
 * of 100 million texts have the same key with a probability of about 0.0003. bytes below 1: the key
 * of the empty text. */
uint64_t weir_key(const void *text, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
