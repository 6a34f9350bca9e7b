/* worker/device/gpus.h - the GPUs of this process, from the choice (devices.h) to the backend that
 * computes on them. The CUDA backend is loaded only if GPUs were chosen; then the fraction of their
 * memory that it may use is set. The driver and the backend use the same number for a GPU, because
 * both count in one process with the same environment. The numbers are checked nevertheless:
 * training on a GPU that this process has not reserved would be worse than not training.
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
    double memory_fraction; /* fraction of the GPU's memory for this process; 0: no limit */
    int allow_growth;       /* 0: a fraction is allocated at once; see gpus_growth */
};

struct gpus {
    struct devices chosen;         /* n = 0: this process computes on the CPU */
    const struct backend *backend; /* NULL if no GPU was chosen */
};

enum status gpus_open(const struct gpus_request *r, struct gpus *out);
void gpus_release(struct gpus *g); /* a zeroed struct is fine */

/* Checks that the driver and the backend mean the same GPU by each number. */
enum status gpus_check(const struct devices *chosen, const struct backend *backend);
/* Returns ST_INVALID, logged, if `value`, the value of the environment variable
 * TF_FORCE_GPU_ALLOW_GROWTH, is neither true nor false. NULL: the variable is not set. */
enum status gpus_growth_check(const char *value);
/* Returns true if memory grows on demand. By TensorFlow's rule, the variable's value overrides the
 * flag. flag: -1 if not given. */
bool gpus_growth(int flag, const char *value);

#endif
