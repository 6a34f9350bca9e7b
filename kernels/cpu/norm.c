/* kernels/cpu/norm.c - batch normalization per channel, or per feature: a row of features counts as
 * an image of one cell. Training uses the batch's own statistics and returns them as "gradients" of
 * the running statistics; inference uses the caller's running statistics. Gamma, beta and their
 * gradients are read and written in place. */
#include "kernels/cpu/kinds.h"
#include <string.h>

enum { GAMMA, BETA, MEAN, VARIANCE };

struct norm {
    dnnl_primitive_desc_t forward_desc;
    struct cpu_tensor x, y; /* input and output, in the form of images */
    /* the caller's parameters and gradients */
    struct cpu_tensor param[LAYER_MAX_PARAMS], grad[LAYER_MAX_PARAMS];
    /* statistics of the batch; the variance is divided by n, not n-1 */
    struct cpu_tensor mean, variance;
    struct cpu_call train, infer, diff, backward;
    /* n_cells: number of values from which one channel's statistics are computed */
    int64_t n_channels, n_cells;
};

/* Creates a tensor with the memory of another tensor; the shape (n,F) becomes (n,F,1,1). */
static enum status as_image(struct cpu_pass *pass, const struct cpu_op *op,
                            const struct cpu_tensor *t, struct cpu_tensor *out)
{
    enum status st = ST_OK;
    const struct cpu_md *md;
    dnnl_dims_t dims;
    if (cpu_dnnl_md_dims(t->md, dims) == 4) {
        *out = *t;
        return ST_OK;
    }
    dims[2] = dims[3] = 1;
    TRY(cpu_pass_md_create(pass, 4, dims, dnnl_nchw, &md));
    TRY(cpu_pass_tensor_create(pass, op, md, t->data, out));
done:
    return st;
}

/* Plans the forward. In training the forward uses the batch's statistics and writes them; in
 * inference it uses the running statistics. */
static enum status plan_call(struct cpu_pass *pass, const struct cpu_op *op, int training,
                             dnnl_primitive_desc_t *desc)
{
    enum status st = ST_OK;
    struct norm *c = op->state;
    struct cpu_call *call = training ? &c->train : &c->infer;
    struct cpu_work w = {.what = CPU_NORM,
                         .prop = training ? dnnl_forward_training : dnnl_forward_inference,
                         .x = c->x.md,
                         .epsilon = op->layer->epsilon,
                         .global_stats = !training};
    TRY(cpu_pass_desc_create(pass, op, &w, 0, desc));
    TRY(cpu_pass_call_create(pass, op, *desc, call));
    cpu_pass_call_arg(call, DNNL_ARG_SRC, &c->x);
    cpu_pass_call_arg(call, DNNL_ARG_DST, &c->y);
    cpu_pass_call_arg(call, DNNL_ARG_MEAN, training ? &c->mean : &c->param[MEAN]);
    cpu_pass_call_arg(call, DNNL_ARG_VARIANCE, training ? &c->variance : &c->param[VARIANCE]);
    cpu_pass_call_arg(call, DNNL_ARG_SCALE, &c->param[GAMMA]);
    cpu_pass_call_arg(call, DNNL_ARG_SHIFT, &c->param[BETA]);
done:
    return st;
}

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    const struct cpu_md *md;
    dnnl_primitive_desc_t infer;
    dnnl_dims_t dims = {op->layer->in.dim[0]};
    TRY(cpu_pass_block_create(pass, sizeof(struct norm), &op->state));
    struct norm *c = op->state;
    c->n_channels = op->layer->in.dim[0];
    c->n_cells = pass->n * (shape_elems(&op->layer->in) / c->n_channels);
    TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, &op->y));
    TRY(as_image(pass, op, &op->x, &c->x));
    TRY(as_image(pass, op, &op->y, &c->y));
    TRY(cpu_pass_md_create(pass, 1, dims, dnnl_a, &md));
    for (int k = 0; k < op->layer->n_params; k++)
        TRY(cpu_pass_tensor_create(pass, op, md, cfg->params[op->layer->param[k]], &c->param[k]));
    TRY(plan_call(pass, op, 0, &infer));
    if (!cfg->inference_only) {
        TRY(cpu_pass_tensor_create(pass, op, md, NULL, &c->mean));
        TRY(cpu_pass_tensor_create(pass, op, md, NULL, &c->variance));
        TRY(plan_call(pass, op, 1, &c->forward_desc));
    }
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct norm *c = op->state;
    float *const *grads = pass->plan->cfg.grads;
    dnnl_primitive_desc_t pd;
    struct cpu_tensor dy, dx;
    struct cpu_work w = {.what = CPU_NORM_BY_X,
                         .x = c->x.md,
                         .epsilon = op->layer->epsilon,
                         .forward = c->forward_desc};
    /* the gradients of gamma and beta need the same sums as dx, so dx is always computed */
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &dy, &c->diff));
    TRY(as_image(pass, op, &dy, &dy));
    TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, op->dx));
    TRY(as_image(pass, op, op->dx, &dx));
    for (int k = GAMMA; k <= BETA; k++)
        TRY(cpu_pass_tensor_create(pass, op, c->param[k].md, grads[op->layer->param[k]],
                                   &c->grad[k]));
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &pd));
    TRY(cpu_pass_call_create(pass, op, pd, &c->backward));
    cpu_pass_call_arg(&c->backward, DNNL_ARG_SRC, &c->x);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_MEAN, &c->mean);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_VARIANCE, &c->variance);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_SCALE, &c->param[GAMMA]);
    if (cpu_dnnl_norm_by_x_has_shift)
        cpu_pass_call_arg(&c->backward, DNNL_ARG_SHIFT, &c->param[BETA]);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_DST, &dy);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_SRC, &dx);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_SCALE, &c->grad[GAMMA]);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_SHIFT, &c->grad[BETA]);
done:
    return st;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    const struct cpu_op *op = &pass->ops[i];
    const struct norm *c = op->state;
    return cpu_pass_call_run(pass, op, train && c->train.prim != NULL ? &c->train : &c->infer);
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct norm *c = op->state;
    float *const *grads = pass->plan->cfg.grads;
    /* if there is a single cell, the variance is not multiplied by n / (n - 1) */
    float correct = c->n_cells > 1 ? (float)((double)c->n_cells / (double)(c->n_cells - 1)) : 1.0f;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    TRY(cpu_pass_call_run(pass, op, &c->backward));
    for (int64_t k = 0; k < c->n_channels; k++) {
        grads[op->layer->param[MEAN]][k] = c->mean.data[k];
        grads[op->layer->param[VARIANCE]][k] = c->variance.data[k] * correct;
    }
done:
    return st;
}

const struct cpu_kind cpu_batch_norm = {plan_forward, plan_backward, NULL, forward, backward};
