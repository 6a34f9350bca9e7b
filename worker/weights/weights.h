/* worker/weights/weights.h - a model's parameters out of a file: first values (--init), or all of
 * them (--evaluate, --predict); and --freeze: which keep theirs.
 * Layouts are the same in Weir, PyTorch and the file: convolutions OIHW, dense layers [out][in], a
 * flatten of (C,H,W) in that order. Extents of 1 do not count where shapes are compared, so that a
 * one-dimensional convolution's weights fit. Names: weights_map.h.
 * Owns: nothing. Threads: one at a time.
 * Errors: ST_NOT_FOUND, ST_INVALID, ST_MISMATCH (each parameter that did not fit has its line),
 *         ST_CORRUPT, ST_UNSUPPORTED, ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_WEIGHTS_WEIGHTS_H
#define WORKER_WEIGHTS_WEIGHTS_H
#include "net/wire/chunks.h"
#include "worker/weights/weights_origin.h"
#include <stdint.h>

struct weights_request {
    const char *flag, *path; /* "init": what errors call the path; path NULL: none was given */
    const char *map;         /* NULL: none */
    const struct chunks *chunks;
    int whole; /* 1: to compute with them as they are: of a file of ours nothing may be left over */
};

struct weights_result {
    struct weights_origin told;
    int n_given, n_kept; /* parameters that are the file's; that stay as they are initialised */
    int n_unused;        /* tensors of floats that belong to no parameter */
};

/* flat: [chunks->n_elems], of which only what the file has is written; given: [n_params] 1: that
 * is this parameter; 0: the map says -. Where it fails both may have been written to. */
enum status weights_read(const struct weights_request *q, float *flat, uint8_t *given,
                         struct weights_result *out);

/* The first extent of the tensor that this parameter would be read from; 0: there is none. */
enum status weights_extent(const struct weights_request *q, int param, int64_t *out);

/* patterns: "conv*,dense1/biases", as the shell's, on whole names. ST_INVALID: one matches no
 * parameter, or nothing is left to train. */
enum status weights_freeze(const char *patterns, struct net_param *params, int n_params);

#endif
