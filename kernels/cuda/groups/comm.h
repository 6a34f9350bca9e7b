/* kernels/cuda/groups/comm.h - sums across GPUs by NCCL's communicators, one per GPU, all in one
 * process. Implemented in comm.c, or in comm_absent.c if the build has no nccl.h.
 *
 * A single call queues a sum on all GPUs. So no GPU waits for a sum that is not queued on another
 * GPU, even if the thread that drives the other GPU has failed.
 *
 * NCCL creates a connection when a sum first needs it, and may wait for it forever. So the
 * communicators here are non-blocking, and each call ends after gpu_comm_limit_ms or a cancel.
 * Threads: one call at a time; gpu_comm_cancel: any.
 * Errors:  logged here. ST_INTERNAL: an error of NCCL or CUDA. */
#ifndef KERNELS_CUDA_GROUPS_COMM_H
#define KERNELS_CUDA_GROUPS_COMM_H
#include "base/status.h"
#include <cuda_runtime_api.h>
#include <stdint.h>

struct gpu_comm;
extern int gpu_comm_limit_ms; /* default 30 s; tests set a lower limit */
/* Creates communicators for n different devices, and runs one small sum, so that connections exist
 * when the function returns. ST_UNSUPPORTED (no NCCL), ST_DEADLINE, ST_INTERNAL. Changes the
 * current device. */
enum status gpu_comm_create(const int *devices, int n, struct gpu_comm **out);
void gpu_comm_destroy(struct gpu_comm *comm); /* NULL is fine */

/* Queues a reduce-scatter. Each GPU has a buffer of n parts of `share` floats; part i of the sum of
 * all buffers is written to part i of the buffer of GPU i. streams: one per GPU. ST_DEADLINE,
 * logged: it was not queued in time. ST_CANCELLED. After an error only gpu_comm_abort may be
 * called; later sums return ST_INTERNAL. */
enum status gpu_comm_reduce_scatter(struct gpu_comm *comm, float *const *buffers, int64_t share,
                                    const cudaStream_t *streams);
/* Queues an all-gather: part i of the i-th GPU's buffer is written to part i of all buffers. The
 * errors are the same. */
enum status gpu_comm_all_gather(struct gpu_comm *comm, float *const *buffers, int64_t share,
                                const cudaStream_t *streams);
/* Returns an error if NCCL has noticed one since the last check, or a call has failed. */
enum status gpu_comm_check(const struct gpu_comm *comm);
/* Makes current and later calls stop waiting for NCCL's connections. */
void gpu_comm_cancel(struct gpu_comm *comm);
/* Aborts queued sums. Afterwards only gpu_comm_destroy may be called. NCCL does not return while
 * CUDA graphs contain sums. */
void gpu_comm_abort(struct gpu_comm *comm);

#endif
