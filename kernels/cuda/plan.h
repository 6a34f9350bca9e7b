/* kernels/cuda/plan.h - inside the CUDA backend: a plan, its passes, and what an operation gets.
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
#ifndef KERNELS_CUDA_PLAN_H
#define KERNELS_CUDA_PLAN_H
#include "kernels/backend.h"
#include "kernels/cuda/arena.h"
#include "kernels/cuda/diffs.h"
#include "kernels/cuda/input.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/pin.h"
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

struct cuda_plan;
struct cuda_pass;
struct cuda_op;
struct cuda_kind {
    /* Asks the arena for what the layer needs; sets op->y. */
    enum status (*plan)(struct cuda_plan *plan, int i);
    /* Makes the pass's descriptors; NULL: there are none. */
    enum status (*prepare)(struct cuda_pass *pass, int i);
    enum status (*forward)(struct cuda_pass *pass, int i, int train);
    enum status (*backward)(struct cuda_pass *pass, int i);
    enum cuda_diff_way way; /* how backward makes the gradients by the inputs */
    int wants_dx;           /* works that by the first out even if nobody needs it */
};
extern const struct cuda_kind cuda_conv, cuda_pool, cuda_dense, cuda_relu, cuda_dropout,
    cuda_batch_norm, cuda_flatten, cuda_loss, cuda_join_add, cuda_join_concat, cuda_layer_norm,
    cuda_embedding, cuda_activation;

struct cuda_op {
    const struct cuda_kind *kind; /* NULL: another plan's */
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
struct cuda_param {
    int layer; /* whose; -1: nobody's */
    int64_t elems;
    float *d, *d_grad;  /* d_grad NULL: inference only */
    uint16_t *d_grad16; /* rounded, on its way; NULL: it leaves as floats */
    struct cuda_pieces in, out;
    uint8_t *staged_in, *staged_out; /* pinned: head, then tail */
    cudaEvent_t loaded;              /* the last copy to the device has ended */
};

enum { CUDA_CAST_X, CUDA_CAST_W, CUDA_CAST_Y, CUDA_CAST_BIAS, CUDA_N_CASTS };

struct cuda_plan {
    struct backend_plan_config cfg;
    struct graph_node *node; /* [n_layers] */
    int image_readers;
    struct cuda_diffs diffs;
    struct cuda_crossing *crossing; /* [n_layers] (edges.h) */
    struct cuda_member *member;     /* of cfg.group (group.h); NULL: alone */
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    cudaStream_t compute, up, down;
    struct cuda_arena arena;
    struct cuda_op *ops;
    struct cuda_param *params;   /* [cfg.n_params] */
    cudaEvent_t *used;           /* [n_layers] compute is through with the layer's parameters */
    cudaEvent_t *ready, *copied; /* [n_layers] gradients on the device; on the host */
    struct cuda_range_list pins;
    void *staging; /* pinned: all parameters' heads and tails */
    struct cuda_pass *pass[2], *now;
    uint8_t *host_in, *d_in;         /* pinned, and on the device, */
    struct cuda_input host, d;       /* and their parts */
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
    uint16_t *cast[CUDA_N_CASTS];
    int64_t cast_elems[CUDA_N_CASTS]; /* of 16 bits */
    void *workspace, *blas_workspace;
    uint64_t blas_workspace_bytes;
    uint64_t workspace_bytes;       /* largest that a pass may use; while planning: has asked for */
    int planning, trains;           /* trains: the last forward did */
    struct cuda_resident *resident; /* NULL: the caller takes the steps */
    struct cuda_capture *capture;   /* layers.h; NULL: no graphs */
    struct cuda_branch *branch;     /* branch.h; NULL: backward is on `compute` alone */
};

struct cuda_owned {
    enum { CUDA_OWNED_TENSOR, CUDA_OWNED_FILTER, CUDA_OWNED_CONV, CUDA_OWNED_BACKEND } what;
    void *thing;
};

struct cuda_pass {
    struct cuda_plan *plan;
    int n;        /* samples */
    void **state; /* [n_layers] the kind's, freed with the pass */
    struct cuda_owned *owned;
    int n_owned, cap_owned;
};

/* error.c: a library's code as ours; a failure is logged with layer (NULL: all) and call. */
enum status cuda_check(const struct cuda_op *op, const char *call, cudaError_t code);
/* What to do about it, as a clause that begins with "; "; "" if nothing is sure to help. */
const char *cuda_fix(cudaError_t code);
enum status cuda_check_kernel(const struct cuda_op *op, const char *kernel, int code);
enum status cuda_check_dnn(const struct cuda_op *op, const char *call, cudnnStatus_t code);
enum status cuda_check_blas(const struct cuda_op *op, const char *call, cublasStatus_t code);
enum status cuda_no_host_memory(void);

/* plan.c */
enum status cuda_plan_create(const struct backend_plan_config *cfg, struct cuda_plan **out);
void cuda_plan_destroy(struct cuda_plan *plan); /* NULL is fine */
enum status cuda_state_create(struct cuda_op *op, size_t bytes, void *out);
enum status cuda_output_take(struct cuda_plan *plan, struct cuda_op *op); /* own_y */
void cuda_scratch_want(struct cuda_plan *plan, struct cuda_planes shape);
int cuda_relu_fuse(struct cuda_plan *plan, int i); /* a relu alone reads y: marked as done by i */
/* The max pool that alone reads that relu, marked, too: i's output is not kept. -1: none. */
int cuda_pool_fuse(struct cuda_plan *plan, int i);
int cuda_pool_join(struct cuda_plan *plan, int i); /* the same; i writes the maxima, no output */
struct cuda_planes cuda_planes_of(const struct shape *s, int n); /* (n, C, H*W), (n, F, 1) */

/* simple.c: the forward of a max pool that is done before, from what the convolution wrote: without
 * its bias and relu; and, bias NULL, with them. */
enum status cuda_pool_forward_biased(struct cuda_pass *pass, int i, const float *bias);

/* pass.c */
enum status cuda_pass_create(struct cuda_plan *plan, int n, struct cuda_pass **out);
enum status cuda_pass_select(struct cuda_plan *plan, int n); /* now; made if it is not there */
void cuda_pass_destroy(struct cuda_pass *pass);
enum status cuda_pass_state(struct cuda_pass *pass, int i, size_t bytes, void *out);
enum status cuda_desc_tensor(struct cuda_pass *pass, const struct cuda_op *op, cudnnDataType_t type,
                             const int dims[4], cudnnTensorDescriptor_t *out);
enum status cuda_desc_filter(struct cuda_pass *pass, const struct cuda_op *op, cudnnDataType_t type,
                             const int dims[4], cudnnFilterDescriptor_t *out);
enum status cuda_desc_conv(struct cuda_pass *pass, const struct cuda_op *op, const int pad[2],
                           cudnnConvolutionDescriptor_t *out); /* its math: cuDNN's default */
enum status cuda_desc_backend(struct cuda_pass *pass, const struct cuda_op *op,
                              cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);

/* transfer.c */
enum status cuda_event_create(const struct cuda_op *op, cudaEvent_t *out); /* no timing */
enum status cuda_transfer_create(struct cuda_plan *plan);
void cuda_transfer_destroy(struct cuda_plan *plan);
enum status cuda_upload(struct cuda_plan *plan, int param);
enum status cuda_params_wait(struct cuda_plan *plan, int layer, unsigned flags); /* compute waits */
enum status cuda_download(struct cuda_plan *plan, int layer); /* behind ready[layer] */
enum status cuda_download_wait(struct cuda_plan *plan, int layer);
/* The elements [lo, hi) of a gradient, whose element 0 lies, or would, at d, to where they belong
 * on the host, behind what `down` has to do; then, when it is through, those that were staged. */
enum status cuda_download_part(struct cuda_plan *plan, int param, const void *d, int64_t lo,
                               int64_t hi);
void cuda_download_place(struct cuda_plan *plan, int param, int64_t lo, int64_t hi);
enum status cuda_param_read(struct cuda_plan *plan, int param, float *dst);

#endif
