/* kernels/reference_loss.h - the losses of kernels/reference.c, the only file that includes this
 * header.
 * Owns: nothing. Threads: as for the reference. Errors: none. */
#ifndef KERNELS_REFERENCE_LOSS_H
#define KERNELS_REFERENCE_LOSS_H
#include "kernels/reference.h"

/* Computes layer i's outputs, and the reference's loss and number of correct samples. */
void reference_loss_forward(struct reference *r, int i, const double *x, double *y);
/* Returns the derivative of the mean loss with respect to element k of sample s in layer i's
 * input. */
double reference_loss_slope(const struct reference *r, int i, int s, int64_t k);

#endif
