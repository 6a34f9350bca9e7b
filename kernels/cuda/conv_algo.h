/* kernels/cuda/conv_algo.h - the three products of a convolution (forward, the gradients of weights
 * and of the input), each by one of the algorithms that cuDNN has for it. Of those that it proposes
 * the fastest that fits is taken; if it fails when it is run, the next one.
 * TUNING_MEASURE, without `deterministic`: when a way is first run, cuDNN times its algorithms on
 * the tensors of that run, and what it finds replaces what it proposed. Then all memory is there,
 * and holds what it will hold; what cuDNN writes over meanwhile, the run writes next. Within the
 * workspace that was planned by the proposals, which is larger for it. Not while a graph is
 * captured: a first run never is.
 * Owns:    nothing: the descriptors are the pass's.
 * Threads: the plan's.
 * Errors:  ST_UNSUPPORTED, or what the arena says when it is full, for no algorithm that fits;
 * logged with the layer. */
#ifndef KERNELS_CUDA_CONV_ALGO_H
#define KERNELS_CUDA_CONV_ALGO_H
#include "kernels/cuda/algo.h"
#include "kernels/cuda/branch.h"
#include "kernels/cuda/plan.h"

enum { CUDA_CONV_MAX_ALGOS = 16 };
enum { CUDA_CONV_FORWARD, CUDA_CONV_BACKWARD_W, CUDA_CONV_BACKWARD_X, CUDA_CONV_N_WAYS };

/* One of the three, with what cuDNN proposes or found for it, fastest first; `now` is taken. */
struct cuda_conv_way {
    cudnnConvolutionDescriptor_t d; /* of its own, for its math */
    struct cuda_algo list[CUDA_CONV_MAX_ALGOS];
    struct {
        int algo;
        cudnnMathType_t math;
    } proposal[CUDA_CONV_MAX_ALGOS];
    int n, now;
    int measure; /* before the next run */
};

struct cuda_conv_algos {
    struct cuda_plan *plan;
    struct cuda_op *op;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    struct cuda_conv_way way[CUDA_CONV_N_WAYS];
};

/* Chooses the algorithm of one way; all but `way` is set. */
enum status cuda_conv_prepare(struct cuda_pass *pass, struct cuda_conv_algos *c, const int pad[2],
                              int which);
/* Workspace that one algorithm may use; and, while planning, that one was taken which uses so much.
 */
uint64_t cuda_conv_workspace_limit(const struct cuda_plan *plan);
void cuda_conv_workspace_want(struct cuda_plan *plan, uint64_t bytes);
/* Queues it by the lane: from a and b to `to`, in cuDNN's order. */
enum status cuda_conv_run(struct cuda_conv_algos *c, const struct cuda_lane *lane, int which,
                          const void *a, const void *b, void *to);

#endif
