/* kernels/cuda/bind.c - see the header. */
#include "kernels/cuda/bind.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/memory.h"

enum status cuda_bind(int device, struct cuda_arena *a)
{
    enum status st = cuda_memory_take(device, a->bytes, &a->block);
    if (st == ST_OK)
        cuda_arena_bind(a, a->block);
    return st;
}

void cuda_unbind(int device, struct cuda_arena *a)
{
    cuda_memory_give(device, a->block, a->bytes);
    a->block = NULL;
}
