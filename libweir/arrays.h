/* libweir/arrays.h - the arrays of a handle's parameters. Private to libweir/.
 * Owns:    initial values, values, gradients.
 * Threads: the starter (begin.c) makes the arrays. Any thread may write initial values.
 * Errors:  ST_NOMEM, logged. */
#ifndef LIBWEIR_ARRAYS_H
#define LIBWEIR_ARRAYS_H
#include "libweir/weir_impl.h"
#include <stdbool.h>

enum status weir_arrays_no_memory(const struct weir *w); /* logs and returns ST_NOMEM */
/* Allocates the arrays of values, and writes the initial values to them. */
enum status weir_arrays_make_values(struct weir *w);
/* Allocates the arrays of gradients, filled with zeros. Called once the exchange exists. */
enum status weir_arrays_make_gradients(struct weir *w);
/* Writes the initial values of all parameters of the handle w. */
enum status weir_arrays_write_first(void *w, float *values);
void weir_arrays_free(struct weir *w);
/* Notes in errors.c that this thread enters, or leaves, a program's function for initial values. */
void weir_errors_enter_first(bool enters);

#endif
