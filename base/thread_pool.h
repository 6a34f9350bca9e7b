/* base/thread_pool.h - threads that share the work of a loop with the thread that calls
 * thread_pool_run. The work is cut into parts, and each idle thread runs the next part.
 * Owns:    its threads, which inherit the creator's signal mask.
 * Threads: any thread may run a loop; several loops may run at the same time. A part runs no loop
 *          of the same pool.
 * Errors:  ST_NOMEM. A thread that cannot be started is logged; the pool works without it. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H
#include "base/status.h"

struct thread_pool;

/* Creates a pool. n_threads includes the thread that runs a loop. If that is the only one, *out is
 * NULL, which is a valid pool. */
enum status thread_pool_create(int n_threads, struct thread_pool **out);
void thread_pool_destroy(struct thread_pool *p); /* NULL is fine; no loop runs any more */

/* Calls part(ctx, k) for each k in [0, n), in any order and in parallel, and returns when all calls
 * have returned. p NULL: the caller alone runs them, in order. */
void thread_pool_run(struct thread_pool *p, int n, void (*part)(void *ctx, int k), void *ctx);

#endif
