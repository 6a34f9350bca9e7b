/* kernels/cuda/layers/layer_norm.c - normalizes over all values of a sample, by Weir's kernels. */
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/plan/plan.h"

enum { GAMMA, BETA };

struct norm {
    float *mean, *inverse; /* [batch] statistics of the last forward */
};

static enum status norm_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    uint64_t bytes = (uint64_t)plan->cfg.batch * sizeof(float);
    struct norm *c;
    TRY(gpu_plan_state_create(op, sizeof *c, &c));
    TRY(gpu_plan_reserve_output(plan, op));
    TRY(gpu_arena_reserve(&plan->arena, op->layer->name, "mean", bytes, &c->mean));
    TRY(gpu_arena_reserve(&plan->arena, op->layer->name, "deviation", bytes, &c->inverse));
done:
    return st;
}

static struct gpu_layer_norm norm_of(const struct gpu_pass *pass, const struct gpu_op *op)
{
    const struct norm *c = op->state;
    return (struct gpu_layer_norm){.n = pass->n,
                                   .elems = shape_elems(&op->layer->in),
                                   .epsilon = (double)op->layer->epsilon,
                                   .x = *op->x,
                                   .gamma = pass->plan->params[op->layer->param[GAMMA]].d,
                                   .mean = c->mean,
                                   .inverse = c->inverse};
}

static enum status norm_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_layer_norm l = norm_of(pass, op);
    return gpu_check_kernel(op, "layer norm kernel",
                            gpu_layer_norm_forward(pass->plan->compute, &l,
                                                   pass->plan->params[op->layer->param[BETA]].d,
                                                   *op->y));
}

static enum status norm_backward(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    struct gpu_layer_norm l = norm_of(pass, op);
    TRY(gpu_check_kernel(op, "layer norm parameters kernel",
                         gpu_layer_norm_params(plan->compute, &l, *op->dy,
                                               plan->params[op->layer->param[GAMMA]].d_grad,
                                               plan->params[op->layer->param[BETA]].d_grad)));
    if (op->needs_dx)
        TRY(gpu_check_kernel(op, "layer norm gradient kernel",
                             gpu_layer_norm_backward(plan->compute, &l, *op->dy, *op->dx)));
done:
    return st;
}

const struct gpu_kind gpu_layer_norm = {norm_plan,     NULL,           norm_forward,
                                        norm_backward, GPU_DIFF_APART, 0};
