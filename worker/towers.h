/* worker/towers.h - which towers a worker has: what each computes on, and which of the samples of
 * the worker's batch are its own. Values.
 * Threads: none. Errors: none. */
#ifndef WORKER_TOWERS_H
#define WORKER_TOWERS_H
#include "kernels/backend.h"

enum { TOWERS_MAX = 256 };

struct tower_device {
    const struct backend *backend; /* borrowed while the tower lives */
    int device;                    /* the backend's number */
    int n_threads;                 /* CPU: inside one operation */
};

struct tower_spec {
    struct tower_device own;
    const struct tower_device *others; /* [n_others] for the layers that are placed there */
    int n_others;
    const uint8_t *stage_of; /* [n_layers] 0: its own device, k: others[k-1]; NULL: all its own */
    int first, n;            /* its samples of the batch: [first, first + n) */
};

/* Deals `batch` samples out to the towers in their order, in parts that differ by at most one. */
void towers_share(struct tower_spec *towers, int n_towers, int batch);

#endif
