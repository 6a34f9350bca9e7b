/* kernels/cuda/plan/branch.h - lanes: a stream with the buffers and handles that a product needs;
 * and the second stream of a plan's backward (kernels/tuning.h: branches), see branch.c. Owns: the
 * second stream, its handles and events. Its device memory belongs to the plan's arena. Threads: as
 * for the plan. Errors: the plan's; too little memory for it is logged and is no error. */
#ifndef KERNELS_CUDA_PLAN_BRANCH_H
#define KERNELS_CUDA_PLAN_BRANCH_H
#include "kernels/cuda/plan/plan.h"

/* Products queued on two lanes may run in parallel: the lanes share no memory that is written.
 * Sizes are the plan's. */
struct gpu_lane {
    const struct gpu_plan *plan;
    cudaStream_t stream;
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    void *workspace, *blas_workspace;
    float *scratch;
    uint16_t *cast[GPU_N_CASTS];
};
struct gpu_lane gpu_branch_main_lane(const struct gpu_plan *plan); /* the lane of `compute` */

/* Reserves memory for a second lane in the arena, after all other reservations. Reserves nothing
 * without the tuning and for plans that cannot use it. */
enum status gpu_branch_plan(struct gpu_plan *plan);
/* Called when the arena is bound. */
enum status gpu_branch_create(struct gpu_plan *plan);
void gpu_branch_destroy(struct gpu_plan *plan);
enum status gpu_branch_finish(const struct gpu_plan *plan); /* waits until its work has ended */

/* The steps of a layer's backward, in this order. Before anything is queued: makes `compute` wait
 * for branches that read what the layer writes. */
enum status gpu_branch_wait(struct gpu_plan *plan, int layer);
/* When the gradient by its output is ready: returns the lane for the gradients by its
 * parameters. */
enum status gpu_branch_fork(struct gpu_plan *plan, int layer, struct gpu_lane *out);
/* When its backward is queued: returns the stream of these gradients. */
cudaStream_t gpu_branch_stream(const struct gpu_plan *plan, int layer);
/* When all work behind them on that stream is queued, too: ends the branch. Behind the last layer
 * `compute` waits for all branches. */
enum status gpu_branch_join(struct gpu_plan *plan, int layer);

#endif
