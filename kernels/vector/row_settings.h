/* kernels/vector/row_settings.h - settings of the rows of a sparse table, besides their optimizer
 * (optim_rows.h): initial values, the format of the values in servers, and the effect of the bound.
 * Messages and checkpoints have their names.
 * Threads: any. */
#ifndef KERNELS_VECTOR_ROW_SETTINGS_H
#define KERNELS_VECTOR_ROW_SETTINGS_H

/* initial values of a row */
enum row_init { ROW_INIT_ZEROS, ROW_INIT_UNIFORM, ROW_INIT_NORMAL, ROW_INIT_N_KINDS };
#define ROW_INIT_NAMES "zeros|uniform|normal" /* order of the enum */

/* the first formats of dtype.h */
#define ROW_DTYPE_NAMES "fp32|bf16"

/* effect if a step would exceed max_rows: the step is refused, or the oldest rows are evicted */
enum row_full { ROW_FULL_STOP, ROW_FULL_EVICT, ROW_FULL_N_KINDS };
#define ROW_FULL_NAMES "stop|evict" /* order of the enum */

/* Returns the name of a way to make initial values. */
static inline const char *row_init_name(enum row_init init)
{
    static const char *const names[ROW_INIT_N_KINDS] = {"zeros", "uniform", "normal"};
    return (unsigned)init < ROW_INIT_N_KINDS ? names[init] : "unknown";
}
/* Returns the name of an effect of the bound. */
static inline const char *row_full_name(enum row_full when_full)
{
    static const char *const names[ROW_FULL_N_KINDS] = {"stop", "evict"};
    return (unsigned)when_full < ROW_FULL_N_KINDS ? names[when_full] : "unknown";
}

#endif
