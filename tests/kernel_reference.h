/* tests/kernel_reference.h - every kind of layer in plain double precision, in canonical layouts
 * and by the definitions alone: what each backend is compared with.
 * A net keeps all outputs and gradients of the last pass, [n][elems] per layer.
 * Threads: one at a time. Errors: ends the test program when there is no memory. */
#ifndef TESTS_KERNEL_REFERENCE_H
#define TESTS_KERNEL_REFERENCE_H
#include "kernels/backend.h"

enum { REFERENCE_MAX_LAYERS = 24, REFERENCE_MAX_PARAMS = 32 };

struct reference {
    struct layer layers[REFERENCE_MAX_LAYERS];
    int n_layers;
    int from; /* what the next layer reads */
    int n_params;
    int64_t param_elems[REFERENCE_MAX_PARAMS];
    double *param[REFERENCE_MAX_PARAMS]; /* set by the test */
    double *grad[REFERENCE_MAX_PARAMS];  /* of the last backward */
    uint64_t seed;
    int n; /* samples of the last forward */
    int train;
    double *x;                       /* [n][elems of the image] */
    double *y[REFERENCE_MAX_LAYERS]; /* outputs */
    double *d[REFERENCE_MAX_LAYERS]; /* gradients by the outputs; the last layer has none */
    uint8_t *labels;
    uint64_t *position;
    double loss;
    int n_correct;
};

/* Building: an empty net for images (c,h,w), then layer after layer; each reads the one before, or
 * what reference_from says. A padding of -1 means SAME as TensorFlow does it, 0 means none. */
struct reference *reference_create(int c, int h, int w, int max_n, uint64_t seed);
void reference_destroy(struct reference *r);
void reference_conv(struct reference *r, int filters, int kernel, int stride, int padding);
void reference_pool(struct reference *r, enum layer_kind kind, int kernel, int stride, int padding);
void reference_dense(struct reference *r, int units);
void reference_dropout(struct reference *r, float rate);
/* Relu, batch norm, flatten, softmax_xent. */
void reference_layer(struct reference *r, enum layer_kind kind);
/* Add, concat. */
void reference_join(struct reference *r, enum layer_kind kind, int n, const int *inputs);
/* The next layer reads this one, or LAYER_INPUT_IMAGE. */
void reference_from(struct reference *r, int layer);
/* The last one added. */
int reference_last(const struct reference *r);

/* pixels: n images of bytes. */
void reference_forward(struct reference *r, const uint8_t *pixels, const uint8_t *labels,
                       const uint64_t *position, int n, int train);
void reference_backward(struct reference *r);

#endif
