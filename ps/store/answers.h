/* ps/store/answers.h - answers to pieces: the immediate one, and those that a chunk owes to its
 * members. This header belongs to chunk_state.h, and is private to this folder. The caller holds
 * the chunk's lock unless a comment states otherwise. */
#ifndef PS_STORE_ANSWERS_H
#define PS_STORE_ANSWERS_H
#include "ps/store/chunk_state.h"
#include <stdbool.h>
#include <string.h>

/* Clears all fields except the text, which only a refusal has. */
static inline void answer_begin(struct store_answer *answer, int chunk)
{
    memset(answer, 0, offsetof(struct store_answer, text));
    answer->chunk = (uint32_t)chunk;
}
/* Sets an answer that refuses a piece with a reason. */
void answer_refuse(struct store_answer *answer, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Sets the refusal of a member's piece whose element `bad` was rejected. */
void answer_refuse_not_finite(const struct store *s, const struct chunk_state *c, int rank,
                              const struct net_piece *piece, size_t bad,
                              struct store_answer *answer);
/* Sets an answer that carries version `number`, which the chunk still keeps, for a member. dtype is
 * the format of versions for members, or fp32 for members that need the whole value. If members
 * receive changes, the first version exists only in fp32. The answer of a bucket has the rows that
 * the member reads, and becomes a refusal if memory is lacking. */
void answer_set_version(const struct store *s, struct chunk_state *c, int member, int64_t number,
                        enum dtype dtype, struct store_answer *answer);
/* Returns true if version `number` is the present one, and equals the version that the sender of a
 * push on `step` already has. */
bool answer_is_unchanged(const struct chunk_state *c, int64_t step, int64_t number);
/* Sets an answer that reports an unchanged version. */
void answer_set_unchanged(const struct store *s, int64_t number, struct store_answer *answer);
/* Returns the format in which the sender of a push on version `step` receives version `number`. */
enum dtype answer_dtype(const struct chunk_state *c, int64_t step, int64_t number);
/* Records that the sender of the push waits; it is answered once an answer is due. */
void answer_defer(struct chunk_state *c, const struct arrival *a);
/* Completes *answer, which was set while the piece was handled, before it is sent: withholds a
 * version that must not be sent yet, or adds the samples. */
void answer_piece(struct store *s, struct chunk_state *c, const struct arrival *a,
                  struct store_answer *answer);
/* Answers TAKEN (the sender may reuse its buffer) if the sender of a push requests that and still
 * waits. Called without the chunk's lock. */
void answer_taken(struct chunk_state *c, const struct arrival *a, struct store_answer *answer);
/* Sends every answer that is due at this chunk. Called without the chunk's lock. */
void answer_owed(struct store *s, struct chunk_state *c);
/* Returns true if a pull of version `number` has to wait, as the last version is held back. */
bool answer_withholds_last(const struct store *s, int64_t number);
/* Returns true if a member has waited since before since_ns; then adds 1 to missing[m] of each
 * member that it waits for. */
bool answer_missing(const struct store *s, const struct chunk_state *c, int64_t since_ns,
                    int *missing);

/* Returns the `samples` field of an answer for the chunk to the member. */
uint64_t answer_samples(const struct store *s, const struct chunk_state *c, int member);

#endif
