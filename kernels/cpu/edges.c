/* kernels/cpu/edges.c - sums the gradients with respect to an output that has several readers. Each
 * reader writes its gradient to a separate tensor. Before the backward of the output's layer, these
 * gradients are added from the last reader to the first; then the gradients from other plans are
 * added. The order is fixed, so the sum is the same in every run. */
#include "kernels/cpu/edges.h"
#include "base/log.h"
#include <string.h>

struct cpu_sum {
    int n;
    struct part {
        struct cpu_call match; /* reorder of a reader's gradient to the format of the output */
        struct cpu_tensor t;
    } part[];
};

static enum status part_add(struct cpu_pass *pass, struct cpu_op *op, const struct cpu_tensor *dx)
{
    struct part *part = &op->sum->part[op->sum->n++];
    return cpu_pass_tensor_match(pass, op, dx, op->y.md, &part->t, &part->match);
}

/* Plans the sum of the gradients from other plans; these gradients are plain rows. */
static enum status given_plan(struct cpu_pass *pass, struct cpu_op *op)
{
    enum status st = ST_OK;
    const struct cpu_md *md;
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &md));
    TRY(cpu_pass_tensor_create(pass, op, md, NULL, &op->given));
done:
    return st;
}

enum status cpu_edges_plan_dy(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_plan *plan = pass->plan;
    int exported = graph_exported(&plan->node[i]), n = plan->node[i].own_readers + exported;
    void *sum;
    if (exported)
        TRY(given_plan(pass, op));
    if (n > 1) {
        TRY(cpu_pass_block_create(pass, sizeof *op->sum + (size_t)n * sizeof op->sum->part[0],
                                  &sum));
        op->sum = sum;
        TRY(cpu_pass_tensor_create(pass, op, op->y.md, NULL, &op->dy));
    }
    for (int r = plan->cfg.n_layers - 1; r > i; r--) {
        const struct layer *reader = &plan->cfg.layers[r];
        for (int k = 0; k < reader->n_inputs && plan->node[r].mine; k++) {
            if (reader->input[k] != i)
                continue;
            if (n > 1)
                TRY(part_add(pass, op, &pass->ops[r].dx[k]));
            else
                op->dy = pass->ops[r].dx[k];
        }
    }
    if (exported && n > 1)
        TRY(part_add(pass, op, &op->given));
    else if (exported)
        op->dy = op->given;
done:
    return st;
}

enum status cpu_edges_run_dy(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_sum *s = op->sum;
    if (graph_exported(&pass->plan->node[i]) && op->n_given == 0) {
        LOG_E("layer '%s': other devices read its output, but none sent its gradient",
              op->layer->name);
        return ST_UNSUPPORTED;
    }
    op->n_given = 0;
    for (int k = 0; s != NULL && k < s->n; k++) {
        TRY(cpu_pass_call_run(pass, op, &s->part[k].match));
        if (k > 0)
            cpu_elementwise_add(pass, k > 1 ? &op->dy : &s->part[0].t, &s->part[k].t, &op->dy, 0);
    }
done:
    return st;
}

enum status cpu_edges_plan_reads(struct cpu_pass *pass)
{
    enum status st = ST_OK;
    const struct cpu_plan *plan = pass->plan;
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        struct cpu_op *op = &pass->ops[i];
        const struct graph_node *node = &plan->node[i];
        if (graph_exported(node) && !op->overwritten)
            TRY(cpu_pass_read_create(pass, op, &op->y, &op->read_y));
        if (graph_imported(node) && node->trained && !plan->cfg.inference_only)
            TRY(cpu_pass_read_create(pass, op, &op->dy, &op->read_dy));
    }
done:
    return st;
}

/* Copies a tensor as rows to the caller's memory. If no other plan reads the tensor (for example
 * the network's output), the copy is prepared at the first read. */
static enum status read_out(struct cpu_plan *plan, const struct cpu_op *op, struct cpu_read *r,
                            const struct cpu_tensor *t, float *dst)
{
    enum status st = ST_OK;
    if (r->to == NULL)
        TRY(cpu_pass_read_create(plan->now, op, t, r));
    TRY(cpu_pass_status(op, "read it out", dnnl_memory_set_data_handle(r->to, dst)));
    TRY(cpu_pass_call_run(plan->now, op, &r->call));
done:
    return st;
}

enum status cpu_edges_read_output(struct cpu_plan *plan, int layer, float *dst)
{
    struct cpu_op *op = &plan->now->ops[layer];
    if (op->overwritten || op->y.mem == NULL) {
        LOG_E("layer '%s': its output cannot be read: %s", op->layer->name,
              op->overwritten ? "the relu after it overwrites the output; read the relu's output"
                              : "another plan computes it");
        return ST_UNSUPPORTED;
    }
    return read_out(plan, op, &op->read_y, &op->y, dst);
}

enum status cpu_edges_set_output(struct cpu_plan *plan, int layer, const float *src)
{
    const struct cpu_op *op = &plan->now->ops[layer];
    memcpy(op->y.data, src, (size_t)cpu_pass_tensor_floats(&op->y) * sizeof *src);
    return ST_OK;
}

/* Refuses a layer whose output has no gradient. */
static enum status trained_check(const struct cpu_plan *plan, int layer)
{
    if (!plan->cfg.inference_only && plan->node[layer].trained)
        return ST_OK;
    LOG_E("layer '%s': there is no gradient with respect to its output: %s",
          plan->cfg.layers[layer].name,
          plan->cfg.inference_only ? "the plan is for inference"
                                   : "the output depends on no parameters");
    return ST_UNSUPPORTED;
}

enum status cpu_edges_set_output_grad(struct cpu_plan *plan, int layer, const float *src)
{
    enum status st = ST_OK;
    struct cpu_op *op = &plan->now->ops[layer];
    struct cpu_tensor from = op->given;
    TRY(trained_check(plan, layer));
    if (op->n_given++ > 0) {
        from.data = (float *)src;
        cpu_elementwise_add(plan->now, &op->given, &from, &op->given, 0);
    } else {
        memcpy(op->given.data, src, (size_t)cpu_pass_tensor_floats(&op->given) * sizeof *src);
    }
done:
    return st;
}

enum status cpu_edges_read_output_grad(struct cpu_plan *plan, int layer, float *dst)
{
    enum status st = ST_OK;
    struct cpu_op *op = &plan->now->ops[layer];
    TRY(trained_check(plan, layer));
    TRY(cpu_edges_run_dy(plan->now, layer));
    TRY(read_out(plan, op, &op->read_dy, &op->dy, dst));
done:
    return st;
}
