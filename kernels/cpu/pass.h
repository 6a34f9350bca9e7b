/* kernels/cpu/pass.h - the functions with which the kinds of layers plan a pass: formats, tensors,
 * primitives with their arguments. The pass owns all of them and frees them. Threads: as for the
 * plan. Errors: ST_NOMEM, ST_UNSUPPORTED, ST_INTERNAL; logged with the layer. */
#ifndef KERNELS_CPU_PASS_H
#define KERNELS_CPU_PASS_H
#include "kernels/cpu/cpu.h"

enum status cpu_pass_create(struct cpu_plan *plan, int n, struct cpu_pass **out);
void cpu_pass_destroy(struct cpu_pass *pass); /* NULL is fine */

/* Converts oneDNN's code to a status; logs a failure with the layer and the name of the operation
 * (what). */
enum status cpu_pass_status(const struct cpu_op *op, const char *what, dnnl_status_t code);
/* Creates a format of floats. */
enum status cpu_pass_md_create(struct cpu_pass *pass, int n_dims, const dnnl_dims_t dims,
                               dnnl_format_tag_t tag, const struct cpu_md **out);
/* Creates a format of (n, shape): plain rows of floats, or the same dimensions in a format that
 * oneDNN chooses. */
enum status cpu_pass_md_plain(struct cpu_pass *pass, const struct cpu_op *op, const struct shape *s,
                              const struct cpu_md **out);
enum status cpu_pass_md_any(struct cpu_pass *pass, const struct cpu_md *md, dnnl_data_type_t type,
                            const struct cpu_md **out);
/* Returns the number of floats in a tensor, including its padding. */
static inline int64_t cpu_pass_tensor_floats(const struct cpu_tensor *t)
{
    return (int64_t)(cpu_dnnl_md_bytes(t->md) / sizeof(float));
}

enum status cpu_pass_block_create(struct cpu_pass *pass, size_t bytes,
                                  void **out); /* zeroed, aligned */
/* Creates a tensor. data NULL: in new memory that the pass owns. */
enum status cpu_pass_tensor_create(struct cpu_pass *pass, const struct cpu_op *op,
                                   const struct cpu_md *md, const float *data,
                                   struct cpu_tensor *out);
/* Creates the description of a primitive, which the pass owns. relu: the primitive applies a relu
 * to its result. */
enum status cpu_pass_desc_create(struct cpu_pass *pass, const struct cpu_op *op,
                                 const struct cpu_work *work, int relu, dnnl_primitive_desc_t *out);
enum status cpu_pass_call_create(struct cpu_pass *pass, const struct cpu_op *op,
                                 const_dnnl_primitive_desc_t desc, struct cpu_call *out);
void cpu_pass_call_arg(struct cpu_call *call, int arg, const struct cpu_tensor *t);
enum status cpu_pass_call_run(struct cpu_pass *pass, const struct cpu_op *op,
                              const struct cpu_call *call);
enum status cpu_pass_reorder_create(struct cpu_pass *pass, const struct cpu_op *op,
                                    const struct cpu_tensor *from, const struct cpu_tensor *to,
                                    struct cpu_call *out);
/* Plans the copy of a tensor as rows, for read_y or read_dy of an operation. */
enum status cpu_pass_read_create(struct cpu_pass *pass, const struct cpu_op *op,
                                 const struct cpu_tensor *from, struct cpu_read *out);
/* Sets *out to `from` if that tensor has the format md. Otherwise sets it to a new tensor of that
 * format, to which `call` copies `from`. */
enum status cpu_pass_tensor_match(struct cpu_pass *pass, const struct cpu_op *op,
                                  const struct cpu_tensor *from, const struct cpu_md *md,
                                  struct cpu_tensor *out, struct cpu_call *call);
/* Sets *out to `from` if that tensor has no other reader and has the format md. Otherwise sets it
 * to a new tensor, to which `call` copies `from`. */
enum status cpu_pass_tensor_own(struct cpu_pass *pass, const struct cpu_op *op,
                                const struct cpu_tensor *from, const struct cpu_md *md,
                                struct cpu_tensor *out, struct cpu_call *call);
/* Returns true if a relu is the only reader of layer i's output, and marks this relu as part of the
 * layer. */
int cpu_pass_fuse_relu(struct cpu_pass *pass, int i);
/* Returns input k of layer i. */
const struct cpu_tensor *cpu_pass_input(const struct cpu_pass *pass, int i, int k);

#endif
