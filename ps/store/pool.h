/* ps/store/pool.h - recycled buffers of a chunk's size: versions, and contributions that wait their
 * turn. A buffer returns at its last unref, in any thread, even after the pool's owner has ended:
 * answers may still be queued, and the next generation's store uses buffers of the one before. So
 * the owner's end frees the idle buffers, buffers that return later are freed at once, and the last
 * one in the segment releases the segment. Some of a shelf's buffers may lie in a segment that
 * members on this host read (net/shm/segment.h).
 * Owns:    the idle buffers, at most `keep` on each shelf; a reference to the segment.
 * Threads: any; each shelf has its own lock.
 * Errors:  ST_NOMEM. */
#ifndef PS_STORE_POOL_H
#define PS_STORE_POOL_H
#include "base/buf.h"
#include "net/shm/segment.h"

enum { PS_POOL_MAX_KEEP = 16 };

struct ps_pool;
/* Creates a pool with n_shelves shelves, each of which keeps at most `keep` idle buffers, and at
 * most PS_POOL_MAX_KEEP. */
enum status ps_pool_create(int n_shelves, int keep, struct ps_pool **out);
/* Places at most n of the shelf's buffers, and at most `keep`, in the segment: from `offset` on,
 * `stride` bytes apart, each after its stamp (segment.h). All shelves use the same segment. Called
 * before any use. */
void ps_pool_share(struct ps_pool *pool, int shelf, struct segment *segment, size_t offset,
                   size_t stride, int n);
/* Returns a buffer of `bytes`, with one reference and not cleared. `bytes` must always be the same
 * for one shelf. If to_lend is set, the buffer lies in the segment if a place is free. */
enum status ps_pool_take(struct ps_pool *pool, int shelf, size_t bytes, int to_lend,
                         struct buf **out);
void ps_pool_destroy(struct ps_pool *pool); /* NULL is fine. */

#endif
