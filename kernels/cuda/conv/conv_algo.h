/* kernels/cuda/conv/conv_algo.h - runs the three products of a convolution (forward, gradients of
 * weights and of the input), each by one of cuDNN's algorithms: the fastest of the proposed
 * algorithms whose workspace fits. If this algorithm fails when it runs, the next one is tried. If
 * TUNING_MEASURE is set and `deterministic` is not, cuDNN times its algorithms when a product first
 * runs, on the tensors of that run, and the results replace the proposals. At that time all memory
 * is allocated and filled; after the trials, the run writes all results again that the trials have
 * overwritten. The trials use only the planned workspace, which is larger with this tuning. They
 * never run during a graph capture, because a first run is never captured.
 * Owns:    nothing: the pass owns the descriptors.
 * Threads: the plan's.
 * Errors:  no algorithm fits: ST_UNSUPPORTED, or the arena's error if it is full; logged with the
 *          layer. */
#ifndef KERNELS_CUDA_CONV_CONV_ALGO_H
#define KERNELS_CUDA_CONV_CONV_ALGO_H
#include "kernels/cuda/conv/algo.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/plan.h"

enum { GPU_CONV_MAX_ALGOS = 16 };
enum { GPU_CONV_FORWARD, GPU_CONV_BACKWARD_W, GPU_CONV_BACKWARD_X, GPU_CONV_N_WAYS };

/* One of the three products, with cuDNN's algorithms for it, fastest first; `now`: index of the
 * chosen algorithm. */
struct gpu_conv_way {
    /* a separate descriptor for this product, because it contains the math type */
    cudnnConvolutionDescriptor_t d;
    struct gpu_algo list[GPU_CONV_MAX_ALGOS];
    struct {
        int algo;
        cudnnMathType_t math;
    } proposal[GPU_CONV_MAX_ALGOS];
    int n, now;
    int measure; /* true: cuDNN must measure its algorithms before the next run */
};

struct gpu_conv_algos {
    struct gpu_plan *plan;
    struct gpu_op *op;
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    struct gpu_conv_way way[GPU_CONV_N_WAYS];
};

/* Chooses the algorithm of one product. The caller has set all fields of *c except `way`. */
enum status gpu_conv_algo_prepare(struct gpu_pass *pass, struct gpu_conv_algos *c, const int pad[2],
                                  int which);
/* Returns the limit on the workspace of one algorithm. */
uint64_t gpu_conv_algo_workspace_limit(const struct gpu_plan *plan);
void gpu_conv_algo_workspace_reserve(struct gpu_plan *plan, uint64_t bytes);
/* Queues the product on the lane: from a and b to `to`, in cuDNN's order. */
enum status gpu_conv_algo_run(struct gpu_conv_algos *c, const struct gpu_lane *lane, int which,
                              const void *a, const void *b, void *to);

#endif
