/* kernels/cuda/dense.c - the fully connected layer by cuBLAS; bias and a relu behind it by one
 * kernel of ours. cuBLAS counts matrices by columns: our rows (n, F) are its columns (F, n). */
#include "base/log.h"
#include "kernels/cuda/plan.h"

struct dense {
    int relu;
};

static const float one = 1.0f, zero = 0.0f;

static enum status dense_plan(struct cuda_plan *plan, int i)
{
    enum status st = ST_OK;
    struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct dense *c;
    if (l->in.n_dims != 1 || l->out.n_dims != 1) {
        LOG_E("layer '%s': a dense layer needs a flat input; put a flatten before it", l->name);
        return ST_UNSUPPORTED;
    }
    TRY(cuda_state_create(op, sizeof *c, &c));
    c->relu = cuda_relu_fuse(plan, i);
    cuda_scratch_want(plan, cuda_planes_of(&l->out, plan->cfg.batch));
    TRY(cuda_output_take(plan, op));
done:
    return st;
}

static enum status dense_forward(struct cuda_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct dense *c = op->state;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0];
    /* y(out, n) = W(in, out)^T x(in, n) */
    TRY(cuda_check_blas(op, "cublasSgemm",
                        cublasSgemm(plan->cublas, CUBLAS_OP_T, CUBLAS_OP_N, n_out, pass->n, n_in,
                                    &one, plan->params[l->param[0]].d, n_in, *op->x, n_in, &zero,
                                    *op->y, n_out)));
    TRY(cuda_check_kernel(op, "bias kernel",
                          cuda_bias_add(plan->compute, *op->y, plan->params[l->param[1]].d,
                                        cuda_planes_of(&l->out, pass->n), c->relu)));
done:
    return st;
}

static enum status dense_backward(struct cuda_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0];
    TRY(cuda_check_kernel(op, "bias gradient kernel",
                          cuda_bias_grad(plan->compute, *op->dy, plan->params[l->param[1]].d_grad,
                                         plan->scratch, cuda_planes_of(&l->out, pass->n))));
    /* dW(in, out) = x(in, n) dy(out, n)^T */
    TRY(cuda_check_blas(op, "cublasSgemm",
                        cublasSgemm(plan->cublas, CUBLAS_OP_N, CUBLAS_OP_T, n_in, n_out, pass->n,
                                    &one, *op->x, n_in, *op->dy, n_out, &zero,
                                    plan->params[l->param[0]].d_grad, n_in)));
    /* dx(in, n) = W(in, out) dy(out, n) */
    if (op->needs_dx)
        TRY(cuda_check_blas(op, "cublasSgemm",
                            cublasSgemm(plan->cublas, CUBLAS_OP_N, CUBLAS_OP_N, n_in, pass->n,
                                        n_out, &one, plan->params[l->param[0]].d, n_in, *op->dy,
                                        n_out, &zero, *op->dx, n_in)));
done:
    return st;
}

const struct cuda_kind cuda_dense = {dense_plan, NULL, dense_forward, dense_backward, 0, 0};
