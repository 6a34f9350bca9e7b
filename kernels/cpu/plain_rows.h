/* kernels/cpu/plain_rows.h - the plans of layers that read plain rows, and have no parameters: the
 * input and the output's gradient are converted to plain rows if another layer wrote them in
 * oneDNN's own order.
 * Owns: nothing. Threads: as for the plan. Errors: those of cpu_pass. */
#ifndef KERNELS_CPU_PLAIN_ROWS_H
#define KERNELS_CPU_PLAIN_ROWS_H
#include "kernels/cpu/pass.h"

/* State of such a layer. */
struct plain_rows {
    struct cpu_tensor x, dy;
    struct cpu_call to_rows, diff; /* the conversions of x and dy */
};

/* Functions of struct cpu_kind. */
enum status plain_rows_plan_forward(struct cpu_pass *pass, int i);
enum status plain_rows_plan_backward(struct cpu_pass *pass, int i);

#endif
