/* kernels/cuda/plan/pass.c - the objects that depend on the number of samples: cuDNN's descriptors.
 * The pass owns them, so a kind of layer needs no destructor. */
#include "kernels/cuda/plan/plan.h"
#include <stdlib.h>
#include <string.h>

static void owned_free(const struct gpu_owned *o)
{
    switch (o->what) {
    case GPU_OWNED_TENSOR:
        cudnnDestroyTensorDescriptor(o->thing);
        break;
    case GPU_OWNED_FILTER:
        cudnnDestroyFilterDescriptor(o->thing);
        break;
    case GPU_OWNED_CONV:
        cudnnDestroyConvolutionDescriptor(o->thing);
        break;
    case GPU_OWNED_BACKEND:
        cudnnBackendDestroyDescriptor(o->thing);
        break;
    }
}

/* Records an object to be freed with the pass; frees it at once if it cannot be recorded. */
static enum status own(struct gpu_pass *pass, struct gpu_owned thing)
{
    if (pass->n_owned == pass->cap_owned) {
        int cap = pass->cap_owned * 2 + 64;
        struct gpu_owned *more = realloc(pass->owned, (size_t)cap * sizeof *more);
        if (more == NULL) {
            owned_free(&thing);
            return gpu_check_no_host_memory();
        }
        pass->owned = more;
        pass->cap_owned = cap;
    }
    pass->owned[pass->n_owned++] = thing;
    return ST_OK;
}

enum status gpu_pass_tensor_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                 cudnnDataType_t type, const int dims[4],
                                 cudnnTensorDescriptor_t *out)
{
    enum status st = ST_OK;
    cudnnTensorDescriptor_t d;
    TRY(gpu_check_dnn(op, "cudnnCreateTensorDescriptor", cudnnCreateTensorDescriptor(&d)));
    TRY(own(pass, (struct gpu_owned){GPU_OWNED_TENSOR, d}));
    TRY(gpu_check_dnn(op, "cudnnSetTensor4dDescriptor",
                      cudnnSetTensor4dDescriptor(d, CUDNN_TENSOR_NCHW, type, dims[0], dims[1],
                                                 dims[2], dims[3])));
    *out = d;
done:
    return st;
}

enum status gpu_pass_filter_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                 cudnnDataType_t type, const int dims[4],
                                 cudnnFilterDescriptor_t *out)
{
    enum status st = ST_OK;
    cudnnFilterDescriptor_t d;
    TRY(gpu_check_dnn(op, "cudnnCreateFilterDescriptor", cudnnCreateFilterDescriptor(&d)));
    TRY(own(pass, (struct gpu_owned){GPU_OWNED_FILTER, d}));
    TRY(gpu_check_dnn(op, "cudnnSetFilter4dDescriptor",
                      cudnnSetFilter4dDescriptor(d, type, CUDNN_TENSOR_NCHW, dims[0], dims[1],
                                                 dims[2], dims[3])));
    *out = d;
done:
    return st;
}

enum status gpu_pass_conv_desc(struct gpu_pass *pass, const struct gpu_op *op, const int pad[2],
                               cudnnConvolutionDescriptor_t *out)
{
    enum status st = ST_OK;
    const struct layer *l = op->layer;
    cudnnConvolutionDescriptor_t d;
    TRY(gpu_check_dnn(op, "cudnnCreateConvolutionDescriptor",
                      cudnnCreateConvolutionDescriptor(&d)));
    TRY(own(pass, (struct gpu_owned){GPU_OWNED_CONV, d}));
    TRY(gpu_check_dnn(op, "cudnnSetConvolution2dDescriptor",
                      cudnnSetConvolution2dDescriptor(d, pad[0], pad[1], l->stride[0], l->stride[1],
                                                      1, 1, CUDNN_CROSS_CORRELATION,
                                                      CUDNN_DATA_FLOAT)));
    *out = d;
done:
    return st;
}

enum status gpu_pass_backend_desc(struct gpu_pass *pass, const struct gpu_op *op,
                                  cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    enum status st = ST_OK;
    cudnnBackendDescriptor_t d;
    TRY(gpu_check_dnn(op, "cudnnBackendCreateDescriptor", cudnnBackendCreateDescriptor(type, &d)));
    TRY(own(pass, (struct gpu_owned){GPU_OWNED_BACKEND, d}));
    *out = d;
done:
    return st;
}

enum status gpu_pass_state(struct gpu_pass *pass, int i, size_t bytes, void *out)
{
    pass->state[i] = calloc(1, bytes);
    if (pass->state[i] == NULL)
        return gpu_check_no_host_memory();
    memcpy(out, &pass->state[i], sizeof pass->state[i]);
    return ST_OK;
}

enum status gpu_pass_create(struct gpu_plan *plan, int n, struct gpu_pass **out)
{
    enum status st = ST_OK;
    struct gpu_pass *pass = calloc(1, sizeof *pass);
    if (pass == NULL)
        return gpu_check_no_host_memory();
    pass->plan = plan;
    pass->n = n;
    pass->state = calloc((size_t)plan->cfg.n_layers, sizeof *pass->state);
    if (pass->state == NULL) {
        st = gpu_check_no_host_memory();
        goto done;
    }
    for (int i = 0; i < plan->cfg.n_layers; i++)
        if (plan->ops[i].kind != NULL && plan->ops[i].kind->prepare != NULL)
            TRY(plan->ops[i].kind->prepare(pass, i));
    *out = pass;
done:
    if (st != ST_OK)
        gpu_pass_destroy(pass);
    return st;
}

void gpu_pass_destroy(struct gpu_pass *pass)
{
    if (pass == NULL)
        return;
    for (int k = pass->n_owned - 1; k >= 0; k--)
        owned_free(&pass->owned[k]);
    for (int i = 0; pass->state != NULL && i < pass->plan->cfg.n_layers; i++)
        free(pass->state[i]);
    free(pass->state);
    free(pass->owned);
    free(pass);
}

enum status gpu_pass_select(struct gpu_plan *plan, int n)
{
    enum status st = ST_OK;
    struct gpu_pass *fresh;
    if (n == plan->cfg.batch) {
        plan->now = plan->pass[0];
        return ST_OK;
    }
    if (plan->pass[1] == NULL || plan->pass[1]->n != n) {
        TRY(gpu_pass_create(plan, n, &fresh));
        gpu_pass_destroy(plan->pass[1]);
        plan->pass[1] = fresh;
    }
    plan->now = plan->pass[1];
done:
    return st;
}
