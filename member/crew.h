/* member/crew.h - threads for loops over parameters and gradients: the backend's threads, which are
 * idle during such a loop, or the worker's own threads if the backend has none (a GPU's). Loops are
 * cut into the same ranges for any number of threads. Owns: nothing. Threads: those that may call
 * the backend's spread or thread_pool_run. Errors: none. */
#ifndef MEMBER_CREW_H
#define MEMBER_CREW_H
#include "base/thread_pool.h"
#include <stddef.h>

enum { CREW_RANGE = 16384 }; /* elements of a range; the last one may have fewer */

struct crew {
    /* The backend's spread (kernels/backend.h); NULL: `threads` run the loops. */
    void (*spread)(int n_threads, int n, void (*part)(void *ctx, int k), void *ctx);
    int n_threads; /* number of threads of the backend */
    /* the worker's own threads; NULL: only the caller runs the loops */
    struct thread_pool *threads;
};

/* Calls range(ctx, first, n) for each range of [0, n_elems), in any order and in parallel. */
void crew_run(const struct crew *c, size_t n_elems,
              void (*range)(void *ctx, size_t first, size_t n), void *ctx);

#endif
