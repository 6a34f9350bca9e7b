/* kernels/cpu/conv.c - 2-D convolution. oneDNN chooses all formats. The weights, which are small,
 * are repacked when they change, and their gradient is unpacked directly into the caller's
 * memory. */
#include "kernels/cpu/kinds.h"
#include "kernels/cpu/precision.h"

struct conv {
    dnnl_primitive_desc_t forward_desc;
    dnnl_data_type_t type;            /* type of the factors that are multiplied; sums are floats */
    struct cpu_tensor src;            /* input in the format that the forward requires */
    struct cpu_tensor host_w, host_b; /* the caller's parameters; without a bias host_b is empty */
    struct cpu_tensor host_dw, host_db;
    /* reorders of the weights to the formats of the forward and the backward */
    struct cpu_call load, load_back;
    struct cpu_call match, forward; /* match: converts the input to the format of src */
    /* reorders of the output's gradient for each of the two backwards */
    struct cpu_call diff_w, diff_x;
    struct cpu_call src_back;
    /* store: copies the gradient of the weights to the caller */
    struct cpu_call backward_w, backward_x, store;
};

static struct cpu_work conv_work(const struct layer *l)
{
    struct cpu_work w = {.what = CPU_CONV};
    for (int k = 0; k < 2; k++) {
        w.stride[k] = l->stride[k];
        w.lo[k] = l->pad_lo[k];
        w.hi[k] = l->pad_hi[k];
    }
    return w;
}

static enum status plan_host(struct cpu_pass *pass, const struct cpu_op *op, struct conv *c)
{
    enum status st = ST_OK;
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    const struct layer *l = op->layer;
    dnnl_dims_t kernel = {l->out.dim[0], l->in.dim[0], l->kernel[0], l->kernel[1]};
    const struct cpu_md *w, *b;
    TRY(cpu_pass_md_create(pass, 4, kernel, dnnl_oihw, &w));
    TRY(cpu_pass_md_create(pass, 1, kernel, dnnl_a, &b));
    TRY(cpu_pass_tensor_create(pass, op, w, cfg->params[l->param[0]], &c->host_w));
    if (layer_has_bias(l))
        TRY(cpu_pass_tensor_create(pass, op, b, cfg->params[l->param[1]], &c->host_b));
    if (!cfg->inference_only) {
        TRY(cpu_pass_tensor_create(pass, op, w, cfg->grads[l->param[0]], &c->host_dw));
        if (layer_has_bias(l))
            TRY(cpu_pass_tensor_create(pass, op, b, cfg->grads[l->param[1]], &c->host_db));
    }
done:
    return st;
}

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct cpu_work w = conv_work(op->layer);
    struct cpu_tensor packed;
    TRY(cpu_pass_block_create(pass, sizeof(struct conv), &op->state));
    struct conv *c = op->state;
    TRY(plan_host(pass, op, c));
    c->type = cpu_precision_product_type(pass->plan, op->layer);
    TRY(cpu_pass_md_any(pass, op->x.md, c->type, &w.x));
    TRY(cpu_pass_md_any(pass, c->host_w.md, c->type, &w.w));
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &w.y));
    TRY(cpu_pass_md_any(pass, w.y, dnnl_f32, &w.y));
    w.b = c->host_b.md;
    w.prop = pass->plan->cfg.inference_only ? dnnl_forward_inference : dnnl_forward_training;
    TRY(cpu_pass_desc_create(pass, op, &w, cpu_pass_fuse_relu(pass, i), &c->forward_desc));
    TRY(cpu_pass_tensor_match(pass, op, &op->x,
                              cpu_dnnl_desc_md(c->forward_desc, dnnl_query_src_md), &c->src,
                              &c->match));
    TRY(cpu_pass_tensor_match(pass, op, &c->host_w,
                              cpu_dnnl_desc_md(c->forward_desc, dnnl_query_weights_md), &packed,
                              &c->load));
    TRY(cpu_pass_tensor_create(pass, op, cpu_dnnl_desc_md(c->forward_desc, dnnl_query_dst_md), NULL,
                               &op->y));
    TRY(cpu_pass_call_create(pass, op, c->forward_desc, &c->forward));
    cpu_pass_call_arg(&c->forward, DNNL_ARG_SRC, &c->src);
    cpu_pass_call_arg(&c->forward, DNNL_ARG_WEIGHTS, &packed);
    if (layer_has_bias(op->layer))
        cpu_pass_call_arg(&c->forward, DNNL_ARG_BIAS, &c->host_b);
    cpu_pass_call_arg(&c->forward, DNNL_ARG_DST, &op->y);
done:
    return st;
}

/* Plans the gradient with respect to the input. dy: in the format of the weights' gradient. */
static enum status plan_backward_data(struct cpu_pass *pass, int i, const struct cpu_tensor *dy)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct conv *c = op->state;
    struct cpu_work w = conv_work(op->layer);
    dnnl_primitive_desc_t pd;
    struct cpu_tensor diff, packed;
    w.what = CPU_CONV_BY_X;
    w.forward = c->forward_desc;
    TRY(cpu_pass_md_any(pass, op->x.md, dnnl_f32, &w.x));
    TRY(cpu_pass_md_any(pass, c->host_w.md, c->type, &w.w));
    TRY(cpu_pass_md_any(pass, op->y.md, c->type, &w.y));
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &pd));
    const struct cpu_md *md_dy = cpu_dnnl_desc_md(pd, dnnl_query_diff_dst_md);
    int again = !cpu_dnnl_md_equal(md_dy, dy->md);
    TRY(cpu_pass_tensor_match(pass, op, again ? &op->dy : dy, md_dy, &diff, &c->diff_x));
    TRY(cpu_pass_tensor_match(pass, op, &c->host_w, cpu_dnnl_desc_md(pd, dnnl_query_weights_md),
                              &packed, &c->load_back));
    TRY(cpu_pass_tensor_create(pass, op, cpu_dnnl_desc_md(pd, dnnl_query_diff_src_md), NULL,
                               op->dx));
    TRY(cpu_pass_call_create(pass, op, pd, &c->backward_x));
    cpu_pass_call_arg(&c->backward_x, DNNL_ARG_DIFF_DST, &diff);
    cpu_pass_call_arg(&c->backward_x, DNNL_ARG_WEIGHTS, &packed);
    cpu_pass_call_arg(&c->backward_x, DNNL_ARG_DIFF_SRC, op->dx);
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct conv *c = op->state;
    struct cpu_work w = conv_work(op->layer);
    dnnl_primitive_desc_t pd;
    struct cpu_tensor src, diff, dw;
    w.what = CPU_CONV_BY_W;
    w.forward = c->forward_desc;
    w.b = c->host_b.md;
    TRY(cpu_pass_md_any(pass, op->x.md, c->type, &w.x));
    TRY(cpu_pass_md_any(pass, c->host_w.md, dnnl_f32, &w.w));
    TRY(cpu_pass_md_any(pass, op->y.md, c->type, &w.y));
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &pd));
    const struct cpu_md *md_x = cpu_dnnl_desc_md(pd, dnnl_query_src_md);
    int again = !cpu_dnnl_md_equal(md_x, c->src.md);
    TRY(cpu_pass_tensor_match(pass, op, again ? &op->x : &c->src, md_x, &src, &c->src_back));
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, cpu_dnnl_desc_md(pd, dnnl_query_diff_dst_md),
                              &diff, &c->diff_w));
    const struct cpu_md *md_dw = cpu_dnnl_desc_md(pd, dnnl_query_diff_weights_md);
    dw = c->host_dw;
    if (!cpu_dnnl_md_equal(md_dw, c->host_dw.md)) {
        TRY(cpu_pass_tensor_create(pass, op, md_dw, NULL, &dw));
        TRY(cpu_pass_reorder_create(pass, op, &dw, &c->host_dw, &c->store));
    }
    TRY(cpu_pass_call_create(pass, op, pd, &c->backward_w));
    cpu_pass_call_arg(&c->backward_w, DNNL_ARG_SRC, &src);
    cpu_pass_call_arg(&c->backward_w, DNNL_ARG_DIFF_DST, &diff);
    cpu_pass_call_arg(&c->backward_w, DNNL_ARG_DIFF_WEIGHTS, &dw);
    if (layer_has_bias(op->layer))
        cpu_pass_call_arg(&c->backward_w, DNNL_ARG_DIFF_BIAS, &c->host_db);
    if (op->needs_dx)
        TRY(plan_backward_data(pass, i, &diff));
done:
    return st;
}

static enum status load(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct conv *c = op->state;
    TRY(cpu_pass_call_run(pass, op, &c->load));
    TRY(cpu_pass_call_run(pass, op, &c->load_back));
done:
    return st;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct conv *c = op->state;
    TRY(cpu_pass_call_run(pass, op, &c->match));
    TRY(cpu_pass_call_run(pass, op, &c->forward));
done:
    return st;
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct conv *c = op->state;
    const struct cpu_call *const calls[] = {&c->src_back, &c->diff_w, &c->backward_w,
                                            &c->store,    &c->diff_x, &c->backward_x};
    for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++)
        TRY(cpu_pass_call_run(pass, op, calls[k]));
done:
    return st;
}

const struct cpu_kind cpu_conv = {plan_forward, plan_backward, load, forward, backward};
