/* kernels/cuda/memory/arena.h - the book of a plan's device memory: who asked for how much, under a
 * cap. All is asked for first, then one block is taken from the device and dealt out, so that a
 * plan either has all its memory or none, and nothing is taken while it runs. Knows no CUDA, so
 * that it is tested on machines without. Owns:    its records; not the memory, which bind.c takes
 * and gives back. Threads: one at a time. Errors:  ST_NOMEM; ST_RANGE beyond a cap that somebody
 * set; logged with the layer, the tensor, and the bytes wanted and left. */
#ifndef KERNELS_CUDA_MEMORY_ARENA_H
#define KERNELS_CUDA_MEMORY_ARENA_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

enum { GPU_ARENA_ALIGN = 256 };

struct gpu_arena_record {
    const char *layer, *what;
    uint64_t at, bytes, asked; /* bytes: asked, rounded up */
    void *where;               /* a pointer of any type, to be set */
    void *own;                 /* its own allocation; NULL: a part of the arena's block */
};

struct gpu_arena {
    uint64_t limit;   /* bytes; UINT64_MAX: none */
    enum status full; /* what is answered beyond it */
    uint64_t bytes;   /* asked for, rounded up */
    struct gpu_arena_record *records;
    int n_records, cap_records;
    void *block; /* what it is bound to (bind.c) */
    /* Writes what else is to be known of the memory when it does not suffice; NULL: nothing. */
    void (*more)(int device, int is_set, char *dst, size_t bytes);
    int device; /* for it */
};

/* is_set: the limit is a wish; 0: it is what the device has left, which may be more another time.
 */
void gpu_arena_init(struct gpu_arena *a, uint64_t limit, int is_set);
void gpu_arena_free(struct gpu_arena *a);

/* Asks for `bytes`; *where gets their place when the arena is bound and must stay valid until then.
 * layer and what are borrowed while the arena lives. */
enum status gpu_arena_reserve(struct gpu_arena *a, const char *layer, const char *what,
                              uint64_t bytes, void *where);
uint64_t gpu_arena_left(const struct gpu_arena *a);
/* base: a->bytes of memory, aligned to GPU_ARENA_ALIGN. */
void gpu_arena_bind(const struct gpu_arena *a, void *base);
/* The largest thing asked for, for a message; "" if there is none. */
void gpu_arena_largest(const struct gpu_arena *a, const char **layer, const char **what,
                       uint64_t *bytes);

#endif
