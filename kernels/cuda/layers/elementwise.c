/* kernels/cuda/layers/elementwise.c - layers that need at most one kernel: relu, flatten,
 * dropout. */
#include "base/log.h"
#include "base/rng.h"
#include "kernels/cuda/plan/plan.h"
#include <math.h>

/* ---- relu ---- */

/* Marks the tensors that a relu overwrites if it works in place: the output of the layer that it
 * reads, and the tensors in the same memory. */
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

/* ---- flatten: its output is the memory of its input ---- */

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
    struct gpu_dropout mask; /* n and position are set from the pass */
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
    /* dropout.cu draws a number of 24 bits for each unit, and drops the unit if number * 2^-24 <
     * rate. The kernel compares number < threshold instead; both comparisons are exact. */
    c->mask.threshold = (uint64_t)ceil((double)rate * 0x1p24);
    c->mask.scale = 1.0f / (1.0f - rate);
    if (plan->cfg.inference_only) {
        op->y = op->x;
        op->shared = 1; /* the previous layer must not overwrite its input either */
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
