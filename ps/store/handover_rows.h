/* ps/store/handover_rows.h - the parts of handover.h for buckets, private to handover.c.
 * Threads: those of handover.h. The caller holds no lock.
 * Errors:  those of handover.h. */
#ifndef PS_STORE_HANDOVER_ROWS_H
#define PS_STORE_HANDOVER_ROWS_H
#include "ps/store/handover.h"

struct chunk_state;
enum status handover_take_rows(const struct store *s, struct chunk_state *c, int64_t step,
                               struct handover_chunk *out);
enum status handover_give_rows(const struct store *s, struct chunk_state *c,
                               const struct handover_chunk *t);

#endif
