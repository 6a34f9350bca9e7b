/* kernels/cpu/cpu.h - inside the oneDNN backend: a plan's passes, and what an operation gets.
 *
 * A pass is the whole network planned for one number of samples: tensors in the formats that oneDNN
 * chose, primitives, reorders where two neighbours' formats differ, one shared scratchpad. A plan
 * has one for its batch, and makes a second when it first meets another number of samples.
 * Each kind of layer is a table of functions (struct cpu_kind); everything that it takes from
 * oneDNN is noted in the pass and freed with it, so that a kind has no destructor.
 *
 * Where memory traffic is saved:
 * - relu works in place if nobody else reads what it reads: it is part of the convolution, dense
 *   layer or sum before it, and its backward masks the gradient where the output is 0 (where a max
 *   pool alone reads it: the pooled gradient, which is the same gradient, cells that lose the pool
 *   having none);
 * - dense weights and their gradients stay in the caller's layout: repacking them each step costs
 *   more than oneDNN's packed kernels save (in bf16 the weights are copied anyhow, then packed);
 * - no gradient is worked out for layers that follow from none with parameters.
 *
 * Threads: one at a time. Errors: logged here with the layer's name. */
#ifndef KERNELS_CPU_CPU_H
#define KERNELS_CPU_CPU_H
#include "kernels/cpu/dnnl.h"
#include "kernels/graph.h"

/* Loops that gain from wide vectors are compiled for several CPUs and chosen at load time; not
 * under a sanitizer, whose runtime is not up yet when the choice is made. */
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
    const struct cpu_md *md; /* the pass's, or a primitive's of it */
    dnnl_memory_t mem;       /* the pass's; NULL: there is no such tensor */
    float *data;             /* the pass's, or the caller's parameter or gradient */
    int shared;              /* has other readers: must not be written over */
};

/* A primitive with its arguments; prim NULL: nothing to do. */
struct cpu_call {
    dnnl_primitive_t prim;
    int n_args;
    dnnl_exec_arg_t args[10];
};

/* A tensor's way to rows in the caller's memory. */
struct cpu_read {
    dnnl_memory_t to; /* NULL: not prepared yet */
    struct cpu_call call;
};

struct cpu_pass;
struct cpu_op;
struct cpu_kind {
    /* Sets op->y from op->x; then, from the last layer down and only if op->needs_backward, op->dx
     * (where op->needs_dx) from op->dy. */
    enum status (*plan_forward)(struct cpu_pass *pass, int i);
    enum status (*plan_backward)(struct cpu_pass *pass, int i);
    enum status (*load)(struct cpu_pass *pass, int i); /* NULL: parameters are read in place */
    enum status (*forward)(struct cpu_pass *pass, int i, int train);
    enum status (*backward)(struct cpu_pass *pass, int i);
};

struct cpu_op {
    const struct cpu_kind *kind;
    const struct layer *layer;
    struct cpu_tensor x, y;  /* first input, and output; (n,C,H,W) or (n,F) */
    struct cpu_tensor dy;    /* gradient of the loss by y, in any format: all its readers' dx */
    struct cpu_tensor *dx;   /* [n_inputs] by the inputs, likewise */
    struct cpu_sum *sum;     /* how dy is made; NULL: it is its only reader's dx */
    int needs_backward;      /* this layer or one that it follows from has parameters */
    int needs_dx;            /* one that its first input follows from has */
    int relu_done;           /* relu: its forward is part of the layer before */
    int relu_masked;         /* relu: its backward is done by the max pool behind */
    int overwritten;         /* y is: a relu works on it in place */
    struct cpu_tensor given; /* exported: what other plans add to dy, as rows */
    int n_given;             /* times that it was given in this step */
    struct cpu_read read_y, read_dy;
    void *state; /* the kind's, zeroed by cpu_state_create */
};

struct cpu_plan {
    struct backend_plan_config cfg;
    struct graph_node *node; /* [n_layers] */
    int image_readers;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    struct cpu_pass *pass[2]; /* for cfg.batch samples; for the other number last met, or NULL */
    struct cpu_pass *now;     /* of the last set_input */
    int32_t *labels;          /* [batch] */
    int has_labels;           /* or targets, */
    int has_targets;          /* which these are: */
    float *targets;           /* [batch][elems of the loss's input]; NULL: there never were any */
    uint64_t *position;       /* [batch] */
    uint8_t *rounded;         /* [n_layers] as set_rounded has said last; NULL: by the rule */
};

/* What a pass frees at its end. */
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
    dnnl_memory_t *scratch; /* [n_scratch] memories that all get one buffer when planning ends */
    int n_scratch, cap_scratch;
    size_t scratch_bytes;
    size_t bytes; /* taken, the scratchpad included */
};

/* elementwise.c: dy[k] = 0 where y[k] is not above 0. */
void cpu_elementwise_mask(const struct cpu_pass *pass, const struct cpu_tensor *y,
                          const struct cpu_tensor *dy);
/* dst = a + b, then max(dst, 0) if relu; dst may be one of them. All of one format. */
void cpu_elementwise_add(const struct cpu_pass *pass, const struct cpu_tensor *a,
                         const struct cpu_tensor *b, const struct cpu_tensor *dst, int relu);

#endif
