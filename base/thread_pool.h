/* base/thread_pool.h - threads that run the parts of loops. Each idle thread runs the next part of
 * the loop with the lowest `order`. A caller waits for its loop and runs parts of it, too
 * (thread_pool_run), or leaves the loop to the pool (thread_pool_start).
 * Owns:    its threads, which inherit the creator's signal mask.
 * Threads: any thread may run or start a loop; several loops may run at the same time. A part must
 *          not run a loop of the same pool.
 * Errors:  ST_NOMEM. A thread that cannot be started is logged; the pool works without it. */
#ifndef BASE_THREAD_POOL_H
#define BASE_THREAD_POOL_H
#include "base/status.h"

struct thread_pool;

/* A loop of n parts, n > 0. The caller sets the first five fields. */
struct thread_loop {
    void (*part)(void *ctx, int k);
    /* Called in a thread of the pool when all calls of `part` have returned. The pool does not use
     * the struct any more. */
    void (*ended)(void *ctx);
    void *ctx;
    int n;
    int order;
    int next;         /* index of the first part that has not begun */
    _Atomic int left; /* number of parts that have not ended */
    struct thread_loop *after;
};

/* Creates a pool. n_threads includes the thread that runs a loop. If that is the only one, *out is
 * NULL, which is a valid pool. */
enum status thread_pool_create(int n_threads, struct thread_pool **out);
/* Ends the threads once all started loops have ended. NULL is fine. No thread may run or start a
 * loop any more. */
void thread_pool_destroy(struct thread_pool *p);

/* Calls part(ctx, k) for each k in [0, n), in any order and in parallel, and returns when all calls
 * have returned. p NULL: the caller runs all parts itself, in order. */
void thread_pool_run(struct thread_pool *p, int n, void (*part)(void *ctx, int k), void *ctx);

/* Starts the loop, which the pool uses until it calls `ended`, and returns. p is not NULL. */
void thread_pool_start(struct thread_pool *p, struct thread_loop *loop);

#endif
