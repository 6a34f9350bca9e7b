/* kernels/cuda/layers/loss.c - the losses at the end of a network; the forward also computes the
 * gradient. */
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/plan/plan.h"

static enum status loss_plan(struct gpu_plan *plan, int i)
{
    return gpu_plan_reserve_output(plan, &plan->ops[i]);
}

static enum status loss_forward(struct gpu_pass *pass, int i, int train)
{
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    struct gpu_softmax s = {.n = pass->n,
                            .classes = op->layer->in.dim[0],
                            .x = *op->x,
                            .labels = plan->has_labels && !plan->has_targets ? plan->d.label : NULL,
                            .targets = plan->has_targets ? plan->d_targets : NULL,
                            .y = *op->y,
                            .dx = op->dx != NULL ? *op->dx : NULL,
                            .loss = plan->d_result,
                            .hit = (int32_t *)(plan->d_result + pass->n),
                            .smoothing = train ? op->layer->smoothing : 0};
    switch (op->layer->kind) {
    case LAYER_SIGMOID_XENT:
        return gpu_check_kernel(op, "sigmoid kernel", gpu_loss_sigmoid(plan->compute, &s));
    case LAYER_SQUARED:
        return gpu_check_kernel(op, "squared error kernel", gpu_loss_squared(plan->compute, &s));
    default:
        return gpu_check_kernel(op, "softmax kernel", gpu_softmax_run(plan->compute, &s));
    }
}

static enum status loss_backward(struct gpu_pass *pass, int i)
{
    return ST_OK;
}

const struct gpu_kind gpu_loss = {loss_plan, NULL, loss_forward, loss_backward, 0, 0};
