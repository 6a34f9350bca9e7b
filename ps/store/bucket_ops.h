/* ps/store/bucket_ops.h - contributions to a bucket, and answers with its rows. In lockstep the
 * last contribution of a step merges all of them in rank order (ps/rows/merge.h); in other modes
 * each contribution makes a version by itself. In lockstep the store's threads merge long
 * contributions, those of several buckets in parallel. This header belongs to chunk_state.h, and is
 * private to this folder.
 * Owns:    nothing.
 * Threads: the caller holds the chunk's lock, unless a comment states otherwise.
 * Errors:  the reason is in *answer, which is then a refusal; the bucket has not changed. */
#ifndef PS_STORE_BUCKET_OPS_H
#define PS_STORE_BUCKET_OPS_H
#include "ps/store/chunk_state.h"
#include <stdbool.h>

/* Copies and checks the keys that the sender reads; its next answer has their rows. */
bool bucket_ops_take_reads(struct chunk_state *c, const struct arrival *a,
                           struct store_answer *answer);
/* Counts a contribution as number `slot` of the next version, after it was copied and checked. The
 * last one makes the version, or sets CHUNK_PENDING_UPDATE: then bucket_ops_launch makes it. If
 * the bucket has no room for the step's rows, or memory is lacking, the contributions of the whole
 * step do not count any more, and their senders are refused, too (answer_owed). */
bool bucket_ops_contribute(struct store *s, struct chunk_state *c, const struct arrival *a,
                           int slot, struct store_answer *answer);
/* Leaves the version that is pending, and the answers with it, to the store's threads. Called
 * without a lock. */
void bucket_ops_launch(struct store *s, struct chunk_state *c);
/* Makes the answer to a member that has the rows of its read keys in a readable version. Does not
 * change answer->kind, except to a refusal. */
void bucket_ops_answer(const struct store *s, struct chunk_state *c, int member, int64_t number,
                       enum dtype dtype, struct store_answer *answer);

#endif
