/* kernels/cuda/memory/bind.c - binds an arena to one block of device memory. */
#include "kernels/cuda/memory/bind.h"
#include "kernels/cuda/memory/arena.h"
#include "kernels/cuda/memory/memory.h"

enum status gpu_bind_arena(int device, struct gpu_arena *a)
{
    enum status st = gpu_memory_alloc(device, a->bytes, &a->block);
    if (st == ST_OK)
        gpu_arena_bind(a, a->block);
    return st;
}

void gpu_bind_undo(int device, struct gpu_arena *a)
{
    gpu_memory_free(device, a->block, a->bytes);
    a->block = NULL;
}
