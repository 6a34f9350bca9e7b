/* kernels/cuda/plan/plan.h - inside the CUDA backend: a plan, its passes and operations.
 *
 * A plan takes all its memory once, for its largest batch, in one block (arena.h). A pass is what
 * depends on the number of samples: cuDNN's descriptors and chosen algorithms. A plan has one for
 * its batch, and makes a second when it first meets another number of samples.
 * All tensors are canonical rows, but for those of channels.h. Work is queued on the stream
 * `compute`; parameters come by the stream `up`, gradients leave by the stream `down`, each layer's
 * as soon as its backward has ended, while the next one computes; events keep them in order.
 * - relu works in place if nobody else reads what it reads, and is part of the convolution, dense
 *   layer or sum before it;
 * - so is a max pool behind a convolution's relu, and what it reads is not kept;
 * - gradients by outputs live in few buffers (diffs.h);
 * - no gradient is worked out for layers that follow from none with parameters;
 * - gradients by parameters may be worked out on a stream of their own (branch.h).
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
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

struct gpu_plan;
struct gpu_pass;
struct gpu_op;
struct gpu_kind {
    /* Asks the arena for what the layer needs; sets op->y. */
    enum status (*plan)(struct gpu_plan *plan, int i);
    /* Makes the pass's descriptors; NULL: there are none. */
    enum status (*prepare)(struct gpu_pass *pass, int i);
    enum status (*forward)(struct gpu_pass *pass, int i, int train);
    enum status (*backward)(struct gpu_pass *pass, int i);
    enum gpu_diff_way way; /* how backward makes the gradients by the inputs */
    int wants_dx;          /* works that by the first out even if nobody needs it */
};
extern const struct gpu_kind gpu_conv, gpu_pool, gpu_dense, gpu_relu, gpu_dropout, gpu_batch_norm,
    gpu_flatten, gpu_loss, gpu_join_add, gpu_join_concat, gpu_layer_norm, gpu_embedding,
    gpu_activation;

struct gpu_op {
    const struct gpu_kind *kind; /* NULL: another plan's */
    const struct layer *layer;
    float **x, **y; /* where the pointers to first input and output are; y may be x */
    float *own_y;   /* what y points to if the output is not the input */
    float **dx;     /* gradient by x, one of the plan's `diffs`; NULL: none */
    float **dy;     /* that by y, summed over the readers */
    int needs_backward, needs_dx;
    int shared;         /* y has other readers: must not be written over */
    int overwritten;    /* y is: a relu works on it in place */
    int done_before;    /* relu, max pool: its forward is part of a layer before */
    int pooled;         /* convolution and its relu: y is kept by the max pool behind alone */
    int relu_masked;    /* relu: the pool behind it has masked the gradient */
    int x_last, y_last; /* channels.h: x, y and their gradients lie channels last */
    void *state;        /* the kind's, freed with the plan */
};

/* One parameter on the device, and its way from and to the host. */
struct gpu_param {
    int layer; /* whose; -1: nobody's */
    int64_t elems;
    float *d, *d_grad;  /* d_grad NULL: inference only */
    uint16_t *d_grad16; /* rounded, on its way; NULL: it leaves as floats */
    struct gpu_pieces in, out;
    uint8_t *staged_in, *staged_out; /* pinned: head, then tail */
    cudaEvent_t loaded;              /* the last copy to the device has ended */
};

enum { GPU_CAST_X, GPU_CAST_W, GPU_CAST_Y, GPU_CAST_BIAS, GPU_N_CASTS };

struct gpu_plan {
    struct backend_plan_config cfg;
    struct graph_node *node; /* [n_layers] */
    int image_readers;
    struct gpu_diffs diffs;
    struct gpu_edges_crossing *crossing; /* [n_layers] (edges.h) */
    struct gpu_group_member *member;     /* of cfg.group (group.h); NULL: alone */
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    cudaStream_t compute, up, down;
    struct gpu_arena arena;
    struct gpu_op *ops;
    struct gpu_param *params;    /* [cfg.n_params] */
    cudaEvent_t *used;           /* [n_layers] compute is through with the layer's parameters */
    cudaEvent_t *ready, *copied; /* [n_layers] gradients on the device; on the host */
    struct gpu_range_list pins;
    void *staging; /* pinned: all parameters' heads and tails */
    struct gpu_pass *pass[2], *now;
    uint8_t *host_in, *d_in;         /* pinned, and on the device, */
    struct gpu_input host, d;        /* and their parts */
    cudaEvent_t input_read;          /* what is pinned may be written again */
    float *input, *host_floats;      /* images as floats; pinned, since the first set_floats */
    int has_labels, has_targets;     /* has_labels: of either */
    float *d_targets, *host_targets; /* [batch][classes], pinned since the first; NULL: none */
    double *host_result, *d_result;  /* the pass's n losses, then n hits (int32) */
    cudaEvent_t result_ready;

    float *padded_diff, *unpooled; /* unpooled: the output of one convolution at a time */
    int64_t padded_diff_elems, unpooled_elems;
    float *scratch; /* of the bias gradients */
    int64_t scratch_elems;
    /* a convolution's tensors, one at a time: in bf16, or as floats in another layout */
    uint16_t *cast[GPU_N_CASTS];
    int64_t cast_elems[GPU_N_CASTS]; /* of 16 bits */
    void *workspace, *blas_workspace;
    uint64_t blas_workspace_bytes;
    uint64_t workspace_bytes;      /* largest that a pass may use; while planning: has asked for */
    int planning, trains;          /* trains: the last forward did */
    struct gpu_resident *resident; /* NULL: the caller takes the steps */
    struct gpu_layer_capture *capture; /* layers.h; NULL: no graphs */
    struct gpu_branch *branch;         /* branch.h; NULL: backward is on `compute` alone */
};

struct gpu_owned {
    enum { GPU_OWNED_TENSOR, GPU_OWNED_FILTER, GPU_OWNED_CONV, GPU_OWNED_BACKEND } what;
    void *thing;
};

struct gpu_pass {
    struct gpu_plan *plan;
    int n;        /* samples */
    void **state; /* [n_layers] the kind's, freed with the pass */
    struct gpu_owned *owned;
    int n_owned, cap_owned;
};

/* check.c: a library's code as ours; a failure is logged with layer (NULL: all) and call. */
enum status gpu_check_cuda(const struct gpu_op *op, const char *call, cudaError_t code);
/* What to do about it, as a clause that begins with "; "; "" if nothing is sure to help. */
const char *gpu_check_advice(cudaError_t code);
enum status gpu_check_kernel(const struct gpu_op *op, const char *kernel, int code);
enum status gpu_check_dnn(const struct gpu_op *op, const char *call, cudnnStatus_t code);
enum status gpu_check_blas(const struct gpu_op *op, const char *call, cublasStatus_t code);
enum status gpu_check_no_host_memory(void);

/* plan.c */
enum status gpu_plan_create(const struct backend_plan_config *cfg, struct gpu_plan **out);
void gpu_plan_destroy(struct gpu_plan *plan); /* NULL is fine */
enum status gpu_plan_state_create(struct gpu_op *op, size_t bytes, void *out);
enum status gpu_plan_reserve_output(struct gpu_plan *plan, struct gpu_op *op); /* own_y */
void gpu_plan_reserve_scratch(struct gpu_plan *plan, struct gpu_planes shape);
int gpu_plan_fuse_relu(struct gpu_plan *plan,
                       int i); /* a relu alone reads y: marked as done by i */
/* The max pool that alone reads that relu, marked, too: i's output is not kept. -1: none. */
int gpu_plan_fuse_pool(struct gpu_plan *plan, int i);
int gpu_plan_join_pool(struct gpu_plan *plan, int i); /* the same; i writes the maxima, no output */
struct gpu_planes gpu_plan_planes(const struct shape *s, int n); /* (n, C, H*W), (n, F, 1) */

/* pool.c: the forward of a max pool that is done before, from what the convolution wrote: without
 * its bias and relu; and, bias NULL, with them. */
enum status gpu_pool_forward_biased(struct gpu_pass *pass, int i, const float *bias);

/* pass.c */
enum status gpu_pass_create(struct gpu_plan *plan, int n, struct gpu_pass **out);
enum status gpu_pass_select(struct gpu_plan *plan, int n); /* now; made if it is not there */
void gpu_pass_destroy(struct gpu_pass *pass);
enum status gpu_pass_state(struct gpu_pass *pass, int i, size_t bytes, void *out);
enum status gpu_pass_tensor_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                 cudnnDataType_t type, const int dims[4],
                                 cudnnTensorDescriptor_t *out);
enum status gpu_pass_filter_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                 cudnnDataType_t type, const int dims[4],
                                 cudnnFilterDescriptor_t *out);
enum status gpu_pass_conv_desc(struct gpu_pass *pass, const struct gpu_op *op, const int pad[2],
                               cudnnConvolutionDescriptor_t *out); /* its math: cuDNN's default */
enum status gpu_pass_backend_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                  cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);

/* transfer.c */
enum status gpu_transfer_event_create(const struct gpu_op *op, cudaEvent_t *out); /* no timing */
enum status gpu_transfer_create(struct gpu_plan *plan);
void gpu_transfer_destroy(struct gpu_plan *plan);
enum status gpu_transfer_upload(struct gpu_plan *plan, int param);
enum status gpu_transfer_wait_params(struct gpu_plan *plan, int layer,
                                     unsigned flags);                /* compute waits */
enum status gpu_transfer_download(struct gpu_plan *plan, int layer); /* behind ready[layer] */
enum status gpu_transfer_wait_download(struct gpu_plan *plan, int layer);
/* The elements [lo, hi) of a gradient, whose element 0 lies, or would, at d, to where they belong
 * on the host, behind what `down` has to do; then, when it is through, those that were staged. */
enum status gpu_transfer_download_part(struct gpu_plan *plan, int param, const void *d, int64_t lo,
                                       int64_t hi);
void gpu_transfer_download_place(struct gpu_plan *plan, int param, int64_t lo, int64_t hi);
enum status gpu_transfer_read_param(struct gpu_plan *plan, int param, float *dst);

#endif
