/* kernels/cpu/dense.c - the fully connected layer. It reads the weights and writes the gradients in
 * the caller's memory, without copies. Measured on 64x3136 by 1024 (one core of a Xeon with
 * AVX-512): oneDNN's matrix product on plain weights needs 7.2 ms for the layer's three products.
 * Its packed kernels need 6.6 ms, but repacking the weights and unpacking their gradient costs
 * about 1 ms each. */
#include "base/log.h"
#include "kernels/cpu/kinds.h"
#include "kernels/cpu/precision.h"

struct dense {
    dnnl_primitive_desc_t forward_desc;
    dnnl_data_type_t type;       /* type of the factors that are multiplied; sums are floats */
    struct cpu_tensor src;       /* input in the format that the products require */
    struct cpu_tensor host_w, b; /* the caller's parameters; without a bias b is empty */
    struct cpu_tensor packed;    /* weights in the format that the forward requires */
    /* reorders of the weights to the formats of the forward and the backward */
    struct cpu_call load, load_back;
    struct cpu_call rows, forward, diff, diff_x, backward_w, backward_x;
};

/* Chooses the format of a factor: floats stay rows; bf16 factors get the format that oneDNN
 * prefers, because they are copied anyway. */
static enum status as_product(struct cpu_pass *pass, const struct cpu_op *op,
                              const struct cpu_md *md, const struct cpu_md **out)
{
    const struct dense *c = op->state;
    *out = md;
    return c->type == dnnl_f32 ? ST_OK : cpu_pass_md_any(pass, md, c->type, out);
}

static enum status plan_host(struct cpu_pass *pass, struct cpu_op *op)
{
    enum status st = ST_OK;
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    const struct layer *l = op->layer;
    struct dense *c = op->state;
    const struct cpu_md *w, *b;
    dnnl_dims_t dims = {l->out.dim[0], l->in.dim[0]};
    TRY(cpu_pass_md_create(pass, 2, dims, dnnl_ab, &w));
    TRY(cpu_pass_md_create(pass, 1, dims, dnnl_a, &b));
    TRY(cpu_pass_tensor_create(pass, op, w, cfg->params[l->param[0]], &c->host_w));
    if (layer_has_bias(l))
        TRY(cpu_pass_tensor_create(pass, op, b, cfg->params[l->param[1]], &c->b));
done:
    return st;
}

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct layer *l = op->layer;
    struct cpu_work w = {.what = CPU_DENSE};
    if (l->in.n_dims != 1 || l->out.n_dims != 1) {
        LOG_E("layer '%s': a dense layer needs a flat input; put a flatten before it", l->name);
        return ST_UNSUPPORTED;
    }
    TRY(cpu_pass_block_create(pass, sizeof(struct dense), &op->state));
    struct dense *c = op->state;
    c->type = cpu_precision_product_type(pass->plan, l);
    TRY(plan_host(pass, op));
    TRY(cpu_pass_md_plain(pass, op, &l->in, &w.x));
    TRY(cpu_pass_md_plain(pass, op, &l->out, &w.y));
    TRY(as_product(pass, op, w.x, &w.x));
    TRY(as_product(pass, op, c->host_w.md, &w.w));
    w.b = c->b.md;
    w.prop = pass->plan->cfg.inference_only ? dnnl_forward_inference : dnnl_forward_training;
    TRY(cpu_pass_desc_create(pass, op, &w, cpu_pass_fuse_relu(pass, i), &c->forward_desc));
    TRY(cpu_pass_tensor_match(
        pass, op, &op->x, cpu_dnnl_desc_md(c->forward_desc, dnnl_query_src_md), &c->src, &c->rows));
    TRY(cpu_pass_tensor_match(pass, op, &c->host_w,
                              cpu_dnnl_desc_md(c->forward_desc, dnnl_query_weights_md), &c->packed,
                              &c->load));
    TRY(cpu_pass_tensor_create(pass, op, w.y, NULL, &op->y));
    TRY(cpu_pass_call_create(pass, op, c->forward_desc, &c->forward));
    cpu_pass_call_arg(&c->forward, DNNL_ARG_SRC, &c->src);
    cpu_pass_call_arg(&c->forward, DNNL_ARG_WEIGHTS, &c->packed);
    if (layer_has_bias(l))
        cpu_pass_call_arg(&c->forward, DNNL_ARG_BIAS, &c->b);
    cpu_pass_call_arg(&c->forward, DNNL_ARG_DST, &op->y);
done:
    return st;
}

/* Plans the gradient with respect to the input. dy: in the format of the weights' gradient. */
static enum status plan_backward_data(struct cpu_pass *pass, struct cpu_op *op,
                                      const struct cpu_tensor *dy)
{
    enum status st = ST_OK;
    struct dense *c = op->state;
    struct cpu_tensor diff, packed;
    dnnl_primitive_desc_t pd;
    struct cpu_work w = {.what = CPU_DENSE_BY_X, .forward = c->forward_desc};
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &w.x));
    TRY(as_product(pass, op, c->host_w.md, &w.w));
    TRY(as_product(pass, op, op->y.md, &w.y));
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &pd));
    const struct cpu_md *md_dy = cpu_dnnl_desc_md(pd, dnnl_query_diff_dst_md);
    int again = !cpu_dnnl_md_equal(md_dy, dy->md);
    TRY(cpu_pass_tensor_match(pass, op, again ? &op->dy : dy, md_dy, &diff, &c->diff_x));
    const struct cpu_md *md_w = cpu_dnnl_desc_md(pd, dnnl_query_weights_md);
    if (cpu_dnnl_md_equal(md_w, c->packed.md))
        packed = c->packed;
    else
        TRY(cpu_pass_tensor_match(pass, op, &c->host_w, md_w, &packed, &c->load_back));
    TRY(cpu_pass_tensor_create(pass, op, w.x, NULL, op->dx));
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
    struct dense *c = op->state;
    float *const *grads = pass->plan->cfg.grads;
    dnnl_primitive_desc_t pd;
    struct cpu_tensor dy, dw, db;
    struct cpu_work w = {.what = CPU_DENSE_BY_W,
                         .x = c->src.md,
                         .w = c->host_w.md,
                         .b = c->b.md,
                         .forward = c->forward_desc};
    TRY(as_product(pass, op, op->y.md, &w.y));
    TRY(cpu_pass_tensor_create(pass, op, c->host_w.md, grads[op->layer->param[0]], &dw));
    if (layer_has_bias(op->layer))
        TRY(cpu_pass_tensor_create(pass, op, c->b.md, grads[op->layer->param[1]], &db));
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &pd));
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, cpu_dnnl_desc_md(pd, dnnl_query_diff_dst_md), &dy,
                              &c->diff));
    TRY(cpu_pass_call_create(pass, op, pd, &c->backward_w));
    cpu_pass_call_arg(&c->backward_w, DNNL_ARG_SRC, &c->src);
    cpu_pass_call_arg(&c->backward_w, DNNL_ARG_DIFF_DST, &dy);
    cpu_pass_call_arg(&c->backward_w, DNNL_ARG_DIFF_WEIGHTS, &dw);
    if (layer_has_bias(op->layer))
        cpu_pass_call_arg(&c->backward_w, DNNL_ARG_DIFF_BIAS, &db);
    if (op->needs_dx)
        TRY(plan_backward_data(pass, op, &dy));
done:
    return st;
}

static enum status load(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct dense *c = op->state;
    TRY(cpu_pass_call_run(pass, op, &c->load));
    TRY(cpu_pass_call_run(pass, op, &c->load_back));
done:
    return st;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct dense *c = op->state;
    TRY(cpu_pass_call_run(pass, op, &c->rows));
    TRY(cpu_pass_call_run(pass, op, &c->forward));
done:
    return st;
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct dense *c = op->state;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    TRY(cpu_pass_call_run(pass, op, &c->backward_w));
    TRY(cpu_pass_call_run(pass, op, &c->diff_x));
    TRY(cpu_pass_call_run(pass, op, &c->backward_x));
done:
    return st;
}

const struct cpu_kind cpu_dense = {plan_forward, plan_backward, load, forward, backward};
