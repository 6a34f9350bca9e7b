/* kernels/cpu/multiply.c - the product of two or more inputs, in the format of the first input. The
 * gradient of an input is the gradient of the output, multiplied by all other inputs. It needs no
 * division, so inputs may be 0. */
#include "kernels/cpu/kinds.h"

enum { BLOCK_FLOATS = 4096 };

struct multiply {
    struct cpu_call match[LAYER_MAX_INPUTS], diff;
    struct cpu_tensor x[LAYER_MAX_INPUTS], dy;
};

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    TRY(cpu_pass_block_create(pass, sizeof(struct multiply), &op->state));
    struct multiply *c = op->state;
    for (int k = 0; k < op->layer->n_inputs; k++)
        TRY(cpu_pass_tensor_match(pass, op, cpu_pass_input(pass, i, k), op->x.md, &c->x[k],
                                  &c->match[k]));
    TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, &op->y));
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct multiply *c = op->state;
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &c->dy, &c->diff));
    for (int k = 0; k < op->layer->n_inputs; k++)
        if (graph_input_trained(pass->plan->node, op->layer, k))
            TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, &op->dx[k]));
done:
    return st;
}

CPU_CLONES static void product_block(const float *a, const float *b, float *dst, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        dst[k] = a[k] * b[k];
}

/* Sets dst to the product of `first` (NULL: nothing) and all inputs except input `skip`. */
static void product(const struct cpu_pass *pass, const struct cpu_op *op, const float *first,
                    int skip, float *dst)
{
    const struct multiply *c = op->state;
    int64_t n = cpu_pass_tensor_floats(&op->y), n_blocks = (n + BLOCK_FLOATS - 1) / BLOCK_FLOATS;
    int threads = cpu_loop_threads(pass), n_inputs = op->layer->n_inputs;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t at = b * BLOCK_FLOATS, left = n - at < BLOCK_FLOATS ? n - at : BLOCK_FLOATS;
        const float *so_far = first != NULL ? first + at : NULL;
        for (int k = 0; k < n_inputs; k++) {
            const float *x = c->x[k].data + at;
            if (k == skip)
                continue;
            if (so_far != NULL)
                product_block(so_far, x, dst + at, left);
            so_far = so_far != NULL ? dst + at : x;
        }
    }
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct multiply *c = op->state;
    for (int k = 0; k < op->layer->n_inputs; k++)
        TRY(cpu_pass_call_run(pass, op, &c->match[k]));
    product(pass, op, NULL, -1, op->y.data);
done:
    return st;
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct multiply *c = op->state;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    for (int k = 0; k < op->layer->n_inputs; k++)
        if (op->dx[k].mem != NULL)
            product(pass, op, c->dy.data, k, op->dx[k].data);
done:
    return st;
}

const struct cpu_kind cpu_multiply = {plan_forward, plan_backward, NULL, forward, backward};
