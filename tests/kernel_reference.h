/* tests/kernel_reference.h - nets in double precision (kernels/reference.h), built layer by layer
 * as tests want them. Threads: one at a time. Errors: ends the test program when there is no
 * memory. */
#ifndef TESTS_KERNEL_REFERENCE_H
#define TESTS_KERNEL_REFERENCE_H
#include "kernels/reference.h"

/* An empty net for images (c,h,w), then layer after layer; each reads the one before, or
 * what reference_from says. A padding of -1 means SAME as TensorFlow does it, a number from 0 on
 * that many cells on all sides. */
struct reference *reference_create(int c, int h, int w, int max_n, uint64_t seed);
void reference_conv(struct reference *r, int filters, int kernel, int stride, int padding);
void reference_pool(struct reference *r, enum layer_kind kind, int kernel, int stride, int padding);
void reference_dense(struct reference *r, int units);
/* Removes the bias of the convolution or dense layer that was added last. */
void reference_drop_bias(struct reference *r);
void reference_dropout(struct reference *r, float rate);
/* Relu, other activations (leaky_relu of slope 0.2), batch norm, layer norm, flatten, losses. */
void reference_layer(struct reference *r, enum layer_kind kind);
void reference_smoothed(struct reference *r, float smoothing); /* softmax_xent */
void reference_embedding(struct reference *r, int vocabulary, int units);
/* Add, concat. */
void reference_join(struct reference *r, enum layer_kind kind, int n, const int *inputs);
/* The next layer reads this one, or LAYER_INPUT_IMAGE. */
void reference_from(struct reference *r, int layer);
/* The last one added. */
int reference_last(const struct reference *r);

/* How far off a float32 tensor of a backend may be, as a share of its largest value (sums of up to
 * 1000 terms, several layers deep): 5e-5; on a card, the backend "cuda", 2e-4, as cuDNN may take
 * convolutions by Winograd or by Fourier transforms, which round more. */
double reference_tolerance(const char *backend);

#endif
