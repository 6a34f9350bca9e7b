/* kernels/cuda/layers/rows.h - the part of kernels.h for kernels that work on the row of each
 * sample. Threads, errors: as in kernels.h. */
#ifndef KERNELS_CUDA_LAYERS_ROWS_H
#define KERNELS_CUDA_LAYERS_ROWS_H
#include "kernels/cuda/common/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* loss.cu: like gpu_softmax_run, but for sigmoids, and for squared errors, for which y is a copy of
 * x. Losses are means over the classes. */
int gpu_loss_sigmoid(struct CUstream_st *stream, const struct gpu_softmax *s);
int gpu_loss_squared(struct CUstream_st *stream, const struct gpu_softmax *s);

/* layer_norm.cu: normalization over the values of each sample. */
struct gpu_layer_norm {
    int64_t n, elems; /* number of samples, and of values of each sample */
    double epsilon;
    const float *x, *gamma;
    float *mean, *inverse; /* [n] written by the forward */
};
int gpu_layer_norm_forward(struct CUstream_st *stream, const struct gpu_layer_norm *l,
                           const float *beta, float *y);
int gpu_layer_norm_backward(struct CUstream_st *stream, const struct gpu_layer_norm *l,
                            const float *dy, float *dx);
int gpu_layer_norm_params(struct CUstream_st *stream, const struct gpu_layer_norm *l,
                          const float *dy, float *dgamma, float *dbeta);

/* embedding.cu: x holds numbers divided by 255. A number beyond the vocabulary is replaced by the
 * last one. */
struct gpu_embedding {
    int64_t n, cells, units, vocabulary;
    const float *x; /* [n][cells] */
};
int gpu_embedding_forward(struct CUstream_st *stream, const struct gpu_embedding *e,
                          const float *table, float *y);
int gpu_embedding_backward(struct CUstream_st *stream, const struct gpu_embedding *e,
                           const float *dy, float *grad);

/* activation.cu: y may be x, and dx may be dy. */
enum gpu_activation_kind { GPU_SIGMOID, GPU_TANH, GPU_GELU, GPU_SILU, GPU_LEAKY_RELU };
struct gpu_activation {
    enum gpu_activation_kind kind;
    float slope; /* leaky_relu */
    int64_t n;   /* values */
};
int gpu_activation_forward(struct CUstream_st *stream, const struct gpu_activation *a,
                           const float *x, float *y);
int gpu_activation_backward(struct CUstream_st *stream, const struct gpu_activation *a,
                            const float *x, const float *dy, float *dx);

/* multiply.cu: y may be none of the inputs, and dx not dy. */
struct gpu_multiply {
    int n_inputs; /* 2 to 16 */
    int64_t n;    /* values */
    const float *x[16];
};
int gpu_multiply_forward(struct CUstream_st *stream, const struct gpu_multiply *m, float *y);
/* Computes the gradient with respect to input k. */
int gpu_multiply_backward(struct CUstream_st *stream, const struct gpu_multiply *m, int k,
                          const float *dy, float *dx);

/* channel_sum.cu: the sum of `terms` values for each of a sample's cells. */
struct gpu_channel_sum {
    int64_t n, terms, cells; /* number of samples, and of terms and cells of each sample */
};
int gpu_channel_sum_forward(struct CUstream_st *stream, const struct gpu_channel_sum *s,
                            const float *x, float *y);
int gpu_channel_sum_backward(struct CUstream_st *stream, const struct gpu_channel_sum *s,
                             const float *dy, float *dx);

/* factorization.cu: the sum of the scalar products of all pairs of a sample's columns. */
struct gpu_factorization {
    int64_t n, columns, units; /* number of samples, of columns, and of values of a column */
    const float *x;            /* [n][columns][units] */
};
int gpu_factorization_forward(struct CUstream_st *stream, const struct gpu_factorization *f,
                              float *y);
int gpu_factorization_backward(struct CUstream_st *stream, const struct gpu_factorization *f,
                               const float *dy, float *dx);

#ifdef __cplusplus
}
#endif
#endif
