/* kernels/cuda/memory/bind.h - takes the memory that an arena has asked for, and deals it out.
 * bind.c: one block. bind_separate.c, in a library of its own for finding errors: an allocation for
 * each record, of exactly its bytes, so that what runs from one tensor into the next runs out of an
 * allocation, which compute-sanitizer and the emulation see.
 * Threads: as memory.h. Errors: ST_NOMEM is not logged. */
#ifndef KERNELS_CUDA_MEMORY_BIND_H
#define KERNELS_CUDA_MEMORY_BIND_H
#include "base/status.h"

struct gpu_arena;
enum status gpu_bind_arena(int device, struct gpu_arena *a);
void gpu_bind_undo(int device, struct gpu_arena *a); /* one that is not bound is fine */

#endif
