/* kernels/cuda/conv/channels.h - decides which tensors between layers lie channels last,
 * [sample][y][x][channel], with --gpu_tuning=nhwc: the outputs of convolutions, and the gradients
 * with respect to them, if only convolutions read them, directly or through relus and max pools.
 * All other tensors are canonical, including those that other plans or the caller read. Threads: as
 * plan.h.
 * Errors: none. */
#ifndef KERNELS_CUDA_CONV_CHANNELS_H
#define KERNELS_CUDA_CONV_CHANNELS_H
#include "base/status.h"
#include "kernels/cuda/conv/channels_kernels.h"

struct gpu_plan;
struct layer;
struct shape;
/* Sets x_last and y_last of all operations, whose kinds must be set before. */
void gpu_channels_plan(struct gpu_plan *plan);
/* Returns true for a convolution with different padding on the two sides of an axis: the padding is
 * then written out, and the layer works on planes. */
int gpu_channels_framed(const struct layer *l);
/* Converts n tensors of shape s from the layout on the device to canonical rows, in host memory.
 * ST_NOMEM. */
enum status gpu_channels_first(float *values, const struct shape *s, int n);

#endif
