/* kernels/reference_factorization.h - the factorization machine of kernels/reference.c, by its
 * definition. x[f][u] is value u of column f of a sample:
 *     y           sum over u and f of x[f][u] * (x[0][u] + ... + x[f-1][u])
 *     dx[f][u]    dy * (sum over all other columns g of x[g][u])
 * Owns: nothing. Threads: any. Errors: none. */
#ifndef KERNELS_REFERENCE_FACTORIZATION_H
#define KERNELS_REFERENCE_FACTORIZATION_H
#include "kernels/layer.h"

/* Computes the outputs of n samples. */
void reference_factorization_forward(const struct layer *l, int n, const double *x, double *y);
/* Adds the layer's part to dx. */
void reference_factorization_backward(const struct layer *l, int n, const double *x,
                                      const double *dy, double *dx);

#endif
