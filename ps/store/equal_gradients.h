/* ps/store/equal_gradients.h - logs once that two workers send the same gradients, which means that
 * they train on the same samples: a script that draws its own batches, with one seed in every
 * process. Only mode `sync` has contributions to one version that can be compared.
 * Owns:    a checksum for each member.
 * Threads: the caller holds the lock of the chunk.
 * Errors:  ST_NOMEM. */
#ifndef PS_STORE_EQUAL_GRADIENTS_H
#define PS_STORE_EQUAL_GRADIENTS_H
#include "ps/store/chunk_state.h"

/* Creates the struct for the model's last trained chunk. *out is NULL if this server lacks the
 * chunk, or no contributions can be compared. Needs s->shelf_of. */
enum status equal_gradients_create(const struct store *s, struct equal_gradients **out);
void equal_gradients_destroy(struct equal_gradients *e); /* NULL is fine. */
/* Notes a contribution that was counted. is_last: all members have contributed to the step; the
 * contributions are then compared. Does nothing if e is NULL, or for another chunk. */
void equal_gradients_note(struct equal_gradients *e, const struct chunk_state *c,
                          const struct arrival *a, bool is_last);

#endif
