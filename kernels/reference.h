/* kernels/reference.h - computes every kind of layer in plain double precision, on plain rows,
 * directly by its definition. Tests and --self_test compare each backend with these results. A net
 * keeps all outputs and gradients of the last pass, [n][elems] per layer.
 * Owns:    its parameters, gradients and outputs.
 * Threads: one at a time.
 * Errors:  ST_NOMEM, ST_RANGE (more layers or parameters than a net may have); logged. */
#ifndef KERNELS_REFERENCE_H
#define KERNELS_REFERENCE_H
#include "base/status.h"
#include "kernels/layer.h"
#include <stdint.h>

enum { REFERENCE_MAX_LAYERS = 24, REFERENCE_MAX_PARAMS = 32 };

struct reference {
    struct layer layers[REFERENCE_MAX_LAYERS];
    int n_layers;
    int from; /* layer that the next layer to be added will read */
    int n_params;
    int64_t param_elems[REFERENCE_MAX_PARAMS];
    double *param[REFERENCE_MAX_PARAMS]; /* set by the caller */
    double *grad[REFERENCE_MAX_PARAMS];  /* gradients of the last backward */
    uint64_t seed;
    int max_n;
    int n; /* number of samples of the last forward */
    int train;
    double *x; /* [n][elems of the image] */
    /* [n][elems of the image] numbers used instead of pixels; borrowed, set by the caller */
    const float *floats;
    double *y[REFERENCE_MAX_LAYERS]; /* outputs */
    double *d[REFERENCE_MAX_LAYERS]; /* gradients with respect to the outputs; the last layer has
                                      * none */
    uint8_t *labels;
    /* [n][classes] targets, which losses that accept targets use instead of labels; borrowed, set
     * by the caller; NULL: labels are used */
    const float *targets;
    uint64_t *position;
    double loss;
    int n_correct;
    /* arrays with one entry for each cell of the largest pool's output in one channel */
    struct reference_pool {
        int64_t plane, *best, *count;
        double *sums;
    } pool;
};

/* Creates a net without layers for up to max_n images. The caller adds parameters and layers in
 * order. If adding one fails, the net can only be destroyed. */
enum status reference_begin(const struct shape *image, int max_n, uint64_t seed,
                            struct reference **out);
void reference_destroy(struct reference *r); /* NULL is fine */
enum status reference_param_add(struct reference *r, int64_t elems);
enum status reference_layer_add(struct reference *r, const struct layer *l);
/* Returns the shape of the layer's output, or of the image for LAYER_INPUT_IMAGE. */
const struct shape *reference_shape(const struct reference *r, int layer);

/* Computes the outputs of all layers. pixels: n images of bytes. */
void reference_forward(struct reference *r, const uint8_t *pixels, const uint8_t *labels,
                       const uint64_t *position, int n, int train);
void reference_backward(struct reference *r);

#endif
