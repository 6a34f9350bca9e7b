/* tests/store_rig.h - tools for tests of chunk stores without a network: they create a store with
 * its members, send pieces as members do, compute the numbers in the pieces, and read the values of
 * a version. Owns: nothing. Threads: any. Errors: the test fails. */
#ifndef TESTS_STORE_RIG_H
#define TESTS_STORE_RIG_H
#include "ps/store/store.h"

/* Creates a store and admits n_members members. The process of member m is `incarnation` + m. If
 * cfg has no max_bytes, the store may allocate 1 MiB. If cfg has no `answer`, answers are
 * dropped. */
struct store *store_rig_open(const struct store_config *cfg, int n_members, uint64_t incarnation);

/* Returns the number at position `elem` of a member's contribution at a step, in [-0.5, 0.5). */
float store_rig_number(int member, int64_t step, int64_t elem);

/* Sends a piece, whose payload is the first piece.payload.bytes bytes of `data`, in two spans that
 * are cut inside a number. The checksum is added unless the piece is unsummed. The stream is 1 +
 * the member's number. Returns the direct answer. The caller unrefs its payload. The reason of a
 * refusal is in `text`; `why` is NULL. */
struct store_answer store_rig_send(struct store *s, const struct net_frame_head *head,
                                   struct net_piece piece, const void *data, int64_t now_ns);
/* Sends a piece like store_rig_send, and returns the kind of the direct answer. */
enum piece_kind store_rig_act(struct store *s, const struct net_frame_head *head,
                              struct net_piece piece, const void *data, int64_t now_ns);

/* Copies the values of a chunk, which must have this version. */
void store_rig_read(struct store *s, const struct net_chunk *chunk, int number, int64_t version,
                    float *out);
/* Copies the values of all chunks, each to its position among the elements. */
void store_rig_read_all(struct store *s, const struct chunks *chunks, int64_t version, float *out);

#endif
