/* kernels/cuda/memory/bind.h - allocates the memory that an arena requested, and divides it. bind.c
 * allocates one block. bind_separate.c, in a separate library for debugging, allocates each record
 * separately, with exactly its size: an access beyond a tensor is then out of bounds of its
 * allocation, which compute-sanitizer and the emulation detect. Threads: as memory.h. Errors:
 * ST_NOMEM is not logged. */
#ifndef KERNELS_CUDA_MEMORY_BIND_H
#define KERNELS_CUDA_MEMORY_BIND_H
#include "base/status.h"

struct gpu_arena;
enum status gpu_bind_arena(int device, struct gpu_arena *a);
void gpu_bind_undo(int device, struct gpu_arena *a); /* does nothing if the arena is not bound */

#endif
