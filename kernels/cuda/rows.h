/* kernels/cuda/rows.h - more kernels of ours, as in kernels.h: what works on each sample's row.
 * Threads, errors: as in kernels.h. */
#ifndef KERNELS_CUDA_ROWS_H
#define KERNELS_CUDA_ROWS_H
#include "kernels/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* loss.cu: what cuda_softmax_run does, for sigmoids, and for squared errors, whose y is x; losses
 * are means over the classes. */
int cuda_sigmoid_run(struct CUstream_st *stream, const struct cuda_softmax *s);
int cuda_squared_run(struct CUstream_st *stream, const struct cuda_softmax *s);

/* layer_norm.cu: over each sample's values. */
struct cuda_layer_norm {
    int64_t n, elems; /* samples, and values of each */
    double epsilon;
    const float *x, *gamma;
    float *mean, *inverse; /* [n] written by the forward */
};
int cuda_layer_norm_forward(struct CUstream_st *stream, const struct cuda_layer_norm *l,
                            const float *beta, float *y);
int cuda_layer_norm_backward(struct CUstream_st *stream, const struct cuda_layer_norm *l,
                             const float *dy, float *dx);
int cuda_layer_norm_params(struct CUstream_st *stream, const struct cuda_layer_norm *l,
                           const float *dy, float *dgamma, float *dbeta);

/* embedding.cu: x holds numbers divided by 255; those beyond the vocabulary count as its last. */
struct cuda_embedding {
    int64_t n, cells, units, vocabulary;
    const float *x; /* [n][cells] */
};
int cuda_embedding_forward(struct CUstream_st *stream, const struct cuda_embedding *e,
                           const float *table, float *y);
int cuda_embedding_backward(struct CUstream_st *stream, const struct cuda_embedding *e,
                            const float *dy, float *grad);

/* activation.cu: y may be x, and dx dy. */
enum cuda_activation_kind { CUDA_SIGMOID, CUDA_TANH, CUDA_GELU, CUDA_SILU, CUDA_LEAKY_RELU };
struct cuda_activation {
    enum cuda_activation_kind kind;
    float slope; /* leaky_relu */
    int64_t n;   /* values */
};
int cuda_activation_forward(struct CUstream_st *stream, const struct cuda_activation *a,
                            const float *x, float *y);
int cuda_activation_backward(struct CUstream_st *stream, const struct cuda_activation *a,
                             const float *x, const float *dy, float *dx);

#ifdef __cplusplus
}
#endif
#endif
