/* kernels/cuda/layers/join.c - layers with several inputs: add, concat and multiply. */
#include "kernels/cuda/layers/rows.h"
#include "kernels/cuda/plan/edges.h"

static int64_t input_elems(const struct gpu_plan *plan, const struct layer *l, int k)
{
    const struct layer *layers = plan->cfg.layers;
    return shape_elems(l->input[k] < 0 ? &layers[0].in : &layers[l->input[k]].out);
}

/* ---- add ---- */

struct add {
    int relu;
};

static enum status add_plan(struct gpu_plan *plan, int i)
{
    enum status st = ST_OK;
    struct gpu_op *op = &plan->ops[i];
    struct add *c;
    TRY(gpu_plan_state_create(op, sizeof *c, &c));
    c->relu = gpu_plan_fuse_relu(plan, i);
    TRY(gpu_plan_reserve_output(plan, op));
done:
    return st;
}

static enum status add_forward(struct gpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const struct add *c = op->state;
    int64_t elems = pass->n * shape_elems(&op->layer->out);
    for (int k = 1; k < op->layer->n_inputs; k++)
        TRY(gpu_check_kernel(op, "sum kernel",
                             gpu_add(plan->compute, k > 1 ? *op->y : *op->x,
                                     *gpu_edges_input(plan, i, k), *op->y, elems,
                                     c->relu && k == op->layer->n_inputs - 1)));
done:
    return st;
}

static enum status add_backward(struct gpu_pass *pass, int i)
{
    return ST_OK;
}

const struct gpu_kind gpu_join_add = {add_plan, NULL, add_forward, add_backward, GPU_DIFF_SAME, 0};

/* ---- concat ---- */

static enum status concat_plan(struct gpu_plan *plan, int i)
{
    return gpu_plan_reserve_output(plan, &plan->ops[i]);
}

static enum status concat_forward(struct gpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    float *y = *op->y;
    struct gpu_rows rows = {.n = pass->n, .dst_row = shape_elems(&op->layer->out)};
    for (int k = 0; k < op->layer->n_inputs; k++) {
        rows.elems = rows.src_row = input_elems(plan, op->layer, k);
        TRY(gpu_check_kernel(
            op, "concat kernel",
            gpu_concat_rows(plan->compute, *gpu_edges_input(plan, i, k), y, rows)));
        y += rows.elems;
    }
done:
    return st;
}

static enum status concat_backward(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    const float *dy = *op->dy;
    struct gpu_rows rows = {.n = pass->n, .src_row = shape_elems(&op->layer->out)};
    for (int k = 0; k < op->layer->n_inputs; k++) {
        int dx = plan->diffs.ops[i].edge[k].dx;
        rows.elems = rows.dst_row = input_elems(plan, op->layer, k);
        if (dx >= 0)
            TRY(gpu_check_kernel(
                op, "concat gradient kernel",
                gpu_concat_rows(plan->compute, dy, plan->diffs.buffers[dx].d, rows)));
        dy += rows.elems;
    }
done:
    return st;
}

const struct gpu_kind gpu_join_concat = {concat_plan,     NULL,           concat_forward,
                                         concat_backward, GPU_DIFF_APART, 0};

/* ---- multiply ---- */

static enum status multiply_plan(struct gpu_plan *plan, int i)
{
    return gpu_plan_reserve_output(plan, &plan->ops[i]);
}

static struct gpu_multiply multiply_of(struct gpu_pass *pass, int i)
{
    const struct layer *l = pass->plan->ops[i].layer;
    struct gpu_multiply m = {.n_inputs = l->n_inputs, .n = pass->n * shape_elems(&l->out)};
    for (int k = 0; k < l->n_inputs; k++)
        m.x[k] = *gpu_edges_input(pass->plan, i, k);
    return m;
}

static enum status multiply_forward(struct gpu_pass *pass, int i, int train)
{
    const struct gpu_op *op = &pass->plan->ops[i];
    struct gpu_multiply m = multiply_of(pass, i);
    return gpu_check_kernel(op, "product kernel",
                            gpu_multiply_forward(pass->plan->compute, &m, *op->y));
}

static enum status multiply_backward(struct gpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = pass->plan;
    const struct gpu_op *op = &plan->ops[i];
    struct gpu_multiply m = multiply_of(pass, i);
    for (int k = 0; k < m.n_inputs; k++) {
        int dx = plan->diffs.ops[i].edge[k].dx;
        if (dx >= 0)
            TRY(gpu_check_kernel(
                op, "product gradient kernel",
                gpu_multiply_backward(plan->compute, &m, k, *op->dy, plan->diffs.buffers[dx].d)));
    }
done:
    return st;
}

const struct gpu_kind gpu_join_multiply = {multiply_plan,     NULL,           multiply_forward,
                                           multiply_backward, GPU_DIFF_APART, 0};
