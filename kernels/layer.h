/* kernels/layer.h - what a network is made of: layers, and which reads whose output. Values. */
#ifndef KERNELS_LAYER_H
#define KERNELS_LAYER_H
#include "base/shape.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum layer_kind {
    LAYER_CONV2D,
    LAYER_MAX_POOL,
    LAYER_AVG_POOL, /* divides by the cells inside the image (TensorFlow's SAME) */
    LAYER_DENSE,
    LAYER_RELU,
    LAYER_DROPOUT,
    LAYER_BATCH_NORM, /* per channel of (C,H,W), per feature of (F) */
    LAYER_FLATTEN,
    LAYER_SOFTMAX_XENT, /* last; mean cross-entropy over the batch */
    LAYER_ADD,          /* sum of two or more inputs of one shape */
    LAYER_CONCAT,       /* two or more inputs, one behind the other along channels or features */
    LAYER_SIGMOID_XENT, /* last; of one-hot labels, one against the rest, or of targets from 0 to 1;
                           mean over batch, classes */
    LAYER_SQUARED,      /* last; squared error of one-hot labels, or of targets; likewise */
    LAYER_LAYER_NORM,   /* over all values of a sample */
    LAYER_EMBEDDING,    /* of the image (1,H,W), each a number divided by 255: (units,H,W) */
    LAYER_SIGMOID,      /* this and the following kinds: kernels/reference_activation.h */
    LAYER_TANH,
    LAYER_GELU,
    LAYER_SILU,
    LAYER_LEAKY_RELU,
    LAYER_N_KINDS
};

enum { LAYER_MAX_PARAMS = 4, LAYER_MAX_INPUTS = 16, LAYER_INPUT_IMAGE = -1 };
/* Of an embedding: a float that is a number below it divided by 255 still tells the number. */
enum { LAYER_MAX_VOCABULARY = 1 << 20 };

/* One layer, shapes worked out (without the batch). Layers stand in an order in which each reads
 * only those before it. A value. */
struct layer {
    enum layer_kind kind;
    char name[64];
    struct shape in, out;     /* (C,H,W) or (F); no batch dimension; in: of the first input */
    int kernel[2], stride[2]; /* conv, pools: height, width */
    int pad_lo[2], pad_hi[2]; /* conv, pools: zeros (pools: nothing) before and after */
    float rate;               /* dropout: share of units set to 0; the others divided by 1-rate */
    float epsilon;            /* batch norm, layer norm */
    int n_params;
    int param[LAYER_MAX_PARAMS]; /* indices: conv, dense: weights, and bias if it has one;
                                    batch norm: gamma, beta, running mean, running variance;
                                    layer norm: gamma, beta; embedding: [vocabulary][units] */
    int n_inputs;                /* one; add, concat: at least two */
    int input[LAYER_MAX_INPUTS]; /* whose output it reads: layers, or LAYER_INPUT_IMAGE */
    float smoothing;             /* softmax_xent: share of a label given to all classes alike */
    int vocabulary;              /* embedding: it knows the numbers 0 .. vocabulary-1 */
    float slope;                 /* leaky_relu: factor of values below 0, 0 to 1 */
    bool one_hot;                /* squared: labels are classes, one output for each */
};

/* True if the convolution or dense layer adds a bias. */
static inline bool layer_has_bias(const struct layer *l)
{
    return l->n_params > 1;
}

/* True if the layer applies one function to each value by itself; relu, which backends compute in
 * place, is not among these kinds. */
static inline bool layer_is_activation(enum layer_kind kind)
{
    return kind >= LAYER_SIGMOID && kind <= LAYER_LEAKY_RELU;
}

/* Ends a network with a loss, and reads the labels. */
static inline int layer_is_loss(enum layer_kind kind)
{
    return kind == LAYER_SOFTMAX_XENT || kind == LAYER_SIGMOID_XENT || kind == LAYER_SQUARED;
}

/* And knows what to do where each sample has a float for each output instead of a label. */
static inline int layer_takes_targets(enum layer_kind kind)
{
    return kind == LAYER_SIGMOID_XENT || kind == LAYER_SQUARED;
}

#ifdef __cplusplus
}
#endif
#endif
