/* net/exchange/residuals.h - what was not sent of a member's contributions so far, rounded off or
 * left out (topk), to be added to the next ones (error feedback), so that nothing of a gradient is
 * lost, only late.
 *
 * A step that is done again after a change of generation, or whose answer did not come, is rounded
 * again from what it was rounded from the first time: so each chunk has two, that into its step and
 * that out of it. After a way back to an older step than the last, as to a checkpoint, it begins
 * with nothing again.
 *
 * Owns:    two floats for each value.
 * Threads: one at a time for each chunk.
 * Errors:  ST_NOMEM. */
#ifndef NET_EXCHANGE_RESIDUALS_H
#define NET_EXCHANGE_RESIDUALS_H
#include "base/status.h"
#include "net/wire/chunks.h"

struct residuals;

enum status residuals_create(const struct chunks *chunks, struct residuals **out);
void residuals_destroy(struct residuals *r); /* NULL is fine */
/* The chunk's contribution to `step` is about to be rounded: n_elems floats that are to be added to
 * it, and over which what is rounded off is to be written (quant_encode). If nothing is, because
 * the step is skipped, they are added to the next one. */
float *residuals_of(struct residuals *r, int chunk, int64_t step);
/* What the chunk's last contribution left over. */
const float *residuals_last(const struct residuals *r, int chunk);
/* It is this, n_elems floats, and `step` the last; of another process. */
void residuals_set(struct residuals *r, int chunk, int64_t step, const float *left);
/* The contribution to `step`, if that was the last, did not count, and is a part of what its sender
 * contributes next: to that is added what was added to this one, and not what it left over. */
void residuals_take_back(struct residuals *r, int chunk, int64_t step);

#endif
