/* kernels/cuda/loss.c - what a network ends with; its gradient is worked out by the forward. */
#include "kernels/cuda/plan.h"
#include "kernels/cuda/rows.h"

static enum status loss_plan(struct cuda_plan *plan, int i)
{
    return cuda_output_take(plan, &plan->ops[i]);
}

static enum status loss_forward(struct cuda_pass *pass, int i, int train)
{
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    struct cuda_softmax s = {.n = pass->n,
                             .classes = op->layer->in.dim[0],
                             .x = *op->x,
                             .labels =
                                 plan->has_labels && !plan->has_targets ? plan->d.label : NULL,
                             .targets = plan->has_targets ? plan->d_targets : NULL,
                             .y = *op->y,
                             .dx = op->dx != NULL ? *op->dx : NULL,
                             .loss = plan->d_result,
                             .hit = (int32_t *)(plan->d_result + pass->n),
                             .smoothing = op->layer->smoothing};
    switch (op->layer->kind) {
    case LAYER_SIGMOID_XENT:
        return cuda_check_kernel(op, "sigmoid kernel", cuda_sigmoid_run(plan->compute, &s));
    case LAYER_SQUARED:
        return cuda_check_kernel(op, "squared error kernel", cuda_squared_run(plan->compute, &s));
    default:
        return cuda_check_kernel(op, "softmax kernel", cuda_softmax_run(plan->compute, &s));
    }
}

static enum status loss_backward(struct cuda_pass *pass, int i)
{
    return ST_OK;
}

const struct cuda_kind cuda_loss = {loss_plan, NULL, loss_forward, loss_backward, 0, 0};
