/* worker/device/gpus.h - the GPUs of this process, from the choice (devices.h) to the backend that
 * computes on them. The CUDA backend is loaded only if GPUs were chosen, and its share of their
 * memory is set. The driver and the backend use the same number for a GPU, because both count in
 * one process with the same environment. The numbers are checked nevertheless: training on a GPU
 * other than the reserved one would be worse than not training.
 *
 * Owns:    the reservations, until gpus_release or the process's exit. Threads: none; call before
 *          other threads start.
 * Errors:  those of devices_choose and of the backend; ST_NOT_FOUND (no backend), ST_MISMATCH;
 *          logged. */
#ifndef WORKER_DEVICE_GPUS_H
#define WORKER_DEVICE_GPUS_H
#include "kernels/backend.h"
#include "worker/device/devices.h"

struct gpus_request {
    struct devices_request choice;
    const char *backend_dir;
    double memory_fraction; /* share of the GPU's memory for this process; 0: no limit */
    int allow_growth;       /* 0: a fraction is allocated at once; see gpus_growth */
};

struct gpus {
    struct devices chosen;         /* n = 0: the CPU */
    const struct backend *backend; /* n = 0: NULL */
};

enum status gpus_open(const struct gpus_request *r, struct gpus *out);
void gpus_release(struct gpus *g); /* a zeroed struct is fine */

/* Checks that each GPU's number means the same GPU to the driver and to the backend. */
enum status gpus_check(const struct devices *chosen, const struct backend *backend);
/* Returns ST_INVALID, logged, if the environment variable TF_FORCE_GPU_ALLOW_GROWTH (value; NULL:
 * not set) is neither true nor false. */
enum status gpus_growth_check(const char *value);
/* Returns whether memory grows on demand, by TensorFlow's rule: the variable's value overrides the
 * flag. flag: -1 if not given. */
bool gpus_growth(int flag, const char *value);

#endif
