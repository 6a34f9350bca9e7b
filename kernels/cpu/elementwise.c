/* kernels/cpu/elementwise.c - relu, dropout and flatten as plain loops. A loop is divided among the
 * threads in fixed blocks, and no sum crosses a block, so the results do not depend on the number
 * of threads. */
#include "base/log.h"
#include "base/rng.h"
#include "kernels/cpu/kinds.h"
#include <math.h>
#include <string.h>

enum { BLOCK_FLOATS = 16384 };

/* ---- relu ---- */

/* y may be x */
CPU_CLONES static void relu_block(const float *x, float *y, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        y[k] = x[k] > 0.0f ? x[k] : 0.0f;
}

CPU_CLONES static void mask_block(const float *y, float *dy, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        dy[k] = y[k] > 0.0f ? dy[k] : 0.0f;
}

static int64_t block_floats(int64_t total, int64_t block)
{
    int64_t left = total - block * BLOCK_FLOATS;
    return left < BLOCK_FLOATS ? left : BLOCK_FLOATS;
}

void cpu_elementwise_mask(const struct cpu_pass *pass, const struct cpu_tensor *y,
                          const struct cpu_tensor *dy)
{
    int64_t n = cpu_pass_tensor_floats(y);
    int64_t n_blocks = (n + BLOCK_FLOATS - 1) / BLOCK_FLOATS;
    int threads = cpu_loop_threads(pass);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t b = 0; b < n_blocks; b++)
        mask_block(y->data + b * BLOCK_FLOATS, dy->data + b * BLOCK_FLOATS, block_floats(n, b));
}

CPU_CLONES static void add_block(const float *a, const float *b, float *dst, int64_t n, int relu)
{
    if (relu)
        for (int64_t k = 0; k < n; k++)
            dst[k] = a[k] + b[k] > 0.0f ? a[k] + b[k] : 0.0f;
    else
        for (int64_t k = 0; k < n; k++)
            dst[k] = a[k] + b[k];
}

void cpu_elementwise_add(const struct cpu_pass *pass, const struct cpu_tensor *a,
                         const struct cpu_tensor *b, const struct cpu_tensor *dst, int relu)
{
    int64_t n = cpu_pass_tensor_floats(dst);
    int64_t n_blocks = (n + BLOCK_FLOATS - 1) / BLOCK_FLOATS;
    int threads = cpu_loop_threads(pass);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t k = 0; k < n_blocks; k++)
        add_block(a->data + k * BLOCK_FLOATS, b->data + k * BLOCK_FLOATS,
                  dst->data + k * BLOCK_FLOATS, block_floats(n, k), relu);
}

struct relu {
    struct cpu_call diff;
};

/* Marks the tensors that a relu overwrites if it works in place: the output of the layer that it
 * reads, and the tensors in the same memory. */
static void overwrite_input(struct cpu_pass *pass, int from)
{
    while (from >= 0) {
        struct cpu_op *op = &pass->ops[from];
        op->overwritten = 1;
        from = op->kind != NULL && op->y.data == op->x.data ? op->layer->input[0] : -1;
    }
}

static enum status relu_plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    TRY(cpu_pass_block_create(pass, sizeof(struct relu), &op->state));
    if (op->x.shared) {
        TRY(cpu_pass_tensor_create(pass, op, op->x.md, NULL, &op->y));
        return ST_OK;
    }
    op->y = op->x;
    overwrite_input(pass, op->layer->input[0]);
done:
    return st;
}

static enum status relu_plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct relu *c = op->state;
    *op->dx = op->dy;
    if (op->needs_dx && !op->relu_masked)
        TRY(cpu_pass_tensor_own(pass, op, &op->dy, op->y.md, op->dx, &c->diff));
done:
    return st;
}

static enum status relu_forward(struct cpu_pass *pass, int i, int train)
{
    const struct cpu_op *op = &pass->ops[i];
    if (op->relu_done)
        return ST_OK;
    int64_t n = cpu_pass_tensor_floats(&op->y);
    int64_t n_blocks = (n + BLOCK_FLOATS - 1) / BLOCK_FLOATS;
    int threads = cpu_loop_threads(pass);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t b = 0; b < n_blocks; b++)
        relu_block(op->x.data + b * BLOCK_FLOATS, op->y.data + b * BLOCK_FLOATS,
                   block_floats(n, b));
    return ST_OK;
}

static enum status relu_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct relu *c = op->state;
    if (!op->needs_dx || op->relu_masked)
        return ST_OK;
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    cpu_elementwise_mask(pass, &op->y, op->dx);
done:
    return st;
}

const struct cpu_kind cpu_relu = {relu_plan_forward, relu_plan_backward, NULL, relu_forward,
                                  relu_backward};

/* ---- dropout ---- */

struct dropout {
    struct cpu_tensor rows; /* input as plain rows, in whose order the units are numbered */
    struct cpu_tensor dy;   /* gradient as plain rows */
    float *factor; /* [n * elems] factor of each unit in the last forward: 0 or 1/(1-rate) */
    struct cpu_call to_rows, diff;
    /* a unit is dropped if the top 24 bits of its random number are below threshold */
    uint64_t key, threshold;
    int64_t elems;
    int trained;
};

static enum status dropout_plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct backend_plan_config *cfg = &pass->plan->cfg;
    const struct cpu_md *md;
    void *factor;
    float rate = op->layer->rate;
    if (!(rate >= 0.0f && rate < 1.0f)) {
        LOG_E("layer '%s': the rate of a dropout must be at least 0 and below 1, not %g",
              op->layer->name, (double)rate);
        return ST_UNSUPPORTED;
    }
    TRY(cpu_pass_block_create(pass, sizeof(struct dropout), &op->state));
    struct dropout *c = op->state;
    c->elems = shape_elems(&op->layer->in);
    c->key = rng_key(cfg->seed, RNG_DROPOUT, (uint64_t)i);
    /* the condition k * 2^-24 < rate becomes k < threshold; both forms are exact */
    c->threshold = (uint64_t)ceil((double)rate * 0x1p24);
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &md));
    TRY(cpu_pass_tensor_match(pass, op, &op->x, md, &c->rows, &c->to_rows));
    if (cfg->inference_only) {
        op->y = c->rows;
        op->y.shared = 1; /* the previous layer must not overwrite its input either */
        return ST_OK;
    }
    TRY(cpu_pass_tensor_create(pass, op, md, NULL, &op->y));
    TRY(cpu_pass_block_create(pass, (size_t)(pass->n * c->elems) * sizeof(float), &factor));
    c->factor = factor;
done:
    return st;
}

static enum status dropout_plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct dropout *c = op->state;
    TRY(cpu_pass_tensor_own(pass, op, &op->dy, op->y.md, &c->dy, &c->diff));
    *op->dx = c->dy;
done:
    return st;
}

CPU_CLONES static void drop_sample(const struct dropout *c, uint64_t first, float scale,
                                   const float *restrict x, float *restrict y,
                                   float *restrict factor)
{
    uint64_t key = c->key, threshold = c->threshold;
    int64_t n = c->elems;
    for (int64_t j = 0; j < n; j++) {
        uint64_t number = rng_u64(key, first + (uint64_t)j) >> 40;
        factor[j] = number < threshold ? 0.0f : scale;
        y[j] = x[j] * factor[j];
    }
}

CPU_CLONES static void scale_block(const float *factor, float *dy, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        dy[k] *= factor[k];
}

static enum status dropout_forward(struct cpu_pass *pass, int i, int train)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    struct dropout *c = op->state;
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->to_rows));
    if (c->factor == NULL)
        return ST_OK;
    c->trained = train;
    if (!train) {
        memcpy(op->y.data, c->rows.data, (size_t)(pass->n * c->elems) * sizeof(float));
        return ST_OK;
    }
    float scale = 1.0f / (1.0f - op->layer->rate);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++)
        drop_sample(c, pass->plan->position[s] * (uint64_t)c->elems, scale,
                    c->rows.data + s * c->elems, op->y.data + s * c->elems,
                    c->factor + s * c->elems);
done:
    return st;
}

static enum status dropout_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    const struct cpu_op *op = &pass->ops[i];
    const struct dropout *c = op->state;
    int threads = cpu_loop_threads(pass);
    TRY(cpu_pass_call_run(pass, op, &c->diff));
    if (!c->trained)
        return ST_OK;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int s = 0; s < pass->n; s++)
        scale_block(c->factor + s * c->elems, c->dy.data + s * c->elems, c->elems);
done:
    return st;
}

const struct cpu_kind cpu_dropout = {dropout_plan_forward, dropout_plan_backward, NULL,
                                     dropout_forward, dropout_backward};

/* ---- flatten: its output is the memory of its input, in canonical order ---- */

struct flatten {
    struct cpu_call to_rows, diff;
};

static enum status flatten_plan_forward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    const struct cpu_md *in, *out;
    struct cpu_tensor rows;
    TRY(cpu_pass_block_create(pass, sizeof(struct flatten), &op->state));
    struct flatten *c = op->state;
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &in));
    TRY(cpu_pass_md_plain(pass, op, &op->layer->out, &out));
    TRY(cpu_pass_tensor_match(pass, op, &op->x, in, &rows, &c->to_rows));
    TRY(cpu_pass_tensor_create(pass, op, out, rows.data, &op->y));
    op->y.shared = rows.shared;
done:
    return st;
}

static enum status flatten_plan_backward(struct cpu_pass *pass, int i)
{
    enum status st = ST_OK;
    struct cpu_op *op = &pass->ops[i];
    struct flatten *c = op->state;
    const struct cpu_md *in;
    struct cpu_tensor rows;
    if (!op->needs_dx)
        return ST_OK;
    TRY(cpu_pass_tensor_match(pass, op, &op->dy, op->y.md, &rows, &c->diff));
    TRY(cpu_pass_md_plain(pass, op, &op->layer->in, &in));
    TRY(cpu_pass_tensor_create(pass, op, in, rows.data, op->dx));
    op->dx->shared = rows.shared;
done:
    return st;
}

static enum status flatten_forward(struct cpu_pass *pass, int i, int train)
{
    const struct flatten *c = pass->ops[i].state;
    return cpu_pass_call_run(pass, &pass->ops[i], &c->to_rows);
}

static enum status flatten_backward(struct cpu_pass *pass, int i)
{
    const struct flatten *c = pass->ops[i].state;
    return cpu_pass_call_run(pass, &pass->ops[i], &c->diff);
}

const struct cpu_kind cpu_flatten = {flatten_plan_forward, flatten_plan_backward, NULL,
                                     flatten_forward, flatten_backward};
