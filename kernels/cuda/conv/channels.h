/* kernels/cuda/conv/channels.h - decides for --gpu_tuning=nhwc which tensors between layers are
 * stored channels last, [sample][y][x][channel]. These are the outputs of convolutions that only
 * convolutions read, directly or through relus and max pools, and the gradients with respect to
 * such outputs. All other tensors are canonical, including all tensors that other plans or the
 * caller read. Threads: as plan.h.
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
/* Returns true for a convolution with different padding on the two sides of an axis. Such a
 * convolution reads a copy of the image that includes the padding, and it reads and writes
 * planes. */
int gpu_channels_framed(const struct layer *l);
/* Converts n tensors of shape s in host memory from channels last to canonical rows. ST_NOMEM. */
enum status gpu_channels_first(float *values, const struct shape *s, int n);

#endif
