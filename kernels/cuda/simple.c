/* kernels/cuda/simple.c - layers that are one kernel of ours or none: relu, flatten, dropout,
 * pools. */
#include "base/log.h"
#include "base/rng.h"
#include "kernels/cuda/channels.h"
#include "kernels/cuda/conv_first.h"
#include "kernels/cuda/plan.h"
#include <math.h>

/* ---- relu ---- */

/* Notes whose outputs a relu in place writes over: that of the layer which it reads, and those that
 * are this one under another name. */
static void overwrite_input(struct gpu_plan *plan, int from)
{
    while (from >= 0) {
        struct gpu_op *op = &plan->ops[from];
        op->overwritten = 1;
        from = op->kind != NULL && op->y == op->x ? op->layer->input[0] : -1;
    }
}

static enum status relu_plan(struct gpu_plan *plan, int i)
{
    struct gpu_op *op = &plan->ops[i];
    int from = op->layer->input[0];
    if (from < 0 ? plan->image_readers > 1 : plan->ops[from].shared)
        return gpu_plan_reserve_output(plan, op);
    op->y = op->x;
    overwrite_input(plan, from);
    return ST_OK;
}

static enum status relu_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    if (op->done_before)
        return ST_OK;
    return gpu_check_kernel(op, "relu kernel",
                            gpu_relu_forward(pass->plan->compute, *op->x, *op->y,
                                             pass->n * shape_elems(&op->layer->out)));
}

static enum status relu_backward(struct gpu_pass *pass, int i)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    if (!op->needs_dx || (op->relu_masked && op->dx == op->dy))
        return ST_OK;
    return gpu_check_kernel(op, "relu gradient kernel",
                            gpu_relu_backward(pass->plan->compute, *op->y, *op->dy, *op->dx,
                                              pass->n * shape_elems(&op->layer->out)));
}

const struct gpu_kind gpu_relu = {relu_plan,         NULL, relu_forward, relu_backward,
                                  GPU_DIFF_IN_PLACE, 0};

/* ---- flatten: a change of name ---- */

static enum status flatten_plan(struct gpu_plan *plan, int i)
{
    plan->ops[i].y = plan->ops[i].x;
    return ST_OK;
}

static enum status flatten_forward(struct gpu_pass *pass, int i, int train)
{
    return ST_OK;
}

static enum status flatten_backward(struct gpu_pass *pass, int i)
{
    return ST_OK;
}

const struct gpu_kind gpu_flatten = {flatten_plan,     NULL,          flatten_forward,
                                     flatten_backward, GPU_DIFF_SAME, 0};

/* ---- dropout ---- */

struct dropout {
    struct gpu_dropout mask; /* n and position: the pass's */
};

static enum status dropout_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    struct dropout *c;
    float rate = op->layer->rate;
    if (!(rate >= 0.0f && rate < 1.0f)) {
        LOG_E("layer '%s': the rate of a dropout must be at least 0 and below 1, not %g",
              op->layer->name, (double)rate);
        return ST_UNSUPPORTED;
    }
    TRY(gpu_plan_state_create(op, sizeof *c, &c));
    c->mask.elems = shape_elems(&op->layer->in);
    c->mask.key = rng_key(plan->cfg.seed, RNG_DROPOUT, (uint64_t)i);
    /* k * 2^-24 < rate, without the product: exact, as both sides are */
    c->mask.threshold = (uint64_t)ceil((double)rate * 0x1p24);
    c->mask.scale = 1.0f / (1.0f - rate);
    if (plan->cfg.inference_only) {
        op->y = op->x;
        op->shared = 1; /* what it reads must stay, too */
    } else {
        TRY(gpu_plan_reserve_output(plan, op));
    }
done:
    return st;
}

static struct gpu_dropout mask_of(const struct gpu_pass *pass, const struct dropout *c)
{
    struct gpu_dropout mask = c->mask;
    mask.n = pass->n;
    mask.position = pass->plan->d.position;
    return mask;
}

static enum status pass_through(const struct gpu_pass *pass, const struct gpu_op *op,
                                const float *from, float *to)
{
    size_t bytes = (size_t)(pass->n * shape_elems(&op->layer->out)) * sizeof(float);
    return gpu_check_cuda(
        op, "cudaMemcpyAsync",
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, pass->plan->compute));
}

static enum status dropout_forward(struct gpu_pass *pass, int i, int train)
{
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    struct gpu_dropout mask = mask_of(pass, op->state);
    if (op->y == op->x)
        return ST_OK;
    if (train)
        return gpu_check_kernel(op, "dropout kernel",
                                gpu_dropout_apply(plan->compute, *op->x, *op->y, &mask));
    return pass_through(pass, op, *op->x, *op->y);
}

static enum status dropout_backward(struct gpu_pass *pass, int i)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_dropout mask = mask_of(pass, op->state);
    int dropped = pass->plan->trains;
    if (!op->needs_dx || (!dropped && op->dx == op->dy))
        return ST_OK;
    if (!dropped)
        return pass_through(pass, op, *op->dy, *op->dx);
    return gpu_check_kernel(op, "dropout gradient kernel",
                            gpu_dropout_apply(pass->plan->compute, *op->dy, *op->dx, &mask));
}

const struct gpu_kind gpu_dropout = {dropout_plan,      NULL, dropout_forward, dropout_backward,
                                     GPU_DIFF_IN_PLACE, 0};

/* ---- pools ---- */

struct pool {
    struct gpu_window window; /* of one sample; planes: channels */
    int32_t *winner;          /* max: [batch][elems(out)] */
    int relu;                 /* max: it alone reads a relu, whose backward is part of its own */
};

static enum status pool_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    const struct layer *l = op->layer;
    struct pool *c;
    if (l->in.n_dims != 3 || l->out.n_dims != 3) {
        LOG_E("layer '%s': a pool needs images (C,H,W)", l->name);
        return ST_UNSUPPORTED;
    }
    TRY(gpu_plan_state_create(op, sizeof *c, &c));
    c->window = (struct gpu_window){.planes = l->in.dim[0],
                                    .in_h = (int)l->in.dim[1],
                                    .in_w = (int)l->in.dim[2],
                                    .out_h = (int)l->out.dim[1],
                                    .out_w = (int)l->out.dim[2],
                                    .kernel_h = l->kernel[0],
                                    .kernel_w = l->kernel[1],
                                    .stride_h = l->stride[0],
                                    .stride_w = l->stride[1],
                                    .pad_h = l->pad_lo[0],
                                    .pad_w = l->pad_lo[1]};
    TRY(gpu_plan_reserve_output(plan, op));
    int from = l->input[0];
    c->relu = l->kind == LAYER_MAX_POOL && from >= 0 && plan->node[from].reader == i &&
              plan->cfg.layers[from].kind == LAYER_RELU;
    if (c->relu)
        plan->ops[from].relu_masked = 1;
    if (l->kind == LAYER_MAX_POOL)
        TRY(gpu_arena_reserve(&plan->arena, l->name, "places of maxima",
                              (uint64_t)plan->cfg.batch * (uint64_t)shape_elems(&l->out) *
                                  sizeof(int32_t),
                              &c->winner));
done:
    return st;
}

static struct gpu_window window_of(const struct gpu_pass *pass, const struct pool *c)
{
    struct gpu_window w = c->window;
    w.planes *= pass->n;
    return w;
}

static enum status max_forward(struct gpu_pass *pass, int i)
{
    cudaStream_t stream = pass->plan->compute;
    const struct gpu_op *op = &pass->plan->ops[i];
    const struct pool *c = op->state;
    struct gpu_pool_last last = {window_of(pass, c), c->window.planes, op->y_last};
    int code = op->x_last ? gpu_pool_last_forward(stream, *op->x, *op->y, c->winner, &last)
                          : gpu_pool_max_forward(stream, *op->x, *op->y, c->winner, &last.window);
    return gpu_check_kernel(op, "pool kernel", code);
}

static enum status pool_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_window w = window_of(pass, op->state);
    if (op->done_before)
        return ST_OK;
    if (op->layer->kind == LAYER_MAX_POOL)
        return max_forward(pass, i);
    return gpu_check_kernel(op, "pool kernel",
                            gpu_pool_avg_forward(pass->plan->compute, *op->x, *op->y, &w));
}

enum status gpu_pool_forward_biased(struct gpu_pass *pass, int i, const float *bias)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    const struct pool *c = op->state;
    struct gpu_window w = window_of(pass, c);
    struct gpu_bias b = {bias, c->window.planes};
    if (bias == NULL)
        return max_forward(pass, i);
    return gpu_check_kernel(
        op, "bias, relu and pool kernel",
        gpu_bias_relu_pool(pass->plan->compute, *op->x, &b, *op->y, c->winner, &w));
}

int32_t *gpu_pool_places(const struct gpu_plan *plan, int i)
{
    return ((const struct pool *)plan->ops[i].state)->winner;
}

static enum status pool_backward(struct gpu_pass *pass, int i)
{
    cudaStream_t stream = pass->plan->compute;
    const struct gpu_op *op = &pass->plan->ops[i];
    const struct pool *c = op->state;
    struct gpu_pool_last last = {window_of(pass, c), c->window.planes, op->y_last};
    const struct gpu_window *w = &last.window;
    const float *mask = c->relu ? *op->y : NULL;
    if (!op->needs_dx)
        return ST_OK;
    int code =
        op->layer->kind != LAYER_MAX_POOL ? gpu_pool_avg_backward(stream, *op->dy, *op->dx, w)
        : op->x_last ? gpu_pool_last_backward(stream, *op->dy, c->winner, mask, *op->dx, &last)
                     : gpu_pool_max_backward(stream, *op->dy, c->winner, mask, *op->dx, w);
    return gpu_check_kernel(op, "pool gradient kernel", code);
}

const struct gpu_kind gpu_pool = {pool_plan, NULL, pool_forward, pool_backward, 0, 0};
