/* kernels/reference_activation.c - the formulas of reference_activation.h and their derivatives. */
#include "kernels/reference_activation.h"
#include <math.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Returns the distribution function of the standard normal distribution. */
static double normal(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

double reference_activation(const struct layer *l, double x)
{
    switch (l->kind) {
    case LAYER_SIGMOID:
        return sigmoid(x);
    case LAYER_TANH:
        return tanh(x);
    case LAYER_GELU:
        return x * normal(x);
    case LAYER_SILU:
        return x * sigmoid(x);
    default: /* LAYER_LEAKY_RELU */
        return x > 0 ? x : x * (double)l->slope;
    }
}

double reference_activation_slope(const struct layer *l, double x)
{
    double s = sigmoid(x);
    switch (l->kind) {
    case LAYER_SIGMOID:
        return s * (1 - s);
    case LAYER_TANH:
        return 1 - tanh(x) * tanh(x);
    case LAYER_GELU:
        return normal(x) + x * exp(-x * x / 2) / sqrt(8 * atan(1));
    case LAYER_SILU:
        return s * (1 + x * (1 - s));
    default: /* LAYER_LEAKY_RELU */
        return x > 0 ? 1 : (double)l->slope;
    }
}
