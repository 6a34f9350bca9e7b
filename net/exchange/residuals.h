/* net/exchange/residuals.h - error feedback: keeps the part of a member's contributions that was
 * rounded off or left out (topk), and adds it to the next contributions, so that no part of a
 * gradient is lost but only sent later.
 *
 * A step may be repeated after a change of generation, or because its answer did not arrive; then
 * it is rounded from the same values as the first time. So each chunk has two residuals: the one
 * that was added to its last contribution, and the one that this contribution left over. After a
 * return to an older step than the last, for example to a checkpoint, the residual starts at zero.
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
/* Returns the residual (n_elems floats) for the chunk's contribution to `step`. The caller adds the
 * residual to the contribution, and overwrites it with the part that is rounded off (quant_encode).
 * If the caller skips the step instead, the residual is added to the next contribution. */
float *residuals_of(struct residuals *r, int chunk, int64_t step);
/* Returns the residual that was added to the chunk's last contribution. */
const float *residuals_added(const struct residuals *r, int chunk);
/* Returns the residual that the chunk's last contribution left over. */
const float *residuals_last(const struct residuals *r, int chunk);
/* Sets the residual to `left` (n_elems floats) and the last step to `step`; another process has
 * saved these values. */
void residuals_set(struct residuals *r, int chunk, int64_t step, const float *left);
/* Notes that the contribution to `step`, if that was the last, did not count and will be part of
 * the sender's next one. The residual that was added to this contribution is then added to the next
 * one. The residual that this one left over is dropped. */
void residuals_restore(struct residuals *r, int chunk, int64_t step);

#endif
