/* kernels/cuda/plan/edges.h - the gradients by outputs, which several layers may have a part in,
 * and what crosses from plan to plan (backend.h's set_output and its kin). Threads: as the plan's.
 * Errors: logged with the layer's name; ST_UNSUPPORTED for what is not there. */
#ifndef KERNELS_CUDA_PLAN_EDGES_H
#define KERNELS_CUDA_PLAN_EDGES_H
#include "kernels/cuda/plan/plan.h"

/* What crosses to this plan for one layer: its output if it is another plan's, else a gradient. */
struct gpu_edges_crossing {
    float *host;      /* pinned, [batch x elems(out)]; NULL: nothing does */
    cudaEvent_t read; /* host may be written again */
    int n_given;      /* gradients of this step */
};

/* Where the k-th input of layer i is. */
float **gpu_edges_input(struct gpu_plan *plan, int i, int k);

/* Decides where gradients lie: sets dx and dy of all ops. */
void gpu_edges_plan(struct gpu_plan *plan);
enum status gpu_edges_create(struct gpu_plan *plan);
void gpu_edges_destroy(struct gpu_plan *plan);
/* A new step: no gradients are given yet. */
void gpu_edges_begin(struct gpu_plan *plan);
/* A layer's backward with the sums before and behind it; gpu_branch_join comes next. */
enum status gpu_edges_backward(struct gpu_pass *pass, int i);

enum status gpu_edges_set_output(struct gpu_plan *plan, int layer, const float *src);
enum status gpu_edges_read_output(struct gpu_plan *plan, int layer, float *dst);
enum status gpu_edges_set_output_grad(struct gpu_plan *plan, int layer, const float *src);
enum status gpu_edges_read_output_grad(struct gpu_plan *plan, int layer, float *dst);

#endif
