/* kernels/cuda/layers/pool.c - max and average pools. */
#include "base/log.h"
#include "kernels/cuda/conv/channels.h"
#include "kernels/cuda/conv/conv_first.h"
#include "kernels/cuda/plan/plan.h"

struct pool {
    struct gpu_window window; /* window over one sample; planes: number of channels */
    int32_t *winner;          /* max: [batch][elems(out)] */
    /* true for a max pool that is the only reader of a relu: its backward includes the relu's */
    int relu;
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
