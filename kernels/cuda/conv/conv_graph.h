/* kernels/cuda/conv/conv_graph.h - for --gpu_tuning=nhwc, computes the products of a convolution
 * with channels last by graphs of cuDNN's backend API. The graph of the forward includes bias and
 * relu if cuDNN has an engine for all three, otherwise only the convolution. cuDNN's heuristics
 * propose configurations of engines (mode A, then the fallback mode). The chosen configuration is
 * the first one that `precision` and `deterministic` allow, that can be finalized, and whose
 * workspace fits. If this configuration fails when it runs, the next one is tried. Tensors: images
 * [n][h][w][c], filters [k][r][s][c] and biases, floats or bf16 by `precision`.
 * Owns:    nothing: the pass owns the descriptors.
 * Threads: the plan's.
 * Errors:  a missing engine is no error; it is logged once, and conv_algo.h computes instead. */
#ifndef KERNELS_CUDA_CONV_CONV_GRAPH_H
#define KERNELS_CUDA_CONV_CONV_GRAPH_H
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/plan.h"

/* MOST_PROPOSED: highest number of proposals for each mode of the heuristics. */
enum { GPU_CONV_GRAPH_MOST_PROPOSED = 48, GPU_CONV_GRAPH_MOST_TENSORS = 4 };

/* Dimensions of the tensors. x: (n, c, h, w), w: (k, c, r, s), y: (n, k, p, q). */
struct gpu_conv_graph_shape {
    int x[4], w[4], y[4], pad[2], stride[2];
};

struct gpu_conv_graph {
    struct gpu_pass *pass;
    const struct gpu_op *op;
    struct gpu_conv_graph_shape shape;
    int way;       /* index of the product: see conv_algo.h */
    int with_bias; /* forward: the graph includes the bias and, if there is one, the relu */
    cudnnBackendDescriptor_t config[2 * GPU_CONV_GRAPH_MOST_PROPOSED]; /* cuDNN's proposals */
    /* n: number of configurations; next: index of the first one that was not tried yet */
    int n, next;
    cudnnBackendDescriptor_t plan; /* execution plan of the chosen configuration; NULL: none */
    cudnnHandle_t handle;          /* handle that `plan` was finalized for */
    cudnnStatus_t absent;          /* reason why there is no plan */
    cudnnBackendDescriptor_t pack; /* variant pack of `pointer`; NULL: not created yet */
    const void *pointer[GPU_CONV_GRAPH_MOST_TENSORS];
};

/* Chooses the engine. relu: the graph of a forward may include a relu. `out` must keep its address
 * while the pass exists. */
enum status gpu_conv_graph_prepare(struct gpu_pass *pass, const struct gpu_op *op,
                                   const struct gpu_conv_graph_shape *shape, int way, int relu,
                                   struct gpu_conv_graph *out);
/* Queues the product on the lane. All calls for one product must use the same lane. in[0] and
 * in[1]: operands, in the order of gpu_conv_algo_run; in[2]: bias, in a forward; `to`: result.
 * *done becomes 0 if no engine is left to try; then nothing was queued. */
enum status gpu_conv_graph_run(struct gpu_conv_graph *g, const struct gpu_lane *lane,
                               const void *const in[3], void *to, int *done);

#endif
