/* kernels/cuda/layers/norm.c - batch normalization by cuDNN: for images per channel, for rows of
 * features per feature, where each row counts as an image of one cell. Training uses the batch's
 * own statistics and returns them as "gradients" of the running statistics; inference uses the
 * caller's running statistics. */
#include "kernels/cuda/plan/plan.h"

enum { GAMMA, BETA, MEAN, VARIANCE };

struct norm {
    float *saved_mean, *saved_inverse; /* [channels] statistics of the batch */
};

struct norm_pass {
    cudnnTensorDescriptor_t x, params;
};

static const float one = 1.0f, zero = 0.0f;

/* Returns cuDNN's mode. cuDNN has a separate mode for features, which are channels of one cell. */
static cudnnBatchNormMode_t mode_of(const struct layer *l)
{
    return l->in.n_dims == 3 ? CUDNN_BATCHNORM_SPATIAL : CUDNN_BATCHNORM_PER_ACTIVATION;
}

static enum status norm_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    uint64_t bytes = (uint64_t)op->layer->in.dim[0] * sizeof(float);
    struct norm *c;
    TRY(gpu_plan_state_create(op, sizeof *c, &c));
    TRY(gpu_plan_reserve_output(plan, op));
    if (!plan->cfg.inference_only) {
        TRY(gpu_arena_reserve(&plan->arena, op->layer->name, "mean", bytes, &c->saved_mean));
        TRY(gpu_arena_reserve(&plan->arena, op->layer->name, "deviation", bytes,
                              &c->saved_inverse));
    }
done:
    return st;
}

static enum status norm_prepare(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &pass->plan->ops[i];
    const struct shape *s = &op->layer->in;
    int flat = s->n_dims == 1;
    int x[4] = {pass->n, (int)s->dim[0], flat ? 1 : (int)s->dim[1], flat ? 1 : (int)s->dim[2]};
    int params[4] = {1, (int)s->dim[0], 1, 1};
    struct norm_pass *c;
    TRY(gpu_pass_state(pass, i, sizeof *c, &c));
    TRY(gpu_pass_tensor_desc(pass, op, CUDNN_DATA_FLOAT, x, &c->x));
    TRY(gpu_pass_tensor_desc(pass, op, CUDNN_DATA_FLOAT, params, &c->params));
done:
    return st;
}

static enum status norm_forward(struct gpu_pass *pass, int i, int train)
{
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct norm *s = op->state;
    const struct norm_pass *c = pass->state[i];
    const float *gamma = plan->params[l->param[GAMMA]].d, *beta = plan->params[l->param[BETA]].d;
    if (!train || plan->cfg.inference_only)
        return gpu_check_dnn(op, "cudnnBatchNormalizationForwardInference",
                             cudnnBatchNormalizationForwardInference(
                                 plan->cudnn, mode_of(l), &one, &zero, c->x, *op->x, c->x, *op->y,
                                 c->params, gamma, beta, plan->params[l->param[MEAN]].d,
                                 plan->params[l->param[VARIANCE]].d, (double)l->epsilon));
    return gpu_check_dnn(op, "cudnnBatchNormalizationForwardTraining",
                         cudnnBatchNormalizationForwardTraining(
                             plan->cudnn, mode_of(l), &one, &zero, c->x, *op->x, c->x, *op->y,
                             c->params, gamma, beta, 0.0, NULL, NULL, (double)l->epsilon,
                             s->saved_mean, s->saved_inverse));
}

static enum status norm_backward(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct norm *s = op->state;
    const struct norm_pass *c = pass->state[i];
    struct gpu_planes shape = gpu_plan_planes(&l->in, pass->n);
    struct gpu_norm_stats stats = {.channels = shape.channels,
                                   .cells = shape.n * shape.plane,
                                   .epsilon = (double)l->epsilon,
                                   .saved_mean = s->saved_mean,
                                   .saved_inverse = s->saved_inverse,
                                   .mean = plan->params[l->param[MEAN]].d_grad,
                                   .variance = plan->params[l->param[VARIANCE]].d_grad};
    TRY(gpu_check_dnn(op, "cudnnBatchNormalizationBackward",
                      cudnnBatchNormalizationBackward(
                          plan->cudnn, mode_of(l), &one, &zero, &one, &zero, c->x, *op->x, c->x,
                          *op->dy, c->x, *op->dx, c->params, plan->params[l->param[GAMMA]].d,
                          plan->params[l->param[GAMMA]].d_grad, plan->params[l->param[BETA]].d_grad,
                          (double)l->epsilon, s->saved_mean, s->saved_inverse)));
    TRY(gpu_check_kernel(op, "statistics kernel", gpu_norm_stats_hand_out(plan->compute, &stats)));
done:
    return st;
}

/* the gradients of gamma and beta need the same sums as dx, so dx is always computed */
const struct gpu_kind gpu_batch_norm = {norm_plan, norm_prepare, norm_forward, norm_backward, 0, 1};
