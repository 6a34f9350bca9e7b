/* kernels/vector/optim_check.h - optim_check (optim.h) for the optimizer of a part of the model.
 * Private to kernels/vector/. Threads: any. Errors: ST_INVALID, logged with the field. */
#ifndef KERNELS_VECTOR_OPTIM_CHECK_H
#define KERNELS_VECTOR_OPTIM_CHECK_H
#include "kernels/vector/optim.h"

/* Does the same as optim_check. of: beginning of the log line, in place of "optimizer". */
enum status optim_check_of(const struct optim_config *cfg, const char *of);

#endif
