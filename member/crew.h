/* member/crew.h - the threads of a backend for loops over parameters and gradients, which are
 * idle while these run, or the worker's own where the backend has none, as a GPU's. Loops are cut
 * into fixed ranges, however many threads there are. Owns:    nothing; a value. Threads: as the
 * backend's spread, or thread_pool_run. Errors: none. */
#ifndef MEMBER_CREW_H
#define MEMBER_CREW_H
#include "base/thread_pool.h"
#include <stddef.h>

enum { CREW_RANGE = 16384 }; /* elements, the last range's may be fewer */

struct crew {
    /* As a backend's (kernels/backend.h); NULL: by `threads`. */
    void (*spread)(int n_threads, int n, void (*part)(void *ctx, int k), void *ctx);
    int n_threads;               /* of the backend */
    struct thread_pool *threads; /* NULL: the caller is alone */
};

/* range(ctx, first, n) for each range of [0, n_elems), in any order and at once. */
void crew_run(const struct crew *c, size_t n_elems,
              void (*range)(void *ctx, size_t first, size_t n), void *ctx);

#endif
