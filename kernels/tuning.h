/* kernels/tuning.h - ways to compute that a GPU backend has beside its plain ones, each with a name
 * by which it is switched on and off. A plan with none of them is the reference that they are
 * tested against. A backend that has not got one leaves it out: results are the same but for
 * rounding. Threads: any. */
#ifndef KERNELS_TUNING_H
#define KERNELS_TUNING_H
#include "base/status.h"
#include <stdint.h>

enum tuning {
    TUNING_MEASURE = 1 << 0,    /* convolutions: cuDNN's algorithms are timed, not foretold */
    TUNING_EPILOGUES = 1 << 1,  /* dense layers: cuBLASLt adds bias and relu, and their gradients */
    TUNING_FIRST_CONV = 1 << 2, /* a first convolution of one channel by kernels of ours */
    TUNING_MULTI_STEP = 1 << 3, /* many steps in one CUDA graph, where training stays on the GPU */
    TUNING_CAPTURE = 1 << 4,    /* with servers: forward and backward as CUDA graphs */
    TUNING_BRANCHES = 1 << 5,   /* backward: gradients by parameters on a second stream */
    TUNING_NHWC = 1 << 6,       /* convolutions with channels last, by cuDNN's graphs */
    TUNING_AUTO = 1 << 7,       /* nobody named them: where one does not apply, nothing is said */
};

/* "auto": those that made training faster, and nothing slower, on the cards that were measured
 * (bench/results). "all", "none", or names with commas between them; one with a minus before it is
 * taken back, as in "all,-capture". ST_INVALID: *bad points at the first that is none of them, of
 * *n characters. */
enum status tuning_parse(const char *text, uint32_t *out, const char **bad, int *n);
/* The k-th name, from 0; NULL: there are no more. */
const char *tuning_name(int k);

#endif
