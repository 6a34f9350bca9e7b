/* worker/load_params.h - parameters from what training has written: an export (--export), or a
 * checkpoint: its manifest, or a folder, whose newest is taken that is whole.
 * Errors: ST_NOT_FOUND, ST_CORRUPT, ST_MISMATCH (of another model: the first parameter that differs
 *         is named), ST_IO, ST_NOMEM; logged with the flag and the path. */
#ifndef WORKER_LOAD_PARAMS_H
#define WORKER_LOAD_PARAMS_H
#include "net/wire/chunks.h"

/* flat: all parameters, as in chunks. flag: what errors call the path. *step: that they are of; -1:
 * the file does not say. */
enum status params_load(const char *flag, const char *path, const struct chunks *chunks,
                        float *flat, int64_t *step);

/* How many outputs the model has whose parameters lie there: its last parameter's last dimension.
 * 0: that cannot be read; who loads them says why. */
int64_t params_outputs(const char *path);

#endif
