/* kernels/cuda/memory/pin.h - pins host memory. Plans of the process that pin the same range share
 * it. Owns: a reference to each range. Threads: any. Errors: logged. */
#ifndef KERNELS_CUDA_MEMORY_PIN_H
#define KERNELS_CUDA_MEMORY_PIN_H
#include "base/status.h"
#include "kernels/cuda/memory/pieces.h"

struct gpu_range_list {
    struct gpu_range *ranges; /* pinned ranges; the owner of this list has a reference to each */
    int n;
};

/* Pins the whole pages of the ranges; skips ranges that cannot be pinned, with a warning. */
enum status gpu_pin(struct gpu_range *ranges, int n, struct gpu_range_list *out);
/* Unpins the ranges that overlap `moved` if `on` is set, so that its pages may be replaced, and
 * pins them again otherwise. Called when no copy is under way. */
void gpu_pin_suspend(const struct gpu_range_list *pins, struct gpu_range moved, int on);
void gpu_pin_release(struct gpu_range_list *pins);

#endif
