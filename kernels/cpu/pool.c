/* kernels/cpu/pool.c - max and average pooling, in the format of the input. Cells of the padding
 * are never the maximum, and do not count in an average. */
#include "kernels/cpu/kinds.h"

struct pool {
    dnnl_primitive_desc_t forward_desc;
    struct cpu_tensor work; /* positions of the maxima */
    struct cpu_tensor dy;   /* gradient with respect to the output, in the format of y */
    struct cpu_call forward, diff, backward;
    int masks; /* the pool also computes the backward of the relu that it reads */
};

static dnnl_alg_kind_t pool_kind(const struct cpu_op *op)
{
    return op->layer->kind == LAYER_MAX_POOL ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
}

/* Describes the pool. x, y: formats of the tensors, or of the gradients with respect to them. */
static struct cpu_work pool_work(const struct cpu_op *op, const struct cpu_md *x,
                                 const struct cpu_md *y)
{
    const struct layer *l = op->layer;
    struct cpu_work w = {.alg = pool_kind(op), .x = x, .y = y};
    for (int k = 0; k < 2; k++) {
        w.kernel[k] = l->kernel[k];
        w.stride[k] = l->stride[k];
        w.lo[k] = l->pad_lo[k];
        w.hi[k] = l->pad_hi[k];
    }
    return w;
}

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *y;
    TRY(cpu_pass_block_create(pass, sizeof(struct pool), &op->state));
    struct pool *c = op->state;
    int training = !pass->plan->cfg.inference_only;
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &y));
    TRY(cpu_pass_md_any(pass, y, dnnl_f32, &y));
    struct cpu_work w = pool_work(op, op->x.md, y);
    w.what = CPU_POOL;
    w.prop = training ? dnnl_forward_training : dnnl_forward_inference;
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &c->forward_desc));
    TRY(cpu_pass_tensor_create(pass, op, cpu_dnnl_desc_md(c->forward_desc, dnnl_query_dst_md), NULL,
                               &op->y));
    TRY(cpu_pass_call_create(pass, op, c->forward_desc, &c->forward));
    cpu_pass_call_arg(&c->forward, DNNL_ARG_SRC, &op->x);
    cpu_pass_call_arg(&c->forward, DNNL_ARG_DST, &op->y);
    if (training && op->layer->kind == LAYER_MAX_POOL) {
        TRY(cpu_pass_tensor_create(
            pass, op, cpu_dnnl_desc_md(c->forward_desc, dnnl_query_workspace_md), NULL, &c->work));
        cpu_pass_call_arg(&c->forward, DNNL_ARG_WORKSPACE, &c->work);
    }
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct pool *c = op->state;
    dnnl_primitive_desc_t pd;
    if (!op->needs_dx)
        return ST_OK;
    struct cpu_work w = pool_work(op, op->x.md, op->y.md);
    w.what = CPU_POOL_BY_X;
    w.forward = c->forward_desc;
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &pd));
    /* an earlier layer, not the image, because the input has a gradient */
    int from = op->layer->input[0];
    c->masks = op->layer->kind == LAYER_MAX_POOL && pass->plan->node[from].reader == i &&
               pass->ops[from].layer->kind == LAYER_RELU;
    if (c->masks)
        pass->ops[from].relu_masked = 1;
    TRY((c->masks ? cpu_pass_tensor_own : cpu_pass_tensor_match)(pass, op, &op->dy, op->y.md,
                                                                 &c->dy, &c->diff));
    TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, op->dx));
    TRY(cpu_pass_call_create(pass, op, pd, &c->backward));
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_DST, &c->dy);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_SRC, op->dx);
    if (op->layer->kind == LAYER_MAX_POOL)
        cpu_pass_call_arg(&c->backward, DNNL_ARG_WORKSPACE, &c->work);
done:
    return st;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    const struct pool *c = pass->ops[i].state;
    return cpu_pass_call_run(pass, &pass->ops[i], &c->forward);
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct pool *c = op->state;
    if (!op->needs_dx)
        return ST_OK;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    if (c->masks)
        cpu_elementwise_mask(pass, &op->y, &c->dy);
    TRY(cpu_pass_call_run(pass, op, &c->backward));
done:
    return st;
}

const struct cpu_kind cpu_pool = {plan_forward, plan_backward, NULL, forward, backward};
