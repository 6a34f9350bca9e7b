/* kernels/cuda/resident/steps.h - launchers of Weir's kernels before and after the layers of a
 * step: they gather samples from a data set on the device, update parameters, and add the results
 * of a step. The rules of kernels.h, which declares the kernels of the layers, also apply here. */
#ifndef KERNELS_CUDA_RESIDENT_STEPS_H
#define KERNELS_CUDA_RESIDENT_STEPS_H
#include "kernels/cuda/common/kernels.h"
#include "kernels/vector/optim.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gather.cu: copies n images of a data set on the device as floats from 0 to 1, with their
 * labels. */
struct gpu_gather {
    int64_t n, pixels;
    const uint8_t *images, *labels; /* images and labels of all samples of the data set */
    float *x;                       /* [n][pixels] */
    int32_t *label;                 /* [n] */
};
int gpu_gather_items(struct CUstream_st *stream, const struct gpu_gather *g, const uint32_t *item);
/* Gathers the samples of the step whose number is in the counter on the device, and writes their
 * positions. */
struct gpu_gather_order {
    int64_t n_items;
    const uint32_t *item[2]; /* [n_items] order of the samples in even passes and in odd passes */
    const uint64_t *step;
    uint64_t first, stride; /* position of sample i: first + step * stride + i */
    uint64_t *position;     /* [n] */
};
int gpu_gather_step(struct CUstream_st *stream, const struct gpu_gather *g,
                    const struct gpu_gather_order *o);

/* optim.cu: one update of all parameters by the formulas of kernels/vector/optim. The results have
 * the same bits as on the CPU if the compiler does not fuse products and sums. */
struct gpu_optim_part { /* part of a tensor, which one block updates */
    float *p;
    const float *g;
    float *slot[2]; /* the part's slots; an optimizer may have fewer than two */
    int32_t n;
    /* 0 or more: p is a statistic, and this fraction of its old value is kept; below 0: the
     * optimizer updates p */
    float keep;
};
struct gpu_optim {
    const struct gpu_optim_part *parts;
    int n_parts;
    enum optim_kind kind;
    int second_slot; /* rmsprop with momentum: there is a second slot */
    /* [n_scalars] the scalars of update s + 1 are at s % n_scalars */
    const struct optim_step *scalar;
    uint64_t n_scalars;
    const uint64_t *step; /* s, the number of updates so far */
    float weight, scale;  /* the effective gradient is g * weight * scale */
};
enum { GPU_OPTIM_ELEMS = 4096 }; /* highest number of values in a part */
int gpu_optim_run(struct CUstream_st *stream, const struct gpu_optim *u);

/* Writes the digest (kernels/vector/digest.h) of each part (digest.cu). */
int gpu_digest_parts(struct CUstream_st *stream, const struct gpu_optim_part *parts, int n_parts,
                     uint64_t *digest);

/* tally.cu: writes the step's mean loss and its number of correct samples, added in a fixed order,
 * and ends the step. */
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
