/* libweir/arrays.h - the arrays of a handle's parameters. Private to libweir/.
 * Owns:    first values, values, gradients.
 * Threads: the starter (begin.c) makes the arrays. Any thread may write first values.
 * Errors:  ST_NOMEM, logged. */
#ifndef LIBWEIR_ARRAYS_H
#define LIBWEIR_ARRAYS_H
#include "libweir/weir_impl.h"
#include <stdbool.h>

enum status weir_arrays_no_memory(const struct weir *w); /* logs and returns ST_NOMEM */
/* Makes the values, with the first values. */
enum status weir_arrays_make_values(struct weir *w);
/* Makes the gradients, zeros. Called when the exchange exists. */
enum status weir_arrays_make_gradients(struct weir *w);
/* Writes the first values of all parameters of the handle w. */
enum status weir_arrays_write_first(void *w, float *values);
void weir_arrays_free(struct weir *w);
/* Returns true if the parameter's values of this step or a later one are here; does not wait. */
bool weir_steps_is_here(struct weir *w, int param, int64_t step);
void weir_errors_enter_first(
    bool enters); /* errors.c: this thread is in a function of first values */

#endif
