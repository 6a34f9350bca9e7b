/* kernels/device_updates.h - updates of the parameters on the device, between steps that the caller
 * drives. A backend may offer it beside kernels/backend.h, for a plan that computes a whole
 * network, is in no group, and has gradients of floats. The updates are those of
 * kernels/vector/optim with the gradients of the last backward. The caller also copies these
 * gradients to the host, sends them to servers, and continues with the next step, while the servers
 * compute the same update. Digests then show that both have the same bits.
 *
 * Threads and errors are those of the plan. */
#ifndef KERNELS_DEVICE_UPDATES_H
#define KERNELS_DEVICE_UPDATES_H
#include "kernels/backend.h"
#include "kernels/vector/optim.h"

/* A part of a parameter is divided into blocks of this length. Block k begins at element k *
 * DEVICE_UPDATES_BLOCK of the part, and ends at the next block or the part's end. */
enum { DEVICE_UPDATES_BLOCK = 4096 };

struct device_updates_config {
    struct optim_config optim; /* without clip_value, clip_norm and ema_decay */
    /* [n_params] fraction of the old value that a running average keeps; below 0: the optimizer
     * updates this parameter. Copied */
    const float *keep;
    /* the gradient is multiplied by this weight and divided by it, as on the servers */
    float weight;
};

enum { DEVICE_UPDATES_KEPT = 2 }; /* number of updates whose digests are kept */

struct device_updates_ops {
    /* Sets the optimizer's slots to zero. From now on, until `end`, backward copies no gradients to
     * the host: see `fetch`. This function may be called again between two steps, if the optimizer
     * has the same number of slots. ST_NOMEM, logged: the plan has not changed. */
    enum status (*begin)(struct plan *p, const struct device_updates_config *cfg);
    void (*end)(struct plan *p);
    /* Queues update number `step` (from 1) of all parameters, after the backward of all layers. The
     * next forward reads the new values, and no load_param is needed. */
    enum status (*run)(struct plan *p, uint64_t step);
    /* Queues the copy of a part of a gradient (kernels/parts.h; without parts: part 0) to the host,
     * after the backward of its layer and before the next one: all parts of the gradient in their
     * order. The functions that wait for gradients then wait for these copies. */
    enum status (*fetch)(struct plan *p, int param, int64_t part);
    /* Waits for update `step`, one of the last DEVICE_UPDATES_KEPT. *out: the digests
     * (kernels/vector/digest.h) of the blocks of this part of the new value, valid while the update
     * is one of the last DEVICE_UPDATES_KEPT. */
    enum status (*digests)(struct plan *p, int param, int64_t part, uint64_t step,
                           const uint64_t **out);
};

#endif
