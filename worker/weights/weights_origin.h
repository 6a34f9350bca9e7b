/* worker/weights/weights_origin.h - the step of a file's parameters, and the normalisation of the
 * samples that they were trained on. Threads: any. Errors: none of its own. */
#ifndef WORKER_WEIGHTS_WEIGHTS_ORIGIN_H
#define WORKER_WEIGHTS_WEIGHTS_ORIGIN_H
#include "files/safetensors.h"
#include "net/wire/job_input.h"
#include <stdbool.h>

struct weights_origin {
    int64_t step; /* step of the parameters; -1: unknown, because Weir has not written the file */
    int normal_known; /* 0: unknown */
    struct job_normal normal;
    bool averages; /* the values are the averages that a job with --ema_decay keeps */
};

/* Reads --export's metadata `global_step`, `mean` and `std`. Returns false if `mean` and `std` are
 * not lists of equal length; the normalisation is unknown in this case. */
bool weights_origin_read(const struct safetensors_file *f, struct weights_origin *out);

#endif
