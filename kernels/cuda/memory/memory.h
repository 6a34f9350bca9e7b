/* kernels/cuda/memory/memory.h - the one place where this process takes and gives back device
 * memory. Each device has a budget (budget.h) that all plans on it share; set, it is a hard cap,
 * and can be taken from the device at once, so that other processes see it as used. Owns:    the
 * block of a device whose budget was taken at once, until it is set anew or the process ends.
 * Threads: any; name the device first (cudaSetDevice). Errors: see each. */
#ifndef KERNELS_CUDA_MEMORY_MEMORY_H
#define KERNELS_CUDA_MEMORY_MEMORY_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* limit 0: none. ST_BUSY while memory of it is taken; ST_NOMEM if `reserve` cannot be had; logged.
 */
enum status gpu_memory_set_limit(int device, uint64_t limit, int reserve);
/* The most that one take could get now; *is_set: more is free, but not within the budget. The
 * backend's errors are logged. */
enum status gpu_memory_left(int device, uint64_t *out, int *is_set);
/* Aligned as cudaMalloc does. ST_NOMEM is not logged: the caller knows for which layer. */
enum status gpu_memory_alloc(int device, uint64_t bytes, void **out);
void gpu_memory_free(int device, void *at, uint64_t bytes); /* at NULL is fine */

/* For the line about memory that does not suffice: the card, what is free, who else uses it, and
 * what helps. is_set: a limit of ours is in the way. Begins with "; ". */
void gpu_memory_advice(int device, int is_set, char *dst, size_t bytes);
/* Who tells it who else uses a card; NULL: nobody. */
void gpu_memory_set_users(void (*users)(int device, char *dst, size_t bytes));

#endif
