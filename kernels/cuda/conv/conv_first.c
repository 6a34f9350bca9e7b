/* kernels/cuda/conv/conv_first.c - a network's first convolution, of images with one channel, by
 * Weir's kernels (conv_first.cu) instead of cuDNN's: --gpu_tuning=first_conv. There is no gradient
 * with respect to the image. The layer includes bias, relu, and a max pool of adjacent 2x2 windows.
 * The kernels pad by themselves, so no padded copy is made. They do not round, so conv.c handles
 * bf16. */
#include "kernels/cuda/conv/conv_first.h"
#include "base/log.h"
#include "kernels/cuda/conv/conv_first_kernels.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/tuning.h"

struct first {
    int relu;
    int pool; /* index of the max pool that this layer computes together with its relu; -1: none */
    int joined; /* the kernel writes only the pool's maxima, not the convolution's output */
};

static struct gpu_conv_first shape_of(const struct layer *l, int n)
{
    return (struct gpu_conv_first){.n = n,
                                   .filters = (int)l->out.dim[0],
                                   .in_h = (int)l->in.dim[1],
                                   .in_w = (int)l->in.dim[2],
                                   .out_h = (int)l->out.dim[1],
                                   .out_w = (int)l->out.dim[2],
                                   .kernel = l->kernel[0],
                                   .stride = l->stride[0],
                                   .pad_h = l->pad_lo[0],
                                   .pad_w = l->pad_lo[1]};
}

/* Returns true if the kernel and the strides are equal on both axes, and the output has the size
 * that follows from them. conv.c refuses invalid shapes. */
static int shape_fits(const struct layer *l, int batch)
{
    struct gpu_conv_first c = shape_of(l, batch);
    if (l->kernel[0] != l->kernel[1] || l->stride[0] != l->stride[1] ||
        l->out.dim[0] > GPU_CONV_FIRST_MAX_FILTERS || !gpu_conv_first_fits(&c))
        return 0;
    for (int k = 0; k < 2; k++) {
        int64_t padded = l->in.dim[1 + k] + l->pad_lo[k] + l->pad_hi[k];
        if (padded < c.kernel || (padded - c.kernel) / c.stride + 1 != l->out.dim[1 + k])
            return 0;
    }
    return 1;
}

int gpu_conv_first_accepts(const struct gpu_plan *plan, int i)
{
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    if (!(plan->cfg.tuning & TUNING_FIRST_CONV) || op->kind != &gpu_conv || op->needs_dx ||
        l->in.n_dims != 3 || l->out.n_dims != 3 || l->in.dim[0] != 1)
        return 0;
    int rounds = plan->cfg.precision == BACKEND_BF16;
    if (!rounds && layer_has_bias(l) && shape_fits(l, plan->cfg.batch))
        return 1;
    if (!(plan->cfg.tuning & TUNING_AUTO))
        LOG_I(
            "layer '%s': the first_conv kernel cannot compute this convolution, because %s; cuDNN computes it",
            l->name,
            rounds               ? "it does not round to bf16"
            : !layer_has_bias(l) ? "it always adds a bias"
                                 : "it supports only small images and square kernels");
    return 0;
}

/* Returns true if a relu is the only reader of this layer, and a pool with windows that the kernel
 * supports is the only reader of the relu. */
static int pool_joins(const struct gpu_plan *plan, int i)
{
    int relu = plan->node[i].reader, pool = relu < 0 ? -1 : plan->node[relu].reader;
    if (pool < 0)
        return 0;
    const struct layer *l = &plan->cfg.layers[pool], *conv = plan->ops[i].layer;
    for (int k = 0; k < 2; k++)
        if (l->kernel[k] != 2 || l->stride[k] != 2 || l->pad_lo[k] != 0 || l->out.n_dims != 3 ||
            l->out.dim[1 + k] > (conv->out.dim[1 + k] + 1) / 2)
            return 0;
    return 1;
}

static enum status first_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    struct gpu_conv_first c = shape_of(op->layer, plan->cfg.batch);
    struct first *s;
    TRY(gpu_plan_state_create(op, sizeof *s, &s));
    s->relu = gpu_plan_fuse_relu(plan, i);
    s->pool = pool_joins(plan, i) ? gpu_plan_join_pool(plan, i) : gpu_plan_fuse_pool(plan, i);
    s->joined = s->pool >= 0 && pool_joins(plan, i);
    if (s->pool < 0)
        TRY(gpu_plan_reserve_output(plan, op));
    if (!plan->cfg.inference_only && gpu_conv_first_scratch(&c) > plan->scratch_elems)
        plan->scratch_elems = gpu_conv_first_scratch(&c);
done:
    return st;
}

static enum status first_forward(struct gpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    const struct first *s = op->state;
    const float *bias = plan->params[l->param[1]].d;
    struct gpu_conv_first c = shape_of(l, pass->n);
    struct gpu_conv_first_end end = {.bias = bias, .relu = s->relu};
    float *y = *op->y;
    if (s->joined) {
        const struct shape *pooled = &plan->ops[s->pool].layer->out;
        end.winner = gpu_pool_places(plan, s->pool);
        end.pool_h = (int)pooled->dim[1];
        end.pool_w = (int)pooled->dim[2];
        y = *plan->ops[s->pool].y;
    } else if (s->pool >= 0) { /* otherwise the pool's kernel adds bias and relu */
        end.bias = NULL;
        end.relu = 0;
    }
    TRY(gpu_check_kernel(
        op, "first convolution kernel",
        gpu_conv_first_forward(plan->compute, &c, *op->x, plan->params[l->param[0]].d, y, &end)));
    if (s->pool >= 0 && !s->joined)
        TRY(gpu_pool_forward_biased(pass, s->pool, bias));
done:
    return st;
}

static enum status first_backward(struct gpu_pass *pass, int i)
{
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct gpu_conv_first c = shape_of(l, pass->n);
    struct gpu_conv_first_grad g = {plan->params[l->param[0]].d_grad,
                                    plan->params[l->param[1]].d_grad, plan->scratch};
    return gpu_check_kernel(op, "first convolution gradient kernel",
                            gpu_conv_first_backward(plan->compute, &c, *op->x, *op->dy, &g));
}

const struct gpu_kind gpu_conv_first = {first_plan, NULL, first_forward, first_backward, 0, 0};
