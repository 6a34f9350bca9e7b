/* kernels/cuda/memory/memory.h - the only code that allocates and frees device memory. Each device
 * has a budget (budget.h), which all plans on it share. If a limit is set, the plans never allocate
 * more than the limit. The whole limit may be allocated at once, so that other processes see the
 * memory as used.
 * Owns:    the block of a budget that was allocated at once, until the limit changes or the process
 *          exits.
 * Threads: any; the caller selects the device first (cudaSetDevice).
 * Errors:  see each function. */
#ifndef KERNELS_CUDA_MEMORY_MEMORY_H
#define KERNELS_CUDA_MEMORY_MEMORY_H
#include "base/status.h"
#include <stddef.h>
#include <stdint.h>

/* Sets the limit; 0: no limit. ST_BUSY if memory is allocated now; ST_NOMEM if `reserve` fails;
 * logged. */
enum status gpu_memory_set_limit(int device, uint64_t limit, int reserve);
/* Returns the size of the largest allocation that is possible now. *is_set becomes true if only the
 * limit prevents a larger allocation: the device has more free memory. Errors of CUDA are
 * logged. */
enum status gpu_memory_left(int device, uint64_t *out, int *is_set);
/* Allocates memory with the alignment that cudaMalloc guarantees. ST_NOMEM is not logged: the
 * caller logs it with the layer. */
enum status gpu_memory_alloc(int device, uint64_t bytes, void **out);
void gpu_memory_free(int device, void *at, uint64_t bytes); /* does nothing if `at` is NULL */

/* Writes advice for the log line about too little memory: the GPU, its free memory, its other
 * users, and possible remedies. is_set: this process's limit is the cause. The text begins with ";
 * ". */
void gpu_memory_advice(int device, int is_set, char *dst, size_t bytes);
/* Sets the callback that writes a text about the other users of a GPU; NULL: these are not
 * known. */
void gpu_memory_set_users(void (*users)(int device, char *dst, size_t bytes));

#endif
