/* kernels/cuda/conv/algo.h - which of cuDNN's proposed convolution algorithms is taken.
 * cuDNN proposes by expected speed, fastest first, and says of each whether it can be used, how
 * much workspace it wants, and whether its sums have a fixed order. Knows no CUDA. */
#ifndef KERNELS_CUDA_CONV_ALGO_H
#define KERNELS_CUDA_CONV_ALGO_H
#include <stdint.h>

struct gpu_algo {
    int usable;        /* cuDNN can run it on this shape */
    int deterministic; /* the same bits on every run */
    int tf32;          /* rounds its inputs to TF32 */
    uint64_t workspace_bytes;
};

struct gpu_algo_wish {
    uint64_t workspace_limit;
    int deterministic;
    int tf32; /* allowed */
};

/* The first that meets the wish; -1: none does. */
int gpu_algo_choose(const struct gpu_algo *list, int n, const struct gpu_algo_wish *wish);

#endif
