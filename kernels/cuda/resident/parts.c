/* kernels/cuda/resident/parts.c - see the header. */
#include "kernels/cuda/resident/parts.h"

int64_t gpu_parts_elems(const struct gpu_plan *plan)
{
    int64_t n = 0;
    for (int k = 0; k < plan->cfg.n_params; k++)
        n += plan->params[k].layer >= 0 ? plan->params[k].elems : 0;
    return n;
}

int gpu_parts_count(const struct gpu_plan *plan)
{
    int64_t n = 0;
    for (int k = 0; k < plan->cfg.n_params; k++)
        if (plan->params[k].layer >= 0)
            n += (plan->params[k].elems + GPU_OPTIM_ELEMS - 1) / GPU_OPTIM_ELEMS;
    return (int)n;
}

void gpu_parts_list(const struct gpu_plan *plan, float *d_slots, const float *keep,
                    struct gpu_optim_part *out)
{
    int n = 0;
    int64_t before = 0, all = gpu_parts_elems(plan);
    for (int k = 0; k < plan->cfg.n_params; k++) {
        const struct gpu_param *p = &plan->params[k];
        for (int64_t at = 0; p->layer >= 0 && at < p->elems; at += GPU_OPTIM_ELEMS) {
            int64_t left = p->elems - at;
            out[n++] = (struct gpu_optim_part){
                .p = p->d + at,
                .g = p->d_grad + at,
                .slot = {d_slots + before + at, d_slots + all + before + at},
                .n = (int32_t)(left < GPU_OPTIM_ELEMS ? left : GPU_OPTIM_ELEMS),
                .keep = keep[k],
            };
        }
        before += p->layer >= 0 ? p->elems : 0;
    }
}
