/* worker/device/gpus.h - the GPUs of this process, from the choice (devices.h) to the backend that
 * computes on them: the CUDA backend is loaded where GPUs were chosen, and only there, and gets its
 * share of their memory. A GPU's number is the same for the driver, which was asked first, and for
 * the backend: both count in one process, by the same environment. It is checked nevertheless:
 * training on another card than the one reserved would be worse than not training.
 *
 * Owns:    the reservations, until gpus_release or the process' end.
 * Threads: none; call before other threads start.
 * Errors:  those of devices_choose and of the backend; ST_NOT_FOUND (no backend), ST_MISMATCH;
 *          logged. */
#ifndef WORKER_DEVICE_GPUS_H
#define WORKER_DEVICE_GPUS_H
#include "kernels/backend.h"
#include "worker/device/devices.h"

struct gpus_request {
    struct devices_request choice;
    const char *backend_dir;
    double memory_fraction; /* of the card's memory, for this process; 0: no limit */
    int allow_growth;       /* 0: a fraction is taken at once; see gpus_growth */
};

struct gpus {
    struct devices chosen;         /* n = 0: the CPU */
    const struct backend *backend; /* n = 0: NULL */
};

enum status gpus_open(const struct gpus_request *r, struct gpus *out);
void gpus_release(struct gpus *g); /* a zeroed one is fine */

/* Is each GPU's number of the driver the same card to the backend? */
enum status gpus_check(const struct devices *chosen, const struct backend *backend);
/* ST_INVALID, logged: the environment variable TF_FORCE_GPU_ALLOW_GROWTH (value; NULL: not set) is
 * neither true nor false. */
enum status gpus_growth_check(const char *value);
/* TensorFlow's rule: that variable wins over the flag (-1: not given). 1 or 0. */
int gpus_growth(int flag, const char *value);

#endif
