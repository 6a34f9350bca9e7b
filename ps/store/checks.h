/* ps/store/checks.h - checks of a piece before it has an effect. A piece that fails is answered
 * with the reason, and changes nothing. This header belongs to chunk_state.h, and is private to
 * this folder.
 * Owns:    nothing.
 * Threads: check_piece needs no lock; the caller of check_zeros may hold the chunk's lock.
 * Errors:  the reason is in *answer. */
#ifndef PS_STORE_CHECKS_H
#define PS_STORE_CHECKS_H
#include "ps/store/chunk_state.h"
#include <stdbool.h>

/* Returns the chunk of the piece, and copies the piece's marks of missing gradients to
 * `lacking`, or finds the parts of a piece to a bucket, if the piece fits the chunk and its sender
 * may send. Otherwise returns NULL, and *answer contains the reason. The keys and gradients of a
 * piece to a bucket are checked after they were copied (bucket_ops.h). */
struct chunk_state *check_piece(struct store *s, const struct net_frame_head *head,
                                const struct net_piece *piece, uint8_t lacking[LACKING_MAX_BYTES],
                                struct rows_parts *parts, struct store_answer *answer);
/* Returns true if a payload that fits the chunk is 0 where the piece lacks a gradient; otherwise
 * *answer contains the reason. */
bool check_zeros(const struct store *s, const struct chunk_state *c, const struct net_piece *piece,
                 const uint8_t *lacking, struct store_answer *answer);

#endif
