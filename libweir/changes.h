/* libweir/changes.h - contributions of own local steps. Private to libweir/. Only one thread at a
 * time may call a function for a parameter or a chunk, within its push. */
#ifndef LIBWEIR_CHANGES_H
#define LIBWEIR_CHANGES_H
#include "libweir/weir_impl.h"
#include <stdbool.h>

/* Returns true if the change by own local steps may be stored in the array of the values
 * (arrays.c). */
bool weir_changes_in_place(const struct weir *w);
/* Computes the contribution of the parameter's elements [first, first + n): the difference between
 * the present values and `values`, which has n elements. */
void weir_changes_make(struct weir *w, int param, int64_t first, int64_t n, const float *values);
/* Encodes the chunk's contribution in place, if the job's contributions have 16 bits and this
 * one is stored in the array of the values. Returns true if it has encoded the contribution. */
bool weir_changes_encode(struct weir *w, int chunk, double samples, const uint8_t *lacking);

#endif
