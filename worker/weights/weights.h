/* worker/weights/weights.h - reads a model's parameters from a file: first values (--init), or all
 * parameters (--evaluate, --predict). It also applies --freeze, which keeps parameters constant.
 * Layouts are the same in Weir, PyTorch and the file: convolutions OIHW, dense layers [out][in], a
 * flatten of (C,H,W) in that order. Extents of 1 are ignored when shapes are compared, so that the
 * weights of a one-dimensional convolution fit. Names: weights_map.h.
 * Owns:    nothing. Threads: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_MISMATCH (one line for each parameter that does not fit),
 *          ST_CORRUPT, ST_UNSUPPORTED, ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_WEIGHTS_WEIGHTS_H
#define WORKER_WEIGHTS_WEIGHTS_H
#include "net/wire/chunks.h"
#include "worker/weights/weights_origin.h"
#include <stdbool.h>
#include <stdint.h>

struct weights_request {
    const char *flag, *path; /* flag: flag that named path, for errors; path NULL: not given */
    const char *map;         /* NULL: none */
    const struct chunks *chunks;
    bool whole; /* inference: a file that Weir wrote must have exactly these parameters */
};

struct weights_result {
    struct weights_origin origin;
    /* number of parameters that the file provides, and that keep their first values */
    int n_given, n_kept;
    int n_unused; /* number of float tensors that fit no parameter */
};

/* Reads the parameters. flat: [chunks->n_elems], written only where the file has values. given:
 * [n_params], set to 1 for a parameter in the file, to 0 for a parameter whose line in the map is
 * "-". A failure may leave both partly written. */
enum status weights_read(const struct weights_request *q, float *flat, uint8_t *given,
                         struct weights_result *out);

/* Returns the first extent of the tensor that this parameter would be read from; 0: no such
 * tensor. */
enum status weights_extent(const struct weights_request *q, int param, int64_t *out);

/* Freezes parameters. patterns: such as "conv*,dense1/biases", like the shell's, matched with whole
 * names. ST_INVALID: a pattern matches no parameter, or no parameter is left to train. */
enum status weights_freeze(const char *patterns, struct net_param *params, int n_params);

#endif
