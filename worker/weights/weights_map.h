/* worker/weights/weights_map.h - the file of --init_map: the tensor from which each parameter's
 * initial values are read.
 *     # a line is for a parameter, or for all parameters of a layer
 *     dense1/weights = head.weight     the tensor
 *     conv1 = features.0               conv1/weights is features.0.weight, and so on
 *     dense2 = -                       keeps its first values
 * A parameter's own line has priority over its layer's.
 * Owns:    its lines. Threads: one at a time.
 * Errors:  ST_NOT_FOUND, ST_INVALID, ST_IO, ST_NOMEM; logged with file and line. */
#ifndef WORKER_WEIGHTS_WEIGHTS_MAP_H
#define WORKER_WEIGHTS_WEIGHTS_MAP_H
#include "base/status.h"
#include "net/wire/chunks.h"
#include <stddef.h>

enum { WEIGHTS_MAP_MAX_BYTES = 1 << 20 };

struct weights_map;
/* Reads the map. path NULL: an empty one. The left side of each line is the name of a parameter or
 * of a layer. */
enum status weights_map_read(const char *path, const struct chunks *chunks,
                             struct weights_map **out);
void weights_map_free(struct weights_map *m); /* NULL is fine */

enum { WEIGHTS_NAMES = 2, WEIGHTS_NAME_BYTES = 512 };
/* The names that a parameter's tensor may have, the most likely first. */
struct weights_names {
    int n; /* number of names; 0: the parameter keeps its initial values */
    char name[WEIGHTS_NAMES][WEIGHTS_NAME_BYTES];
};
void weights_map_names(const struct weights_map *m, const char *param, struct weights_names *out);

#endif
