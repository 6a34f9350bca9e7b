/* kernels/cpu/sum.c - the sum over the channels of each sample, or over all values of a flat input,
 * in ascending order. Input and gradients are plain rows. */
#include "kernels/cpu/kinds.h"
#include "kernels/cpu/plain_rows.h"
#include <string.h>

CPU_CLONES static void add_row(const float *x, float *y, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        y[k] += x[k];
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct plain_rows *c = op->state;
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
    const struct plain_rows *c = op->state;
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

const struct cpu_kind cpu_sum = {plain_rows_plan_forward, plain_rows_plan_backward, NULL, forward,
                                 backward};
