/* kernels/device_updates.h - updates of the parameters on the device, between steps that the caller
 * drives. A backend may offer these functions beside kernels/backend.h, for a plan of a whole
 * network that is in no group. An update is that of kernels/vector/optim with the gradients of the
 * last backward, which are also copied to the host as usual. So the caller can send these gradients
 * to servers and continue with the next step, while the servers compute the same update. Digests
 * then show that both have the same bits.
 *
 * Threads and errors are those of the plan. */
#ifndef KERNELS_DEVICE_UPDATES_H
#define KERNELS_DEVICE_UPDATES_H
#include "kernels/backend.h"
#include "kernels/vector/optim.h"

/* Length of a block of a parameter: block k begins at element k * DEVICE_UPDATES_BLOCK, and ends at
 * the next block or the parameter's end. */
enum { DEVICE_UPDATES_BLOCK = 4096 };

struct device_updates_config {
    struct optim_config optim; /* without clip_value, clip_norm and ema_decay */
    /* [n_params] fraction of the old value that a running average keeps; below 0: the optimizer
     * updates this parameter. Copied */
    const float *keep;
    /* the gradient is multiplied by this weight and divided by it, as on the servers */
    float weight;
};

struct device_updates_ops {
    /* Sets the optimizer's slots to zero. It may be called again between two steps, with the same
     * kind of optimizer. ST_NOMEM, logged: the plan has not changed. */
    enum status (*begin)(struct plan *p, const struct device_updates_config *cfg);
    /* Queues update number `step` (from 1) of all parameters, after the backward of all layers. The
     * next forward reads the new values, and no load_param is needed. */
    enum status (*run)(struct plan *p, uint64_t step);
    /* Waits for the last update. *out: the digest (kernels/vector/digest.h) of each block of the
     * parameter's new value, valid until the next update. */
    enum status (*digests)(struct plan *p, int param, const uint64_t **out);
};

#endif
