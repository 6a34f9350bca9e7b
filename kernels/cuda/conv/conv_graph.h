/* kernels/cuda/conv/conv_graph.h - the products of a convolution with channels last, by the graphs
 * of cuDNN's backend API: --gpu_tuning=nhwc. Forward is one graph with its bias and relu where
 * cuDNN has an engine for that, else the convolution alone. Of the engine configurations that its
 * heuristics propose (mode A, then those that are to work where nothing better does) the first is
 * taken that `precision` and `deterministic` allow, that finalizes, and whose workspace fits; if it
 * fails when it is run, the next.
 * Tensors: images [n][h][w][c], filters [k][r][s][c] and biases, as floats or bf16 by the plan's
 * precision.
 * Owns:    nothing: the descriptors are the pass's.
 * Threads: the plan's.
 * Errors:  that there is no engine is none, and said once: conv_algo.h is the other way. */
#ifndef KERNELS_CUDA_CONV_CONV_GRAPH_H
#define KERNELS_CUDA_CONV_CONV_GRAPH_H
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/plan.h"

enum { GPU_CONV_GRAPH_MOST_PROPOSED = 48, GPU_CONV_GRAPH_MOST_TENSORS = 4 }; /* by a mode */

/* x: (n, c, h, w), w: (k, c, r, s), y: (n, k, p, q). */
struct gpu_conv_graph_shape {
    int x[4], w[4], y[4], pad[2], stride[2];
};

struct gpu_conv_graph {
    struct gpu_pass *pass;
    const struct gpu_op *op;
    struct gpu_conv_graph_shape shape;
    int way;       /* of conv_algo.h */
    int with_bias; /* forward: bias, and relu if there is one, are part of it */
    cudnnBackendDescriptor_t config[2 * GPU_CONV_GRAPH_MOST_PROPOSED]; /* as proposed */
    int n, next;                   /* from `next` on not tried */
    cudnnBackendDescriptor_t plan; /* taken; NULL: there is none */
    cudnnHandle_t handle;          /* for which `plan` is */
    cudnnStatus_t absent;          /* why there is none */
    cudnnBackendDescriptor_t pack; /* of these pointers; NULL: not yet */
    const void *pointer[GPU_CONV_GRAPH_MOST_TENSORS];
};

/* relu: forward: there is one to be part of it. `out` stays where it is as long as the pass. */
enum status gpu_conv_graph_prepare(struct gpu_pass *pass, const struct gpu_op *op,
                                   const struct gpu_conv_graph_shape *shape, int way, int relu,
                                   struct gpu_conv_graph *out);
/* Queues it by the lane, always the same one: from in[0] and in[1] to `to`, in the order of
 * gpu_conv_algo_run; in[2]: forward's bias. *done 0: no engine is left, and nothing was queued. */
enum status gpu_conv_graph_run(struct gpu_conv_graph *g, const struct gpu_lane *lane,
                               const void *const in[3], void *to, int *done);

#endif
