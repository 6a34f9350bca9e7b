/* kernels/cuda/layers/dense.c - the fully connected layer by cuBLAS, with bias and relu in one
 * kernel of Weir's. cuBLAS stores matrices by columns: Weir's rows (n, F) are cuBLAS's columns (F,
 * n). If --gpu_tuning=epilogues is set, cuBLASLt (dense_lt.c) computes bias, relu and the gradient
 * of the bias as parts of the products, if it supports these combinations. */
#include "kernels/cuda/layers/dense.h"
#include "base/log.h"
#include "kernels/tuning.h"

struct dense {
    int relu;
};

struct dense_pass {
    struct gpu_dense_lt y, dw;
};

const cublasComputeType_t gpu_dense_product_compute[] = {
    [BACKEND_FP32] = CUBLAS_COMPUTE_32F,
    [BACKEND_TF32] = CUBLAS_COMPUTE_32F_FAST_TF32,
    [BACKEND_BF16] = CUBLAS_COMPUTE_32F_FAST_16BF};

static enum status multiply(const struct gpu_lane *lane, const struct gpu_op *op,
                            const struct gpu_dense_product *p)
{
    static const float one = 1.0f, zero = 0.0f;
    return gpu_check_blas(
        op, "cublasGemmEx",
        cublasGemmEx(lane->cublas, p->op_a, p->op_b, p->m, p->n, p->k, &one, p->a, CUDA_R_32F,
                     p->lda, p->b, CUDA_R_32F, p->ldb, &zero, p->c, CUDA_R_32F, p->m,
                     gpu_dense_product_compute[lane->plan->cfg.precision], CUBLAS_GEMM_DEFAULT));
}

/* y(out, n) = W(in, out)^T x(in, n) */
static struct gpu_dense_product product_y(const struct gpu_pass *pass, const struct gpu_op *op)
{
    const struct layer *l = op->layer;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0];
    return (struct gpu_dense_product){.op_a = CUBLAS_OP_T,
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
static struct gpu_dense_product product_dw(const struct gpu_pass *pass, const struct gpu_op *op)
{
    const struct layer *l = op->layer;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0];
    return (struct gpu_dense_product){.op_a = CUBLAS_OP_N,
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

static enum status dense_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct dense *c;
    if (l->in.n_dims != 1 || l->out.n_dims != 1) {
        LOG_E("layer '%s': a dense layer needs a flat input; put a flatten before it", l->name);
        return ST_UNSUPPORTED;
    }
    TRY(gpu_plan_state_create(op, sizeof *c, &c));
    c->relu = gpu_plan_fuse_relu(plan, i);
    gpu_plan_reserve_scratch(plan, gpu_plan_planes(&l->out, plan->cfg.batch));
    TRY(gpu_plan_reserve_output(plan, op));
done:
    return st;
}

static enum status dense_prepare(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct dense *c = op->state;
    struct dense_pass *fused;
    if ((plan->cfg.tuning & TUNING_EPILOGUES) == 0 || !layer_has_bias(op->layer))
        return ST_OK;
    TRY(gpu_pass_state(pass, i, sizeof *fused, &fused));
    struct gpu_dense_product y = product_y(pass, op);
    TRY(gpu_dense_lt_prepare(
        plan, op, &y, c->relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS, &fused->y));
    if (!plan->cfg.inference_only && op->needs_backward) {
        struct gpu_dense_product dw = product_dw(pass, op);
        TRY(gpu_dense_lt_prepare(plan, op, &dw, CUBLASLT_EPILOGUE_BGRADB, &fused->dw));
    }
done:
    return st;
}

/* Adds the bias, if there is one, and applies the relu after it. */
static enum status forward_end(struct gpu_pass *pass, int i)
{
    const struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct dense *c = op->state;
    struct gpu_planes y = gpu_plan_planes(&l->out, pass->n);
    if (layer_has_bias(l))
        return gpu_check_kernel(
            op, "bias kernel",
            gpu_bias_add(plan->compute, *op->y, plan->params[l->param[1]].d, y, c->relu));
    if (!c->relu)
        return ST_OK;
    return gpu_check_kernel(
        op, "relu kernel",
        gpu_relu_forward(plan->compute, *op->y, *op->y, pass->n * shape_elems(&l->out)));
}

static enum status dense_forward(struct gpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct dense_pass *fused = pass->state[i];
    struct gpu_dense_product y = product_y(pass, op);
    struct gpu_lane lane = gpu_branch_main_lane(plan);
    int done = 0;
    if (fused != NULL)
        TRY(gpu_dense_lt_run(&lane, op, &y, plan->params[l->param[1]].d, &fused->y, &done));
    if (done)
        return ST_OK;
    TRY(multiply(&lane, op, &y));
    TRY(forward_end(pass, i));
done:
    return st;
}

static enum status dense_backward(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    int n_in = (int)l->in.dim[0], n_out = (int)l->out.dim[0], done = 0;
    float *db = layer_has_bias(l) ? plan->params[l->param[1]].d_grad : NULL;
    struct dense_pass *fused = pass->state[i];
    struct gpu_dense_product dw = product_dw(pass, op);
    struct gpu_lane lane, lane_x = gpu_branch_main_lane(plan);
    TRY(gpu_branch_fork(plan, i, &lane));
    if (fused != NULL)
        TRY(gpu_dense_lt_run(&lane, op, &dw, db, &fused->dw, &done));
    if (!done && db != NULL)
        TRY(gpu_check_kernel(op, "bias gradient kernel",
                             gpu_bias_grad(lane.stream, *op->dy, db, lane.scratch,
                                           gpu_plan_planes(&l->out, pass->n))));
    if (!done)
        TRY(multiply(&lane, op, &dw));
    /* dx(in, n) = W(in, out) dy(out, n) */
    struct gpu_dense_product dx = {
        CUBLAS_OP_N, CUBLAS_OP_N, n_in,  pass->n, n_out, plan->params[l->param[0]].d,
        *op->dy,     n_in,        n_out, NULL};
    if (op->needs_dx) {
        dx.c = *op->dx;
        TRY(multiply(&lane_x, op, &dx));
    }
done:
    return st;
}

const struct gpu_kind gpu_dense = {dense_plan, dense_prepare, dense_forward, dense_backward, 0, 0};
