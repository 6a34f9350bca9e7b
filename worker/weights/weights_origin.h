/* worker/weights/weights_origin.h - what a file of parameters says of them: the step that they are
 * of, and what was done with the samples that they were trained on. Threads: any. Errors: none of
 * its own. */
#ifndef WORKER_WEIGHTS_WEIGHTS_ORIGIN_H
#define WORKER_WEIGHTS_WEIGHTS_ORIGIN_H
#include "files/safetensors.h"
#include "net/wire/job_input.h"

struct weights_origin {
    int64_t step;     /* -1: it does not say, and is no file of ours */
    int normal_known; /* 0: it does not say */
    struct job_normal normal;
};

/* What --export writes, in metadata `global_step`, `mean` and `std`. 0: the last two are there, and
 * no lists of as many numbers; the samples are not known then. */
int weights_origin_read(const struct safetensors_file *f, struct weights_origin *out);

#endif
