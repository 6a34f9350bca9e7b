/* kernels/cuda/plan/transfer.h - copies a plan's parameters to the device, and its gradients to the
 * host; see transfer.c.
 * Owns:    the events of these copies, the pinned ranges and the staging memory, which are fields
 * of the plan. Threads: as for the plan. Errors: the plan's. */
#ifndef KERNELS_CUDA_PLAN_TRANSFER_H
#define KERNELS_CUDA_PLAN_TRANSFER_H
#include "kernels/cuda/plan/plan.h"

/* Creates an event without timing. */
enum status gpu_transfer_event_create(const struct gpu_op *op, cudaEvent_t *out);
enum status gpu_transfer_create(struct gpu_plan *plan);
void gpu_transfer_destroy(struct gpu_plan *plan);
enum status gpu_transfer_upload(struct gpu_plan *plan, int param);
enum status gpu_transfer_upload_part(struct gpu_plan *plan, int param, int64_t part);
/* Makes `compute` wait for the layer's parameters. */
enum status gpu_transfer_wait_params(struct gpu_plan *plan, int layer, unsigned flags);
/* Queues the copies of the layer's gradients after ready[layer], part by part. */
enum status gpu_transfer_download(struct gpu_plan *plan, int layer);
/* Queues the copy of one part of a gradient of floats, after the event ready[layer]. The parts are
 * copied in their order. */
enum status gpu_transfer_fetch(struct gpu_plan *plan, int param, int64_t part);
enum status gpu_transfer_wait_download(struct gpu_plan *plan, int layer);
/* Waits for one part of a gradient. */
enum status gpu_transfer_wait_part(struct gpu_plan *plan, int param, int64_t part);
/* Queues the check of the layer's gradients on the stream that computes them, if the plan has
 * parts. gpu_transfer_checked waits for it and returns its result (parts_ops.check). */
enum status gpu_transfer_check(struct gpu_plan *plan, int layer);
enum status gpu_transfer_checked(struct gpu_plan *plan, int layer, bool *suspect);
/* Queues the copy of elements [lo, hi) of a gradient to the host, on `down`. d: address of element
 * 0, even if that element is not copied. When the copy has ended, gpu_transfer_download_place moves
 * the staged elements. */
enum status gpu_transfer_download_part(struct gpu_plan *plan, int param, const void *d, int64_t lo,
                                       int64_t hi);
void gpu_transfer_download_place(struct gpu_plan *plan, int param, int64_t lo, int64_t hi);
enum status gpu_transfer_read_param(struct gpu_plan *plan, int param, float *dst);

#endif
