/* ps/store/pool.h - recycled buffers of a chunk's size: versions, and contributions that wait
 * their turn. A buffer comes back at its last unref, from whatever thread, even after the pool's
 * owner has gone: answers may still be on their way out, and the next generation's store uses
 * buffers of the one before for as long as it runs. So the owner's end frees all idle buffers, and
 * the segment is released with the last buffer that lies in it. Some of a shelf's buffers may lie
 * in a segment that members on this host read (net/shm/segment.h). Owns:    the buffers that lie
 * idle, at most `keep` for each chunk; a reference to the segment. Threads: any; each chunk has its
 * own lock. Errors: ST_NOMEM. */
#ifndef PS_STORE_POOL_H
#define PS_STORE_POOL_H
#include "base/buf.h"
#include "net/shm/segment.h"

enum { PS_POOL_MAX_KEEP = 16 };

struct ps_pool;
/* One shelf for each chunk. keep: idle buffers held on it, at most PS_POOL_MAX_KEEP. */
enum status ps_pool_create(int n_shelves, int keep, struct ps_pool **out);
/* At most n (and `keep`) of the shelf's buffers will lie in the segment, the same for all shelves,
 * each behind its stamp, from `offset` on,
 * `stride` bytes apart. Before the first take. */
void ps_pool_share(struct ps_pool *pool, int shelf, struct segment *segment, size_t offset,
                   size_t stride, int n);
/* A buffer of `bytes`, always the same for one shelf; not cleared, one reference. to_lend: in the
 * segment if there is still room. */
enum status ps_pool_take(struct ps_pool *pool, int shelf, size_t bytes, int to_lend,
                         struct buf **out);
void ps_pool_destroy(struct ps_pool *pool); /* NULL is fine */

#endif
