/* kernels/cpu/norm.c - batch normalization per channel, or per feature (as images of one cell).
 * Training takes the batch's own statistics and hands them out as "gradients" of the running ones;
 * otherwise the caller's running ones count. */
#include "kernels/cpu/kinds.h"
#include <string.h>

enum { GAMMA, BETA, MEAN, VARIANCE };

struct norm {
    dnnl_primitive_desc_t forward_desc;
    struct cpu_tensor x, y;             /* as images */
    struct cpu_tensor scale_shift;      /* [2][channels] gamma, beta: oneDNN wants them together */
    struct cpu_tensor diff_scale_shift; /* likewise */
    struct cpu_tensor running_mean, running_variance; /* the caller's */
    struct cpu_tensor mean, variance; /* the batch's, divided by the number of cells */
    struct cpu_call train, infer, diff, backward;
    int64_t n_channels, n_cells; /* cells: what one channel's statistics are over */
};

/* A tensor of the same bytes, (n,F) seen as (n,F,1,1). */
static enum status as_image(struct cpu_pass *pass, const struct cpu_op *op,
                            const struct cpu_tensor *t, struct cpu_tensor *out)
{
    enum status st = ST_OK;
    dnnl_memory_desc_t md;
    if (t->md.ndims == 4) {
        *out = *t;
        return ST_OK;
    }
    dnnl_dims_t dims = {t->md.dims[0], t->md.dims[1], 1, 1};
    TRY(cpu_status(op, "describe its tensor",
                   dnnl_memory_desc_init_by_tag(&md, 4, dims, dnnl_f32, dnnl_nchw)));
    TRY(cpu_tensor_create(pass, op, &md, t->data, out));
done:
    return st;
}

static enum status desc_forward(struct cpu_pass *pass, const struct cpu_op *op,
                                dnnl_prop_kind_t prop, dnnl_primitive_desc_t *out)
{
    enum status st = ST_OK;
    const struct norm *c = op->state;
    unsigned flags = dnnl_use_scaleshift;
    dnnl_batch_normalization_desc_t d;
    if (prop == dnnl_forward_inference)
        flags |= dnnl_use_global_stats;
    TRY(cpu_status(
        op, "describe this normalization",
        dnnl_batch_normalization_forward_desc_init(&d, prop, &c->x.md, op->layer->epsilon, flags)));
    TRY(cpu_desc_create(pass, op, &d, 0, NULL, out));
done:
    return st;
}

static enum status plan_call(struct cpu_pass *pass, const struct cpu_op *op,
                             dnnl_primitive_desc_t pd, const struct cpu_tensor *mean,
                             const struct cpu_tensor *variance)
{
    enum status st = ST_OK;
    struct norm *c = op->state;
    struct cpu_call *call = mean == &c->mean ? &c->train : &c->infer;
    TRY(cpu_call_create(pass, op, pd, call));
    cpu_call_arg(call, DNNL_ARG_SRC, &c->x);
    cpu_call_arg(call, DNNL_ARG_DST, &c->y);
    cpu_call_arg(call, DNNL_ARG_MEAN, mean);
    cpu_call_arg(call, DNNL_ARG_VARIANCE, variance);
    cpu_call_arg(call, DNNL_ARG_SCALE_SHIFT, &c->scale_shift);
done:
    return st;
}

static enum status scale_shift_create(struct cpu_pass *pass, const struct cpu_op *op,
                                      struct cpu_tensor *out)
{
    enum status st = ST_OK;
    dnnl_memory_desc_t md;
    dnnl_dims_t dims = {2, op->layer->in.dim[0]};
    TRY(cpu_status(op, "describe its parameters",
                   dnnl_memory_desc_init_by_tag(&md, 2, dims, dnnl_f32, dnnl_nc)));
    TRY(cpu_tensor_create(pass, op, &md, NULL, out));
done:
    return st;
}

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    dnnl_memory_desc_t md;
    dnnl_primitive_desc_t infer;
    dnnl_dims_t dims = {op->layer->in.dim[0]};
    TRY(cpu_block_create(pass, sizeof(struct norm), &op->state));
    struct norm *c = op->state;
    c->n_channels = op->layer->in.dim[0];
    c->n_cells = pass->n * (shape_elems(&op->layer->in) / c->n_channels);
    TRY(cpu_tensor_create(pass, op, &op->x.md, NULL, &op->y));
    TRY(as_image(pass, op, &op->x, &c->x));
    TRY(as_image(pass, op, &op->y, &c->y));
    TRY(cpu_status(op, "describe its parameters",
                   dnnl_memory_desc_init_by_tag(&md, 1, dims, dnnl_f32, dnnl_a)));
    TRY(cpu_tensor_create(pass, op, &md, cfg->params[op->layer->param[MEAN]], &c->running_mean));
    TRY(cpu_tensor_create(pass, op, &md, cfg->params[op->layer->param[VARIANCE]],
                          &c->running_variance));
    TRY(scale_shift_create(pass, op, &c->scale_shift));
    TRY(desc_forward(pass, op, dnnl_forward_inference, &infer));
    TRY(plan_call(pass, op, infer, &c->running_mean, &c->running_variance));
    if (!cfg->inference_only) {
        TRY(cpu_tensor_create(pass, op, &md, NULL, &c->mean));
        TRY(cpu_tensor_create(pass, op, &md, NULL, &c->variance));
        TRY(desc_forward(pass, op, dnnl_forward_training, &c->forward_desc));
        TRY(plan_call(pass, op, c->forward_desc, &c->mean, &c->variance));
    }
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct norm *c = op->state;
    dnnl_batch_normalization_desc_t d;
    dnnl_primitive_desc_t pd;
    struct cpu_tensor dy, dx;
    /* gamma and beta need the same sums as dx does, so dx is always worked out */
    TRY(cpu_tensor_match(pass, op, &op->dy, &op->y.md, &dy, &c->diff));
    TRY(as_image(pass, op, &dy, &dy));
    TRY(cpu_tensor_create(pass, op, &op->x.md, NULL, op->dx));
    TRY(as_image(pass, op, op->dx, &dx));
    TRY(scale_shift_create(pass, op, &c->diff_scale_shift));
    TRY(cpu_status(op, "describe this normalization's gradient",
                   dnnl_batch_normalization_backward_desc_init(&d, dnnl_backward, &c->x.md,
                                                               &c->x.md, op->layer->epsilon,
                                                               dnnl_use_scaleshift)));
    TRY(cpu_desc_create(pass, op, &d, 0, c->forward_desc, &pd));
    TRY(cpu_call_create(pass, op, pd, &c->backward));
    cpu_call_arg(&c->backward, DNNL_ARG_SRC, &c->x);
    cpu_call_arg(&c->backward, DNNL_ARG_MEAN, &c->mean);
    cpu_call_arg(&c->backward, DNNL_ARG_VARIANCE, &c->variance);
    cpu_call_arg(&c->backward, DNNL_ARG_SCALE_SHIFT, &c->scale_shift);
    cpu_call_arg(&c->backward, DNNL_ARG_DIFF_DST, &dy);
    cpu_call_arg(&c->backward, DNNL_ARG_DIFF_SRC, &dx);
    cpu_call_arg(&c->backward, DNNL_ARG_DIFF_SCALE_SHIFT, &c->diff_scale_shift);
done:
    return st;
}

static enum status load(struct cpu_pass *pass, int i)
{
    const struct cpu_op *op = &pass->ops[i];
    const struct norm *c = op->state;
    const float *const *params = pass->plan->cfg.params;
    size_t bytes = (size_t)c->n_channels * sizeof(float);
    memcpy(c->scale_shift.data, params[op->layer->param[GAMMA]], bytes);
    memcpy(c->scale_shift.data + c->n_channels, params[op->layer->param[BETA]], bytes);
    return ST_OK;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    const struct cpu_op *op = &pass->ops[i];
    const struct norm *c = op->state;
    return cpu_call_run(pass, op, train && c->train.prim != NULL ? &c->train : &c->infer);
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct norm *c = op->state;
    float *const *grads = pass->plan->cfg.grads;
    /* one cell has no variance to correct */
    float correct = c->n_cells > 1 ? (float)((double)c->n_cells / (double)(c->n_cells - 1)) : 1.0f;
    TRY(cpu_call_run(pass, op, &c->diff));
    TRY(cpu_call_run(pass, op, &c->backward));
    for (int64_t k = 0; k < c->n_channels; k++) {
        grads[op->layer->param[GAMMA]][k] = c->diff_scale_shift.data[k];
        grads[op->layer->param[BETA]][k] = c->diff_scale_shift.data[c->n_channels + k];
        grads[op->layer->param[MEAN]][k] = c->mean.data[k];
        grads[op->layer->param[VARIANCE]][k] = c->variance.data[k] * correct;
    }
done:
    return st;
}

const struct cpu_kind cpu_batch_norm = {plan_forward, plan_backward, load, forward, backward};
