/* kernels/cuda/conv/channels_kernels.h - the part of kernels.h for tensors that are stored channels
 * last: launchers of conversions to that layout and back, and of layers that compute in it. Errors:
 * as kernels.h. */
#ifndef KERNELS_CUDA_CONV_CHANNELS_KERNELS_H
#define KERNELS_CUDA_CONV_CHANNELS_KERNELS_H
#include "kernels/cuda/common/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pool_last.cu: a max pool whose input has the layout [sample][y][x][channel]. The output, the
 * winners and dy have the same layout if out_last is set, otherwise the layout of pool.cu. The
 * results have the same bits as those of pool.cu. window.planes: samples times channels. */
struct gpu_pool_last {
    struct gpu_window window;
    int64_t channels;
    int out_last;
};
int gpu_pool_last_forward(struct CUstream_st *stream, const float *x, float *y, int32_t *winner,
                          const struct gpu_pool_last *p);
int gpu_pool_last_backward(struct CUstream_st *stream, const float *dy, const int32_t *winner,
                           const float *y, float *dx, const struct gpu_pool_last *p);
/* Computes the same bits as gpu_bias_grad, from a dy that is stored channels last
 * (bias_grad.cu). */
int gpu_bias_grad_last(struct CUstream_st *stream, const float *dy, float *db, float *scratch,
                       struct gpu_planes shape);

/* transpose.cu: transposes n matrices [rows][columns] to [columns][rows]; _down also converts to
 * bfloat16 and _up converts from it. dst must not be src. */
struct gpu_matrices {
    int64_t n, rows, columns;
};
int gpu_transpose(struct CUstream_st *stream, const float *src, float *dst, struct gpu_matrices m);
int gpu_transpose_down(struct CUstream_st *stream, const float *src, uint16_t *dst,
                       struct gpu_matrices m);
int gpu_transpose_up(struct CUstream_st *stream, const uint16_t *src, float *dst,
                     struct gpu_matrices m);

#ifdef __cplusplus
}
#endif
#endif
