/* kernels/layer.h - the layers of a network, and the layers that each of them reads, as plain
 * values. */
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
    /* divides by the number of the window's cells that are inside the image (TensorFlow's SAME) */
    LAYER_AVG_POOL,
    LAYER_DENSE,
    LAYER_RELU,
    LAYER_DROPOUT,
    LAYER_BATCH_NORM, /* per channel of (C,H,W), per feature of (F) */
    LAYER_FLATTEN,
    LAYER_SOFTMAX_XENT, /* last layer; mean cross-entropy over the batch */
    LAYER_ADD,          /* sum of two or more inputs of the same shape */
    LAYER_CONCAT,       /* two or more inputs, concatenated along channels or features */
    /* last layer; for one-hot labels (one class against all others) or targets from 0 to 1; mean
     * over batch and classes */
    LAYER_SIGMOID_XENT,
    /* last layer; squared error for one-hot labels or for targets; mean over batch and classes */
    LAYER_SQUARED,
    LAYER_LAYER_NORM, /* normalizes over all values of a sample */
    LAYER_EMBEDDING,  /* input (1,H,W) of numbers divided by 255; output (units,H,W) */
    LAYER_SIGMOID,    /* this kind and those below: see kernels/reference_activation.h */
    LAYER_TANH,
    LAYER_GELU,
    LAYER_SILU,
    LAYER_LEAKY_RELU,
    /* reads keys instead of outputs of layers, so it has no input; the host computes its output
     * (F,1,units) from rows of a table (layer_is_on_host) */
    LAYER_EMBEDDING_BAG,
    LAYER_MULTIPLY, /* product of two or more inputs of the same shape */
    LAYER_SUM,      /* (C,H,W) -> (H*W), summed over the channels; (F) -> (1) */
    /* (F,1,U) -> (1), the sum of the scalar products of all pairs of F vectors of U values */
    LAYER_FACTORIZATION_MACHINE,
    LAYER_N_KINDS
};

enum { LAYER_MAX_PARAMS = 4, LAYER_MAX_INPUTS = 16, LAYER_INPUT_IMAGE = -1 };
/* Limit of an embedding's vocabulary. For smaller numbers, the float number / 255 still determines
 * the number exactly. */
enum { LAYER_MAX_VOCABULARY = 1 << 20 };

/* One layer with its shapes (without the batch). Each layer reads only layers before it. A plain
 * value. */
struct layer {
    enum layer_kind kind;
    char name[64];
    /* shapes (C,H,W) or (F) of the first input and of the output, without the batch. In layer 0
     * `in` is always the shape of a sample, also if the layer is on the host; no layer of a network
     * without samples reads LAYER_INPUT_IMAGE, so then it has any value */
    struct shape in, out;
    int kernel[2], stride[2]; /* height and width, of convolutions and pools */
    /* conv, pools: padding before and after the image along each axis (conv: zeros; pools: cells
     * that do not count) */
    int pad_lo[2], pad_hi[2];
    /* dropout: fraction of the units that are set to 0; other units are divided by 1-rate */
    float rate;
    float epsilon; /* epsilon of batch norm and layer norm */
    int n_params;
    /* indices of the layer's parameters. conv, dense: weights, then an optional bias; batch norm:
     * gamma, beta, running mean, running variance; layer norm: gamma, beta; embedding:
     * [vocabulary][units] */
    int param[LAYER_MAX_PARAMS];
    /* number of inputs: one; for joins two or more; for a layer on the host none */
    int n_inputs;
    int input[LAYER_MAX_INPUTS]; /* indices of the layers that it reads, or LAYER_INPUT_IMAGE */
    /* softmax_xent in training: fraction of the label's weight that is spread over all classes */
    float smoothing;
    int vocabulary; /* embedding: the layer accepts the numbers 0 .. vocabulary-1 */
    float slope;    /* leaky_relu: factor for negative values, 0 to 1 */
    bool one_hot;   /* squared: labels are classes, and there is one output for each class */
    int keys;       /* embedding_bag: index of the input of keys that it reads */
    bool mean;      /* embedding_bag: several rows of a cell are averaged; false: they are added */
};

/* Returns true if the convolution or dense layer adds a bias. */
static inline bool layer_has_bias(const struct layer *l)
{
    return l->n_params > 1;
}

/* Returns true if the layer applies the same function to each value separately. relu is not one of
 * these kinds, because backends compute it in place. */
static inline bool layer_is_activation(enum layer_kind kind)
{
    return kind >= LAYER_SIGMOID && kind <= LAYER_LEAKY_RELU;
}

/* Returns true if the layer reads two or more inputs; other layers have at most one. */
static inline bool layer_is_join(enum layer_kind kind)
{
    return kind == LAYER_ADD || kind == LAYER_CONCAT || kind == LAYER_MULTIPLY;
}

/* Returns true if no plan computes the layer: its output is set as that of another plan's layer,
 * and its gradient is read in the same way. It has no parameters, but it is trained. */
static inline bool layer_is_on_host(enum layer_kind kind)
{
    return kind == LAYER_EMBEDDING_BAG;
}

/* Returns true if the layer computes the loss, reads the labels and ends the network. */
static inline int layer_is_loss(enum layer_kind kind)
{
    return kind == LAYER_SOFTMAX_XENT || kind == LAYER_SIGMOID_XENT || kind == LAYER_SQUARED;
}

/* Returns true if the loss also accepts targets: instead of a label, one float for each output. */
static inline int layer_takes_targets(enum layer_kind kind)
{
    return kind == LAYER_SIGMOID_XENT || kind == LAYER_SQUARED;
}

#ifdef __cplusplus
}
#endif
#endif
