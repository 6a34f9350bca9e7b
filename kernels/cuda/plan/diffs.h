/* kernels/cuda/plan/diffs.h - assigns buffers to the gradients with respect to outputs, for as long
 * as each lives. A gradient lives from the backward of the last reader of its output to the
 * backward of the layer with that output; then its buffer is free. In a chain two buffers
 * alternate. The gradient of an output with several readers is the sum of their parts, added from
 * the last reader to the first. A buffer may hold several equal gradients (those of a sum's
 * inputs); no layer writes to it then. Needs no CUDA, so that it is tested on machines without.
 * Owns: its records. Threads: one at a time. Errors: ST_NOMEM, logged. */
#ifndef KERNELS_CUDA_PLAN_DIFFS_H
#define KERNELS_CUDA_PLAN_DIFFS_H
#include "kernels/graph.h"

/* Location of the gradient with respect to an input, relative to the gradient with respect to the
 * layer's output. */
enum gpu_diff_way {
    GPU_DIFF_APART,    /* separate buffer */
    GPU_DIFF_IN_PLACE, /* same buffer, or a separate one */
    GPU_DIFF_SAME,     /* same gradient, so it needs no buffer */
};

struct gpu_diff_buffer {
    int64_t elems;
    int users; /* gradients in it, while planning */
    float *d;  /* set by the arena */
};

/* Buffer numbers; -1: none. */
struct gpu_diff_edge {
    int dx;         /* gradient with respect to the input, written by the backward */
    int other, sum; /* sum = dx + other; both -1: dx is the first part of the gradient */
};

struct gpu_diff_op {
    enum gpu_diff_way way; /* set before planning; so is wants_dx */
    /* the backward computes the gradient with respect to the first input even if it is unused */
    int wants_dx;
    int given; /* exported layers: gradient from other plans, perhaps long before it is used */
    int own;   /* gradient from this plan's readers of an exported layer: dy = own + given */
    int dy;
    struct gpu_diff_edge edge[LAYER_MAX_INPUTS];
};

struct gpu_diffs {
    int n_buffers;
    struct gpu_diff_buffer *buffers;
    struct gpu_diff_op *ops; /* [n_layers] */
    /* [n_layers] buffer of the gradient with respect to the layer's output. When planning has
     * ended, only those of layers that other plans compute remain */
    int *value;
};

enum status gpu_diffs_create(int n_layers, struct gpu_diffs *d);
void gpu_diffs_destroy(struct gpu_diffs *d);
void gpu_diffs_plan(const struct backend_plan_config *cfg, const struct graph_node *node,
                    struct gpu_diffs *d);

#endif
