/* kernels/cuda/memory/budget.h - records the memory that all plans of this process use on one
 * device, and its limit. If memory was allocated as one block of the size of the limit, also
 * records the spans of the block that are in use. This file needs no CUDA, so that it can be tested
 * on machines without CUDA.
 * Owns:    its records; not the block.
 * Threads: one at a time.
 * Errors:  ST_NOMEM, not logged: the caller logs it with the layer. */
#ifndef KERNELS_CUDA_MEMORY_BUDGET_H
#define KERNELS_CUDA_MEMORY_BUDGET_H
#include "base/status.h"
#include <stdint.h>

struct gpu_budget_span;
struct gpu_budget {
    uint64_t limit; /* limit in bytes; UINT64_MAX: none */
    uint64_t taken; /* bytes in use, rounded up to GPU_ARENA_ALIGN if there is a block */
    int has_block;
    struct gpu_budget_span *spans; /* spans of the block that are in use, sorted by offset */
    int n_spans, cap_spans;
};

void gpu_budget_init(struct gpu_budget *b, uint64_t limit, int has_block);
void gpu_budget_free(struct gpu_budget *b);
/* Returns the size of the largest reservation that is possible now. */
uint64_t gpu_budget_left(const struct gpu_budget *b);
/* Reserves bytes. *at: offset in the block; 0 if there is no block. */
enum status gpu_budget_reserve(struct gpu_budget *b, uint64_t bytes, uint64_t *at);
/* Releases a reservation; the arguments are those of the reservation. */
void gpu_budget_release(struct gpu_budget *b, uint64_t at, uint64_t bytes);

#endif
