/* kernels/tuning.h - faster ways to compute that a GPU backend may offer. A user switches each of
 * them (a tuning) on or off by its name. Tests compare a plan that uses tunings with a plan that
 * uses none. A backend ignores a tuning that it does not have, because tunings change results only
 * by rounding. Threads: any. */
#ifndef KERNELS_TUNING_H
#define KERNELS_TUNING_H
#include "base/status.h"
#include <stdint.h>

enum tuning {
    TUNING_MEASURE = 1 << 0, /* convolutions: cuDNN's algorithms are measured, not estimated */
    /* dense layers: cuBLASLt adds bias and relu, and computes the bias's gradient */
    TUNING_EPILOGUES = 1 << 1,
    TUNING_FIRST_CONV = 1 << 2, /* a first convolution of one channel runs on Weir's own kernels */
    TUNING_MULTI_STEP = 1 << 3, /* many steps in one CUDA graph if the GPU trains without copies to
                                 * the host */
    TUNING_CAPTURE = 1 << 4,    /* forward and backward run as CUDA graphs in jobs with servers */
    /* backward: the gradients of parameters are computed on a second stream */
    TUNING_BRANCHES = 1 << 5,
    TUNING_NHWC = 1 << 6, /* convolutions are computed channels last, by cuDNN's graph API */
    TUNING_AUTO = 1 << 7, /* no tuning was named, so a tuning without effect is not logged */
    /* If there are servers and a single worker, the worker's card updates the parameters itself,
     * and the worker compares the results with the servers' versions. */
    TUNING_UPDATES = 1 << 8,
};

/* Parses "auto", "all", "none", or names separated by commas. "auto" selects the tunings that made
 * training faster, and never slower, on the GPUs that were measured (bench/results). A minus before
 * a name excludes that tuning, as in "all,-capture". ST_INVALID: *bad points to the first unknown
 * name, which has *n characters. */
enum status tuning_parse(const char *text, uint32_t *out, const char **bad, int *n);
/* Returns name k, from 0; NULL: k is not below the number of names. */
const char *tuning_name(int k);

#endif
