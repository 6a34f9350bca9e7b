/* kernels/cuda/plan/branch.h - lanes, and the second stream of a plan's backward (kernels/tuning.h:
 * branches); see branch.c. A lane is a stream with the buffers and handles that a product needs.
 * Owns: the second stream, its handles and events. The lanes' device memory belongs to the plan's
 * arena.
 * Threads: as for the plan. Errors: the plan's; too little memory for a second lane is logged and
 *          is no error. */
#ifndef KERNELS_CUDA_PLAN_BRANCH_H
#define KERNELS_CUDA_PLAN_BRANCH_H
#include "kernels/cuda/plan/plan.h"

/* A lane. Products that are queued on two lanes may run in parallel, because each lane writes only
 * to its own memory. The sizes of the buffers are in the plan. */
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

/* Reserves memory for a second lane in the arena, after all other reservations. Reserves nothing if
 * the plan's tuning flags lack TUNING_BRANCHES, or if the plan cannot use a second lane. */
enum status gpu_branch_plan(struct gpu_plan *plan);
/* Creates the second lane. Called when the arena is bound. */
enum status gpu_branch_create(struct gpu_plan *plan);
void gpu_branch_destroy(struct gpu_plan *plan);
/* waits until the second lane's work has ended */
enum status gpu_branch_finish(const struct gpu_plan *plan);

/* Makes `compute` wait for the branches that read memory that the layer's backward writes. This is
 * the first of the four functions for a layer's backward; it is called before any of the layer's
 * work is queued. */
enum status gpu_branch_wait(struct gpu_plan *plan, int layer);
/* Returns the lane for the gradients with respect to the layer's parameters. Called when the
 * gradient with respect to the layer's output is queued. */
enum status gpu_branch_fork(struct gpu_plan *plan, int layer, struct gpu_lane *out);
/* Returns the stream that computes the gradients with respect to the layer's parameters. Called
 * when the layer's backward is queued. */
cudaStream_t gpu_branch_stream(const struct gpu_plan *plan, int layer);
/* Ends the layer's branch. Called when all work on the branch's stream that reads the gradients is
 * queued. In the last layer of the backward, `compute` also waits for all branches. */
enum status gpu_branch_join(struct gpu_plan *plan, int layer);

#endif
