/* tests/kernel_reference.h - nets in double precision (kernels/reference.h), built layer by layer.
 * Threads: one at a time. Errors: the test program ends if there is no memory. */
#ifndef TESTS_KERNEL_REFERENCE_H
#define TESTS_KERNEL_REFERENCE_H
#include "kernels/reference.h"

/* Creates an empty net for images (c,h,w); the functions below add layers. Each layer reads the
 * previous layer, or the one that reference_from() has set. A padding of -1 means TensorFlow's
 * SAME; otherwise padding is the number of cells on each side. */
struct reference *reference_create(int c, int h, int w, int max_n, uint64_t seed);
void reference_conv(struct reference *r, int filters, int kernel, int stride, int padding);
void reference_pool(struct reference *r, enum layer_kind kind, int kernel, int stride, int padding);
void reference_dense(struct reference *r, int units);
/* Removes the bias of the convolution or dense layer that was added last. */
void reference_drop_bias(struct reference *r);
void reference_dropout(struct reference *r, float rate);
/* Adds relu, another activation (leaky_relu of slope 0.2), batch norm, layer norm, flatten, or a
 * loss. */
void reference_layer(struct reference *r, enum layer_kind kind);
void reference_smoothed(struct reference *r, float smoothing); /* softmax_xent */
void reference_embedding(struct reference *r, int vocabulary, int units);
/* Adds an add or a concat. */
void reference_join(struct reference *r, enum layer_kind kind, int n, const int *inputs);
/* Sets the input of the next layer: a layer, or LAYER_INPUT_IMAGE. */
void reference_from(struct reference *r, int layer);
/* Returns the last layer. */
int reference_last(const struct reference *r);

/* Returns the largest allowed error of a backend's float32 tensor, relative to the tensor's largest
 * value (sums of up to 1000 terms, several layers deep). It is 5e-5, but 2e-4 for the backend
 * "cuda", because on a card cuDNN may compute convolutions by Winograd or Fourier transforms, which
 * round more. */
double reference_tolerance(const char *backend);

/* Fills params with numbers around 0, or around 1 for batch norm, and keep (kernels/resident.h):
 * 0.9 for statistics, 1 for the parameter `frozen`, otherwise -1. */
void reference_values(const struct reference *r, uint64_t seed, int frozen, float *const *params,
                      float *keep);

#endif
