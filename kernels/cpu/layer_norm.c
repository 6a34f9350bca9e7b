/* kernels/cpu/layer_norm.c - normalization over all values of a sample. To compute outputs, the
 * samples are divided among the threads. To compute the gradients of parameters, the values of a
 * sample are divided among the threads, so that a single thread computes each sum. */
#include "kernels/cpu/kinds.h"
#include <math.h>

enum { GAMMA, BETA, BLOCK_VALUES = 512 };

struct norm {
    struct cpu_tensor rows, dy; /* input, and gradient with respect to the output, as plain rows */
    struct cpu_call to_rows, diff;
    float *mean, *inverse; /* [n] mean and 1 / sqrt(variance + epsilon) of the last forward */
    int64_t n;             /* number of values of a sample */
};

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *md;
    void *stats;
    TRY(cpu_pass_block_create(pass, sizeof(struct norm), &op->state));
    struct norm *c = op->state;
    c->n = shape_elems(&op->layer->in);
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &md));
    TRY(cpu_pass_tensor_match(pass, op, &op->x, md, &c->rows, &c->to_rows));
    TRY(cpu_pass_tensor_create(pass, op, md, NULL, &op->y));
    TRY(cpu_pass_block_create(pass, (size_t)pass->n * 2 * sizeof(float), &stats));
    c->mean = stats;
    c->inverse = c->mean + pass->n;
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct norm *c = op->state;
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &c->dy, &c->diff));
    if (op->needs_dx)
        TRY(cpu_pass_tensor_create(pass, op, op->y.md, NULL, op->dx));
done:
    return st;
}

CPU_CLONES static double row_sum(const float *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++)
        sum += (double)x[k];
    return sum;
}

CPU_CLONES static double row_squares(const float *x, double mean, int64_t n)
{
    double sum = 0.0;
    for (int64_t k = 0; k < n; k++)
        sum += ((double)x[k] - mean) * ((double)x[k] - mean);
    return sum;
}

static enum status forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct norm *c = op->state;
    const float *const *params = pass->plan->cfg.params;
    const float *gamma = params[op->layer->param[GAMMA]], *beta = params[op->layer->param[BETA]];
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++) {
        const float *x = c->rows.data + s * c->n;
        float *y = op->y.data + s * c->n;
        double mean = row_sum(x, c->n) / (double)c->n;
        double variance = row_squares(x, mean, c->n) / (double)c->n;
        float m = (float)mean, inverse = (float)(1.0 / sqrt(variance + (double)op->layer->epsilon));
        for (int64_t k = 0; k < c->n; k++)
            y[k] = (x[k] - m) * inverse * gamma[k] + beta[k];
        c->mean[s] = m;
        c->inverse[s] = inverse;
    }
done:
    return st;
}

/* Computes dx of one sample (Ba, Kiros and Hinton 2016): removes the part of the gradient that
 * would change the mean or the variance of the sample. */
static void row_backward(const struct norm *c, int s, const float *gamma, float *dx)
{
    const float *x = c->rows.data + s * c->n, *dy = c->dy.data + s * c->n;
    float mean = c->mean[s], inverse = c->inverse[s];
    double sum = 0.0, dot = 0.0;
    for (int64_t k = 0; k < c->n; k++) {
        double g = (double)dy[k] * (double)gamma[k];
        sum += g;
        dot += g * (double)((x[k] - mean) * inverse);
    }
    float shift = (float)(sum / (double)c->n), slope = (float)(dot / (double)c->n);
    for (int64_t k = 0; k < c->n; k++)
        dx[k] = inverse * (dy[k] * gamma[k] - shift - (x[k] - mean) * inverse * slope);
}

/* Computes the parameters' gradients for the values [from, to), in the order of the samples. */
CPU_CLONES static void params_backward(const struct norm *c, int n_samples, int64_t from,
                                       int64_t to, float *dgamma, float *dbeta)
{
    for (int64_t k = from; k < to; k++)
        dgamma[k] = dbeta[k] = 0.0f;
    for (int s = 0; s < n_samples; s++) {
        const float *x = c->rows.data + s * c->n, *dy = c->dy.data + s * c->n;
        float mean = c->mean[s], inverse = c->inverse[s];
        for (int64_t k = from; k < to; k++) {
            dgamma[k] += dy[k] * ((x[k] - mean) * inverse);
            dbeta[k] += dy[k];
        }
    }
}

static enum status backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct norm *c = op->state;
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    const float *gamma = cfg->params[op->layer->param[GAMMA]];
    float *dgamma = cfg->grads[op->layer->param[GAMMA]];
    float *dbeta = cfg->grads[op->layer->param[BETA]];
    int64_t n_blocks = (c->n + BLOCK_VALUES - 1) / BLOCK_VALUES;
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->diff));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t b = 0; b < n_blocks; b++) {
        int64_t to = (b + 1) * BLOCK_VALUES;
        params_backward(c, pass->n, b * BLOCK_VALUES, to < c->n ? to : c->n, dgamma, dbeta);
    }
    if (!op->needs_dx)
        return ST_OK;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++)
        row_backward(c, s, gamma, op->dx->data + s * c->n);
done:
    return st;
}

const struct cpu_kind cpu_layer_norm = {plan_forward, plan_backward, NULL, forward, backward};
