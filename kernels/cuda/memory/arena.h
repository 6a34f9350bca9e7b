/* kernels/cuda/memory/arena.h - records a plan's requests for device memory, under a limit. All
 * requests are made first. Then one block is allocated on the device and divided, so that a plan
 * has either all its memory or none, and allocates no memory while it runs. This file needs no
 * CUDA, so that it can be tested on machines without CUDA.
 * Owns:    its records; not the memory, which bind.c allocates and frees.
 * Threads: one at a time.
 * Errors:  ST_NOMEM; ST_RANGE beyond a limit that the operator set; logged with the layer, the
 *          tensor, the bytes requested and the bytes left. */
#ifndef KERNELS_CUDA_MEMORY_ARENA_H
#define KERNELS_CUDA_MEMORY_ARENA_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { GPU_ARENA_ALIGN = 256 };

struct gpu_arena_record {
    const char *layer, *what;
    uint64_t at, bytes, asked; /* bytes: `asked` rounded up */
    void *where; /* address of a pointer of any type, which is set when the arena is bound */
    /* memory of a separate allocation (bind_separate.c); NULL: the memory is part of the arena's
     * block */
    void *own;
};

struct gpu_arena {
    uint64_t limit;   /* limit in bytes; UINT64_MAX: none */
    enum status full; /* status that a request beyond the limit returns */
    uint64_t bytes;   /* sum of the requests, rounded up */
    struct gpu_arena_record *records;
    int n_records, cap_records;
    void *block; /* the device memory that bind.c allocated for the arena */
    /* Writes further advice for the log line about too little memory. May be NULL. */
    void (*more)(int device, int is_set, char *dst, size_t bytes);
    int device; /* first argument of `more` */
};

/* Makes an arena without records. is_set 1: the operator set the limit; 0: the limit is the
 * device's free memory, which may increase. */
void gpu_arena_init(struct gpu_arena *a, uint64_t limit, int is_set);
void gpu_arena_free(struct gpu_arena *a);

/* Requests `bytes`. *where receives the address when the arena is bound, and must stay valid until
 * then. layer and what are borrowed while the arena exists. */
enum status gpu_arena_reserve(struct gpu_arena *a, const char *layer, const char *what,
                              uint64_t bytes, void *where);
uint64_t gpu_arena_left(const struct gpu_arena *a);
/* Sets the pointers of all requests. base: a->bytes of memory, aligned to GPU_ARENA_ALIGN. */
void gpu_arena_bind(const struct gpu_arena *a, void *base);
/* Returns the layer and the tensor of the largest request, for a message; "" if there are no
 * requests. */
void gpu_arena_largest(const struct gpu_arena *a, const char **layer, const char **what,
                       uint64_t *bytes);

#endif
