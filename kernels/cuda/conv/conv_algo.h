/* kernels/cuda/conv/conv_algo.h - the three products of a convolution (forward, the gradients of
 * weights and of the input), each by one of the algorithms that cuDNN has for it. Of those that it
 * proposes the fastest that fits is taken; if it fails when it is run, the next one.
 * TUNING_MEASURE, without `deterministic`: when a way is first run, cuDNN times its algorithms on
 * the tensors of that run, and what it finds replaces what it proposed. Then all memory is there,
 * and holds what it will hold; what cuDNN writes over meanwhile, the run writes next. Within the
 * workspace that was planned by the proposals, which is larger for it. Not while a graph is
 * captured: a first run never is.
 * Owns:    nothing: the descriptors are the pass's.
 * Threads: the plan's.
 * Errors:  ST_UNSUPPORTED, or what the arena says when it is full, for no algorithm that fits;
 * logged with the layer. */
#ifndef KERNELS_CUDA_CONV_CONV_ALGO_H
#define KERNELS_CUDA_CONV_CONV_ALGO_H
#include "kernels/cuda/conv/algo.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/plan.h"

enum { GPU_CONV_MAX_ALGOS = 16 };
enum { GPU_CONV_FORWARD, GPU_CONV_BACKWARD_W, GPU_CONV_BACKWARD_X, GPU_CONV_N_WAYS };

/* One of the three, with what cuDNN proposes or found for it, fastest first; `now` is taken. */
struct gpu_conv_way {
    cudnnConvolutionDescriptor_t d; /* of its own, for its math */
    struct gpu_algo list[GPU_CONV_MAX_ALGOS];
    struct {
        int algo;
        cudnnMathType_t math;
    } proposal[GPU_CONV_MAX_ALGOS];
    int n, now;
    int measure; /* before the next run */
};

struct gpu_conv_algos {
    struct gpu_plan *plan;
    struct gpu_op *op;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    struct gpu_conv_way way[GPU_CONV_N_WAYS];
};

/* Chooses the algorithm of one way; all but `way` is set. */
enum status gpu_conv_algo_prepare(struct gpu_pass *pass, struct gpu_conv_algos *c, const int pad[2],
                                  int which);
/* Workspace that one algorithm may use; and, while planning, that one was taken which uses so much.
 */
uint64_t gpu_conv_algo_workspace_limit(const struct gpu_plan *plan);
void gpu_conv_algo_workspace_reserve(struct gpu_plan *plan, uint64_t bytes);
/* Queues it by the lane: from a and b to `to`, in cuDNN's order. */
enum status gpu_conv_algo_run(struct gpu_conv_algos *c, const struct gpu_lane *lane, int which,
                              const void *a, const void *b, void *to);

#endif
