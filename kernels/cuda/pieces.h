/* kernels/cuda/pieces.h - which part of a host tensor the device may copy by itself.
 * Only whole pages can be pinned, and pages that we share with others' memory must not be: so of a
 * borrowed tensor the middle is copied directly, and head and tail go through staging memory of our
 * own. Knows no CUDA. */
#ifndef KERNELS_CUDA_PIECES_H
#define KERNELS_CUDA_PIECES_H
#include <stddef.h>
#include <stdint.h>

/* A run of host memory. */
struct cuda_range {
    uintptr_t first, end; /* end: the byte behind */
};

/* In elements; head + middle + tail are the tensor's. */
struct cuda_pieces {
    int64_t head, middle, tail;
};

/* The whole pages inside a range; empty (first == end) if there is none. */
struct cuda_range cuda_range_pages(struct cuda_range r, uintptr_t page_bytes);
/* Sorts, then joins ranges that overlap or follow one another with a gap of at most `gap` bytes;
 * returns how many are left. */
int cuda_range_join(struct cuda_range *r, int n, uintptr_t gap);
/* host: aligned to its elements, of `size` bytes each; pinned: whole pages. */
struct cuda_pieces cuda_pieces_of(const void *host, int64_t elems, size_t size,
                                  struct cuda_range pinned);

#endif
