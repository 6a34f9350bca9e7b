/* kernels/cuda/plan/edges.h - the gradients with respect to outputs, summed over their readers, and
 * the tensors that plans copy from each other (set_output, set_output_grad and read_output_grad in
 * backend.h). Threads: as for the plan. Errors: logged with the layer's name; ST_UNSUPPORTED if the
 * tensor does not exist. */
#ifndef KERNELS_CUDA_PLAN_EDGES_H
#define KERNELS_CUDA_PLAN_EDGES_H
#include "kernels/cuda/plan/plan.h"

/* Tensor that this plan receives for one layer: if another plan computes the layer, the layer's
 * output; otherwise a gradient. */
struct gpu_edges_crossing {
    float *host;      /* pinned, [batch x elems(out)]; NULL: none is received */
    cudaEvent_t read; /* when this event has occurred, `host` may be overwritten */
    int n_given;      /* gradients received in this step */
};

/* Returns the address of the pointer to input k of layer i. */
float **gpu_edges_input(struct gpu_plan *plan, int i, int k);

/* Assigns memory to gradients: sets dx and dy of all operations. */
void gpu_edges_plan(struct gpu_plan *plan);
enum status gpu_edges_create(struct gpu_plan *plan);
void gpu_edges_destroy(struct gpu_plan *plan);
/* Begins a step: no gradient has been received yet. */
void gpu_edges_begin(struct gpu_plan *plan);
/* Queues a layer's backward, and the sums of gradients before and after it. The caller must call
 * gpu_branch_join next. */
enum status gpu_edges_backward(struct gpu_pass *pass, int i);

enum status gpu_edges_set_output(struct gpu_plan *plan, int layer, const float *src);
enum status gpu_edges_read_output(struct gpu_plan *plan, int layer, float *dst);
enum status gpu_edges_set_output_grad(struct gpu_plan *plan, int layer, const float *src);
enum status gpu_edges_read_output_grad(struct gpu_plan *plan, int layer, float *dst);

#endif
