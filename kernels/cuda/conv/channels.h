/* kernels/cuda/conv/channels.h - which tensors lie channels last, [sample][y][x][channel], between
 * layers
 * (--gpu_tuning=nhwc): the outputs of convolutions that are read by convolutions alone, with relus
 * and max pools between them or none, and with them the gradients by these. All others, and what
 * other plans or the caller see, are canonical.
 * Threads: as plan.h. Errors: none. */
#ifndef KERNELS_CUDA_CONV_CHANNELS_H
#define KERNELS_CUDA_CONV_CHANNELS_H
#include "base/status.h"
#include "kernels/cuda/conv/channels_kernels.h"

struct gpu_plan;
struct layer;
struct shape;
/* x_last and y_last of all operations, whose kinds are set. */
void gpu_channels_plan(struct gpu_plan *plan);
/* A convolution whose padding is not the same on both sides: it is written out, in planes. */
int gpu_channels_framed(const struct layer *l);
/* A tensor as it lies on the device, n of these shapes, to canonical rows. Host memory; ST_NOMEM.
 */
enum status gpu_channels_first(float *values, const struct shape *s, int n);

#endif
