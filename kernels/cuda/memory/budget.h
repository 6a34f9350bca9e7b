/* kernels/cuda/memory/budget.h - records what this process has allocated of one device's memory,
 * over all its plans: a limit, and, if the limit was allocated as one block, the spans of it that
 * are in use. Needs no CUDA, so that it is tested on machines without.
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
    struct gpu_budget_span *spans; /* used spans of the block, by offset */
    int n_spans, cap_spans;
};

void gpu_budget_init(struct gpu_budget *b, uint64_t limit, int has_block);
void gpu_budget_free(struct gpu_budget *b);
/* Returns the largest reservation that is possible now. */
uint64_t gpu_budget_left(const struct gpu_budget *b);
/* Reserves bytes. *at: offset in the block; 0 without one. */
enum status gpu_budget_reserve(struct gpu_budget *b, uint64_t bytes, uint64_t *at);
/* Releases a reservation; the arguments are those of the reservation. */
void gpu_budget_release(struct gpu_budget *b, uint64_t at, uint64_t bytes);

#endif
