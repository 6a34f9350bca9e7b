/* base/aligned.h - memory that begins on a cache line or a page. Threads: any. Errors: a function
 * returns NULL. Release with free. */
#ifndef BASE_ALIGNED_H
#define BASE_ALIGNED_H
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { ALIGNED_LINE_BYTES = 64 };

/* Allocates at least `bytes` bytes, rounded up to whole units. unit: a power of 2. NULL: out of
 * memory. */
static inline void *aligned_take_units(size_t bytes, size_t unit)
{
    size_t rounded = ((bytes ? bytes : 1) + unit - 1) & ~(unit - 1);
    return rounded < bytes ? NULL : aligned_alloc(unit, rounded);
}

/* Allocates whole cache lines. */
static inline void *aligned_take(size_t bytes)
{
    return aligned_take_units(bytes, ALIGNED_LINE_BYTES);
}

/* Allocates whole pages. So a program can pin the memory without pinning other data. */
static inline void *aligned_take_pages(size_t bytes)
{
    return aligned_take_units(bytes, (size_t)sysconf(_SC_PAGESIZE));
}

/* Allocates whole pages of zeros inside a larger block. *block: that block, which the caller frees.
 * The system allocates most of the pages only when they are written. */
static inline void *aligned_zero_pages(size_t bytes, void **block)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (bytes + page - 1) / page + 1;
    *block = calloc(n, page);
    return *block ? (char *)*block + (page - 1 - ((uintptr_t)*block - 1) % page) : NULL;
}

#endif
