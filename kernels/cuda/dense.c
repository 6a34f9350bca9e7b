/* kernels/cuda/dense.c - the fully connected layer by cuBLAS; bias and a relu behind it by one
 * kernel of ours. cuBLAS counts matrices by columns: our rows (n, F) are its columns (F, n).
 * With --gpu_tuning=epilogues cuBLASLt does what it can of that as part of the products, and of the
 * bias' gradient (dense_lt.c). */
#include "kernels/cuda/dense.h"
#include "base/log.h"
#include "kernels/tuning.h"

struct dense {
    int relu;
};

struct dense_pass {
    struct cuda_lt y, dw;
};

const cublasComputeType_t cuda_product_compute[] = {[BACKEND_FP32] = CUBLAS_COMPUTE_32F,
                                                    [BACKEND_TF32] = CUBLAS_COMPUTE_32F_FAST_TF32,
                                                    [BACKEND_BF16] = CUBLAS_COMPUTE_32F_FAST_16BF};

static enum status multiply(const struct cuda_lane *lane, const struct cuda_op *op,
                            const struct cuda_product *p)
{
    static const float one = 1.0f, zero = 0.0f;
    return cuda_check_blas(
        op, "cublasGemmEx",
        cublasGemmEx(lane->cublas, p->op_a, p->op_b, p->m, p->n, p->k, &one, p->a, CUDA_R_32F,
                     p->lda, p->b, CUDA_R_32F, p->ldb, &zero, p->c, CUDA_R_32F, p->m,
                     cuda_product_compute[lane->plan->cfg.precision], CUBLAS_GEMM_DEFAULT));
}

/* y(out, n) = W(in, out)^T x(in, n) */
static struct cuda_product product_y(const struct cuda_pass *pass, const struct cuda_op *op)
{
    const struct layer *l = op->layer;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0];
    return (struct cuda_product){.op_a = CUBLAS_OP_T,
                                 .op_b = CUBLAS_OP_N,
                                 .m = n_out,
                                 .n = pass->n,
                                 .k = n_in,
                                 .a = pass->plan->params[l->param[0]].d,
                                 .b = *op->x,
                                 .lda = n_in,
                                 .ldb = n_in,
                                 .c = *op->y};
}

/* dW(in, out) = x(in, n) dy(out, n)^T */
static struct cuda_product product_dw(const struct cuda_pass *pass, const struct cuda_op *op)
{
    const struct layer *l = op->layer;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0];
    return (struct cuda_product){.op_a = CUBLAS_OP_N,
                                 .op_b = CUBLAS_OP_T,
                                 .m = n_in,
                                 .n = n_out,
                                 .k = pass->n,
                                 .a = *op->x,
                                 .b = *op->dy,
                                 .lda = n_in,
                                 .ldb = n_out,
                                 .c = pass->plan->params[l->param[0]].d_grad};
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

static enum status dense_prepare(struct cuda_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct dense *c = op->state;
    struct dense_pass *fused;
    if ((plan->cfg.tuning & TUNING_EPILOGUES) == 0 || !layer_has_bias(op->layer))
        return ST_OK;
    TRY(cuda_pass_state(pass, i, sizeof *fused, &fused));
    struct cuda_product y = product_y(pass, op);
    TRY(cuda_lt_prepare(plan, op, &y,
                        c->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS, &fused->y));
    if (!plan->cfg.inference_only && op->needs_backward) {
        struct cuda_product dw = product_dw(pass, op);
        TRY(cuda_lt_prepare(plan, op, &dw, CUBLASLT_EPILOGUE_BGRADB, &fused->dw));
    }
done:
    return st;
}

/* Adds the bias, if there is one, and applies the relu behind it. */
static enum status forward_end(struct cuda_pass *pass, int i)
{
    const struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct dense *c = op->state;
    struct cuda_planes y = cuda_planes_of(&l->out, pass->n);
    if (layer_has_bias(l))
        return cuda_check_kernel(
            op, "bias kernel",
            cuda_bias_add(plan->compute, *op->y, plan->params[l->param[1]].d, y, c->relu));
    if (!c->relu)
        return ST_OK;
    return cuda_check_kernel(
        op, "relu kernel",
        cuda_relu_forward(plan->compute, *op->y, *op->y, pass->n * shape_elems(&l->out)));
}

static enum status dense_forward(struct cuda_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct dense_pass *fused = pass->state[i];
    struct cuda_product y = product_y(pass, op);
    struct cuda_lane lane = cuda_lane_main(plan);
    int done = 0;
    if (fused != NULL)
        TRY(cuda_lt_run(&lane, op, &y, plan->params[l->param[1]].d, &fused->y, &done));
    if (done)
        return ST_OK;
    TRY(multiply(&lane, op, &y));
    TRY(forward_end(pass, i));
done:
    return st;
}

static enum status dense_backward(struct cuda_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0], done = 0;
    float *db = layer_has_bias(l) ? plan->params[l->param[1]].d_grad : NULL;
    struct dense_pass *fused = pass->state[i];
    struct cuda_product dw = product_dw(pass, op);
    struct cuda_lane lane, lane_x = cuda_lane_main(plan);
    TRY(cuda_branch_fork(plan, i, &lane));
    if (fused != NULL)
        TRY(cuda_lt_run(&lane, op, &dw, db, &fused->dw, &done));
    if (!done && db != NULL)
        TRY(cuda_check_kernel(op, "bias gradient kernel",
                              cuda_bias_grad(lane.stream, *op->dy, db, lane.scratch,
                                             cuda_planes_of(&l->out, pass->n))));
    if (!done)
        TRY(multiply(&lane, op, &dw));
    /* dx(in, n) = W(in, out) dy(out, n) */
    struct cuda_product dx = {
        CUBLAS_OP_N, CUBLAS_OP_N, n_in,  pass->n, n_out, plan->params[l->param[0]].d,
        *op->dy,     n_in,        n_out, NULL};
    if (op->needs_dx) {
        dx.c = *op->dx;
        TRY(multiply(&lane_x, op, &dx));
    }
done:
    return st;
}

const struct cuda_kind cuda_dense = {dense_plan, dense_prepare, dense_forward, dense_backward, 0,
                                     0};
