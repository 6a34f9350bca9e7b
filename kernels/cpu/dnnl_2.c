/* kernels/cpu/dnnl_2.c - the interface of dnnl.h for oneDNN 2, in which formats are values, and an
 * operation descriptor is created before the primitive descriptor. */
#include "kernels/cpu/dnnl.h"
#include <stdlib.h>
#include <string.h>

const int cpu_dnnl_norm_by_x_has_shift = 1;

static const dnnl_memory_desc_t *theirs(const struct cpu_md *md)
{
    return (const dnnl_memory_desc_t *)md;
}

dnnl_status_t cpu_dnnl_md_create(int n_dims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag, struct cpu_md **out)
{
    dnnl_memory_desc_t *md = calloc(1, sizeof *md);
    if (md == NULL)
        return dnnl_out_of_memory;
    dnnl_status_t code = dnnl_memory_desc_init_by_tag(md, n_dims, dims, type, tag);
    if (code == dnnl_success)
        *out = (struct cpu_md *)md;
    else
        free(md);
    return code;
}

void cpu_dnnl_md_destroy(struct cpu_md *md)
{
    free(md);
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
    memcpy(out, theirs(md)->dims, sizeof(dnnl_dims_t));
    return theirs(md)->ndims;
}

union op_desc {
    dnnl_convolution_desc_t conv;
    dnnl_inner_product_desc_t dense;
    dnnl_pooling_desc_t pool;
    dnnl_batch_normalization_desc_t norm;
    dnnl_eltwise_desc_t eltwise;
};

static dnnl_status_t describe(const struct cpu_work *w, union op_desc *d)
{
    const dnnl_memory_desc_t *mx = theirs(w->x), *mw = theirs(w->w), *mb = theirs(w->b),
                             *my = theirs(w->y);
    unsigned flags =
        dnnl_use_scale | dnnl_use_shift | (w->global_stats ? dnnl_use_global_stats : 0);
    switch (w->what) {
    case CPU_CONV:
        return dnnl_convolution_forward_desc_init(&d->conv, w->prop, dnnl_convolution_direct, mx,
                                                  mw, mb, my, w->stride, w->lo, w->hi);
    case CPU_CONV_BY_X:
        return dnnl_convolution_backward_data_desc_init(&d->conv, dnnl_convolution_direct, mx, mw,
                                                        my, w->stride, w->lo, w->hi);
    case CPU_CONV_BY_W:
        return dnnl_convolution_backward_weights_desc_init(&d->conv, dnnl_convolution_direct, mx,
                                                           mw, mb, my, w->stride, w->lo, w->hi);
    case CPU_DENSE:
        return dnnl_inner_product_forward_desc_init(&d->dense, w->prop, mx, mw, mb, my);
    case CPU_DENSE_BY_X:
        return dnnl_inner_product_backward_data_desc_init(&d->dense, mx, mw, my);
    case CPU_DENSE_BY_W:
        return dnnl_inner_product_backward_weights_desc_init(&d->dense, mx, mw, mb, my);
    case CPU_POOL:
        return dnnl_pooling_forward_desc_init(&d->pool, w->prop, w->alg, mx, my, w->stride,
                                              w->kernel, w->lo, w->hi);
    case CPU_POOL_BY_X:
        return dnnl_pooling_backward_desc_init(&d->pool, w->alg, mx, my, w->stride, w->kernel,
                                               w->lo, w->hi);
    case CPU_NORM:
        return dnnl_batch_normalization_forward_desc_init(&d->norm, w->prop, mx, w->epsilon, flags);
    case CPU_NORM_BY_X:
        return dnnl_batch_normalization_backward_desc_init(&d->norm, dnnl_backward, mx, mx,
                                                           w->epsilon, flags);
    case CPU_ELTWISE:
        return dnnl_eltwise_forward_desc_init(&d->eltwise, w->prop, w->alg, mx, w->alpha, 0);
    case CPU_ELTWISE_BY_X:
        return dnnl_eltwise_backward_desc_init(&d->eltwise, w->alg, mx, mx, w->alpha, 0);
    }
    return dnnl_invalid_arguments;
}

dnnl_status_t cpu_dnnl_desc_create(const struct cpu_work *w, dnnl_engine_t engine,
                                   const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out)
{
    union op_desc d;
    dnnl_status_t code = describe(w, &d);
    return code == dnnl_success ? dnnl_primitive_desc_create(out, &d, attr, engine, w->forward)
                                : code;
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
    return dnnl_post_ops_append_eltwise(ops, 1, dnnl_eltwise_relu, 0, 0);
}
