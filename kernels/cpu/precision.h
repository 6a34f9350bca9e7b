/* kernels/cpu/precision.h - what layers multiply: floats or bf16; sums are floats, and what lies
 * between layers. Owns: nothing. Threads: any. Errors: none. */
#ifndef KERNELS_CPU_PRECISION_H
#define KERNELS_CPU_PRECISION_H
#include "kernels/cpu/cpu.h"

int cpu_precision_has_bf16(void); /* AVX512_BF16 or AMX, and oneDNN uses it */
/* Of a convolution or dense layer: bf16 if that was asked for and pays. */
dnnl_data_type_t cpu_precision_product_type(const struct cpu_plan *plan, const struct layer *l);
/* Says which layers have it, if it was asked for. */
void cpu_precision_log(const struct cpu_plan *plan);

#endif
