/* kernels/cuda/plan/branch.h - on which stream a product is queued, and with what of its own; and
 * the second stream of a plan's backward (kernels/tuning.h: branches), see branch.c. Owns:    the
 * second stream, its handles and events. What it uses of the card is the plan's arena's. Threads:
 * as the plan's. Errors: the plan's; no memory for it is none: a line says so. */
#ifndef KERNELS_CUDA_PLAN_BRANCH_H
#define KERNELS_CUDA_PLAN_BRANCH_H
#include "kernels/cuda/plan/plan.h"

/* Two products may be under way at once if they are queued by two lanes: these share nothing that
 * is written. Sizes are the plan's. */
struct gpu_lane {
    const struct gpu_plan *plan;
    cudaStream_t stream;
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    void *workspace, *blas_workspace;
    float *scratch;
    uint16_t *cast[GPU_N_CASTS];
};
struct gpu_lane gpu_branch_main_lane(const struct gpu_plan *plan); /* `compute` */

/* Asks the arena for what a second lane needs, when all else is asked for. Without the tuning, and
 * for plans that have no use for it, there is nothing to ask. */
enum status gpu_branch_plan(struct gpu_plan *plan);
/* When the arena is bound. */
enum status gpu_branch_create(struct gpu_plan *plan);
void gpu_branch_destroy(struct gpu_plan *plan);
enum status gpu_branch_finish(const struct gpu_plan *plan); /* waits for all of it */

/* A layer's backward, in this order:
 * before anything is queued: `compute` waits for branches that read what it writes. */
enum status gpu_branch_wait(struct gpu_plan *plan, int layer);
/* The gradient by its output is there: the lane for those by its parameters. */
enum status gpu_branch_fork(struct gpu_plan *plan, int layer, struct gpu_lane *out);
/* Where these are, when its backward is queued. */
cudaStream_t gpu_branch_stream(const struct gpu_plan *plan, int layer);
/* All that is to follow them there is queued, too. Behind the last layer `compute` waits for all.
 */
enum status gpu_branch_join(struct gpu_plan *plan, int layer);

#endif
