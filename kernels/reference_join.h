/* kernels/reference_join.h - the add, concat, multiply and sum of kernels/reference.c.
 * Owns: nothing. Threads: as for the reference. Errors: none. */
#ifndef KERNELS_REFERENCE_JOIN_H
#define KERNELS_REFERENCE_JOIN_H
#include "kernels/reference.h"

/* Returns the last output of the layer, or the image for LAYER_INPUT_IMAGE. */
const double *reference_output(const struct reference *r, int layer);
void reference_join_forward(struct reference *r, const struct layer *l, double *y);
/* Adds the layer's part to the gradients with respect to its inputs. */
void reference_join_backward(struct reference *r, const struct layer *l, const double *dy);

#endif
