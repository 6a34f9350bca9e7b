/* kernels/cuda/resident/parts.h - the blocks into which the update kernel divides a plan's
 * parameters. Each block is inside one part (kernels/parts.h). Threads: any. Errors: none. */
#ifndef KERNELS_CUDA_RESIDENT_PARTS_H
#define KERNELS_CUDA_RESIDENT_PARTS_H
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/resident/steps.h"

/* Returns the number of elements of all parameters of the plan. */
int64_t gpu_parts_elems(const struct gpu_plan *plan);
/* Returns the number of blocks of the parameters before this one. */
int gpu_parts_before(const struct gpu_plan *plan, int param);
/* Returns the number of blocks. */
int gpu_parts_count(const struct gpu_plan *plan);
/* Lists all blocks of all parameters. The slots of consecutive blocks are adjacent. d_slots: for
 * each of the optimizer's slots (at most two), gpu_parts_elems floats. keep: [n_params] see struct
 * gpu_optim_part. */
void gpu_parts_list(const struct gpu_plan *plan, float *d_slots, const float *keep,
                    struct gpu_optim_part *out);

#endif
