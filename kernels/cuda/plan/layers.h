/* kernels/cuda/plan/layers.h - what a layer's forward and backward queue on the stream `compute`:
 * one by one, or as CUDA graphs (kernels/tuning.h: capture); see layers.c. Owns:    the graphs.
 * Threads: as the plan's. Errors: the plan's; what cannot be captured is queued one by one. */
#ifndef KERNELS_CUDA_PLAN_LAYERS_H
#define KERNELS_CUDA_PLAN_LAYERS_H
#include "base/status.h"

struct gpu_plan;

/* Without the tuning, and for plans that have no use for it, there is nothing to create. */
enum status gpu_layer_capture_create(struct gpu_plan *plan);
void gpu_layer_capture_destroy(struct gpu_plan *plan);
/* What was captured is not what would be queued now: it is not used any more. */
void gpu_layer_capture_invalidate(const struct gpu_plan *plan);

/* 1: a graph that was launched for a layer before has it in it, and there is nothing to queue. */
int gpu_layer_forward_is_queued(struct gpu_plan *plan, int layer, int train);
int gpu_layer_backward_is_queued(struct gpu_plan *plan, int layer);
/* Else; the device is the current one. */
enum status gpu_layer_forward(struct gpu_plan *plan, int layer, int train);
/* Up to its gradients, which plan->ready[layer] stands for. */
enum status gpu_layer_backward(struct gpu_plan *plan, int layer);

#endif
