/* kernels/cuda/conv/algo.h - chooses one of cuDNN's proposed convolution algorithms. cuDNN proposes
 * algorithms in the order of their expected speed, fastest first. It reports for each whether it is
 * usable, how much workspace it needs, and whether its sums have a fixed order. This file needs no
 * CUDA. */
#ifndef KERNELS_CUDA_CONV_ALGO_H
#define KERNELS_CUDA_CONV_ALGO_H
#include <stdint.h>

struct gpu_algo {
    int usable;        /* cuDNN supports the algorithm for this shape */
    int deterministic; /* same bits in every run */
    int tf32;          /* true: factors are rounded to TF32 */
    uint64_t workspace_bytes;
};

struct gpu_algo_wish {
    uint64_t workspace_limit;
    int deterministic;
    int tf32; /* true: TF32 is allowed */
};

/* Returns the index of the first algorithm that satisfies the wish; -1: none does. */
int gpu_algo_choose(const struct gpu_algo *list, int n, const struct gpu_algo_wish *wish);

#endif
