/* kernels/cuda/groups/comm.h - sums across cards: NCCL's communicators of one process, one a card.
 * comm.c, or comm_absent.c where the build had no nccl.h.
 *
 * All cards' parts of a sum are queued by one call of one thread: a card never waits for a sum that
 * another was not asked for, whatever becomes of the thread that drives the other.
 *
 * NCCL makes a connection when a sum first needs it, and may wait for it for ever; so its
 * communicators do not block, and each call here ends after gpu_comm_limit_ms, or when cancelled.
 *
 * Threads: calls follow one another; cancel: any.
 * Errors:  logged here. ST_INTERNAL: NCCL's or CUDA's. */
#ifndef KERNELS_CUDA_GROUPS_COMM_H
#define KERNELS_CUDA_GROUPS_COMM_H
#include "base/status.h"
#include <cuda_runtime_api.h>
#include <stdint.h>

struct gpu_comm;
extern int gpu_comm_limit_ms; /* 30 s; a test that waits for it sets less */
/* devices: n different ones. Has added one small sum when it returns, so that all connections are
 * made. deterministic: NCCL's ring and its simple protocol, unless NCCL_ALGO and NCCL_PROTO say
 * otherwise. ST_UNSUPPORTED (there is no NCCL), ST_DEADLINE, ST_INTERNAL. The current device is
 * another one afterwards. */
enum status gpu_comm_create(const int *devices, int n, int deterministic, struct gpu_comm **out);
void gpu_comm_destroy(struct gpu_comm *comm); /* NULL is fine */

/* Queues: part i (`share` floats) of the sum of all cards' buffers (n parts each) comes to be where
 * part i of the i-th card's buffer lies. streams: one a card. ST_DEADLINE, logged: it could not be
 * queued in time. ST_CANCELLED. Only abort may follow an error. */
enum status gpu_comm_reduce_scatter(struct gpu_comm *comm, float *const *buffers, int64_t share,
                                    const cudaStream_t *streams);
/* What NCCL noticed since; called when the sums are through. */
enum status gpu_comm_check(const struct gpu_comm *comm);
/* Whoever waits in a call for NCCL's connections does so no longer, now and later. */
void gpu_comm_cancel(struct gpu_comm *comm);
/* Ends what is queued, done or not; nothing but destroy may follow. */
void gpu_comm_abort(struct gpu_comm *comm);

#endif
