/* kernels/cpu/precision.h - the type of the factors in each layer: floats or bf16. Sums, and
 * tensors between layers, are floats. Owns: nothing. Threads: any. Errors: none. */
#ifndef KERNELS_CPU_PRECISION_H
#define KERNELS_CPU_PRECISION_H
#include "kernels/cpu/cpu.h"

int cpu_precision_has_bf16(void); /* the CPU has AVX512_BF16 or AMX, and oneDNN uses it */
/* Returns the type of a convolution's or dense layer's factors: bf16 if the plan requests it and
 * set_rounded or the rule chooses this layer. */
dnnl_data_type_t cpu_precision_product_type(const struct cpu_plan *plan, const struct layer *l);
/* Logs the layers that use bf16, if it was requested. */
void cpu_precision_log(const struct cpu_plan *plan);

#endif
