/* kernels/cuda/conv/channels.h - decides which tensors between layers lie channels last,
 * [sample][y][x][channel], with --gpu_tuning=nhwc: the outputs of convolutions, and the gradients
 * by them, if only convolutions read them, directly or through relus and max pools. All other
 * tensors, and those that other plans or the caller read, are canonical. Threads: as plan.h.
 * Errors: none. */
#ifndef KERNELS_CUDA_CONV_CHANNELS_H
#define KERNELS_CUDA_CONV_CHANNELS_H
#include "base/status.h"
#include "kernels/cuda/conv/channels_kernels.h"

struct gpu_plan;
struct layer;
struct shape;
/* Sets x_last and y_last of all operations; their kinds are set before. */
void gpu_channels_plan(struct gpu_plan *plan);
/* Returns true for a convolution with different padding on the two sides of an axis: the padding is
 * then written out, in planes. */
int gpu_channels_framed(const struct layer *l);
/* Converts n tensors of shape s from the layout on the device to canonical rows, in host memory.
 * ST_NOMEM. */
enum status gpu_channels_first(float *values, const struct shape *s, int n);

#endif
