/* worker/weights/weights.h - reads a model's parameters from a file: initial values (--init), or
 * all parameters (--evaluate, --predict). It also applies --freeze, which keeps parameters
 * constant. Layouts are the same in Weir, PyTorch and the file: convolutions OIHW, dense layers
 * [out][in], a flatten of (C,H,W) in that order. Dimensions of size 1 are ignored when shapes are
 * compared, so the weights of a one-dimensional convolution fit. Names: weights_map.h.
 * Owns:    nothing. Threads: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_MISMATCH (one line for each parameter that does not fit),
 *          ST_CORRUPT, ST_UNSUPPORTED, ST_IO, ST_NOMEM; logged with the path. */
#ifndef WORKER_WEIGHTS_WEIGHTS_H
#define WORKER_WEIGHTS_WEIGHTS_H
#include "net/wire/chunks.h"
#include "worker/weights/weights_source.h"
#include <stdbool.h>
#include <stdint.h>

struct weights_request {
    /* path: file or checkpoint, NULL: not given; flag: the flag that named it, for errors */
    const char *flag, *path;
    const char *map; /* NULL: none */
    const struct chunks *chunks;
    bool whole; /* true for inference: a file that Weir wrote must have exactly these parameters */
    /* the checkpoint of `path`, borrowed; NULL: it is not opened yet, or `path` is a file */
    struct checkpoint_restore *checkpoint;
};

struct weights_result {
    struct weights_origin origin;
    /* number of parameters that the file provides; number of parameters that keep their initial
     * values */
    int n_given, n_kept;
    int n_unused; /* number of float tensors that fit no parameter */
};

/* Reads the parameters. flat: [chunks->n_elems], written only where the file has values. given:
 * [n_params], becomes 1 for a parameter that the file provides, and 0 for a parameter whose line in
 * the map is "-". A failure may leave both partly written. */
enum status weights_read(const struct weights_request *q, float *flat, uint8_t *given,
                         struct weights_result *out);

/* Reads the parameters from a source that the caller has opened with q->flag and q->path. */
enum status weights_read_from(const struct weights_request *q, struct weights_source *source,
                              float *flat, uint8_t *given, struct weights_result *out);

/* Finds the first dimension of the tensor from which this parameter would be read; 0: there is no
 * such tensor. */
enum status weights_extent(const struct weights_request *q, int param, int64_t *out);

/* Freezes parameters. patterns: a list such as "conv*,dense1/biases". A pattern is like the
 * shell's, and must match a whole name. ST_INVALID: a pattern matches no parameter, or no parameter
 * is left to train. */
enum status weights_freeze(const char *patterns, struct net_param *params, int n_params);
/* Returns true if one of the patterns matches the name. */
bool weights_freezes(const char *patterns, const char *name);

#endif
