/* kernels/parts.h - copies gradients to the host, and parameters to the device, in parts, so that
 * the caller can send or receive a part while the device copies another one. A backend may offer it
 * beside kernels/backend.h, for a plan outside a group whose config has `parts`.
 *
 * Threads and errors are those of the plan. */
#ifndef KERNELS_PARTS_H
#define KERNELS_PARTS_H
#include "kernels/backend.h"
#include <stdbool.h>

struct parts_config {
    int64_t elems;      /* length of a part: part k of a parameter has its elements from k * elems
                           on, up to the next part or the parameter's end */
    float largest_grad; /* limit of `check` */
};

struct parts_ops {
    /* Waits until a part of the parameter's gradient is on the host. The caller calls it for each
     * part of a layer's parameters, instead of wait_grads for the layer. */
    enum status (*wait)(struct plan *p, int param, int64_t part);
    /* Waits until the device has computed the gradients of a layer with parameters. *suspect: a
     * gradient may be not finite or, before it is rounded to 16 bits, may have a magnitude above
     * largest_grad. False: the device has found none of these. */
    enum status (*check)(struct plan *p, int layer, bool *suspect);
    /* Like load_param, for one part of the parameter. */
    enum status (*load)(struct plan *p, int param, int64_t part);
};

#endif
