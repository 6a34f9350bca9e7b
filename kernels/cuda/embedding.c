/* kernels/cuda/embedding.c - each cell's number, 255 times what the image has, becomes its row of a
 * table, along the channels. Numbers were checked when the input was set. */
#include "kernels/cuda/plan.h"
#include "kernels/cuda/rows.h"

static enum status embedding_plan(struct cuda_plan *plan, int i)
{
    return cuda_output_take(plan, &plan->ops[i]);
}

static struct cuda_embedding embedding_of(const struct cuda_pass *pass, const struct cuda_op *op)
{
    return (struct cuda_embedding){.n = pass->n,
                                   .cells = shape_elems(&op->layer->in),
                                   .units = op->layer->out.dim[0],
                                   .vocabulary = op->layer->vocabulary,
                                   .x = *op->x};
}

static enum status embedding_forward(struct cuda_pass *pass, int i, int train)
{
    const struct cuda_op *op = &pass->plan->ops[i];
    struct cuda_embedding e = embedding_of(pass, op);
    return cuda_check_kernel(op, "embedding kernel",
                             cuda_embedding_forward(pass->plan->compute, &e,
                                                    pass->plan->params[op->layer->param[0]].d,
                                                    *op->y));
}

static enum status embedding_backward(struct cuda_pass *pass, int i)
{
    const struct cuda_op *op = &pass->plan->ops[i];
    struct cuda_embedding e = embedding_of(pass, op);
    return cuda_check_kernel(
        op, "embedding gradient kernel",
        cuda_embedding_backward(pass->plan->compute, &e, *op->dy,
                                pass->plan->params[op->layer->param[0]].d_grad));
}

const struct cuda_kind cuda_embedding = {
    embedding_plan, NULL, embedding_forward, embedding_backward, CUDA_DIFF_APART, 0};
