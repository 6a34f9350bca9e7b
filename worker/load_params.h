/* worker/load_params.h - parameters from what training has written: an export (--export), or a
 * checkpoint: its manifest, or a folder, whose newest is taken that is whole.
 * Errors: ST_NOT_FOUND, ST_CORRUPT (also: its metadata), ST_MISMATCH (of another model: the first
 * parameter that differs is named), ST_IO, ST_NOMEM; logged with the flag and the path. */
#ifndef WORKER_LOAD_PARAMS_H
#define WORKER_LOAD_PARAMS_H
#include "net/wire/chunks.h"
#include "worker/weights/weights_normal.h"

/* What a file says of its parameters. */
struct params_told {
    int64_t step; /* that they are of; -1: it does not say */
    struct weights_normal normal;
};

/* flat: all parameters, as in chunks. flag: what errors call the path. */
enum status params_load(const char *flag, const char *path, const struct chunks *chunks,
                        float *flat, struct params_told *out);

/* How many outputs the model has whose parameters lie there: its last parameter's last dimension.
 * 0: that cannot be read; who loads them says why. */
int64_t params_outputs(const char *path);

#endif
