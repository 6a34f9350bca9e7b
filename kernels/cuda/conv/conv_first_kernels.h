/* kernels/cuda/conv/conv_first_kernels.h - launchers for a convolution of small images with one
 * channel and without a gradient with respect to the image. Each output is a sum with only as many
 * summands as the convolution's kernel has cells, about 25, which is few for a matrix product.
 * Threads, errors: as kernels.h. */
#ifndef KERNELS_CUDA_CONV_CONV_FIRST_KERNELS_H
#define KERNELS_CUDA_CONV_CONV_FIRST_KERNELS_H
#include "kernels/cuda/common/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_CONV_FIRST_MAX_FILTERS = 128 };

/* n images [in_h][in_w]; weights [filters][kernel][kernel], outputs [filters][out_h][out_w]. */
struct gpu_conv_first {
    int64_t n;
    int filters;
    int in_h, in_w, out_h, out_w;
    int kernel, stride; /* equal on both axes: kernel 2 .. 7, stride 1 .. 2 */
    /* padding above and to the left of the image; on the other sides there is as much as the
     * outputs require */
    int pad_h, pad_w;
};
/* Returns 1 if the kernels support the shape. */
int gpu_conv_first_fits(const struct gpu_conv_first *c);

/* Operations that follow the convolution's sums. */
struct gpu_conv_first_end {
    const float *bias; /* [filters]; NULL: none */
    int relu;
    /* cells of the maxima of a max pool that follows the relu, with adjacent 2x2 windows and
     * without padding. y then receives the maxima [filters][pool_h][pool_w], with the same bits as
     * gpu_bias_relu_pool. NULL: no pool. */
    int32_t *winner;
    int pool_h, pool_w;
};
int gpu_conv_first_forward(struct CUstream_st *stream, const struct gpu_conv_first *c,
                           const float *x, const float *w, float *y,
                           const struct gpu_conv_first_end *end);

/* Computes the gradients of weights and bias. scratch: gpu_conv_first_scratch floats. */
int64_t gpu_conv_first_scratch(const struct gpu_conv_first *c);
struct gpu_conv_first_grad {
    float *dw, *db, *scratch;
};
int gpu_conv_first_backward(struct CUstream_st *stream, const struct gpu_conv_first *c,
                            const float *x, const float *dy, const struct gpu_conv_first_grad *g);

#ifdef __cplusplus
}
#endif
#endif
