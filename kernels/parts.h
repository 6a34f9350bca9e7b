/* kernels/parts.h - copies gradients to the host, and parameters to the device, in parts, so that
 * the caller can send or receive a part while the device copies another one. A backend may offer
 * these functions beside kernels/backend.h, for a plan that is in no group and has `parts` in its
 * config.
 *
 * Threads and errors are those of the plan. */
#ifndef KERNELS_PARTS_H
#define KERNELS_PARTS_H
#include "kernels/backend.h"
#include <stdbool.h>

struct parts_config {
    /* length of a part: part k of a parameter begins at element k * elems, and ends at the next
     * part or the parameter's end */
    int64_t elems;
    float largest_grad; /* limit on magnitudes for `check` */
};

struct parts_ops {
    /* Waits until a part of the parameter's gradient is on the host. The caller calls it for each
     * part of a layer's parameters, instead of wait_grads for the layer. */
    enum status (*wait)(struct plan *p, int param, int64_t part);
    /* Waits until the device has computed the gradients of a layer with parameters. *suspect: a
     * gradient may be not finite or, before it is rounded to 16 bits, may have a magnitude above
     * largest_grad. *suspect false: the device has found no such gradient. */
    enum status (*check)(struct plan *p, int layer, bool *suspect);
    /* Does the same as load_param, but for one part of the parameter. */
    enum status (*load)(struct plan *p, int param, int64_t part);
};

#endif
