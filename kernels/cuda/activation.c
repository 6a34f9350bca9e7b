/* kernels/cuda/activation.c - sigmoid, tanh, gelu, silu and leaky_relu by kernels of ours. The
 * gradient is computed from the input, so the output is a tensor of its own. */
#include "kernels/cuda/plan.h"
#include "kernels/cuda/rows.h"

static enum status activation_plan(struct cuda_plan *plan, int i)
{
    return cuda_output_take(plan, &plan->ops[i]);
}

static struct cuda_activation activation_of(const struct cuda_pass *pass, const struct cuda_op *op)
{
    static const enum cuda_activation_kind kind[LAYER_N_KINDS] = {[LAYER_SIGMOID] = CUDA_SIGMOID,
                                                                  [LAYER_TANH] = CUDA_TANH,
                                                                  [LAYER_GELU] = CUDA_GELU,
                                                                  [LAYER_SILU] = CUDA_SILU,
                                                                  [LAYER_LEAKY_RELU] =
                                                                      CUDA_LEAKY_RELU};
    return (struct cuda_activation){.kind = kind[op->layer->kind],
                                    .slope = op->layer->slope,
                                    .n = pass->n * shape_elems(&op->layer->out)};
}

static enum status activation_forward(struct cuda_pass *pass, int i, int train)
{
    const struct cuda_op *op = &pass->plan->ops[i];
    struct cuda_activation a = activation_of(pass, op);
    return cuda_check_kernel(op, "activation kernel",
                             cuda_activation_forward(pass->plan->compute, &a, *op->x, *op->y));
}

static enum status activation_backward(struct cuda_pass *pass, int i)
{
    const struct cuda_op *op = &pass->plan->ops[i];
    struct cuda_activation a = activation_of(pass, op);
    if (!op->needs_dx)
        return ST_OK;
    return cuda_check_kernel(
        op, "activation gradient kernel",
        cuda_activation_backward(pass->plan->compute, &a, *op->x, *op->dy, *op->dx));
}

const struct cuda_kind cuda_activation = {
    activation_plan, NULL, activation_forward, activation_backward, CUDA_DIFF_IN_PLACE, 0};
