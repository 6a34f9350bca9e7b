/* kernels/resident.h - training that stays on the device: data set, parameters, optimizer. What a
 * backend may offer beside kernels/backend.h, for a plan that trains alone (no servers, no other
 * tower). The caller queues steps and looks at a loss from time to time; nothing else travels.
 * Results are those of set_items, forward, backward and kernels/vector/optim.
 *
 * A step is: update number s + 1 with the samples at the global positions first + s * stride + i,
 * i < batch, of the data set's order (worker/data/dataset.h: positions 0 .. n-1 are pass 0).
 * Threads: as the plan's. Errors: as the plan's, logged. */
#ifndef KERNELS_RESIDENT_H
#define KERNELS_RESIDENT_H
#include "kernels/backend.h"
#include "kernels/vector/optim.h"

enum {
    RESIDENT_RUNS = 4,  /* most runs that are queued and not waited for */
    RESIDENT_STEPS = 32 /* most steps of a run */
};

struct resident_config {
    const struct backend_data *data; /* borrowed while the plan lives */
    struct optim_config optim;
    const float *keep; /* [n_params] of a running average, the share that is kept; below 0: the
                          optimizer's; copied */
    uint64_t step;     /* updates done before */
    uint64_t first, stride;
    int graphs; /* 1: each step is one launch of a graph, where the device can */
};

struct resident_result { /* of a run's last step */
    uint64_t step;       /* updates done */
    float loss;
    int n_correct;
};

struct resident_ops {
    /* Once, for a plan of which nothing but load_param was called, or all work is done. Slots begin
     * at zero. ST_NOMEM, logged: the plan is as before. */
    enum status (*begin)(struct plan *p, const struct resident_config *cfg);
    /* The order of one pass, item[0 .. n of the data); copied. Given before the first run that
     * reads it; it takes the place of the pass before the last, so a run reads two at most. */
    enum status (*order)(struct plan *p, uint64_t pass, const uint32_t *item);
    /* Queues n steps; at most RESIDENT_RUNS runs are queued at a time. */
    enum status (*run)(struct plan *p, int n);
    /* Waits for the oldest run that is queued. */
    enum status (*wait)(struct plan *p, struct resident_result *out);
    /* The parameter as it is after all runs that were queued, canonical layout. */
    enum status (*read_param)(struct plan *p, int param, float *dst);
    /* After the first run: 1 if steps are launched as graphs. */
    int (*is_graph)(const struct plan *p);
};

#endif
