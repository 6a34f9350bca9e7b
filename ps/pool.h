/* ps/pool.h - recycled buffers of a chunk's size: versions, and contributions that wait their turn.
 * A buffer comes back at its last unref, from whatever thread, even after the pool's owner has gone
 * (answers may still be on their way out); the last of them takes the pool's memory with it.
 * Owns:    the buffers that lie idle, at most `keep` for each chunk.
 * Threads: any; each chunk has its own lock. Errors: ST_NOMEM. */
#ifndef PS_POOL_H
#define PS_POOL_H
#include "base/buf.h"

enum { PS_POOL_MAX_KEEP = 16 };

struct ps_pool;
/* One shelf for each chunk. keep: idle buffers held on it, at most PS_POOL_MAX_KEEP. */
enum status ps_pool_create(int n_shelves, int keep, struct ps_pool **out);
/* A buffer of `bytes`, always the same for one shelf; not cleared, one reference. */
enum status ps_pool_take(struct ps_pool *pool, int shelf, size_t bytes, struct buf **out);
void ps_pool_destroy(struct ps_pool *pool); /* NULL is fine */

#endif
