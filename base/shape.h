/* base/shape.h - the sizes of a tensor's dimensions, outermost first; values are stored row by row.
 * Plain values without a lock. */
#ifndef BASE_SHAPE_H
#define BASE_SHAPE_H
#include <stdint.h>

enum { SHAPE_MAX_DIMS = 6 };

struct shape {
    int n_dims; /* number of dimensions; 0: a scalar */
    int64_t dim[SHAPE_MAX_DIMS];
};

/* Returns the product of the sizes; -1 if a size is negative or the product is above 2^40. */
static inline int64_t shape_elems(const struct shape *s)
{
    int64_t n = 1;
    for (int i = 0; i < s->n_dims; i++) {
        if (s->dim[i] < 0 || s->dim[i] > ((int64_t)1 << 40))
            return -1;
        if (s->dim[i] != 0 && n > ((int64_t)1 << 40) / s->dim[i])
            return -1;
        n *= s->dim[i];
    }
    return n;
}

#endif
