/* kernels/cuda/layers/activation.c - sigmoid, tanh, gelu, silu and leaky_relu by Weir's kernels.
 * The gradient is computed from the input, so the output must not overwrite the input's memory. */
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/plan/plan.h"

static enum status activation_plan(struct gpu_plan *plan, int i)
{
    return gpu_plan_reserve_output(plan, &plan->ops[i]);
}

static struct gpu_activation activation_of(const struct gpu_pass *pass, const struct gpu_op *op)
{
    static const enum gpu_activation_kind kind[LAYER_N_KINDS] = {[LAYER_SIGMOID] = GPU_SIGMOID,
                                                                 [LAYER_TANH] = GPU_TANH,
                                                                 [LAYER_GELU] = GPU_GELU,
                                                                 [LAYER_SILU] = GPU_SILU,
                                                                 [LAYER_LEAKY_RELU] =
                                                                     GPU_LEAKY_RELU};
    return (struct gpu_activation){.kind = kind[op->layer->kind],
                                   .slope = op->layer->slope,
                                   .n = pass->n * shape_elems(&op->layer->out)};
}

static enum status activation_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_activation a = activation_of(pass, op);
    return gpu_check_kernel(op, "activation kernel",
                            gpu_activation_forward(pass->plan->compute, &a, *op->x, *op->y));
}

static enum status activation_backward(struct gpu_pass *pass, int i)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_activation a = activation_of(pass, op);
    if (!op->needs_dx)
        return ST_OK;
    return gpu_check_kernel(
        op, "activation gradient kernel",
        gpu_activation_backward(pass->plan->compute, &a, *op->x, *op->dy, *op->dx));
}

const struct gpu_kind gpu_activation = {
    activation_plan, NULL, activation_forward, activation_backward, GPU_DIFF_IN_PLACE, 0};
