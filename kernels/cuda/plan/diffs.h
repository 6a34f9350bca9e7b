/* kernels/cuda/plan/diffs.h - assigns buffers to the gradients with respect to outputs. A gradient
 * needs its buffer from the backward of the last reader of the output until the backward of the
 * layer that computes the output; then the buffer is free. In a chain two buffers alternate. If an
 * output has several readers, its gradient is the sum of the readers' gradients, added from the
 * last reader to the first. A buffer may hold several equal gradients (with respect to the inputs
 * of a layer that adds); then no layer writes to it. This file needs no CUDA, so that it can be
 * tested on machines without CUDA.
 * Owns: its records. Threads: one at a time. Errors: ST_NOMEM, logged. */
#ifndef KERNELS_CUDA_PLAN_DIFFS_H
#define KERNELS_CUDA_PLAN_DIFFS_H
#include "kernels/graph.h"

/* Location of the gradient with respect to an input, relative to the gradient with respect to the
 * layer's output. */
enum gpu_diff_way {
    GPU_DIFF_APART,    /* separate buffer */
    GPU_DIFF_IN_PLACE, /* same buffer as that gradient, or a separate one */
    GPU_DIFF_SAME,     /* same gradient, so it needs no buffer */
};

struct gpu_diff_buffer {
    int64_t elems;
    int users; /* number of gradients that use the buffer; valid only while planning */
    float *d;  /* memory; set when the arena is bound */
};

/* Indices of buffers; -1: none. */
struct gpu_diff_edge {
    int dx; /* gradient with respect to the input, written by the backward */
    /* sum = dx + other, where `other` is the sum so far; both -1: this reader is the first */
    int other, sum;
};

struct gpu_diff_op {
    enum gpu_diff_way way; /* `way` and wants_dx are set before planning */
    /* the backward computes the gradient with respect to the first input even if no layer uses
     * it */
    int wants_dx;
    /* exported layers: buffer for the gradient from other plans, which may arrive long before it is
     * used */
    int given;
    /* exported layers: buffer for the gradient from this plan's readers, so dy = own + given */
    int own;
    int dy;
    struct gpu_diff_edge edge[LAYER_MAX_INPUTS];
};

struct gpu_diffs {
    int n_buffers;
    struct gpu_diff_buffer *buffers;
    struct gpu_diff_op *ops; /* [n_layers] */
    /* [n_layers] buffer of the gradient with respect to the layer's output. After planning, valid
     * only for layers that other plans compute */
    int *value;
};

enum status gpu_diffs_create(int n_layers, struct gpu_diffs *d);
void gpu_diffs_destroy(struct gpu_diffs *d);
void gpu_diffs_plan(const struct backend_plan_config *cfg, const struct graph_node *node,
                    struct gpu_diffs *d);

#endif
