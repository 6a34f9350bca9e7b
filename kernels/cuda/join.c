/* kernels/cuda/join.c - layers with several inputs: their sum, and one behind the other. */
#include "kernels/cuda/edges.h"

static int64_t input_elems(const struct cuda_plan *plan, const struct layer *l, int k)
{
    const struct layer *layers = plan->cfg.layers;
    return shape_elems(l->input[k] < 0 ? &layers[0].in : &layers[l->input[k]].out);
}

/* ---- add ---- */

struct add {
    int relu;
};

static enum status add_plan(struct cuda_plan *plan, int i)
{
    enum status st = ST_OK;
    struct cuda_op *op = &plan->ops[i];
    struct add *c;
    TRY(cuda_state_create(op, sizeof *c, &c));
    c->relu = cuda_relu_fuse(plan, i);
    TRY(cuda_output_take(plan, op));
done:
    return st;
}

static enum status add_forward(struct cuda_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const struct add *c = op->state;
    int64_t elems = pass->n * shape_elems(&op->layer->out);
    for (int k = 1; k < op->layer->n_inputs; k++)
        TRY(cuda_check_kernel(op, "sum kernel",
                              cuda_add(plan->compute, k > 1 ? *op->y : *op->x,
                                       *cuda_input_of(plan, i, k), *op->y, elems,
                                       c->relu && k == op->layer->n_inputs - 1)));
done:
    return st;
}

static enum status add_backward(struct cuda_pass *pass, int i)
{
    return ST_OK;
}

const struct cuda_kind cuda_join_add = {add_plan,     NULL,           add_forward,
                                        add_backward, CUDA_DIFF_SAME, 0};

/* ---- concat ---- */

static enum status concat_plan(struct cuda_plan *plan, int i)
{
    return cuda_output_take(plan, &plan->ops[i]);
}

static enum status concat_forward(struct cuda_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    float *y = *op->y;
    struct cuda_rows rows = {.n = pass->n, .dst_row = shape_elems(&op->layer->out)};
    for (int k = 0; k < op->layer->n_inputs; k++) {
        rows.elems = rows.src_row = input_elems(plan, op->layer, k);
        TRY(cuda_check_kernel(op, "concat kernel",
                              cuda_rows_move(plan->compute, *cuda_input_of(plan, i, k), y, rows)));
        y += rows.elems;
    }
done:
    return st;
}

static enum status concat_backward(struct cuda_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cuda_plan *plan = pass->plan;
    const struct cuda_op *op = &plan->ops[i];
    const float *dy = *op->dy;
    struct cuda_rows rows = {.n = pass->n, .src_row = shape_elems(&op->layer->out)};
    for (int k = 0; k < op->layer->n_inputs; k++) {
        int dx = plan->diffs.ops[i].edge[k].dx;
        rows.elems = rows.dst_row = input_elems(plan, op->layer, k);
        if (dx >= 0)
            TRY(cuda_check_kernel(
                op, "concat gradient kernel",
                cuda_rows_move(plan->compute, dy, plan->diffs.buffers[dx].d, rows)));
        dy += rows.elems;
    }
done:
    return st;
}

const struct cuda_kind cuda_join_concat = {concat_plan,     NULL, concat_forward, concat_backward,
                                           CUDA_DIFF_APART, 0};
