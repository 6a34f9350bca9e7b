/* kernels/cuda/resident/steps.h - our own kernels around a network's pass: its samples out of a
 * data set on the device, the update of its parameters, and what the step came to. As kernels.h,
 * which has those of the layers. */
#ifndef KERNELS_CUDA_RESIDENT_STEPS_H
#define KERNELS_CUDA_RESIDENT_STEPS_H
#include "kernels/cuda/common/kernels.h"
#include "kernels/vector/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gather.cu: n images of a data set on the device as floats from 0 to 1, and their labels. */
struct gpu_gather {
    int64_t n, pixels;
    const uint8_t *images, *labels; /* of all items */
    float *x;                       /* [n][pixels] */
    int32_t *label;                 /* [n] */
};
int gpu_gather_items(struct CUstream_st *stream, const struct gpu_gather *g, const uint32_t *item);
/* The same for the samples of a step that the device itself counts; writes their positions, too. */
struct gpu_gather_order {
    int64_t n_items;
    const uint32_t *item[2]; /* [n_items] of the even passes and of the odd */
    const uint64_t *step;
    uint64_t first, stride; /* sample i's position: first + step * stride + i */
    uint64_t *position;     /* [n] */
};
int gpu_gather_step(struct CUstream_st *stream, const struct gpu_gather *g,
                    const struct gpu_gather_order *o);

/* optim.cu: one update of all parameters, as kernels/vector/optim does it, bit for bit where the
 * compiler does not join products and sums. */
struct gpu_optim_part { /* of one tensor; one block's work */
    float *p;
    const float *g;
    float *slot[2]; /* as many as the kind has */
    int32_t n;
    float keep; /* of a running average; below 0: the optimizer's */
};
struct gpu_optim {
    const struct gpu_optim_part *parts;
    int n_parts;
    enum optim_kind kind;
    int second_slot;                 /* rmsprop: with momentum */
    const struct optim_step *scalar; /* [n_scalars] that of update s + 1 at s % n_scalars */
    uint64_t n_scalars;
    const uint64_t *step; /* s */
    float weight, scale;  /* the gradient is g * weight * scale */
};
enum { GPU_OPTIM_ELEMS = 4096 }; /* most of a part */
int gpu_optim_run(struct CUstream_st *stream, const struct gpu_optim *u);

/* tally.cu: the step's mean loss and hits, added up in a fixed order; the step is over. */
struct gpu_tally {
    uint64_t step; /* updates done */
    double loss;
    int64_t hits;
};
int gpu_tally_step(struct CUstream_st *stream, const double *loss, const int32_t *hit, int64_t n,
                   struct gpu_tally *t);

#ifdef __cplusplus
}
#endif
#endif
