/* kernels/cpu/loss.c - the losses: softmax with cross-entropy, sigmoids with cross-entropy, squared
 * error. The last two also accept targets. They are plain loops, because rows are short. Losses are
 * added in doubles. The output consists of the probabilities, or, for the squared error, is a copy
 * of the input. */
#include "kernels/cpu/kinds.h"
#include <math.h>
#include <string.h>

struct loss {
    struct cpu_tensor rows;
    struct cpu_call to_rows;
    double *loss; /* [n] */
    int *hit;     /* [n] */
};

static enum status plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *md;
    void *loss, *hit;
    TRY(cpu_pass_block_create(pass, sizeof(struct loss), &op->state));
    struct loss *c = op->state;
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &md));
    TRY(cpu_pass_tensor_match(pass, op, &op->x, md, &c->rows, &c->to_rows));
    TRY(cpu_pass_tensor_create(pass, op, md, NULL, &op->y));
    TRY(cpu_pass_block_create(pass, (size_t)pass->n * sizeof(double), &loss));
    TRY(cpu_pass_block_create(pass, (size_t)pass->n * sizeof(int), &hit));
    c->loss = loss;
    c->hit = hit;
done:
    return st;
}

static enum status plan_backward(struct cpu_pass *pass, int i)
{
    struct cpu_op *op = &pass->ops[i];
    return op->needs_dx ? cpu_pass_tensor_create(pass, op, op->y.md, NULL, op->dx) : ST_OK;
}

static int64_t row_top(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        best = x[k] > x[best] ? k : best;
    return best;
}

/* ---- softmax ---- */

/* Writes the probabilities of one sample, whose largest x is `max`. Returns the log of the sum of
 * exp(x - max). */
static float softmax_row(const float *x, float *y, int64_t n, float max)
{
    float sum = 0.0f;
    for (int64_t k = 0; k < n; k++) {
        y[k] = expf(x[k] - max);
        sum += y[k];
    }
    float scale = 1.0f / sum;
    for (int64_t k = 0; k < n; k++)
        y[k] *= scale;
    return logf(sum);
}

/* Returns the part of the loss that depends on the label: the label's x, or, with smoothing, the
 * weighted mean of the x of all classes. */
static double softmax_aim(const float *x, int64_t n, int label, double smoothing)
{
    double mean = 0.0;
    if (!(smoothing > 0.0))
        return (double)x[label];
    for (int64_t k = 0; k < n; k++)
        mean += (double)x[k] / (double)n;
    return (1.0 - smoothing) * (double)x[label] + smoothing * mean;
}

static enum status softmax_forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct loss *c = op->state;
    int64_t n = op->layer->in.dim[0];
    double smoothing = train ? (double)op->layer->smoothing : 0;
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
    for (int s = 0; s < pass->n; s++) {
        const float *x = c->rows.data + s * n;
        int64_t top = row_top(x, n);
        float log_sum = softmax_row(x, op->y.data + s * n, n, x[top]);
        if (!pass->plan->has_labels)
            continue;
        int label = pass->plan->labels[s];
        double aim = softmax_aim(x, n, label, smoothing);
        c->loss[s] = (double)log_sum + ((double)x[top] - aim);
        c->hit[s] = top == label;
    }
done:
    return st;
}

static enum status softmax_backward(struct cpu_pass *pass, int i)
{
    const struct cpu_op *op = &pass->ops[i];
    int64_t n = op->layer->in.dim[0];
    if (!op->needs_dx)
        return ST_OK;
    float scale = 1.0f / (float)pass->n;
    float aim = scale * (1.0f - op->layer->smoothing);
    float others = scale * op->layer->smoothing / (float)n;
    for (int s = 0; s < pass->n; s++) {
        float *dx = op->dx->data + s * n;
        for (int64_t k = 0; k < n; k++)
            dx[k] = op->y.data[s * n + k] * scale - others;
        dx[pass->plan->labels[s]] -= aim;
    }
    return ST_OK;
}

const struct cpu_kind cpu_softmax_xent = {plan_forward, plan_backward, NULL, softmax_forward,
                                          softmax_backward};

/* Returns the targets of sample s; NULL: the sample has a label instead. */
static const float *targets_of(const struct cpu_pass *pass, int s, int64_t n)
{
    return pass->plan->has_targets ? pass->plan->targets + s * n : NULL;
}

/* ---- sigmoids, one class against all other ones ---- */

static enum status sigmoid_forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct loss *c = op->state;
    int64_t n = op->layer->in.dim[0];
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
    for (int s = 0; s < pass->n; s++) {
        const float *x = c->rows.data + s * n;
        float *y = op->y.data + s * n;
        double sum = 0.0;
        for (int64_t k = 0; k < n; k++) {
            float small = expf(-fabsf(x[k])); /* never overflows */
            y[k] = (x[k] < 0.0f ? small : 1.0f) / (1.0f + small);
            sum += (double)(x[k] > 0.0f ? x[k] : 0.0f) + (double)log1pf(small);
        }
        if (!pass->plan->has_labels)
            continue;
        const float *targets = targets_of(pass, s, n);
        int label = pass->plan->labels[s];
        for (int64_t k = 0; targets != NULL && k < n; k++)
            sum -= (double)x[k] * (double)targets[k];
        c->loss[s] = (sum - (targets != NULL ? 0.0 : (double)x[label])) / (double)n;
        c->hit[s] = targets == NULL && row_top(x, n) == label;
    }
done:
    return st;
}

/* Computes dx = (y - target) * scale. If there are labels, the targets are one-hot rows. The scale
 * for squared errors is twice that for sigmoids. */
static void one_hot_backward(struct cpu_pass *pass, int i, float scale)
{
    const struct cpu_op *op = &pass->ops[i];
    int64_t n = op->layer->in.dim[0];
    for (int s = 0; s < pass->n; s++) {
        const float *y = op->y.data + s * n;
        float *dx = op->dx->data + s * n;
        const float *targets = targets_of(pass, s, n);
        int label = pass->plan->labels[s];
        for (int64_t k = 0; targets == NULL && k < n; k++)
            dx[k] = (y[k] - (k == label ? 1.0f : 0.0f)) * scale;
        for (int64_t k = 0; targets != NULL && k < n; k++)
            dx[k] = (y[k] - targets[k]) * scale;
    }
}

static enum status sigmoid_backward(struct cpu_pass *pass, int i)
{
    const struct cpu_op *op = &pass->ops[i];
    if (op->needs_dx)
        one_hot_backward(pass, i, 1.0f / ((float)pass->n * (float)op->layer->in.dim[0]));
    return ST_OK;
}

const struct cpu_kind cpu_sigmoid_xent = {plan_forward, plan_backward, NULL, sigmoid_forward,
                                          sigmoid_backward};

/* ---- squared error ---- */

static enum status squared_forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct loss *c = op->state;
    int64_t n = op->layer->in.dim[0];
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
    memcpy(op->y.data, c->rows.data, (size_t)(pass->n * n) * sizeof(float));
    for (int s = 0; s < pass->n && pass->plan->has_labels; s++) {
        const float *x = c->rows.data + s * n;
        const float *targets = targets_of(pass, s, n);
        int label = pass->plan->labels[s];
        double sum = 0.0;
        for (int64_t k = 0; k < n; k++) {
            double off = (double)x[k] - (targets != NULL ? (double)targets[k] : k == label);
            sum += off * off;
        }
        c->loss[s] = sum / (double)n;
        c->hit[s] = targets == NULL && row_top(x, n) == label;
    }
done:
    return st;
}

static enum status squared_backward(struct cpu_pass *pass, int i)
{
    const struct cpu_op *op = &pass->ops[i];
    if (op->needs_dx)
        one_hot_backward(pass, i, 2.0f / ((float)pass->n * (float)op->layer->in.dim[0]));
    return ST_OK;
}

const struct cpu_kind cpu_squared = {plan_forward, plan_backward, NULL, squared_forward,
                                     squared_backward};

void cpu_loss_result(const struct cpu_pass *pass, float *loss, int *n_correct)
{
    const struct loss *c = pass->ops[pass->plan->cfg.n_layers - 1].state;
    double sum = 0.0;
    int hits = 0;
    for (int s = 0; s < pass->n; s++) {
        sum += c->loss[s];
        hits += c->hit[s];
    }
    *loss = (float)(sum / pass->n);
    *n_correct = hits;
}
