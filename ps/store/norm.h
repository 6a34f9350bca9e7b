/* ps/store/norm.h - the norm of a step's mean gradient over all chunks of the model on all servers.
 * It collects the sum of squares of each chunk, and records which sums are missing. The sums are
 * added in the order of the chunks, so that the bits of the total depend neither on the shard map
 * nor on the order of arrival.
 *
 * Two steps are kept: a server may be one step ahead of another whose norm is incomplete.
 * Owns:    two values for each chunk of the model.
 * Threads: any; it has its own lock, whose holder locks nothing else.
 * Errors:  ST_NOMEM; ST_RANGE: the number of values does not match that server's chunks. */
#ifndef PS_STORE_NORM_H
#define PS_STORE_NORM_H
#include "base/status.h"
#include <stdint.h>

struct ps_norm;
/* Copies the shard map server[n_chunks]; self is this server's number in it. */
enum status ps_norm_create(int n_chunks, const int *server, int self, struct ps_norm **out);
void ps_norm_destroy(struct ps_norm *n); /* NULL is fine. */

enum {
    NORM_OWN = 1, /* the sums of all chunks of this server are set */
    NORM_ALL = 2  /* the sums of all chunks are set */
};
/* Sets the sum of squares of a chunk of this server at `step`, or the n_squares sums of another
 * server's chunks, in the order of the chunks. *news receives the NORM_ events that this caused.
 * A repeated sum, or a sum of a step that is no longer kept, changes nothing. */
void ps_norm_put(struct ps_norm *n, int64_t step, int chunk, double square, int *news);
enum status ps_norm_put_server(struct ps_norm *n, int64_t step, int server, const double *square,
                               int n_squares, int *news);
/* Returns the sums of squares of this server's chunks, in the order of the chunks. Valid after
 * NORM_OWN, until the step after next. */
const double *ps_norm_own(struct ps_norm *n, int64_t step, int *n_own);
/* Returns the sum of squares of all chunks. Valid after NORM_ALL, until the step after next. */
double ps_norm_squares(struct ps_norm *n, int64_t step);

#endif
