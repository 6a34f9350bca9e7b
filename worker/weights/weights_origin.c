/* worker/weights/weights_origin.c - parses step, mean and std of a file's metadata. */
#include "worker/weights/weights_origin.h"
#include <stdlib.h>

/* Reads the metadata. The key "global_step" shows that Weir wrote the file: then a missing mean or
 * std means that none was used. In other files both keys must exist, because they may have another
 * meaning. */
bool weights_origin_read(const struct safetensors_file *f, struct weights_origin *out)
{
    const char *mean = safetensors_metadata(f, "mean"), *std = safetensors_metadata(f, "std");
    const char *step = safetensors_metadata(f, "global_step");
    struct job_normal n = {0};
    *out = (struct weights_origin){.step = step ? strtoll(step, NULL, 10) : -1};
    if (mean && std) {
        n.n = job_input_numbers_parse(mean, n.mean);
        if (n.n < 1 || job_input_numbers_parse(std, n.std) != n.n || job_input_normal_problem(&n))
            return false;
    }
    out->normal_known = (mean && std) || step;
    out->normal = n;
    return true;
}
