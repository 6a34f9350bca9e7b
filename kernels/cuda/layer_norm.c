/* kernels/cuda/layer_norm.c - normalization over all values of a sample, by kernels of ours. */
#include "kernels/cuda/plan.h"
#include "kernels/cuda/rows.h"

enum { GAMMA, BETA };

struct norm {
    float *mean, *inverse; /* [batch] of the last forward */
};

static enum status norm_plan(struct cuda_plan *plan, int i)
{
    enum status st = ST_OK;
    struct cuda_op *op = &plan->ops[i];
    uint64_t bytes = (uint64_t)plan->cfg.batch * sizeof(float);
    struct norm *c;
    TRY(cuda_state_create(op, sizeof *c, &c));
    TRY(cuda_output_take(plan, op));
    TRY(cuda_arena_take(&plan->arena, op->layer->name, "mean", bytes, &c->mean));
    TRY(cuda_arena_take(&plan->arena, op->layer->name, "deviation", bytes, &c->inverse));
done:
    return st;
}

static struct cuda_layer_norm norm_of(const struct cuda_pass *pass, const struct cuda_op *op)
{
    const struct norm *c = op->state;
    return (struct cuda_layer_norm){.n = pass->n,
                                    .elems = shape_elems(&op->layer->in),
                                    .epsilon = (double)op->layer->epsilon,
                                    .x = *op->x,
                                    .gamma = pass->plan->params[op->layer->param[GAMMA]].d,
                                    .mean = c->mean,
                                    .inverse = c->inverse};
}

static enum status norm_forward(struct cuda_pass *pass, int i, int train)
{
    const struct cuda_op *op = &pass->plan->ops[i];
    struct cuda_layer_norm l = norm_of(pass, op);
    return cuda_check_kernel(op, "layer norm kernel",
                             cuda_layer_norm_forward(pass->plan->compute, &l,
                                                     pass->plan->params[op->layer->param[BETA]].d,
                                                     *op->y));
}

static enum status norm_backward(struct cuda_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    struct cuda_layer_norm l = norm_of(pass, op);
    TRY(cuda_check_kernel(op, "layer norm parameters kernel",
                          cuda_layer_norm_params(plan->compute, &l, *op->dy,
                                                 plan->params[op->layer->param[GAMMA]].d_grad,
                                                 plan->params[op->layer->param[BETA]].d_grad)));
    if (op->needs_dx)
        TRY(cuda_check_kernel(op, "layer norm gradient kernel",
                              cuda_layer_norm_backward(plan->compute, &l, *op->dy, *op->dx)));
done:
    return st;
}

const struct cuda_kind cuda_layer_norm = {norm_plan,       NULL, norm_forward, norm_backward,
                                          CUDA_DIFF_APART, 0};
