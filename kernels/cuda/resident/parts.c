/* kernels/cuda/resident/parts.c - counts and lists the blocks that parts.h describes. */
#include "kernels/cuda/resident/parts.h"

int64_t gpu_parts_elems(const struct gpu_plan *plan)
{
    int64_t n = 0;
    for (int k = 0; k < plan->cfg.n_params; k++)
        n += plan->params[k].layer >= 0 ? plan->params[k].elems : 0;
    return n;
}

/* Returns the number of elements of the part that begins at element `at` of a parameter. */
static int64_t length_at(const struct gpu_plan *plan, const struct gpu_param *p, int64_t at)
{
    int64_t cut = plan->parts.elems, end = p->elems;
    if (cut > 0 && at / cut * cut + cut < end)
        end = at / cut * cut + cut;
    return end - at < GPU_OPTIM_ELEMS ? end - at : GPU_OPTIM_ELEMS;
}

int gpu_parts_before(const struct gpu_plan *plan, int param)
{
    int n = 0;
    for (int k = 0; k < param; k++) {
        const struct gpu_param *p = &plan->params[k];
        for (int64_t at = 0; p->layer >= 0 && at < p->elems; n++)
            at += length_at(plan, p, at);
    }
    return n;
}

int gpu_parts_count(const struct gpu_plan *plan)
{
    return gpu_parts_before(plan, plan->cfg.n_params);
}

void gpu_parts_list(const struct gpu_plan *plan, float *d_slots, const float *keep,
                    struct gpu_optim_part *out)
{
    int n = 0;
    int64_t before = 0, all = gpu_parts_elems(plan);
    for (int k = 0; k < plan->cfg.n_params; k++) {
        const struct gpu_param *p = &plan->params[k];
        for (int64_t at = 0; p->layer >= 0 && at < p->elems; at += out[n++].n)
            out[n] = (struct gpu_optim_part){
                .p = p->d + at,
                .g = p->d_grad + at,
                .slot = {d_slots + before + at, d_slots + all + before + at},
                .n = (int32_t)length_at(plan, p, at),
                .keep = keep[k],
            };
        before += p->layer >= 0 ? p->elems : 0;
    }
}
