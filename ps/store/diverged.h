/* ps/store/diverged.h - logs once, with the parameter, that a chunk's version is not finite
 * although the version before and the contributions were. Private to this folder.
 * Threads: see each function.
 * Errors:  none. */
#ifndef PS_STORE_DIVERGED_H
#define PS_STORE_DIVERGED_H
#include "ps/store/chunk_state.h"

/* Returns the parameter that contains the chunk's element. Any thread may call it. */
const struct net_param *diverged_param_at(const struct store *s, const struct chunk_state *c,
                                          size_t element);
/* Notes the first element of the present version that is not finite; SIZE_MAX: all are finite. The
 * caller holds the lock. */
void diverged_note(struct chunk_state *c, size_t element);
/* Returns the element that the caller is to log, and resets it; SIZE_MAX: none. The caller holds
 * the lock. */
size_t diverged_take(struct chunk_state *c);
/* Logs that an update of rows at `step` has made one that is not finite, if it has. The caller may
 * hold locks. */
void diverged_log_row(const struct chunk_rows *r, int64_t step);
/* Logs that the element was not finite after the update of `step`; SIZE_MAX: does nothing. The
 * caller does not hold the lock. */
void diverged_log(const struct store *s, const struct chunk_state *c, size_t element, int64_t step);

#endif
