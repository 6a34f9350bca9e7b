/* kernels/vector/row_init.h - initial values of the rows of a table: a pure function of the job's
 * seed, the table's name, the key and the element. They have equal bits on all hosts.
 * Owns:    nothing. Threads: any. Errors: none. */
#ifndef KERNELS_VECTOR_ROW_INIT_H
#define KERNELS_VECTOR_ROW_INIT_H
#include "kernels/vector/dtype.h"
#include "kernels/vector/row_settings.h"
#include <stddef.h>
#include <stdint.h>

struct row_init_config {
    enum row_init kind;
    float scale;  /* uniform: limit of the absolute value; normal: standard deviation */
    uint64_t key; /* result of row_init_key */
};

/* Returns the key of the initial values of a table. */
uint64_t row_init_key(uint64_t seed, const char *table);
/* Writes the initial values of the row of `key`: dim floats. */
void row_init_values(const struct row_init_config *c, uint64_t key, size_t dim, float *values);
/* Writes them for a table whose rows servers keep in this format: rounds each value to the nearest
 * number of the format. */
void row_init_rounded(const struct row_init_config *c, enum dtype dtype, uint64_t key, size_t dim,
                      float *values);

#endif
