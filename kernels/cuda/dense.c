/* kernels/cuda/dense.c - the fully connected layer by cuBLAS; bias and a relu behind it by one
 * kernel of ours. cuBLAS counts matrices by columns: our rows (n, F) are its columns (F, n). */
#include "base/log.h"
#include "kernels/cuda/plan.h"

struct dense {
    int relu;
};

/* C(m, n) = op(A)(m, k) op(B)(k, n), by columns. */
struct product {
    cublasOperation_t op_a, op_b;
    int m, n, k;
    const float *a, *b;
    int lda, ldb;
    float *c; /* its columns lie close: ldc is m */
};

/* Factors and sums are floats in memory; on the way into products a factor is rounded as the
 * precision allows. */
static enum status multiply(const struct cuda_plan *plan, const struct cuda_op *op,
                            const struct product *p)
{
    static const cublasComputeType_t compute[] = {[BACKEND_FP32] = CUBLAS_COMPUTE_32F,
                                                  [BACKEND_TF32] = CUBLAS_COMPUTE_32F_FAST_TF32,
                                                  [BACKEND_BF16] = CUBLAS_COMPUTE_32F_FAST_16BF};
    static const float one = 1.0f, zero = 0.0f;
    return cuda_check_blas(op, "cublasGemmEx",
                           cublasGemmEx(plan->cublas, p->op_a, p->op_b, p->m, p->n, p->k, &one,
                                        p->a, CUDA_R_32F, p->lda, p->b, CUDA_R_32F, p->ldb, &zero,
                                        p->c, CUDA_R_32F, p->m, compute[plan->cfg.precision],
                                        CUBLAS_GEMM_DEFAULT));
}

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
    struct product y = {CUBLAS_OP_T, CUBLAS_OP_N, n_out, pass->n, n_in, plan->params[l->param[0]].d,
                        *op->x,      n_in,        n_in,  *op->y};
    TRY(multiply(plan, op, &y));
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
    struct product dw = {CUBLAS_OP_N, CUBLAS_OP_T, n_in, n_out, pass->n,
                         *op->x,      *op->dy,     n_in, n_out, plan->params[l->param[0]].d_grad};
    TRY(multiply(plan, op, &dw));
    /* dx(in, n) = W(in, out) dy(out, n) */
    struct product dx = {
        CUBLAS_OP_N, CUBLAS_OP_N, n_in,  pass->n, n_out, plan->params[l->param[0]].d,
        *op->dy,     n_in,        n_out, NULL};
    if (op->needs_dx) {
        dx.c = *op->dx;
        TRY(multiply(plan, op, &dx));
    }
done:
    return st;
}

const struct cuda_kind cuda_dense = {dense_plan, NULL, dense_forward, dense_backward, 0, 0};
