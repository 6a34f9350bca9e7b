/* kernels/cuda/layers/embedding.c - replaces each cell's number (255 times the value of the image)
 * by the row with this number in a table; a cell's row is stored along the channels. The numbers
 * were checked when the input was set. */
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/plan/plan.h"

static enum status embedding_plan(struct gpu_plan *plan, int i)
{
    return gpu_plan_reserve_output(plan, &plan->ops[i]);
}

static struct gpu_embedding embedding_of(const struct gpu_pass *pass, const struct gpu_op *op)
{
    return (struct gpu_embedding){.n = pass->n,
                                  .cells = shape_elems(&op->layer->in),
                                  .units = op->layer->out.dim[0],
                                  .vocabulary = op->layer->vocabulary,
                                  .x = *op->x};
}

static enum status embedding_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_embedding e = embedding_of(pass, op);
    return gpu_check_kernel(op, "embedding kernel",
                            gpu_embedding_forward(pass->plan->compute, &e,
                                                  pass->plan->params[op->layer->param[0]].d,
                                                  *op->y));
}

static enum status embedding_backward(struct gpu_pass *pass, int i)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_embedding e = embedding_of(pass, op);
    return gpu_check_kernel(op, "embedding gradient kernel",
                            gpu_embedding_backward(pass->plan->compute, &e, *op->dy,
                                                   pass->plan->params[op->layer->param[0]].d_grad));
}

const struct gpu_kind gpu_embedding = {embedding_plan,     NULL,           embedding_forward,
                                       embedding_backward, GPU_DIFF_APART, 0};
