/* kernels/reference_loss.h - the losses of kernels/reference.h, which alone includes this.
 * Owns: nothing. Threads: as the reference's. Errors: none. */
#ifndef KERNELS_REFERENCE_LOSS_H
#define KERNELS_REFERENCE_LOSS_H
#include "kernels/reference.h"

/* Layer i's outputs, and the reference's loss and hits. */
void reference_loss_forward(struct reference *r, int i, const double *x, double *y);
/* Of the mean loss, by value k of what layer i reads of sample s. */
double reference_loss_slope(const struct reference *r, int i, int s, int64_t k);

#endif
