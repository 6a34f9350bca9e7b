/* kernels/cuda/plan/plan.h - inside the CUDA backend: plans, passes and operations.
 *
 * A plan allocates all its memory once, for its largest batch, in one block (arena.h). A pass holds
 * the objects that depend on the number of samples: cuDNN's descriptors and chosen algorithms. A
 * plan has one pass for a full batch, and a second pass for the smaller number of samples that was
 * used last. All tensors are canonical rows, except those that channels.h selects. Work is queued
 * on the stream `compute`. The stream `up` copies parameters to the device. The stream `down`
 * copies each layer's gradients to the host during the next layer's backward. Events order the work
 * of the three streams.
 * - A relu works in place if it is the only reader of its input, and the convolution, dense layer
 *   or sum before it computes its forward.
 * - A convolution also computes a max pool that is the only reader of its relu; then the pool's
 *   input is not kept.
 * - Gradients with respect to outputs share few buffers (diffs.h).
 * - A layer has no backward if neither it nor any layer before it has parameters.
 * - Gradients with respect to parameters may be computed on a separate stream (branch.h).
 *
 * Threads: one at a time. Errors: logged here with the layer's name and the call that failed. */
#ifndef KERNELS_CUDA_PLAN_PLAN_H
#define KERNELS_CUDA_PLAN_PLAN_H
#include "kernels/backend.h"
#include "kernels/cuda/common/kernels.h"
#include "kernels/cuda/memory/arena.h"
#include "kernels/cuda/memory/pin.h"
#include "kernels/cuda/plan/diffs.h"
#include "kernels/cuda/plan/input.h"
#include "kernels/parts.h"
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

struct gpu_plan;
struct gpu_pass;
struct gpu_op;
struct gpu_kind {
    /* Reserves the layer's memory in the arena; sets op->y. */
    enum status (*plan)(struct gpu_plan *plan, int i);
    /* Creates the pass's descriptors. NULL: the kind has none. */
    enum status (*prepare)(struct gpu_pass *pass, int i);
    enum status (*forward)(struct gpu_pass *pass, int i, int train);
    enum status (*backward)(struct gpu_pass *pass, int i);
    enum gpu_diff_way way; /* location of the gradients with respect to the inputs */
    int wants_dx; /* the backward computes the first input's gradient even if no layer uses it */
};
extern const struct gpu_kind gpu_conv, gpu_pool, gpu_dense, gpu_relu, gpu_dropout, gpu_batch_norm,
    gpu_flatten, gpu_loss, gpu_join_add, gpu_join_concat, gpu_layer_norm, gpu_embedding,
    gpu_join_multiply, gpu_channel_sum, gpu_factorization_machine, gpu_activation;

struct gpu_op {
    const struct gpu_kind *kind; /* NULL: another plan computes the layer */
    const struct layer *layer;
    float **x, **y; /* addresses of the pointers to the first input and the output; y may be x */
    float *own_y;   /* memory of the output if y is not x */
    float **dx;     /* gradient with respect to x, one of the plan's `diffs`; NULL: none */
    float **dy;     /* gradient with respect to y, summed over its readers */
    int needs_backward, needs_dx;
    int shared;         /* several layers read y, so none of them may overwrite it */
    int overwritten;    /* a relu overwrites y in place */
    int done_before;    /* true for a relu or max pool whose forward an earlier layer computes */
    int pooled;         /* convolution and its relu: y is not kept, only the max pool's output */
    int relu_masked;    /* true for a relu whose gradient the pool after it has already masked */
    int x_last, y_last; /* x, y and their gradients are stored channels last (channels.h) */
    void *state;        /* state of the layer's kind, freed with the plan */
};

/* One parameter on the device, with its transfers from and to the host. */
struct gpu_param {
    int layer; /* layer of the parameter; -1: none */
    int64_t elems;
    float *d, *d_grad;  /* d_grad is NULL in a plan for inference only */
    uint16_t *d_grad16; /* gradient rounded for its copy to the host; NULL: not rounded */
    struct gpu_pieces in, out;
    uint8_t *staged_in, *staged_out; /* pinned memory for the tensor's head, then its tail */
    cudaEvent_t loaded;              /* the last copy to the device has ended */
    cudaEvent_t staged;              /* the last copy from staged_in has ended */
    int64_t n_parts;                 /* number of parts of the gradient; 1 without cfg.parts */
    /* [n_parts] events: the part is on the host; NULL: there is one part, see copied[layer] */
    cudaEvent_t *fetched;
};

enum { GPU_CAST_X, GPU_CAST_W, GPU_CAST_Y, GPU_CAST_BIAS, GPU_N_CASTS };

struct gpu_plan {
    struct backend_plan_config cfg;
    struct parts_config parts; /* elems 0: copies are not divided into parts */
    struct graph_node *node;   /* [n_layers] */
    int image_readers;
    struct gpu_diffs diffs;
    struct gpu_edges_crossing *crossing; /* [n_layers] (edges.h) */
    struct gpu_group_member *member;     /* membership of cfg.group (group.h); NULL: no group */
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    cudaStream_t compute, up, down;
    struct gpu_arena arena;
    struct gpu_op *ops;
    struct gpu_param *params;    /* [cfg.n_params] */
    cudaEvent_t *used;           /* [n_layers] events: `compute` has read the layer's parameters */
    cudaEvent_t *ready, *copied; /* [n_layers] events: gradients are on the device; on the host */
    struct gpu_range_list pins;
    void *staging;    /* pinned memory for the heads and tails of all parameters */
    int32_t *suspect; /* [n_layers] pinned: 1 if a gradient may be bad; NULL: not checked */
    struct gpu_pass *pass[2], *now;
    uint8_t *host_in, *d_in;  /* blocks of the input: pinned on the host, and on the device */
    struct gpu_input host, d; /* pointers to the arrays in host_in and in d_in */
    cudaEvent_t input_read;   /* event: the pinned block may be overwritten */
    /* images as floats; host_floats: pinned, NULL until set_floats is called */
    float *input, *host_floats;
    int has_labels, has_targets;     /* has_labels: labels or targets are set */
    float *d_targets, *host_targets; /* [batch][classes]; NULL: not needed yet; host: pinned */
    /* n losses of the pass, then n flags (int32) of correct samples */
    double *host_result, *d_result;
    cudaEvent_t result_ready;

    float *padded_diff, *unpooled; /* unpooled: output of one convolution at a time */
    int64_t padded_diff_elems, unpooled_elems;
    float *scratch; /* working memory of the bias gradients */
    int64_t scratch_elems;
    uint16_t *cast[GPU_N_CASTS];     /* tensors of one convolution, in bf16 or another layout */
    int64_t cast_elems[GPU_N_CASTS]; /* sizes of `cast`, in units of 16 bits */
    void *workspace, *blas_workspace;
    uint64_t blas_workspace_bytes;
    uint64_t workspace_bytes;          /* largest workspace of all passes planned so far */
    int planning, trains;              /* `trains`: the last forward was for training */
    struct gpu_resident *resident;     /* NULL: the caller runs the steps */
    struct gpu_updates *updates;       /* kernels/device_updates.h; NULL: the caller updates */
    struct gpu_layer_capture *capture; /* layers.h; NULL: no graphs */
    struct gpu_branch *branch;         /* branch.h; NULL: the backward runs only on `compute` */
};

struct gpu_owned {
    enum { GPU_OWNED_TENSOR, GPU_OWNED_FILTER, GPU_OWNED_CONV, GPU_OWNED_BACKEND } what;
    void *thing;
};

struct gpu_pass {
    struct gpu_plan *plan;
    int n;        /* samples */
    void **state; /* [n_layers] state of the layer's kind, freed with the pass */
    struct gpu_owned *owned;
    int n_owned, cap_owned;
};

/* Converts a library's code to a status; logs a failure with its layer and call (check.c). */
enum status gpu_check_cuda(const struct gpu_op *op, const char *call, cudaError_t code);
/* Returns advice as a clause that begins with "; ", or "" if no remedy is certain. */
const char *gpu_check_advice(cudaError_t code);
enum status gpu_check_kernel(const struct gpu_op *op, const char *kernel, int code);
enum status gpu_check_dnn(const struct gpu_op *op, const char *call, cudnnStatus_t code);
enum status gpu_check_blas(const struct gpu_op *op, const char *call, cublasStatus_t code);
enum status gpu_check_no_host_memory(void);

/* Creates the plan and its first pass (plan.c). */
enum status gpu_plan_create(const struct backend_plan_config *cfg, struct gpu_plan **out);
void gpu_plan_destroy(struct gpu_plan *plan); /* NULL is fine */
enum status gpu_plan_state_create(struct gpu_op *op, size_t bytes, void *out);
enum status gpu_plan_reserve_output(struct gpu_plan *plan, struct gpu_op *op); /* sets own_y */
void gpu_plan_reserve_scratch(struct gpu_plan *plan, struct gpu_planes shape);
/* Marks a relu that is the only reader of y as part of layer i. */
int gpu_plan_fuse_relu(struct gpu_plan *plan, int i);
/* Marks the max pool that is the only reader of that relu as part of layer i, too, and returns the
 * pool's index; then the output of i is not kept. -1: no such pool. */
int gpu_plan_fuse_pool(struct gpu_plan *plan, int i);
/* lets layer i write only the maxima */
int gpu_plan_join_pool(struct gpu_plan *plan, int i);
struct gpu_planes gpu_plan_planes(const struct shape *s, int n); /* (n, C, H*W), or (n, F, 1) */

/* Runs the forward of a max pool that is part of the convolution before it (pool.c). bias: this
 * bias and the relu are first applied to the convolution's output; NULL: the output already has
 * them. */
enum status gpu_pool_forward_biased(struct gpu_pass *pass, int i, const float *bias);

/* pass.c */
enum status gpu_pass_create(struct gpu_plan *plan, int n, struct gpu_pass **out);
enum status gpu_pass_select(struct gpu_plan *plan, int n); /* sets `now`; may create the pass */
void gpu_pass_destroy(struct gpu_pass *pass);
enum status gpu_pass_state(struct gpu_pass *pass, int i, size_t bytes, void *out);
enum status gpu_pass_tensor_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                 cudnnDataType_t type, const int dims[4],
                                 cudnnTensorDescriptor_t *out);
enum status gpu_pass_filter_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                 cudnnDataType_t type, const int dims[4],
                                 cudnnFilterDescriptor_t *out);
enum status gpu_pass_conv_desc(struct gpu_pass *pass, const struct gpu_op *op, const int pad[2],
                               /* the descriptor's math type is cuDNN's default */
                               cudnnConvolutionDescriptor_t *out);
enum status gpu_pass_backend_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                  cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);

#endif
