/* kernels/cuda/layers/factorization.c - the factorization machine, by Weir's kernels. */
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/plan/plan.h"

static enum status factorization_plan(struct gpu_plan *plan, int i)
{
    return gpu_plan_reserve_output(plan, &plan->ops[i]);
}

static struct gpu_factorization columns_of(const struct gpu_pass *pass, const struct gpu_op *op)
{
    return (struct gpu_factorization){pass->n, op->layer->in.dim[0], op->layer->in.dim[2], *op->x};
}

static enum status factorization_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_factorization f = columns_of(pass, op);
    return gpu_check_kernel(op, "factorization kernel",
                            gpu_factorization_forward(pass->plan->compute, &f, *op->y));
}

static enum status factorization_backward(struct gpu_pass *pass, int i)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_factorization f = columns_of(pass, op);
    if (!op->needs_dx)
        return ST_OK;
    return gpu_check_kernel(op, "factorization gradient kernel",
                            gpu_factorization_backward(pass->plan->compute, &f, *op->dy, *op->dx));
}

const struct gpu_kind gpu_factorization_machine = {
    factorization_plan, NULL, factorization_forward, factorization_backward, GPU_DIFF_APART, 0};
