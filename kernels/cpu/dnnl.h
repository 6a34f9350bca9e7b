/* kernels/cpu/dnnl.h - one interface for the functions in which oneDNN 2 and 3 differ: formats of
 * tensors and descriptions of primitives. CMake compiles dnnl_2.c or dnnl_3.c, according to the
 * header that it finds. All other functions are the same in oneDNN 2 and 3. Owns: formats, until
 * they are destroyed. Threads: any. Errors: oneDNN's codes. */
#ifndef KERNELS_CPU_DNNL_H
#define KERNELS_CPU_DNNL_H
#include <oneapi/dnnl/dnnl.h>
#include <stddef.h>

struct cpu_md; /* dimensions, type and format of a tensor; immutable */

dnnl_status_t cpu_dnnl_md_create(int n_dims, const dnnl_dims_t dims, dnnl_data_type_t type,
                                 dnnl_format_tag_t tag, struct cpu_md **out);
void cpu_dnnl_md_destroy(struct cpu_md *md); /* NULL is fine */
size_t cpu_dnnl_md_bytes(const struct cpu_md *md);
int cpu_dnnl_md_equal(const struct cpu_md *a, const struct cpu_md *b);
/* returns the number of dimensions */
int cpu_dnnl_md_dims(const struct cpu_md *md, dnnl_dims_t out);

/* Description of a primitive, a plain value. */
struct cpu_work {
    enum {
        CPU_CONV,
        CPU_CONV_BY_X,
        CPU_CONV_BY_W,
        CPU_DENSE,
        CPU_DENSE_BY_X,
        CPU_DENSE_BY_W,
        CPU_POOL,
        CPU_POOL_BY_X,
        CPU_NORM,
        CPU_NORM_BY_X,
        CPU_ELTWISE,
        CPU_ELTWISE_BY_X
    } what;
    dnnl_prop_kind_t prop; /* training or inference; set for forwards and normalizations */
    dnnl_alg_kind_t alg;   /* pools, activations */
    float alpha;           /* activations */
    const struct cpu_md *x, *w, *b, *y; /* the gradient of a tensor has the format of that tensor */
    /* kernel, stride, padding of convolutions and pools; a convolution has its kernel in w */
    dnnl_dims_t kernel, stride, lo, hi;
    float epsilon;    /* epsilon of normalizations, whose scale and shift are inputs */
    int global_stats; /* true for normalizations whose statistics are inputs, too */
    /* description of the forward, if the primitive is a gradient */
    const_dnnl_primitive_desc_t forward;
};

dnnl_status_t cpu_dnnl_desc_create(const struct cpu_work *w, dnnl_engine_t engine,
                                   const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t *out);
dnnl_status_t cpu_dnnl_reorder_create(const struct cpu_md *from, const struct cpu_md *to,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                      dnnl_primitive_desc_t *out);
/* Returns a format that a primitive has chosen, and that the primitive owns. */
const struct cpu_md *cpu_dnnl_desc_md(const_dnnl_primitive_desc_t desc, dnnl_query_t what);
dnnl_status_t cpu_dnnl_memory_create(const struct cpu_md *md, dnnl_engine_t engine, void *data,
                                     dnnl_memory_t *out);
/* True if the gradient of a normalization requires the shift as an argument, although it does not
 * read the shift. */
extern const int cpu_dnnl_norm_by_x_has_shift;
dnnl_status_t cpu_dnnl_relu_append(dnnl_post_ops_t ops);

#endif
