/* kernels/reference_loss.c - the losses of the reference. Each adds one value for each sample to
 * the mean loss. A sample is correct if its largest output is that of its label; if outputs are
 * equal, the lowest class counts. */
#include "kernels/reference_loss.h"
#include <math.h>
#include <stddef.h>

/* Returns the desired output for class k of sample s, which the sample's label or targets
 * determine. Labels are smoothed only in training. */
static double aim_of(const struct reference *r, const struct layer *l, int s, int64_t k)
{
    if (r->targets != NULL)
        return (double)r->targets[s * l->in.dim[0] + k];
    double smoothing = r->train ? (double)l->smoothing : 0;
    return (k == r->labels[s]) * (1 - smoothing) + smoothing / (double)l->in.dim[0];
}

static void softmax_forward(struct reference *r, const struct layer *l, const double *x, double *y)
{
    int64_t n_classes = l->in.dim[0];
    r->loss = 0;
    r->n_correct = 0;
    for (int s = 0; s < r->n; s++) {
        const double *row = x + s * n_classes;
        int64_t best = 0;
        double sum = 0;
        for (int64_t k = 1; k < n_classes; k++)
            best = row[k] > row[best] ? k : best;
        for (int64_t k = 0; k < n_classes; k++)
            sum += exp(row[k] - row[best]);
        for (int64_t k = 0; k < n_classes; k++)
            y[s * n_classes + k] = exp(row[k] - row[best]) / sum;
        for (int64_t k = 0; k < n_classes; k++)
            r->loss += aim_of(r, l, s, k) * (log(sum) + row[best] - row[k]) / r->n;
        r->n_correct += best == r->labels[s];
    }
}

/* Computes the losses sigmoid_xent and squared error: means over batch and classes. */
static void one_hot_forward(struct reference *r, const struct layer *l, const double *x, double *y)
{
    int64_t n_classes = l->in.dim[0], best = 0;
    r->loss = 0;
    r->n_correct = 0;
    for (int64_t k = 0; k < r->n * n_classes; k++) {
        double aim = aim_of(r, l, (int)(k / n_classes), k % n_classes);
        y[k] = l->kind == LAYER_SQUARED ? x[k] : 1 / (1 + exp(-x[k]));
        double part = l->kind == LAYER_SQUARED ? pow(x[k] - aim, 2)
                                               : -aim * log(y[k]) - (1 - aim) * log(1 - y[k]);
        r->loss += part / (double)(r->n * n_classes);
        best = k % n_classes == 0 || x[k] > x[best] ? k : best;
        if (k % n_classes == n_classes - 1 && r->targets == NULL)
            r->n_correct += best % n_classes == r->labels[k / n_classes];
    }
}

double reference_loss_slope(const struct reference *r, int i, int s, int64_t k)
{
    const struct layer *l = &r->layers[i];
    double off = r->y[i][s * l->in.dim[0] + k] - aim_of(r, l, s, k);
    if (l->kind == LAYER_SOFTMAX_XENT)
        return off / r->n;
    return off * (l->kind == LAYER_SQUARED ? 2 : 1) / (double)(r->n * l->in.dim[0]);
}

void reference_loss_forward(struct reference *r, int i, const double *x, double *y)
{
    if (r->layers[i].kind == LAYER_SOFTMAX_XENT)
        softmax_forward(r, &r->layers[i], x, y);
    else
        one_hot_forward(r, &r->layers[i], x, y);
}
