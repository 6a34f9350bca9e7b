/* ps/store/diverged.h - says that a chunk's version is not finite, though the one before and what
 * came to it were: once, with the parameter. Private to this folder, as chunk_state.h is.
 * Threads: as it says. Errors: none. */
#ifndef PS_STORE_DIVERGED_H
#define PS_STORE_DIVERGED_H
#include "ps/store/chunk_state.h"

/* The parameter that has the chunk's element. Any thread. */
const struct net_param *diverged_param_at(const struct store *s, const struct chunk_state *c,
                                          size_t element);
/* The present version is not finite from this element on; SIZE_MAX: it is. Under the lock. */
void diverged_note(struct chunk_state *c, size_t element);
/* What is to be said, which is left to the caller; SIZE_MAX: nothing. Under the lock. */
size_t diverged_take(struct chunk_state *c);
/* Says it of the update of this step; not under the lock. */
void diverged_log(const struct store *s, const struct chunk_state *c, size_t element, int64_t step);

#endif
