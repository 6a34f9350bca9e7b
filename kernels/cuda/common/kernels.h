/* kernels/cuda/common/kernels.h - the launchers of Weir's own kernels, one operation per file. Each
 * queues its kernel on a stream and returns at once. Pointers are device pointers; tensors are
 * canonical rows. No sum depends on the order in which threads run. This file needs no CUDA header:
 * the tests compile the same .cu files for the CPU (tests/emulation). Errors: 0, or the cudaError_t
 * of the launch; GPU_KERNEL_REFUSED (cudaErrorInvalidValue) for invalid arguments. */
#ifndef KERNELS_CUDA_COMMON_KERNELS_H
#define KERNELS_CUDA_COMMON_KERNELS_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st; /* the type that a cudaStream_t points to */
enum { GPU_KERNEL_REFUSED = 1 };

/* Sets dst[k] = src[k] / 255 for n values (scale.cu). */
int gpu_scale_pixels(struct CUstream_st *stream, const uint8_t *src, float *dst, int64_t n);

/* A tensor of n samples, each with `channels` planes of `plane` values. */
struct gpu_planes {
    int64_t n, channels, plane;
};

/* bias.cu: adds each channel's bias to y; if relu is set, then replaces y by max(y, 0). */
int gpu_bias_add(struct CUstream_st *stream, float *y, const float *bias, struct gpu_planes shape,
                 int relu);
/* Sets db[c] to the sum of dy over the samples and the cells of a plane (bias_grad.cu). scratch:
 * gpu_bias_grad_scratch floats. */
int64_t gpu_bias_grad_scratch(struct gpu_planes shape);
int gpu_bias_grad(struct CUstream_st *stream, const float *dy, float *db, float *scratch,
                  struct gpu_planes shape);

/* Applies relu (relu.cu); backward sets dx = 0 where y is not above 0. y may be x, dx may be dy. */
int gpu_relu_forward(struct CUstream_st *stream, const float *x, float *y, int64_t n);
int gpu_relu_backward(struct CUstream_st *stream, const float *y, const float *dy, float *dx,
                      int64_t n);

/* Sets dst = a + b, or max(a + b, 0) if relu is set; dst may be a or b (add.cu). */
int gpu_add(struct CUstream_st *stream, const float *a, const float *b, float *dst, int64_t n,
            int relu);

/* concat.cu: copies the first `elems` values of each of the n rows. src_row and dst_row: distance
 * between two rows, in values. */
struct gpu_rows {
    int64_t n, elems, src_row, dst_row;
};
int gpu_concat_rows(struct CUstream_st *stream, const float *src, float *dst, struct gpu_rows r);

/* pool.cu: windows of a pool over planes (one for each sample and channel). Cells outside the image
 * do not count. */
struct gpu_window {
    int64_t planes;
    int in_h, in_w, out_h, out_w;
    int kernel_h, kernel_w, stride_h, stride_w;
    int pad_h, pad_w; /* padding above and to the left of the image */
};
/* Writes the maxima, and to winner[k] the first cell in the plane that has maximum k. */
int gpu_pool_max_forward(struct CUstream_st *stream, const float *x, float *y, int32_t *winner,
                         const struct gpu_window *w);
/* Computes dx. If the pool reads a relu, y is the pool's maxima, and dx is the gradient with
 * respect to the relu's input; otherwise y is NULL. */
int gpu_pool_max_backward(struct CUstream_st *stream, const float *dy, const int32_t *winner,
                          const float *y, float *dx, const struct gpu_window *w);
int gpu_pool_avg_forward(struct CUstream_st *stream, const float *x, float *y,
                         const struct gpu_window *w);
int gpu_pool_avg_backward(struct CUstream_st *stream, const float *dy, float *dx,
                          const struct gpu_window *w);
/* bias_relu_pool.cu: computes the same bits as gpu_bias_add with relu, followed by
 * gpu_pool_max_forward. */
struct gpu_bias {
    const float *values; /* [channels] */
    int64_t channels;    /* number of planes of a sample */
};
int gpu_bias_relu_pool(struct CUstream_st *stream, const float *x, const struct gpu_bias *bias,
                       float *y, int32_t *winner, const struct gpu_window *w);

/* softmax.cu: computes probabilities; with labels also each sample's cross-entropy, whether its
 * prediction is correct, and, unless dx is NULL, the mean cross-entropy's gradient. */
struct gpu_softmax {
    int64_t n, classes;
    const float *x;
    const int32_t *labels; /* [n] or NULL */
    float *y, *dx;         /* [n][classes] */
    double *loss;          /* [n] */
    int32_t *hit;          /* [n] */
    float smoothing; /* softmax: fraction of the label's weight that is spread over all classes */
    const float *targets; /* loss.cu: [n][classes] targets instead of labels, or NULL */
};
int gpu_softmax_run(struct CUstream_st *stream, const struct gpu_softmax *s);

/* Converts to bfloat16 and back, and to fp16, with the bits of kernels/vector/dtype.h (cast.cu). */
int gpu_cast_down(struct CUstream_st *stream, const float *src, uint16_t *dst, int64_t n);
int gpu_cast_up(struct CUstream_st *stream, const uint16_t *src, float *dst, int64_t n);
int gpu_cast_half(struct CUstream_st *stream, const float *src, uint16_t *dst, int64_t n);

/* dropout.cu: sets unit j of sample i to 0 if the top 24 bits of rng_u64(key, position[i] * elems +
 * j) are below threshold, otherwise multiplies it by scale. y may be x. The backward is a call with
 * the same arguments, on the gradients. */
struct gpu_dropout {
    int64_t n, elems;
    const uint64_t *position; /* [n] */
    uint64_t key, threshold;
    float scale;
};
int gpu_dropout_apply(struct CUstream_st *stream, const float *x, float *y,
                      const struct gpu_dropout *d);

/* pad.cu: copies images into larger ones with zeros around them, or back. */
struct gpu_frame {
    int64_t planes;
    int h, w, padded_h, padded_w;
    int lo_h, lo_w; /* rows above, and columns to the left of, the image */
};
int gpu_pad_set(struct CUstream_st *stream, const float *x, float *padded,
                const struct gpu_frame *f);
int gpu_pad_cut(struct CUstream_st *stream, const float *padded, float *x,
                const struct gpu_frame *f);

/* norm_stats.cu: converts the statistics that cuDNN saves (mean, 1 / sqrt(variance + epsilon)) to
 * those that the backend returns (mean, variance with cells - 1). cells: values of a channel. */
struct gpu_norm_stats {
    int64_t channels, cells;
    double epsilon;
    const float *saved_mean, *saved_inverse;
    float *mean, *variance;
};
int gpu_norm_stats_hand_out(struct CUstream_st *stream, const struct gpu_norm_stats *s);

/* sum.cu: sets dst[k] = weight[0] * src[0][k] + weight[1] * src[1][k] + ..., added in this
 * order. */
enum { GPU_SUM_MOST = 16 };
struct gpu_sum {
    int n; /* 1 .. GPU_SUM_MOST */
    const float *src[GPU_SUM_MOST];
    float weight[GPU_SUM_MOST];
};
int gpu_sum_weighted(struct CUstream_st *stream, const struct gpu_sum *s, float *dst, int64_t n);

/* Returns the number of blocks, at most 32768, of a grid-stride launch over n items. */
static inline unsigned gpu_grid_blocks(int64_t n, int threads)
{
    int64_t blocks = (n + threads - 1) / threads;
    return (unsigned)(blocks < 32768 ? blocks : 32768);
}

#ifdef __cplusplus
}
#endif
#endif
