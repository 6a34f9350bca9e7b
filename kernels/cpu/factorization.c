/* kernels/cpu/factorization.c - the factorization machine: for each sample the sum of the scalar
 * products of all pairs of columns. Each column is multiplied by the sum of the columns before it.
 * The gradient of a column is the sum of the columns before it, plus the sum of those after it.
 * Nothing is subtracted, so no digits cancel. Input and gradients are plain rows. */
#include "kernels/cpu/kinds.h"
#include "kernels/cpu/plain_rows.h"

enum { BLOCK_UNITS = 64 };

/* Returns the output for one sample, of which x is the first of n values in each of the columns. */
CPU_CLONES static float block_forward(const float *x, int64_t columns, int64_t units, int64_t n)
{
    float before[BLOCK_UNITS] = {0}, products[BLOCK_UNITS] = {0}, sum = 0.0f;
    for (int64_t f = 0; f < columns; f++)
        for (int64_t k = 0; k < n; k++) {
            products[k] += x[f * units + k] * before[k];
            before[k] += x[f * units + k];
        }
    for (int64_t k = 0; k < n; k++)
        sum += products[k];
    return sum;
}

/* Computes the gradients of the values that block_forward reads. */
CPU_CLONES static void block_backward(const float *x, float dy, int64_t columns, int64_t units,
                                      int64_t n, float *dx)
{
    float before[BLOCK_UNITS] = {0}, after[BLOCK_UNITS] = {0};
    for (int64_t f = 0; f < columns; f++)
        for (int64_t k = 0; k < n; k++) {
            dx[f * units + k] = before[k];
            before[k] += x[f * units + k];
        }
    for (int64_t f = columns - 1; f >= 0; f--)
        for (int64_t k = 0; k < n; k++) {
            dx[f * units + k] = dy * (dx[f * units + k] + after[k]);
            after[k] += x[f * units + k];
        }
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct plain_rows *c = op->state;
    int64_t columns = op->layer->in.dim[0], units = op->layer->in.dim[2];
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++) {
        float sum = 0.0f;
        for (int64_t u = 0; u < units; u += BLOCK_UNITS)
            sum += block_forward(c->x.data + s * columns * units + u, columns, units,
                                 units - u < BLOCK_UNITS ? units - u : BLOCK_UNITS);
        op->y.data[s] = sum;
    }
done:
    return st;
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct plain_rows *c = op->state;
    int64_t columns = op->layer->in.dim[0], units = op->layer->in.dim[2];
    int threads = cpu_loop_threads(pass);
    if (!op->needs_dx)
        return ST_OK;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++)
        for (int64_t u = 0; u < units; u += BLOCK_UNITS) {
            int64_t at = s * columns * units + u;
            block_backward(c->x.data + at, c->dy.data[s], columns, units,
                           units - u < BLOCK_UNITS ? units - u : BLOCK_UNITS, op->dx->data + at);
        }
done:
    return st;
}

const struct cpu_kind cpu_factorization = {plain_rows_plan_forward, plain_rows_plan_backward, NULL,
                                           forward, backward};
