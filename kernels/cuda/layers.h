/* kernels/cuda/layers.h - what a layer's forward and backward queue on the stream `compute`: one by
 * one, or as CUDA graphs (kernels/tuning.h: capture); see layers.c.
 * Owns:    the graphs.
 * Threads: as the plan's. Errors: the plan's; what cannot be captured is queued one by one. */
#ifndef KERNELS_CUDA_LAYERS_H
#define KERNELS_CUDA_LAYERS_H
#include "base/status.h"

struct cuda_plan;

/* Without the tuning, and for plans that have no use for it, there is nothing to create. */
enum status cuda_capture_create(struct cuda_plan *plan);
void cuda_capture_destroy(struct cuda_plan *plan);
/* What was captured is not what would be queued now: it is not used any more. */
void cuda_capture_invalidate(const struct cuda_plan *plan);

/* 1: a graph that was launched for a layer before has it in it, and there is nothing to queue. */
int cuda_layer_forward_is_queued(struct cuda_plan *plan, int layer, int train);
int cuda_layer_backward_is_queued(struct cuda_plan *plan, int layer);
/* Else; the device is the current one. */
enum status cuda_layer_forward(struct cuda_plan *plan, int layer, int train);
/* Up to its gradients, which plan->ready[layer] stands for. */
enum status cuda_layer_backward(struct cuda_plan *plan, int layer);

#endif
