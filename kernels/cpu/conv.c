/* kernels/cpu/conv.c - 2-D convolution. oneDNN chooses all formats; weights are repacked when they
 * are new (they are small), and their gradient is unpacked straight into the caller's. */
#include "kernels/cpu/kinds.h"
#include "kernels/cpu/precision.h"

struct conv {
    dnnl_primitive_desc_t forward_desc;
    dnnl_data_type_t type;            /* of what products are made of; sums are floats */
    struct cpu_tensor src;            /* input, as the forward wants it */
    struct cpu_tensor host_w, host_b; /* the caller's parameters */
    struct cpu_tensor host_dw, host_db;
    struct cpu_call load, load_back; /* weights into the forward's and the backward's format */
    struct cpu_call match, forward;  /* match: input into src */
    struct cpu_call diff_w, diff_x;  /* gradient of y into the format each backward wants */
    struct cpu_call src_back;
    struct cpu_call backward_w, backward_x, store; /* store: weights' gradient to the caller */
};

static void conv_dims(const struct layer *l, dnnl_dims_t kernel, dnnl_dims_t stride, dnnl_dims_t lo,
                      dnnl_dims_t hi)
{
    kernel[0] = l->out.dim[0];
    kernel[1] = l->in.dim[0];
    for (int k = 0; k < 2; k++) {
        kernel[2 + k] = l->kernel[k];
        stride[k] = l->stride[k];
        lo[k] = l->pad_lo[k];
        hi[k] = l->pad_hi[k];
    }
}

static enum status plan_host(struct cpu_pass *pass, const struct cpu_op *op, struct conv *c)
{
    enum status st = ST_OK;
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    const struct layer *l = op->layer;
    dnnl_dims_t kernel, stride, lo, hi, bias = {l->out.dim[0]};
    dnnl_memory_desc_t md_w, md_b;
    conv_dims(l, kernel, stride, lo, hi);
    TRY(cpu_status(op, "describe its weights",
                   dnnl_memory_desc_init_by_tag(&md_w, 4, kernel, dnnl_f32, dnnl_oihw)));
    TRY(cpu_status(op, "describe its bias",
                   dnnl_memory_desc_init_by_tag(&md_b, 1, bias, dnnl_f32, dnnl_a)));
    TRY(cpu_tensor_create(pass, op, &md_w, cfg->params[l->param[0]], &c->host_w));
    TRY(cpu_tensor_create(pass, op, &md_b, cfg->params[l->param[1]], &c->host_b));
    if (!cfg->inference_only) {
        TRY(cpu_tensor_create(pass, op, &md_w, cfg->grads[l->param[0]], &c->host_dw));
        TRY(cpu_tensor_create(pass, op, &md_b, cfg->grads[l->param[1]], &c->host_db));
    }
done:
    return st;
}

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    dnnl_dims_t kernel, stride, lo, hi;
    dnnl_memory_desc_t x, w, y;
    dnnl_convolution_desc_t d;
    struct cpu_tensor packed;
    TRY(cpu_block_create(pass, sizeof(struct conv), &op->state));
    struct conv *c = op->state;
    TRY(plan_host(pass, op, c));
    conv_dims(op->layer, kernel, stride, lo, hi);
    TRY(cpu_md_plain(op, pass->n, &op->layer->out, &y));
    c->type = cpu_product_type(pass->plan, op->layer);
    x = cpu_md_any(op->x.md, c->type);
    w = cpu_md_any(c->host_w.md, c->type);
    y = cpu_md_any(y, dnnl_f32);
    TRY(cpu_status(
        op, "describe this convolution",
        dnnl_convolution_forward_desc_init(
            &d, pass->plan->cfg.inference_only ? dnnl_forward_inference : dnnl_forward_training,
            dnnl_convolution_direct, &x, &w, &c->host_b.md, &y, stride, lo, hi)));
    TRY(cpu_desc_create(pass, op, &d, cpu_relu_fuse(pass, i), NULL, &c->forward_desc));
    TRY(cpu_tensor_match(pass, op, &op->x, cpu_desc_md(c->forward_desc, dnnl_query_src_md), &c->src,
                         &c->match));
    TRY(cpu_tensor_match(pass, op, &c->host_w, cpu_desc_md(c->forward_desc, dnnl_query_weights_md),
                         &packed, &c->load));
    TRY(cpu_tensor_create(pass, op, cpu_desc_md(c->forward_desc, dnnl_query_dst_md), NULL, &op->y));
    TRY(cpu_call_create(pass, op, c->forward_desc, &c->forward));
    cpu_call_arg(&c->forward, DNNL_ARG_SRC, &c->src);
    cpu_call_arg(&c->forward, DNNL_ARG_WEIGHTS, &packed);
    cpu_call_arg(&c->forward, DNNL_ARG_BIAS, &c->host_b);
    cpu_call_arg(&c->forward, DNNL_ARG_DST, &op->y);
done:
    return st;
}

/* dy: as the weights' gradient takes it. */
static enum status plan_backward_data(struct cpu_pass *pass, int i, const struct cpu_tensor *dy)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct conv *c = op->state;
    dnnl_dims_t kernel, stride, lo, hi;
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t pd;
    struct cpu_tensor diff, packed;
    conv_dims(op->layer, kernel, stride, lo, hi);
    dnnl_memory_desc_t x = cpu_md_any(op->x.md, dnnl_f32), w = cpu_md_any(c->host_w.md, c->type),
                       y = cpu_md_any(op->y.md, c->type);
    TRY(cpu_status(op, "describe this convolution's gradient",
                   dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &x, &w, &y,
                                                            stride, lo, hi)));
    TRY(cpu_desc_create(pass, op, &d, 0, c->forward_desc, &pd));
    const dnnl_memory_desc_t *md_dy = cpu_desc_md(pd, dnnl_query_diff_dst_md);
    int again = !dnnl_memory_desc_equal(md_dy, &dy->md);
    TRY(cpu_tensor_match(pass, op, again ? &op->dy : dy, md_dy, &diff, &c->diff_x));
    TRY(cpu_tensor_match(pass, op, &c->host_w, cpu_desc_md(pd, dnnl_query_weights_md), &packed,
                         &c->load_back));
    TRY(cpu_tensor_create(pass, op, cpu_desc_md(pd, dnnl_query_diff_src_md), NULL, op->dx));
    TRY(cpu_call_create(pass, op, pd, &c->backward_x));
    cpu_call_arg(&c->backward_x, DNNL_ARG_DIFF_DST, &diff);
    cpu_call_arg(&c->backward_x, DNNL_ARG_WEIGHTS, &packed);
    cpu_call_arg(&c->backward_x, DNNL_ARG_DIFF_SRC, op->dx);
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct conv *c = op->state;
    const struct cpu_tensor *dy = &op->dy;
    dnnl_dims_t kernel, stride, lo, hi;
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t pd;
    struct cpu_tensor src, diff, dw;
    conv_dims(op->layer, kernel, stride, lo, hi);
    dnnl_memory_desc_t x = cpu_md_any(op->x.md, c->type), w = cpu_md_any(c->host_w.md, dnnl_f32),
                       y = cpu_md_any(op->y.md, c->type);
    TRY(cpu_status(op, "describe this convolution's gradient",
                   dnnl_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &x, &w,
                                                               &c->host_b.md, &y, stride, lo, hi)));
    TRY(cpu_desc_create(pass, op, &d, 0, c->forward_desc, &pd));
    const dnnl_memory_desc_t *md_x = cpu_desc_md(pd, dnnl_query_src_md);
    int again = !dnnl_memory_desc_equal(md_x, &c->src.md);
    TRY(cpu_tensor_match(pass, op, again ? &op->x : &c->src, md_x, &src, &c->src_back));
    TRY(cpu_tensor_match(pass, op, dy, cpu_desc_md(pd, dnnl_query_diff_dst_md), &diff, &c->diff_w));
    const dnnl_memory_desc_t *md_dw = cpu_desc_md(pd, dnnl_query_diff_weights_md);
    dw = c->host_dw;
    if (!dnnl_memory_desc_equal(md_dw, &c->host_dw.md)) {
        TRY(cpu_tensor_create(pass, op, md_dw, NULL, &dw));
        TRY(cpu_reorder_create(pass, op, &dw, &c->host_dw, &c->store));
    }
    TRY(cpu_call_create(pass, op, pd, &c->backward_w));
    cpu_call_arg(&c->backward_w, DNNL_ARG_SRC, &src);
    cpu_call_arg(&c->backward_w, DNNL_ARG_DIFF_DST, &diff);
    cpu_call_arg(&c->backward_w, DNNL_ARG_DIFF_WEIGHTS, &dw);
    cpu_call_arg(&c->backward_w, DNNL_ARG_DIFF_BIAS, &c->host_db);
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
    TRY(cpu_call_run(pass, op, &c->load));
    TRY(cpu_call_run(pass, op, &c->load_back));
done:
    return st;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct conv *c = op->state;
    TRY(cpu_call_run(pass, op, &c->match));
    TRY(cpu_call_run(pass, op, &c->forward));
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
        TRY(cpu_call_run(pass, op, calls[k]));
done:
    return st;
}

const struct cpu_kind cpu_conv = {plan_forward, plan_backward, load, forward, backward};
