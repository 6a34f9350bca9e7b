/* tests/emulation/values.h - shared by the emulated libraries: handles, factors that are rounded as
 * in the hardware, and checks of arguments. Errors: they end the program. Threads: any. */
#ifndef TESTS_EMULATION_VALUES_H
#define TESTS_EMULATION_VALUES_H
#include "tests/emulation/runtime.h"
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>

/* The handle of a library. It works on the device on which it was created, for one thread at a
 * time. */
struct emulation_handle {
    cudaStream_t stream;
    int device;
    _Atomic int busy;
    int sees_bf16; /* compute capability 8.0 and above */
};
void emulation_handle_init(struct emulation_handle *h);
/* Checks the handle's device and thread at the begin of each call. */
void emulation_handle_begin(struct emulation_handle *h);
void emulation_handle_end(struct emulation_handle *h);

/* Returns the factor of all products of the current device: 1, or another number if a test has made
 * the device wrong. */
double emulation_soundness(void);
/* Fails unless alpha and beta are 1 and 0. */
void emulation_check_scale(const void *alpha, const void *beta);

/* The workspace of a product. A product is two pieces of work: the first one fills the workspace
 * with NaN and a mark of the product, and the second one checks the mark before it computes.
 * Work of another stream may run between them. If this work uses the same workspace, the program
 * ends. */
struct emulation_work {
    void *at;
    size_t bytes;
    uint64_t mark;
};
void emulation_work_queue(cudaStream_t s, void *at, size_t bytes, struct emulation_work *out);
void emulation_work_check(const struct emulation_work *w);

enum { ALL_BITS = 23, TF32_BITS = 10, BF16_BITS = 7 };

/* Rounds a float to the nearest number with `bits` bits after the point, ties to even. */
static inline float emulation_rounded(float value, int bits)
{
    uint32_t u, lost = (uint32_t)23 - (uint32_t)bits;
    memcpy(&u, &value, sizeof u);
    u += ((uint32_t)1 << (lost - 1)) - 1 + (u >> lost & 1);
    u &= ~(((uint32_t)1 << lost) - 1);
    memcpy(&value, &u, sizeof value);
    return value;
}

/* Rounds a factor for a product. */
static inline double emulation_factor(float value, int bits)
{
    return (double)(bits == ALL_BITS ? value : emulation_rounded(value, bits));
}

#endif
