/* worker/weights/weights_normal.c - see weights_normal.h. */
#include "worker/weights/weights_normal.h"
#include <string.h>

/* "global_step" tells that this program wrote it, so that nothing said is nothing done. Both keys
 * must be there: others' files may have one of them for what it likes. */
int weights_normal_read(const struct safetensors_file *f, struct weights_normal *out)
{
    const char *mean = safetensors_metadata(f, "mean"), *std = safetensors_metadata(f, "std");
    struct job_normal n = {0};
    memset(out, 0, sizeof *out);
    if (mean && std) {
        n.n = job_numbers_parse(mean, n.mean);
        if (n.n < 1 || job_numbers_parse(std, n.std) != n.n || job_normal_problem(&n))
            return 0;
    }
    out->known = (mean && std) || safetensors_metadata(f, "global_step") != NULL;
    out->normal = n;
    return 1;
}
