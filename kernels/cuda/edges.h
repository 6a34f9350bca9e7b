/* kernels/cuda/edges.h - the gradients by outputs, which several layers may have a part in, and
 * what crosses from plan to plan (backend.h's set_output and its kin).
 * Threads: as the plan's. Errors: logged with the layer's name; ST_UNSUPPORTED for what is not
 * there. */
#ifndef KERNELS_CUDA_EDGES_H
#define KERNELS_CUDA_EDGES_H
#include "kernels/cuda/plan.h"

/* What crosses to this plan for one layer: its output if it is another plan's, else a gradient. */
struct cuda_crossing {
    float *host;      /* pinned, [batch x elems(out)]; NULL: nothing does */
    cudaEvent_t read; /* host may be written again */
    int n_given;      /* gradients of this step */
};

/* Where the k-th input of layer i is. */
float **cuda_input_of(struct cuda_plan *plan, int i, int k);

/* Decides where gradients lie: sets dx and dy of all ops. */
void cuda_edges_plan(struct cuda_plan *plan);
enum status cuda_edges_create(struct cuda_plan *plan);
void cuda_edges_destroy(struct cuda_plan *plan);
/* A new step: no gradients are given yet. */
void cuda_edges_begin(struct cuda_plan *plan);
/* A layer's backward with the sums before and behind it; cuda_branch_join comes next. */
enum status cuda_edges_backward(struct cuda_pass *pass, int i);

enum status cuda_output_set(struct cuda_plan *plan, int layer, const float *src);
enum status cuda_output_read(struct cuda_plan *plan, int layer, float *dst);
enum status cuda_output_grad_set(struct cuda_plan *plan, int layer, const float *src);
enum status cuda_output_grad_read(struct cuda_plan *plan, int layer, float *dst);

#endif
