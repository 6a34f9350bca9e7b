/* kernels/reference_activation.h - the activations (layer_is_activation) in double precision:
 *     sigmoid      1 / (1 + exp(-x))
 *     tanh         tanh(x)
 *     gelu         x * P(X <= x) of a standard normal X: 0.5 * x * (1 + erf(x / sqrt(2)))
 *     silu         x / (1 + exp(-x))
 *     leaky_relu   x if x > 0, else slope * x
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef KERNELS_REFERENCE_ACTIVATION_H
#define KERNELS_REFERENCE_ACTIVATION_H
#include "kernels/layer.h"

double reference_activation(const struct layer *l, double x);
/* Returns the derivative at x. For leaky_relu the derivative at 0 is the layer's slope. */
double reference_activation_slope(const struct layer *l, double x);

#endif
