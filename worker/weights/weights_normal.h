/* worker/weights/weights_normal.h - what a file of parameters says was done with the samples that
 * they were trained on. Threads: any. Errors: none of its own. */
#ifndef WORKER_WEIGHTS_WEIGHTS_NORMAL_H
#define WORKER_WEIGHTS_WEIGHTS_NORMAL_H
#include "files/safetensors.h"
#include "net/wire/job_input.h"

struct weights_normal {
    int known; /* 0: it does not say */
    struct job_normal normal;
};

/* What --export writes, in metadata `mean` and `std`. 0: these are there, and no lists of as many
 * numbers; *out does not know then. */
int weights_normal_read(const struct safetensors_file *f, struct weights_normal *out);

#endif
