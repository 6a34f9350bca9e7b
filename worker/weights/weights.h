/* worker/weights/weights.h - --init and --freeze: first values for a model's parameters out of a
 * file, and which parameters keep theirs.
 * Layouts are the same in Weir, PyTorch and the file: convolutions OIHW, dense layers [out][in], a
 * flatten of (C,H,W) in that order. Extents of 1 do not count where shapes are compared, so that a
 * one-dimensional convolution's weights fit. Names: weights_map.h.
 * Owns: nothing. Threads: one at a time.
 * Errors: ST_NOT_FOUND, ST_INVALID, ST_MISMATCH (each parameter that did not fit has its line),
 *         ST_CORRUPT, ST_UNSUPPORTED, ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_WEIGHTS_WEIGHTS_H
#define WORKER_WEIGHTS_WEIGHTS_H
#include "net/wire/chunks.h"
#include "worker/weights/weights_normal.h"
#include <stdint.h>

struct weights_request {
    const char *path, *map; /* map NULL: none */
    const struct chunks *chunks;
};

/* flat: [chunks->n_elems], of which only what the file has is written; given: [n_params] 1: that
 * is this parameter. Where it fails both may have been written to. normal: of the samples that
 * its parameters were trained on, as far as the file says it. */
enum status weights_read(const struct weights_request *q, float *flat, uint8_t *given,
                         struct weights_normal *normal);

/* patterns: "conv*,dense1/biases", as the shell's, on whole names. ST_INVALID: one matches no
 * parameter, or nothing is left to train. */
enum status weights_freeze(const char *patterns, struct net_param *params, int n_params);

#endif
