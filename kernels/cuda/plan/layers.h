/* kernels/cuda/plan/layers.h - queues a layer's forward and backward on the stream `compute`: layer
 * by layer, or as CUDA graphs (kernels/tuning.h: capture); see layers.c. Owns: the graphs. Threads:
 * as for the plan. Errors: the plan's; layers that cannot be captured are queued one by one. */
#ifndef KERNELS_CUDA_PLAN_LAYERS_H
#define KERNELS_CUDA_PLAN_LAYERS_H
#include "base/status.h"

struct gpu_plan;

/* Prepares the CUDA graphs. Does nothing if the plan's tuning flags lack TUNING_CAPTURE, or if the
 * plan cannot use graphs. */
enum status gpu_layer_capture_create(struct gpu_plan *plan);
void gpu_layer_capture_destroy(struct gpu_plan *plan);
/* Discards the captured graphs. Called when steps from now on need other work than the graphs
 * contain. */
void gpu_layer_capture_invalidate(const struct gpu_plan *plan);

/* Returns 1 if the graph of an earlier layer included this layer, so that no work must be
 * queued. */
int gpu_layer_forward_is_queued(struct gpu_plan *plan, int layer, int train);
int gpu_layer_backward_is_queued(struct gpu_plan *plan, int layer);
/* Queues the layer's forward, which must not be part of a graph that is already queued. The caller
 * has selected the device. */
enum status gpu_layer_forward(struct gpu_plan *plan, int layer, int train);
/* Queues the backward until the gradients of this layer are computed; the event plan->ready[layer]
 * marks this point. */
enum status gpu_layer_backward(struct gpu_plan *plan, int layer);

#endif
