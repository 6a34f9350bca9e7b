/* kernels/cpu/plain_rows.c - see plain_rows.h. */
#include "kernels/cpu/plain_rows.h"

enum status plain_rows_plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *in, *out;
    TRY(cpu_pass_block_create(pass, sizeof(struct plain_rows), &op->state));
    struct plain_rows *c = op->state;
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &in));
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &out));
    TRY(cpu_pass_tensor_match(pass, op, &op->x, in, &c->x, &c->to_rows));
    TRY(cpu_pass_tensor_create(pass, op, out, NULL, &op->y));
done:
    return st;
}

enum status plain_rows_plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct plain_rows *c = op->state;
    if (!op->needs_dx)
        return ST_OK;
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &c->dy, &c->diff));
    TRY(cpu_pass_tensor_create(pass, op, c->x.md, NULL, op->dx));
done:
    return st;
}
