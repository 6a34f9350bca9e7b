/* kernels/plan_check.h - what every backend checks of a network before it plans it.
 * Owns: nothing. Threads: any. Errors: ST_UNSUPPORTED, ST_RANGE; logged with the layer's name. */
#ifndef KERNELS_PLAN_CHECK_H
#define KERNELS_PLAN_CHECK_H
#include "kernels/backend.h"

/* Kinds, numbers of parameters, inputs and their shapes, the loss in its place, readers. backend:
 * its name in the log. */
enum status plan_check_layers(const struct backend_plan_config *cfg, const char *backend);
/* Do the embeddings of mine know the numbers up to this one, or all in n images? Costs nothing
 * where there are none. */
enum status plan_check_number(const struct backend_plan_config *cfg, int largest);
enum status plan_check_numbers(const struct backend_plan_config *cfg, const uint8_t *const *images,
                               int n);
/* The same of samples of floats, which must be whole numbers divided by 255 there. */
enum status plan_check_floats(const struct backend_plan_config *cfg, const float *const *samples,
                              int n);
/* May the loss be given targets of n samples, where n_now were set? */
enum status plan_check_targets(const struct backend_plan_config *cfg, int n, int n_now);

#endif
