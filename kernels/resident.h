/* kernels/resident.h - training with the data set, the parameters and the optimizer on the device.
 * A backend may offer these functions beside kernels/backend.h, for a plan that trains alone (no
 * servers, no other tower), or for all plans of a group, each on a device of its own. The caller
 * queues steps and reads a loss from time to time; no other data leaves the devices. The results
 * are the same as those of set_items, forward, backward and kernels/vector/optim. In a group all
 * calls are made for the plan of rank 0 and act for all plans, whose parameters stay equal.
 *
 * One step is update number s + 1, with the samples at the global positions first + s * stride + i,
 * i < batch, in the order of the data set (worker/data/dataset.h: positions 0 .. n-1 are pass 0).
 * Threads and errors are those of the plan. */
#ifndef KERNELS_RESIDENT_H
#define KERNELS_RESIDENT_H
#include "kernels/backend.h"
#include "kernels/vector/optim.h"

enum {
    /* highest number of queued runs whose results the caller has not waited for */
    RESIDENT_RUNS = 4,
    RESIDENT_STEPS = 32 /* highest number of steps in a run */
};

/* A plan of a group, with its own samples. */
struct resident_peer {
    struct plan *plan;
    const struct backend_data *data; /* borrowed while the plan lives */
    uint64_t first;
};

struct resident_config {
    const struct backend_data *data; /* borrowed while the plan exists */
    struct optim_config optim;
    /* [n_params] fraction of the old value that a running average keeps; below 0: the optimizer
     * updates this parameter. Copied */
    const float *keep;
    uint64_t step; /* number of updates that were made before */
    uint64_t first, stride;
    int graphs; /* true: each step is launched as one graph, if the device supports it */
    /* [n_peers] the other plans of this plan's group, in the order of their ranks from 1; borrowed
     * during begin. NULL: the plan trains alone */
    const struct resident_peer *peers;
    int n_peers;
};

struct resident_result { /* result of a run's last step, of all plans */
    uint64_t step;       /* updates done */
    float loss;
    int n_correct;
};

struct resident_ops {
    /* Begins resident training. Must be called once, before all other functions except load_param,
     * while no work is queued. The optimizer's slots begin at zero. ST_NOMEM, ST_UNSUPPORTED (the
     * devices of a group cannot exchange parameters), logged: the plans have not changed. */
    enum status (*begin)(struct plan *p, const struct resident_config *cfg);
    /* Sets the order of the samples in one pass, which is copied. item: one index for each sample
     * of the data set. Must be called before the first run that reads this order. It replaces the
     * older of the two stored orders, because a run reads the orders of at most two passes. */
    enum status (*order)(struct plan *p, uint64_t pass, const uint32_t *item);
    /* Queues n steps; at most RESIDENT_RUNS runs may be queued. */
    enum status (*run)(struct plan *p, int n);
    /* Waits for the oldest queued run. */
    enum status (*wait)(struct plan *p, struct resident_result *out);
    /* Copies the value that the parameter has after all queued runs, as plain rows. */
    enum status (*read_param)(struct plan *p, int param, float *dst);
    /* Returns 1 after the first run if steps are launched as graphs. */
    int (*is_graph)(const struct plan *p);
};

#endif
