/* kernels/cpu/embedding.c - replaces each cell's number (255 times the value of the image) by the
 * row with this number in a table; a cell's row is stored along the channels. The numbers were
 * checked when the input was set. */
#include "kernels/cpu/kinds.h"
#include <string.h>

struct embedding {
    struct cpu_tensor rows, dy; /* input, and gradient with respect to the output, as plain rows */
    struct cpu_call to_rows, diff;
    int32_t *number; /* [n][cells] numbers of the last forward */
    int64_t cells, units;
};

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *in, *out;
    void *number;
    TRY(cpu_pass_block_create(pass, sizeof(struct embedding), &op->state));
    struct embedding *c = op->state;
    c->cells = shape_elems(&op->layer->in);
    c->units = op->layer->out.dim[0];
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &in));
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &out));
    TRY(cpu_pass_tensor_match(pass, op, &op->x, in, &c->rows, &c->to_rows));
    TRY(cpu_pass_tensor_create(pass, op, out, NULL, &op->y));
    TRY(cpu_pass_block_create(pass, (size_t)(pass->n * c->cells) * sizeof *c->number, &number));
    c->number = number;
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    struct cpu_op *op = &pass->ops[i];
    struct embedding *c = op->state;
    return cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &c->dy, &c->diff);
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct embedding *c = op->state;
    const float *table = pass->plan->cfg.params[op->layer->param[0]];
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++) {
        int32_t *number = c->number + s * c->cells;
        float *y = op->y.data + s * c->units * c->cells;
        for (int64_t k = 0; k < c->cells; k++)
            number[k] = (int32_t)(c->rows.data[s * c->cells + k] * 255.0f + 0.5f);
        for (int64_t u = 0; u < c->units; u++)
            for (int64_t k = 0; k < c->cells; k++)
                y[u * c->cells + k] = table[number[k] * c->units + u];
    }
done:
    return st;
}

/* One thread computes all sums of a unit, so the summands are always added in the order of samples
 * and cells. */
static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct embedding *c = op->state;
    float *grad = pass->plan->cfg.grads[op->layer->param[0]];
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    memset(grad, 0, (size_t)op->layer->vocabulary * (size_t)c->units * sizeof *grad);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t u = 0; u < c->units; u++)
        for (int s = 0; s < pass->n; s++) {
            const int32_t *number = c->number + s * c->cells;
            const float *dy = c->dy.data + (s * c->units + u) * c->cells;
            for (int64_t k = 0; k < c->cells; k++)
                grad[number[k] * c->units + u] += dy[k];
        }
done:
    return st;
}

const struct cpu_kind cpu_embedding = {plan_forward, plan_backward, NULL, forward, backward};
