/* kernels/cuda/memory/pieces.h - divides a host tensor into the middle, which the device copies
 * directly, and two ends (head and tail), which are staged. Only whole pages can be pinned, and
 * pages that also contain other data must not be pinned. So the middle of a borrowed tensor is
 * copied directly, and its head and tail go through staging memory. This file needs no CUDA. */
#ifndef KERNELS_CUDA_MEMORY_PIECES_H
#define KERNELS_CUDA_MEMORY_PIECES_H
#include <stddef.h>
#include <stdint.h>

/* A range of host memory. */
struct gpu_range {
    uintptr_t first, end; /* end: address after the last byte */
};

/* Lengths of a tensor's head, middle and tail, in elements. */
struct gpu_pieces {
    int64_t head, middle, tail;
};

/* Returns the range of whole pages inside a range; first == end if there are none. */
struct gpu_range gpu_pieces_whole_pages(struct gpu_range r, uintptr_t page_bytes);
/* Sorts the ranges, then joins those that overlap or have a gap of at most `gap` bytes. Returns the
 * number of ranges that remain. */
int gpu_pieces_join_ranges(struct gpu_range *r, int n, uintptr_t gap);
/* Divides a tensor. host: aligned to its elements of `size` bytes; pinned: whole pages. */
struct gpu_pieces gpu_pieces_of(const void *host, int64_t elems, size_t size,
                                struct gpu_range pinned);

#endif
