/* kernels/cuda/layers/channel_sum.c - the sum over the channels of each sample, or over all values
 * of a flat input, by Weir's kernels. */
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/plan/plan.h"

static enum status sum_plan(struct gpu_plan *plan, int i)
{
    return gpu_plan_reserve_output(plan, &plan->ops[i]);
}

static struct gpu_channel_sum sums_of(const struct gpu_pass *pass, const struct gpu_op *op)
{
    return (struct gpu_channel_sum){pass->n, op->layer->in.dim[0], shape_elems(&op->layer->out)};
}

static enum status sum_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_channel_sum s = sums_of(pass, op);
    return gpu_check_kernel(op, "channel sum kernel",
                            gpu_channel_sum_forward(pass->plan->compute, &s, *op->x, *op->y));
}

static enum status sum_backward(struct gpu_pass *pass, int i)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_channel_sum s = sums_of(pass, op);
    if (!op->needs_dx)
        return ST_OK;
    return gpu_check_kernel(op, "channel sum gradient kernel",
                            gpu_channel_sum_backward(pass->plan->compute, &s, *op->dy, *op->dx));
}

const struct gpu_kind gpu_channel_sum = {sum_plan,     NULL,           sum_forward,
                                         sum_backward, GPU_DIFF_APART, 0};
