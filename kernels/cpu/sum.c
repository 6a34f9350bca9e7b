/* kernels/cpu/sum.c - the sum over the channels of each sample, or over all values of a flat input,
 * in ascending order. Input and gradients are plain rows. */
#include "kernels/cpu/kinds.h"
#include <string.h>

struct sum {
    struct cpu_tensor x, dy;
    struct cpu_call to_rows, diff;
};

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *in, *out;
    TRY(cpu_pass_block_create(pass, sizeof(struct sum), &op->state));
    struct sum *c = op->state;
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &in));
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &out));
    TRY(cpu_pass_tensor_match(pass, op, &op->x, in, &c->x, &c->to_rows));
    TRY(cpu_pass_tensor_create(pass, op, out, NULL, &op->y));
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct sum *c = op->state;
    if (!op->needs_dx)
        return ST_OK;
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &c->dy, &c->diff));
    TRY(cpu_pass_tensor_create(pass, op, c->x.md, NULL, op->dx));
done:
    return st;
}

CPU_CLONES static void add_row(const float *x, float *y, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        y[k] += x[k];
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct sum *c = op->state;
    int64_t terms = op->layer->in.dim[0], cells = shape_elems(&op->layer->out);
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++) {
        const float *x = c->x.data + s * terms * cells;
        memcpy(op->y.data + s * cells, x, (size_t)cells * sizeof *x);
        for (int64_t k = 1; k < terms; k++)
            add_row(x + k * cells, op->y.data + s * cells, cells);
    }
done:
    return st;
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct sum *c = op->state;
    int64_t terms = op->layer->in.dim[0], cells = shape_elems(&op->layer->out);
    int threads = cpu_loop_threads(pass);
    if (!op->needs_dx)
        return ST_OK;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++)
        for (int64_t k = 0; k < terms; k++)
            memcpy(op->dx->data + (s * terms + k) * cells, c->dy.data + s * cells,
                   (size_t)cells * sizeof(float));
done:
    return st;
}

const struct cpu_kind cpu_sum = {plan_forward, plan_backward, NULL, forward, backward};
