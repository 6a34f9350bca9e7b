/* kernels/cpu/activation.c - sigmoid, tanh, gelu, silu and leaky_relu by oneDNN, in the format of
 * the input. The gradient is computed from the input, so no layer may overwrite the input. A relu
 * that also reads the input does not overwrite it, because a relu works in place only if it is the
 * only reader of its input, but here the activation reads the input, too. */
#include "kernels/cpu/kinds.h"

struct activation {
    dnnl_primitive_desc_t forward_desc;
    struct cpu_tensor dy; /* gradient with respect to the output, in the format of x */
    struct cpu_call forward, diff, backward;
};

static struct cpu_work activation_work(const struct cpu_op *op)
{
    static const dnnl_alg_kind_t alg[LAYER_N_KINDS] = {[LAYER_SIGMOID] = dnnl_eltwise_logistic,
                                                       [LAYER_TANH] = dnnl_eltwise_tanh,
                                                       [LAYER_GELU] = dnnl_eltwise_gelu_erf,
                                                       [LAYER_SILU] = dnnl_eltwise_swish,
                                                       [LAYER_LEAKY_RELU] = dnnl_eltwise_relu};
    const struct layer *l = op->layer;
    return (struct cpu_work){
        .alg = alg[l->kind], .alpha = l->kind == LAYER_LEAKY_RELU ? l->slope : 1.0f, .x = op->x.md};
}

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct cpu_work w = activation_work(op);
    TRY(cpu_pass_block_create(pass, sizeof(struct activation), &op->state));
    struct activation *c = op->state;
    w.what = CPU_ELTWISE;
    w.prop = pass->plan->cfg.inference_only ? dnnl_forward_inference : dnnl_forward_training;
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &c->forward_desc));
    TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, &op->y));
    TRY(cpu_pass_call_create(pass, op, c->forward_desc, &c->forward));
    cpu_pass_call_arg(&c->forward, DNNL_ARG_SRC, &op->x);
    cpu_pass_call_arg(&c->forward, DNNL_ARG_DST, &op->y);
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct activation *c = op->state;
    struct cpu_work w = activation_work(op);
    dnnl_primitive_desc_t pd;
    if (!op->needs_dx)
        return ST_OK;
    w.what = CPU_ELTWISE_BY_X;
    w.forward = c->forward_desc;
    TRY(cpu_pass_desc_create(pass, op, &w, 0, &pd));
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->x.md, &c->dy, &c->diff));
    TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, op->dx));
    TRY(cpu_pass_call_create(pass, op, pd, &c->backward));
    cpu_pass_call_arg(&c->backward, DNNL_ARG_SRC, &op->x);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_DST, &c->dy);
    cpu_pass_call_arg(&c->backward, DNNL_ARG_DIFF_SRC, op->dx);
done:
    return st;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    const struct activation *c = pass->ops[i].state;
    return cpu_pass_call_run(pass, &pass->ops[i], &c->forward);
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct activation *c = op->state;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    TRY(cpu_pass_call_run(pass, op, &c->backward));
done:
    return st;
}

const struct cpu_kind cpu_activation = {plan_forward, plan_backward, NULL, forward, backward};
