/* kernels/cpu/edges.h - the gradient with respect to an output, summed over its readers, and the
 * tensors that plans copy from each other (set_output, set_output_grad and read_output_grad in
 * backend.h).
 * Threads: as for the plan. Errors: logged with the layer's name; ST_UNSUPPORTED if the tensor does
 * not exist. */
#ifndef KERNELS_CPU_EDGES_H
#define KERNELS_CPU_EDGES_H
#include "kernels/cpu/pass.h"

/* Plans op->dy of layer i. Called after the backwards of all layers that read the layer are
 * planned. */
enum status cpu_edges_plan_dy(struct cpu_pass *pass, int i);
/* Prepares copies of the tensors that other devices' plans read. Called when the pass is
 * prepared. */
enum status cpu_edges_plan_reads(struct cpu_pass *pass);
/* Computes op->dy of layer i. Called after the backwards of all layers that read the layer. */
enum status cpu_edges_run_dy(struct cpu_pass *pass, int i);

enum status cpu_edges_set_output(struct cpu_plan *plan, int layer, const float *src);
enum status cpu_edges_read_output(struct cpu_plan *plan, int layer, float *dst);
enum status cpu_edges_set_output_grad(struct cpu_plan *plan, int layer, const float *src);
enum status cpu_edges_read_output_grad(struct cpu_plan *plan, int layer, float *dst);

#endif
