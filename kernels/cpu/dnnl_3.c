/* kernels/cpu/dnnl_3.c - the interface of dnnl.h for oneDNN 3, in which formats are objects, and a
 * primitive descriptor is created in one call. */
#include "kernels/cpu/dnnl.h"

const int cpu_dnnl_norm_by_x_has_shift = 0;

static const_dnnl_memory_desc_t theirs(const struct cpu_md *md)
{
    return (const_dnnl_memory_desc_t)md;
}

dnnl_status_t cpu_dnnl_md_create(int n_dims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag, struct cpu_md **out)
{
    dnnl_memory_desc_t md;
    dnnl_status_t code = dnnl_memory_desc_create_with_tag(&md, n_dims, dims, type, tag);
    if (code == dnnl_success)
        *out = (struct cpu_md *)md;
    return code;
}

void cpu_dnnl_md_destroy(struct cpu_md *md)
{
    if (md != NULL)
        dnnl_memory_desc_destroy((dnnl_memory_desc_t)md);
}

size_t cpu_dnnl_md_bytes(const struct cpu_md *md)
{
    return dnnl_memory_desc_get_size(theirs(md));
}

int cpu_dnnl_md_equal(const struct cpu_md *a, const struct cpu_md *b)
{
    return dnnl_memory_desc_equal(theirs(a), theirs(b));
}

int cpu_dnnl_md_dims(const struct cpu_md *md, dnnl_dims_t out)
{
    dnnl_dims_t *dims;
    int n = 0;
    if (dnnl_memory_desc_query(theirs(md), dnnl_query_ndims_s32, &n) != dnnl_success ||
        dnnl_memory_desc_query(theirs(md), dnnl_query_dims, &dims) != dnnl_success)
        return 0;
    for (int k = 0; k < n; k++)
        out[k] = (*dims)[k];
    return n;
}

dnnl_status_t cpu_dnnl_desc_create(const struct cpu_work *w, dnnl_engine_t engine,
                                   const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    const_dnnl_memory_desc_t mx = theirs(w->x), mw = theirs(w->w), mb = theirs(w->b),
                             my = theirs(w->y);
    const dnnl_dims_t dense = {0}; /* no dilation */
    unsigned flags =
        dnnl_use_scale | dnnl_use_shift | (w->global_stats ? dnnl_use_global_stats : 0);
    switch (w->what) {
    case CPU_CONV:
        return dnnl_convolution_forward_primitive_desc_create(
            out, engine, w->prop, dnnl_convolution_direct, mx, mw, mb, my, w->stride, dense, w->lo,
            w->hi, attr);
    case CPU_CONV_BY_X:
        return dnnl_convolution_backward_data_primitive_desc_create(
            out, engine, dnnl_convolution_direct, mx, mw, my, w->stride, dense, w->lo, w->hi,
            w->forward, attr);
    case CPU_CONV_BY_W:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            out, engine, dnnl_convolution_direct, mx, mw, mb, my, w->stride, dense, w->lo, w->hi,
            w->forward, attr);
    case CPU_DENSE:
        return dnnl_inner_product_forward_primitive_desc_create(out, engine, w->prop, mx, mw, mb,
                                                                my, attr);
    case CPU_DENSE_BY_X:
        return dnnl_inner_product_backward_data_primitive_desc_create(out, engine, mx, mw, my,
                                                                      w->forward, attr);
    case CPU_DENSE_BY_W:
        return dnnl_inner_product_backward_weights_primitive_desc_create(out, engine, mx, mw, mb,
                                                                         my, w->forward, attr);
    case CPU_POOL:
        return dnnl_pooling_forward_primitive_desc_create(
            out, engine, w->prop, w->alg, mx, my, w->stride, w->kernel, dense, w->lo, w->hi, attr);
    case CPU_POOL_BY_X:
        return dnnl_pooling_backward_primitive_desc_create(out, engine, w->alg, mx, my, w->stride,
                                                           w->kernel, dense, w->lo, w->hi,
                                                           w->forward, attr);
    case CPU_NORM:
        return dnnl_batch_normalization_forward_primitive_desc_create(out, engine, w->prop, mx, mx,
                                                                      w->epsilon, flags, attr);
    case CPU_NORM_BY_X:
        return dnnl_batch_normalization_backward_primitive_desc_create(
            out, engine, dnnl_backward, mx, mx, mx, w->epsilon, flags, w->forward, attr);
    case CPU_ELTWISE:
        return dnnl_eltwise_forward_primitive_desc_create(out, engine, w->prop, w->alg, mx, mx,
                                                          w->alpha, 0, attr);
    case CPU_ELTWISE_BY_X:
        return dnnl_eltwise_backward_primitive_desc_create(out, engine, w->alg, mx, mx, mx,
                                                           w->alpha, 0, w->forward, attr);
    }
    return dnnl_invalid_arguments;
}

dnnl_status_t cpu_dnnl_reorder_create(const struct cpu_md *from, const struct cpu_md *to,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                      dnnl_primitive_desc_t *out)
{
    return dnnl_reorder_primitive_desc_create(out, theirs(from), engine, theirs(to), engine, attr);
}

const struct cpu_md *cpu_dnnl_desc_md(const_dnnl_primitive_desc_t desc, dnnl_query_t what)
{
    return (const struct cpu_md *)dnnl_primitive_desc_query_md(desc, what, 0);
}

dnnl_status_t cpu_dnnl_memory_create(const struct cpu_md *md, dnnl_engine_t engine, void *data,
                                     dnnl_memory_t *out)
{
    return dnnl_memory_create(out, theirs(md), engine, data);
}

dnnl_status_t cpu_dnnl_relu_append(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
}
