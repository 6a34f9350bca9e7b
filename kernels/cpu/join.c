/* kernels/cpu/join.c - layers with several inputs: add, in the format of the first input, and
 * concat, as plain rows. */
#include "kernels/cpu/kinds.h"
#include <string.h>

struct join {
    struct cpu_call match[LAYER_MAX_INPUTS]; /* reorders of the inputs to one format */
    struct cpu_tensor x[LAYER_MAX_INPUTS];
    struct cpu_call diff;
    struct cpu_tensor dy;
    int relu;
};

/* Returns the number of inputs that need a gradient. */
static int n_trained(const struct cpu_pass *pass, const struct layer *l)
{
    int n = 0;
    for (int k = 0; k < l->n_inputs; k++)
        n += graph_input_trained(pass->plan->node, l, k);
    return n;
}

static enum status match_inputs(struct cpu_pass *pass, const struct cpu_op *op)
{
    enum status st = ST_OK;
    struct join *c = op->state;
    for (int k = 0; k < op->layer->n_inputs; k++)
        TRY(cpu_pass_call_run(pass, op, &c->match[k]));
done:
    return st;
}

/* ---- add ---- */

static enum status add_plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    TRY(cpu_pass_block_create(pass, sizeof(struct join), &op->state));
    struct join *c = op->state;
    c->relu = cpu_pass_fuse_relu(pass, i);
    for (int k = 0; k < op->layer->n_inputs; k++)
        TRY(cpu_pass_tensor_match(pass, op, cpu_pass_input(pass, i, k), op->x.md, &c->x[k],
                                  &c->match[k]));
    TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, &op->y));
done:
    return st;
}

static enum status add_plan_backward(struct cpu_pass *pass, int i)
{
    struct cpu_op *op = &pass->ops[i];
    for (int k = 0; k < op->layer->n_inputs; k++) {
        op->dx[k] = op->dy;
        op->dx[k].shared |= n_trained(pass, op->layer) > 1;
    }
    return ST_OK;
}

static enum status add_forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct join *c = op->state;
    int n = op->layer->n_inputs;
    TRY(match_inputs(pass, op));
    for (int k = 1; k < n; k++)
        cpu_elementwise_add(pass, k > 1 ? &op->y : &c->x[0], &c->x[k], &op->y,
                            c->relu && k == n - 1);
done:
    return st;
}

static enum status add_backward(struct cpu_pass *pass, int i)
{
    return ST_OK;
}

const struct cpu_kind cpu_add = {add_plan_forward, add_plan_backward, NULL, add_forward,
                                 add_backward};

/* ---- concat: a row holds the channels of a sample, one after the other ---- */

static const struct shape *input_shape(const struct cpu_pass *pass, const struct layer *l, int k)
{
    const struct layer *layers = pass->plan->cfg.layers;
    return l->input[k] < 0 ? &layers[0].in : &layers[l->input[k]].out;
}

static enum status concat_plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *md;
    TRY(cpu_pass_block_create(pass, sizeof(struct join), &op->state));
    struct join *c = op->state;
    for (int k = 0; k < op->layer->n_inputs; k++) {
        TRY(cpu_pass_md_plain(pass, op, input_shape(pass, op->layer, k), &md));
        TRY(cpu_pass_tensor_match(pass, op, cpu_pass_input(pass, i, k), md, &c->x[k],
                                  &c->match[k]));
    }
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &md));
    TRY(cpu_pass_tensor_create(pass, op, md, NULL, &op->y));
done:
    return st;
}

static enum status concat_plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct join *c = op->state;
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &c->dy, &c->diff));
    for (int k = 0; k < op->layer->n_inputs; k++)
        if (graph_input_trained(pass->plan->node, op->layer, k))
            TRY(cpu_pass_tensor_create(pass, op, c->x[k].md, NULL, &op->dx[k]));
done:
    return st;
}

static enum status concat_forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct join *c = op->state;
    int64_t row = shape_elems(&op->layer->out), at = 0;
    TRY(match_inputs(pass, op));
    for (int k = 0; k < op->layer->n_inputs; k++) {
        int64_t elems = shape_elems(input_shape(pass, op->layer, k));
        for (int s = 0; s < pass->n; s++)
            memcpy(op->y.data + s * row + at, c->x[k].data + s * elems,
                   (size_t)elems * sizeof(float));
        at += elems;
    }
done:
    return st;
}

static enum status concat_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct join *c = op->state;
    int64_t row = shape_elems(&op->layer->out), at = 0;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    for (int k = 0; k < op->layer->n_inputs; k++) {
        int64_t elems = shape_elems(input_shape(pass, op->layer, k));
        for (int s = 0; s < pass->n && op->dx[k].mem != NULL; s++)
            memcpy(op->dx[k].data + s * elems, c->dy.data + s * row + at,
                   (size_t)elems * sizeof(float));
        at += elems;
    }
done:
    return st;
}

const struct cpu_kind cpu_concat = {concat_plan_forward, concat_plan_backward, NULL, concat_forward,
                                    concat_backward};
