/* kernels/plan_check.h - the checks that every backend makes before it creates a plan. Owns:
 * nothing. Threads: any. Errors: ST_UNSUPPORTED, ST_RANGE; logged with the layer's name. */
#ifndef KERNELS_PLAN_CHECK_H
#define KERNELS_PLAN_CHECK_H
#include "kernels/backend.h"

/* Checks kinds, parameter counts, inputs and their shapes, the position of the loss, and readers.
 * backend: the backend's name, for log lines. */
enum status plan_check_layers(const struct backend_plan_config *cfg, const char *backend);
/* Checks that the vocabularies of this plan's embeddings contain the number `largest`;
 * plan_check_numbers checks all numbers of n images. Both return at once if there are no
 * embeddings. */
enum status plan_check_number(const struct backend_plan_config *cfg, int largest);
enum status plan_check_numbers(const struct backend_plan_config *cfg, const uint8_t *const *images,
                               int n);
/* Checks samples of floats. For an embedding they must be whole numbers divided by 255. */
enum status plan_check_floats(const struct backend_plan_config *cfg, const float *const *samples,
                              int n);
/* Checks that the loss accepts targets, and that n equals n_now, the number of samples that were
 * set before. */
enum status plan_check_targets(const struct backend_plan_config *cfg, int n, int n_now);

#endif
