/* kernels/cpu/edges.h - the gradient by an output, which all its readers have a part in, and what
 * crosses from plan to plan (backend.h's set_output and its kin).
 * Threads: as the plan's. Errors: logged with the layer's name; ST_UNSUPPORTED for what is not
 * there. */
#ifndef KERNELS_CPU_EDGES_H
#define KERNELS_CPU_EDGES_H
#include "kernels/cpu/pass.h"

/* op->dy; after the backwards of the layer's readers are planned. */
enum status cpu_edges_plan_dy(struct cpu_pass *pass, int i);
/* What other plans read is made ready to be read; when the pass is planned. */
enum status cpu_edges_plan_reads(struct cpu_pass *pass);
/* Works it out; after the backwards of the readers. */
enum status cpu_edges_run_dy(struct cpu_pass *pass, int i);

enum status cpu_edges_set_output(struct cpu_plan *plan, int layer, const float *src);
enum status cpu_edges_read_output(struct cpu_plan *plan, int layer, float *dst);
enum status cpu_edges_set_output_grad(struct cpu_plan *plan, int layer, const float *src);
enum status cpu_edges_read_output_grad(struct cpu_plan *plan, int layer, float *dst);

#endif
