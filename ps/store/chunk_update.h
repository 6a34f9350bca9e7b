/* ps/store/chunk_update.h - the pass over memory that makes a chunk's next version (update.h).
 *
 * In lockstep no lock is held over it: chunk_update_begin sets CHUNK_PENDING_UPDATE, and the thread
 * that has released the chunk's lock calls chunk_update_launch. If the store has threads, and the
 * contributions stay in memory, launch leaves the parts of the pass to these threads, which run the
 * parts of all chunks, lowest chunk first. The thread that has run the last part makes the version,
 * and sends the answers. Otherwise launch does all of that before it returns. In the other modes
 * the slots are overwritten in place, and the caller holds the lock over the whole pass.
 *
 * The last contribution counts when the update begins. If the pass finds that it is not finite, the
 * contribution no longer counts: the chunk waits for the member's contribution again.
 *
 * This header belongs to chunk_state.h, and is private to this folder.
 * Owns:    the buffers of the next version, and a reference to the memory of the last contribution.
 * Threads: see each function.
 * Errors:  none. */
#ifndef PS_STORE_CHUNK_UPDATE_H
#define PS_STORE_CHUNK_UPDATE_H
#include "base/thread_pool.h"
#include "ps/store/aggregate.h"
#include "ps/store/update.h"
#include <stdbool.h>

struct store;
struct store_answer;
struct chunk_state;
struct chunk_version;
struct arrival;

struct chunk_update {
    struct ps_update pass;
    struct ps_update_params params;
    struct thread_loop loop;
    struct store *store;
    struct segment *memory; /* segment that has the last contribution; NULL: none */
    /* process of that contribution's sender, if the pass writes to the process's values; 0: it
     * does not */
    uint64_t placed_by;
    int member; /* sender of the last contribution; -1: clipping began the update */
    /* State before the last contribution, which is restored if the contribution is refused: the
     * sum, and three fields of the sender's struct waiter. */
    struct aggregate sum;
    uint64_t counted_by;
    int64_t counted_step, clock;
};

/* Runs the pass that makes `next` from the mean of the contributions. base: see struct
 * contribution. Returns the first bad element of the last contribution, or SIZE_MAX. The caller
 * holds the lock. */
size_t chunk_update_run(struct store *s, struct chunk_state *c, const struct buf *base,
                        struct chunk_version *next);
/* Begins the update in lockstep, from `factor` times the mean of the contributions. If factor is 0
 * (allowed if all contributions are in the sum), `next` equals the version before. before: state of
 * the sum before the last contribution, which `member` sent; NULL: clipping begins the update. The
 * previous version ends now: no member needs it, because a member contributes to this chunk only
 * when it has the present version of all chunks; and `next` may overwrite its slots. The caller
 * holds the lock. */
void chunk_update_begin(struct store *s, struct chunk_state *c, double factor,
                        const struct chunk_version *next, int member,
                        const struct aggregate *before);
/* Runs the update that has begun, or leaves it to the threads. a: the arrival of the last
 * contribution; if the update refuses it before the return, *answer has the reason. NULL: clipping
 * began the update. Called without a lock. */
void chunk_update_launch(struct store *s, struct chunk_state *c, const struct arrival *a,
                         struct store_answer *answer);
/* Notes that an update that n_updates counts has ended. Called without a lock. */
void chunk_update_note_end(struct store *s);
/* Waits until every update has ended. Called without a lock, when no further update can begin. */
void chunk_update_await_all(struct store *s);

#endif
