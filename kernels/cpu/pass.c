/* kernels/cpu/pass.c - prepares the network for one number of samples (a pass), and owns all
 * objects of the pass. Forwards are planned from the first layer to the last, each with the format
 * that the previous layer writes. Then backwards are planned in reverse order. All primitives run
 * one after the other, so they share one scratchpad. */
#include "base/log.h"
#include "kernels/cpu/edges.h"
#include "kernels/cpu/kinds.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

enum status cpu_pass_status(const struct cpu_op *op, const char *what, dnnl_status_t code)
{
    static const char *const text[] = {"success",           "out of memory",  "invalid arguments",
                                       "not implemented",   "iterator end",   "runtime error",
                                       "not required here", "unknown failure"};
    if (code == dnnl_success)
        return ST_OK;
    int known = (int)code < 7 ? (int)code : 7;
    LOG_E("layer '%s': oneDNN cannot %s: %s", op != NULL ? op->layer->name : "(input)", what,
          text[known]);
    switch (code) {
    case dnnl_out_of_memory:
        return ST_NOMEM;
    case dnnl_unimplemented:
    case dnnl_invalid_arguments:
        return ST_UNSUPPORTED;
    default:
        return ST_INTERNAL;
    }
}

static const char *op_name(const struct cpu_op *op)
{
    return op != NULL ? op->layer->name : "(input)";
}

/* Records an object to be freed with the pass; frees it at once if it cannot be recorded. */
static enum status own_thing(struct cpu_pass *pass, struct cpu_owned thing);

static void owned_free(const struct cpu_owned *o)
{
    switch (o->what) {
    case CPU_OWNED_BLOCK:
        free(o->thing);
        break;
    case CPU_OWNED_MD:
        cpu_dnnl_md_destroy(o->thing);
        break;
    case CPU_OWNED_MEMORY:
        dnnl_memory_destroy(o->thing);
        break;
    case CPU_OWNED_DESC:
        dnnl_primitive_desc_destroy(o->thing);
        break;
    case CPU_OWNED_PRIMITIVE:
        dnnl_primitive_destroy(o->thing);
        break;
    }
}

static enum status own_thing(struct cpu_pass *pass, struct cpu_owned thing)
{
    if (pass->n_owned == pass->cap_owned) {
        int cap = pass->cap_owned * 2 + 64;
        struct cpu_owned *more = realloc(pass->owned, (size_t)cap * sizeof *more);
        if (more == NULL) {
            owned_free(&thing);
            LOG_E("CPU backend: out of memory on the host");
            return ST_NOMEM;
        }
        pass->owned = more;
        pass->cap_owned = cap;
    }
    pass->owned[pass->n_owned++] = thing;
    return ST_OK;
}

enum status cpu_pass_block_create(struct cpu_pass *pass, size_t bytes, void **out)
{
    enum status st = ST_OK;
    size_t align = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 64;
    size_t rounded = bytes > 0 ? (bytes + align - 1) / align * align : align;
    void *block = aligned_alloc(align, rounded);
    if (block == NULL) {
        LOG_E(
            "CPU backend: cannot allocate %zu bytes of memory for a batch of %d; use a smaller batch",
            rounded, pass->n);
        return ST_NOMEM;
    }
    if (align == HUGE_PAGE_BYTES)
        /* only a hint to the operating system: with huge pages, access to large tensors causes
         * fewer TLB misses */
        madvise(block, rounded, MADV_HUGEPAGE);
    memset(block, 0, rounded);
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_BLOCK, block}));
    pass->bytes += rounded;
    *out = block;
done:
    return st;
}

static enum status md_create(struct cpu_pass *pass, int n_dims, const dnnl_dims_t dims,
                             dnnl_data_type_t type, dnnl_format_tag_t tag,
                             const struct cpu_md **out)
{
    enum status st = ST_OK;
    struct cpu_md *md = NULL;
    TRY(cpu_pass_status(NULL, "describe a tensor",
                        cpu_dnnl_md_create(n_dims, dims, type, tag, &md)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_MD, md}));
    *out = md;
done:
    return st;
}

enum status cpu_pass_md_create(struct cpu_pass *pass, int n_dims, const dnnl_dims_t dims,
                               dnnl_format_tag_t tag, const struct cpu_md **out)
{
    return md_create(pass, n_dims, dims, dnnl_f32, tag, out);
}

enum status cpu_pass_md_plain(struct cpu_pass *pass, const struct cpu_op *op, const struct shape *s,
                              const struct cpu_md **out)
{
    dnnl_dims_t dims = {pass->n};
    if (s->n_dims != 3 && s->n_dims != 1) {
        LOG_E("layer '%s': tensors of %d dimensions are not supported, only (C,H,W) and (F)",
              op_name(op), s->n_dims);
        return ST_UNSUPPORTED;
    }
    for (int k = 0; k < s->n_dims; k++)
        dims[1 + k] = s->dim[k];
    return cpu_pass_md_create(pass, s->n_dims + 1, dims, s->n_dims == 3 ? dnnl_nchw : dnnl_nc, out);
}

enum status cpu_pass_md_any(struct cpu_pass *pass, const struct cpu_md *md, dnnl_data_type_t type,
                            const struct cpu_md **out)
{
    dnnl_dims_t dims;
    int n_dims = cpu_dnnl_md_dims(md, dims);
    return md_create(pass, n_dims, dims, type, dnnl_format_tag_any, out);
}

enum status cpu_pass_tensor_create(struct cpu_pass *pass, const struct cpu_op *op,
                                   const struct cpu_md *md, const float *data,
                                   struct cpu_tensor *out)
{
    enum status st = ST_OK;
    struct cpu_tensor t = {.md = md, .data = (float *)data};
    if (data == NULL) {
        void *block;
        TRY(cpu_pass_block_create(pass, cpu_dnnl_md_bytes(md), &block));
        t.data = block;
    }
    TRY(cpu_pass_status(op, "make a tensor",
                        cpu_dnnl_memory_create(md, pass->plan->engine, t.data, &t.mem)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_MEMORY, t.mem}));
    *out = t;
done:
    return st;
}

enum status cpu_pass_desc_create(struct cpu_pass *pass, const struct cpu_op *op,
                                 const struct cpu_work *work, int relu, dnnl_primitive_desc_t *out)
{
    enum status st = ST_OK;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t pd;
    TRY(cpu_pass_status(op, "take attributes", dnnl_primitive_attr_create(&attr)));
    TRY(cpu_pass_status(op, "use our scratchpad",
                        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)));
    if (relu) {
        TRY(cpu_pass_status(op, "add a relu", dnnl_post_ops_create(&post)));
        TRY(cpu_pass_status(op, "add a relu", cpu_dnnl_relu_append(post)));
        TRY(cpu_pass_status(op, "add a relu", dnnl_primitive_attr_set_post_ops(attr, post)));
    }
    TRY(cpu_pass_status(op, "compute this shape, kernel, stride or padding",
                        cpu_dnnl_desc_create(work, pass->plan->engine, attr, &pd)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_DESC, pd}));
    *out = pd;
done:
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attr);
    return st;
}

/* Adds an argument whose memory is in the pass's scratchpad. */
static enum status scratch_add(struct cpu_pass *pass, const struct cpu_op *op,
                               const_dnnl_primitive_desc_t desc, struct cpu_call *call)
{
    enum status st = ST_OK;
    struct cpu_tensor t = {.mem = NULL};
    const struct cpu_md *md = cpu_dnnl_desc_md(desc, dnnl_query_scratchpad_md);
    size_t bytes = md != NULL ? cpu_dnnl_md_bytes(md) : 0;
    if (bytes == 0)
        return ST_OK;
    if (pass->n_scratch == pass->cap_scratch) {
        int cap = pass->cap_scratch * 2 + 32;
        dnnl_memory_t *more = realloc(pass->scratch, (size_t)cap * sizeof(*more));
        if (more == NULL) {
            LOG_E("CPU backend: out of memory on the host");
            return ST_NOMEM;
        }
        pass->scratch = more;
        pass->cap_scratch = cap;
    }
    TRY(cpu_pass_status(op, "describe its scratchpad",
                        cpu_dnnl_memory_create(md, pass->plan->engine, DNNL_MEMORY_NONE, &t.mem)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_MEMORY, t.mem}));
    pass->scratch[pass->n_scratch++] = t.mem;
    if (bytes > pass->scratch_bytes)
        pass->scratch_bytes = bytes;
    cpu_pass_call_arg(call, DNNL_ARG_SCRATCHPAD, &t);
done:
    return st;
}

enum status cpu_pass_call_create(struct cpu_pass *pass, const struct cpu_op *op,
                                 const_dnnl_primitive_desc_t desc, struct cpu_call *out)
{
    enum status st = ST_OK;
    struct cpu_call call = {.n_args = 0};
    TRY(cpu_pass_status(op, "prepare this layer", dnnl_primitive_create(&call.prim, desc)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_PRIMITIVE, call.prim}));
    TRY(scratch_add(pass, op, desc, &call));
    *out = call;
done:
    return st;
}

void cpu_pass_call_arg(struct cpu_call *call, int arg, const struct cpu_tensor *t)
{
    CHECK(call->n_args < (int)(sizeof call->args / sizeof call->args[0]));
    call->args[call->n_args++] = (dnnl_exec_arg_t){arg, t->mem};
}

enum status cpu_pass_call_run(struct cpu_pass *pass, const struct cpu_op *op,
                              const struct cpu_call *call)
{
    if (call->prim == NULL)
        return ST_OK;
    return cpu_pass_status(
        op, "run this layer",
        dnnl_primitive_execute(call->prim, pass->plan->stream, call->n_args, call->args));
}

enum status cpu_pass_reorder_create(struct cpu_pass *pass, const struct cpu_op *op,
                                    const struct cpu_tensor *from, const struct cpu_tensor *to,
                                    struct cpu_call *out)
{
    enum status st = ST_OK;
    dnnl_engine_t engine = pass->plan->engine;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd;
    TRY(cpu_pass_status(op, "take attributes", dnnl_primitive_attr_create(&attr)));
    TRY(cpu_pass_status(op, "use our scratchpad",
                        dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user)));
    TRY(cpu_pass_status(op, "change a tensor's format",
                        cpu_dnnl_reorder_create(from->md, to->md, engine, attr, &pd)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_DESC, pd}));
    TRY(cpu_pass_call_create(pass, op, pd, out));
    cpu_pass_call_arg(out, DNNL_ARG_FROM, from);
    cpu_pass_call_arg(out, DNNL_ARG_TO, to);
done:
    dnnl_primitive_attr_destroy(attr);
    return st;
}

enum status cpu_pass_read_create(struct cpu_pass *pass, const struct cpu_op *op,
                                 const struct cpu_tensor *from, struct cpu_read *out)
{
    enum status st = ST_OK;
    struct cpu_read r = {.to = NULL};
    dnnl_engine_t engine = pass->plan->engine;
    const struct cpu_md *md;
    dnnl_primitive_desc_t pd;
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &md));
    TRY(cpu_pass_status(op, "read it out",
                        cpu_dnnl_memory_create(md, engine, DNNL_MEMORY_NONE, &r.to)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_MEMORY, r.to}));
    /* the reorder gets no scratchpad, because the pass's scratchpad already has its final size */
    TRY(cpu_pass_status(op, "read it out",
                        cpu_dnnl_reorder_create(from->md, md, engine, NULL, &pd)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_DESC, pd}));
    TRY(cpu_pass_status(op, "read it out", dnnl_primitive_create(&r.call.prim, pd)));
    TRY(own_thing(pass, (struct cpu_owned){CPU_OWNED_PRIMITIVE, r.call.prim}));
    cpu_pass_call_arg(&r.call, DNNL_ARG_FROM, from);
    cpu_pass_call_arg(&r.call, DNNL_ARG_TO, &(struct cpu_tensor){.mem = r.to});
    *out = r;
done:
    return st;
}

enum status cpu_pass_tensor_match(struct cpu_pass *pass, const struct cpu_op *op,
                                  const struct cpu_tensor *from, const struct cpu_md *md,
                                  struct cpu_tensor *out, struct cpu_call *call)
{
    enum status st = ST_OK;
    struct cpu_tensor to;
    if (cpu_dnnl_md_equal(from->md, md)) {
        *out = *from;
        *call = (struct cpu_call){.prim = NULL};
        return ST_OK;
    }
    TRY(cpu_pass_tensor_create(pass, op, md, NULL, &to));
    TRY(cpu_pass_reorder_create(pass, op, from, &to, call));
    *out = to;
done:
    return st;
}

enum status cpu_pass_tensor_own(struct cpu_pass *pass, const struct cpu_op *op,
                                const struct cpu_tensor *from, const struct cpu_md *md,
                                struct cpu_tensor *out, struct cpu_call *call)
{
    enum status st = ST_OK;
    struct cpu_tensor to;
    if (!from->shared)
        return cpu_pass_tensor_match(pass, op, from, md, out, call);
    TRY(cpu_pass_tensor_create(pass, op, md, NULL, &to));
    TRY(cpu_pass_reorder_create(pass, op, from, &to, call));
    *out = to;
done:
    return st;
}

int cpu_pass_fuse_relu(struct cpu_pass *pass, int i)
{
    int reader = pass->plan->node[i].reader;
    if (reader < 0 || pass->plan->cfg.layers[reader].kind != LAYER_RELU)
        return 0;
    pass->ops[reader].relu_done = 1;
    return 1;
}

const struct cpu_tensor *cpu_pass_input(const struct cpu_pass *pass, int i, int k)
{
    int from = pass->plan->cfg.layers[i].input[k];
    return from < 0 ? &pass->input : &pass->ops[from].y;
}

static const struct cpu_kind *const kinds[LAYER_N_KINDS] = {
    [LAYER_CONV2D] = &cpu_conv,
    [LAYER_MAX_POOL] = &cpu_pool,
    [LAYER_AVG_POOL] = &cpu_pool,
    [LAYER_DENSE] = &cpu_dense,
    [LAYER_RELU] = &cpu_relu,
    [LAYER_DROPOUT] = &cpu_dropout,
    [LAYER_BATCH_NORM] = &cpu_batch_norm,
    [LAYER_FLATTEN] = &cpu_flatten,
    [LAYER_SOFTMAX_XENT] = &cpu_softmax_xent,
    [LAYER_ADD] = &cpu_add,
    [LAYER_CONCAT] = &cpu_concat,
    [LAYER_SIGMOID_XENT] = &cpu_sigmoid_xent,
    [LAYER_SQUARED] = &cpu_squared,
    [LAYER_LAYER_NORM] = &cpu_layer_norm,
    [LAYER_EMBEDDING] = &cpu_embedding,
    [LAYER_SIGMOID] = &cpu_activation,
    [LAYER_TANH] = &cpu_activation,
    [LAYER_GELU] = &cpu_activation,
    [LAYER_SILU] = &cpu_activation,
    [LAYER_LEAKY_RELU] = &cpu_activation,
    [LAYER_MULTIPLY] = &cpu_multiply,
    [LAYER_SUM] = &cpu_sum,
    [LAYER_FACTORIZATION_MACHINE] = &cpu_factorization,
};

static enum status scratch_bind(struct cpu_pass *pass)
{
    enum status st = ST_OK;
    void *block;
    TRY(cpu_pass_block_create(pass, pass->scratch_bytes, &block));
    for (int k = 0; k < pass->n_scratch; k++)
        TRY(cpu_pass_status(NULL, "bind its scratchpad",
                            dnnl_memory_set_data_handle(pass->scratch[k], block)));
done:
    return st;
}

/* Plans the output of a layer. Either this plan computes the output, or set_output receives it. */
static enum status output_plan(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct graph_node *node = &pass->plan->node[i];
    const struct layer *l = op->layer;
    const struct cpu_md *md;
    if (node->mine) {
        void *dx;
        TRY(cpu_pass_block_create(pass, (size_t)l->n_inputs * sizeof *op->dx, &dx));
        op->dx = dx;
        op->kind = kinds[l->kind];
        op->needs_dx = graph_input_trained(pass->plan->node, l, 0);
        op->needs_backward = node->trained;
        op->x = *cpu_pass_input(pass, i, 0);
        TRY(op->kind->plan_forward(pass, i));
    } else if (graph_imported(node)) {
        TRY(cpu_pass_md_plain(pass, op, &l->out, &md));
        TRY(cpu_pass_tensor_create(pass, op, md, NULL, &op->y));
    }
    op->y.shared |= node->n_readers > 1 || graph_exported(node);
done:
    return st;
}

static enum status ops_plan(struct cpu_pass *pass)
{
    enum status st = ST_OK;
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    const struct graph_node *node = pass->plan->node;
    const struct cpu_md *md;
    if (pass->plan->image_readers > 0) {
        TRY(cpu_pass_md_plain(pass, NULL, &cfg->layers[0].in, &md));
        TRY(cpu_pass_tensor_create(pass, NULL, md, NULL, &pass->input));
        pass->input.shared = pass->plan->image_readers > 1;
    }
    for (int i = 0; i < cfg->n_layers; i++) {
        pass->ops[i].layer = &cfg->layers[i];
        TRY(output_plan(pass, i));
    }
    for (int i = cfg->n_layers - 1; i >= 0 && !cfg->inference_only; i--) {
        if (!node[i].trained || (!node[i].mine && node[i].own_readers == 0))
            continue;
        TRY(cpu_edges_plan_dy(pass, i));
        if (node[i].mine)
            TRY(pass->ops[i].kind->plan_backward(pass, i));
    }
    TRY(scratch_bind(pass));
    TRY(cpu_edges_plan_reads(pass));
    for (int i = 0; i < cfg->n_layers; i++)
        if (node[i].mine && pass->ops[i].kind->load != NULL)
            TRY(pass->ops[i].kind->load(pass, i));
done:
    return st;
}

enum status cpu_pass_create(struct cpu_plan *plan, int n, struct cpu_pass **out)
{
    enum status st = ST_OK;
    struct cpu_pass *pass = calloc(1, sizeof *pass);
    if (pass == NULL) {
        LOG_E("CPU backend: no memory left for a plan");
        return ST_NOMEM;
    }
    pass->plan = plan;
    pass->n = n;
    void *ops;
    TRY(cpu_pass_block_create(pass, (size_t)plan->cfg.n_layers * sizeof *pass->ops, &ops));
    pass->ops = ops;
    TRY(ops_plan(pass));
    *out = pass;
done:
    if (st != ST_OK)
        cpu_pass_destroy(pass);
    return st;
}

void cpu_pass_destroy(struct cpu_pass *pass)
{
    if (pass == NULL)
        return;
    for (int k = pass->n_owned - 1; k >= 0; k--)
        owned_free(&pass->owned[k]);
    free(pass->owned);
    free(pass->scratch);
    free(pass);
}
