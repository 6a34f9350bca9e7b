/* kernels/cuda/plan/diffs.h - which buffers hold the gradients by outputs, and for how long.
 * A gradient lives from the backward of the last reader of its output to that of the layer whose
 * output it is; then its buffer is free for another. In a chain two buffers take turns. An output
 * with several readers has the sum of their parts, added from the last reader to the first. A
 * buffer may hold several gradients that are equal (the inputs of a sum); it is not written then.
 * Knows no CUDA, so that it is tested on machines without.
 * Owns:    its records. Threads: one at a time. Errors: ST_NOMEM, logged. */
#ifndef KERNELS_CUDA_PLAN_DIFFS_H
#define KERNELS_CUDA_PLAN_DIFFS_H
#include "kernels/graph.h"

/* How a layer's backward makes the gradient by an input of that by its output. */
enum gpu_diff_way {
    GPU_DIFF_APART,    /* in a buffer of its own */
    GPU_DIFF_IN_PLACE, /* where that one lies, or in a buffer of its own */
    GPU_DIFF_SAME,     /* it is that one */
};

struct gpu_diff_buffer {
    int64_t elems;
    int users; /* gradients in it, while planning */
    float *d;  /* set by the arena */
};

/* Buffers by number; -1: none. */
struct gpu_diff_edge {
    int dx;         /* what the backward makes */
    int other, sum; /* then sum = dx + other; -1: it is the first part */
};

struct gpu_diff_op {
    enum gpu_diff_way way; /* set before planning */
    int wants_dx;          /* likewise: by the first input, even if nobody needs it */
    int given;             /* exported: what other plans gave, maybe long before it is needed */
    int own;               /* if there are readers in this plan as well: dy = own + given */
    int dy;
    struct gpu_diff_edge edge[LAYER_MAX_INPUTS];
};

struct gpu_diffs {
    int n_buffers;
    struct gpu_diff_buffer *buffers;
    struct gpu_diff_op *ops; /* [n_layers] */
    int *value;              /* [n_layers] where the gradient by the layer's output is; at the end:
                                of layers that are not mine */
};

enum status gpu_diffs_create(int n_layers, struct gpu_diffs *d);
void gpu_diffs_destroy(struct gpu_diffs *d);
void gpu_diffs_plan(const struct backend_plan_config *cfg, const struct graph_node *node,
                    struct gpu_diffs *d);

#endif
