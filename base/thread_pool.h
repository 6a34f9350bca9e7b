/* base/thread_pool.h - threads that share a loop with the thread that runs it: a piece of work that
 * others wait for is cut into parts, and whoever is idle takes the next.
 * Owns:    its threads, which inherit the creator's signal mask.
 * Threads: any may run loops, several at once. A part runs no loop of the same pool.
 * Errors:  ST_NOMEM. A thread that cannot be started is logged, and left out. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H
#include "base/status.h"

struct thread_pool;

/* n_threads: with the one that runs a loop; *out is NULL, which is a pool, too, where that
 * is the only one. */
enum status thread_pool_create(int n_threads, struct thread_pool **out);
void thread_pool_destroy(struct thread_pool *p); /* NULL is fine; no loop runs any more */

/* part(ctx, k) for each k in [0, n), in any order and at once; returns when all have. NULL: by the
 * caller alone, in order. */
void thread_pool_run(struct thread_pool *p, int n, void (*part)(void *ctx, int k), void *ctx);

#endif
