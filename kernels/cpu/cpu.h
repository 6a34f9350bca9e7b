/* kernels/cpu/cpu.h - inside the oneDNN backend: plans, passes and operations.
 *
 * A pass is the whole network prepared for one number of samples: tensors in the formats that
 * oneDNN chose, primitives, reorders between layers with different formats, one shared scratchpad.
 * A plan has one pass for a full batch, and a second pass for the smaller number of samples that
 * was used last. Each kind of layer is a table of functions (struct cpu_kind). The pass owns every
 * oneDNN object that a kind creates, so a kind has no destructor.
 *
 * Memory traffic is saved as follows:
 * - A relu works in place if it is the only reader of its input. Then its forward is part of the
 *   convolution, dense layer or sum before it, and its backward sets the gradient to 0 where the
 *   output is 0. If a max pool is the relu's only reader, the backward masks the smaller gradient
 *   of the pool's output instead, because a cell that is not a maximum has no gradient.
 * - Dense weights and their gradients keep the caller's layout: repacking them in each step costs
 *   more than oneDNN's packed kernels save. (In bf16 they are copied anyway, so they are packed.)
 * - A layer has no backward if neither it nor any layer before it has parameters.
 *
 * Threads: one at a time. Errors: logged here with the layer's name. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H
#include "kernels/cpu/dnnl.h"
#include "kernels/graph.h"

/* Compiles a loop once for each of several instruction sets; the loader chooses one at program
 * start. Not used with a sanitizer, whose runtime is not ready at that time. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define CPU_SANITIZED 1
#endif
#if __has_feature(thread_sanitizer)
#define CPU_THREAD_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define CPU_THREAD_SANITIZED 1
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CPU_SANITIZED 1
#endif
#if defined(__x86_64__) && __GNUC__ >= 12 && !defined(__clang__) && !defined(CPU_SANITIZED)
#define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define CPU_CLONES
#endif

struct cpu_tensor {
    const struct cpu_md *md; /* owned by the pass, or by one of its primitives */
    dnnl_memory_t mem;       /* owned by the pass; NULL: there is no such tensor */
    float *data;             /* memory of the pass, or the caller's parameter or gradient */
    int shared;              /* several layers read the tensor, so none of them may overwrite it */
};

/* A primitive with its arguments; prim NULL: nothing to run. */
struct cpu_call {
    dnnl_primitive_t prim;
    int n_args;
    dnnl_exec_arg_t args[10];
};

/* Copy of a tensor, as rows, to the caller's memory. */
struct cpu_read {
    dnnl_memory_t to; /* memory that receives the copy; NULL: not prepared yet */
    struct cpu_call call;
};

struct cpu_pass;
struct cpu_op;
struct cpu_kind {
    /* plan_forward sets op->y from op->x. plan_backward sets op->dx from op->dy if op->needs_dx; it
     * is called for the layers in reverse order, and only if op->needs_backward. */
    enum status (*plan_forward)(struct cpu_pass *pass, int i);
    enum status (*plan_backward)(struct cpu_pass *pass, int i);
    /* NULL: the layer reads its parameters in the caller's memory */
    enum status (*load)(struct cpu_pass *pass, int i);
    enum status (*forward)(struct cpu_pass *pass, int i, int train);
    enum status (*backward)(struct cpu_pass *pass, int i);
};

struct cpu_op {
    const struct cpu_kind *kind;
    const struct layer *layer;
    struct cpu_tensor x, y; /* first input, and output; (n,C,H,W) or (n,F) */
    struct cpu_tensor dy;   /* gradient of y, in any format: the sum of the readers' dx */
    struct cpu_tensor *dx;  /* [n_inputs] gradients with respect to the inputs, in any format */
    struct cpu_sum *sum;    /* the sum that computes dy; NULL: dy is the dx of the only reader */
    int needs_backward;     /* this layer, or one before it, has parameters */
    int needs_dx;           /* the layer of the first input, or one before it, has parameters */
    int relu_done;          /* true for a relu whose forward the previous layer computes */
    int relu_masked; /* true for a relu whose backward the next layer, a max pool, computes */
    int overwritten; /* a relu overwrites y in place */
    /* sum of the gradients that other plans have sent for the output, as rows */
    struct cpu_tensor given;
    int n_given; /* number of gradients that other plans have sent in this step */
    struct cpu_read read_y, read_dy;
    void *state; /* state that depends on the kind of layer, zeroed by cpu_state_create */
};

struct cpu_plan {
    struct backend_plan_config cfg;
    struct graph_node *node; /* [n_layers] */
    int image_readers;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    /* a pass for cfg.batch samples, and one for another number of samples; NULL: not created */
    struct cpu_pass *pass[2];
    struct cpu_pass *now; /* pass of the last set_input */
    int32_t *labels;      /* [batch] */
    int has_labels;       /* labels or targets were set */
    int has_targets;      /* targets were set, not labels */
    float *targets;       /* [batch][elems of the loss's input]; NULL until the first set_targets */
    uint64_t *position;   /* [batch] */
    uint8_t *rounded; /* [n_layers] copy of the last set_rounded; NULL: the built-in rule decides */
};

/* Object that the pass frees when the pass is destroyed. */
struct cpu_owned {
    enum {
        CPU_OWNED_BLOCK,
        CPU_OWNED_MD,
        CPU_OWNED_MEMORY,
        CPU_OWNED_DESC,
        CPU_OWNED_PRIMITIVE
    } what;
    void *thing;
};

struct cpu_pass {
    struct cpu_plan *plan;
    int n; /* samples */
    struct cpu_op *ops;
    struct cpu_tensor input;
    struct cpu_owned *owned;
    int n_owned, cap_owned;
    /* [n_scratch] memories that share one buffer, which is allocated when the network is planned */
    dnnl_memory_t *scratch;
    int n_scratch, cap_scratch;
    size_t scratch_bytes;
    size_t bytes; /* allocated bytes, including the scratchpad */
};

/* Sets dy[k] to 0 for each k with y[k] not above 0 (elementwise.c). */
void cpu_elementwise_mask(const struct cpu_pass *pass, const struct cpu_tensor *y,
                          const struct cpu_tensor *dy);
/* Sets dst = a + b, then max(dst, 0) if relu; dst may be a or b. All three tensors have the same
 * format. */
void cpu_elementwise_add(const struct cpu_pass *pass, const struct cpu_tensor *a,
                         const struct cpu_tensor *b, const struct cpu_tensor *dst, int relu);

#endif
