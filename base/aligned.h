/* base/aligned.h - memory that begins on a cache line. Threads: any. Errors: a function returns
 * NULL. */
#ifndef BASE_ALIGNED_H
#define BASE_ALIGNED_H
#include <stdlib.h>

enum { ALIGNED_LINE_BYTES = 64 };

/* Allocates whole cache lines of at least `bytes` bytes. Release with free. NULL: out of memory. */
static inline void *aligned_take(size_t bytes)
{
    size_t mask = ALIGNED_LINE_BYTES - 1, rounded = ((bytes ? bytes : 1) + mask) & ~mask;
    return rounded < bytes ? NULL : aligned_alloc(ALIGNED_LINE_BYTES, rounded);
}

#endif
