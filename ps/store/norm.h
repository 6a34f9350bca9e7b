/* ps/store/norm.h - the norm of a step's mean gradient over all chunks of the model, on whatever
 * server they are: what each chunk adds to the sum of squares, and which of that is still missing.
 * The sum is in the order of the chunks, so that its bits do not depend on which server has which
 * chunk, nor on who was first.
 *
 * Two steps are kept: a server may be one step further than another whose norm is still to come.
 * Owns:    for each chunk of the model, what it adds, twice.
 * Threads: any; a lock of its own, with which no other is taken.
 * Errors:  ST_NOMEM; ST_RANGE: not what that server has. */
#ifndef PS_STORE_NORM_H
#define PS_STORE_NORM_H
#include "base/status.h"
#include <stdint.h>

struct ps_norm;
/* server: [n_chunks], each chunk's; copied. self: this server's number there. */
enum status ps_norm_create(int n_chunks, const int *server, int self, struct ps_norm **out);
void ps_norm_destroy(struct ps_norm *n); /* NULL is fine */

enum {
    NORM_OWN = 1, /* now all of this server's chunks are there */
    NORM_ALL = 2  /* now all chunks are */
};
/* What this server's chunk adds at step `step`, or all chunks of another server, n of them,
 * ascending. *news: of the two above those that came about by this; what is there already, or of a
 * step before the two, changes nothing. */
void ps_norm_put(struct ps_norm *n, int64_t step, int chunk, double square, int *news);
enum status ps_norm_put_server(struct ps_norm *n, int64_t step, int server, const double *square,
                               int n_squares, int *news);
/* After NORM_OWN, until the step after next: what this server's chunks add, ascending. */
const double *ps_norm_own(struct ps_norm *n, int64_t step, int *n_own);
/* After NORM_ALL, likewise: the sum of squares. */
double ps_norm_squares(struct ps_norm *n, int64_t step);

#endif
