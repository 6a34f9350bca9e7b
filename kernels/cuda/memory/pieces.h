/* kernels/cuda/memory/pieces.h - which part of a host tensor the device may copy by itself.
 * Only whole pages can be pinned, and pages that we share with others' memory must not be: so of a
 * borrowed tensor the middle is copied directly, and head and tail go through staging memory of our
 * own. Knows no CUDA. */
#ifndef KERNELS_CUDA_MEMORY_PIECES_H
#define KERNELS_CUDA_MEMORY_PIECES_H
#include <stddef.h>
#include <stdint.h>

/* A run of host memory. */
struct gpu_range {
    uintptr_t first, end; /* end: the byte behind */
};

/* In elements; head + middle + tail are the tensor's. */
struct gpu_pieces {
    int64_t head, middle, tail;
};

/* The whole pages inside a range; empty (first == end) if there is none. */
struct gpu_range gpu_pieces_whole_pages(struct gpu_range r, uintptr_t page_bytes);
/* Sorts, then joins ranges that overlap or follow one another with a gap of at most `gap` bytes;
 * returns how many are left. */
int gpu_pieces_join_ranges(struct gpu_range *r, int n, uintptr_t gap);
/* host: aligned to its elements, of `size` bytes each; pinned: whole pages. */
struct gpu_pieces gpu_pieces_of(const void *host, int64_t elems, size_t size,
                                struct gpu_range pinned);

#endif
