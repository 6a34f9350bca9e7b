/* kernels/cuda/plan/transfer.c - copies parameters to the device, and gradients to the host.
 *
 * DESIGN. The device copies data in pinned pages directly. The head and the tail of a tensor are
 * copied through staging memory (pieces.h), so that no copy ever blocks the caller. In: `up` waits
 * until `compute` has finished reading the old value (event `used`), copies, and records the event
 * `loaded`, for which `compute` waits before the layer's forward. Out: at the end of a layer's
 * backward, the event `ready` is recorded on the stream that computed the gradients, `compute` or a
 * branch (branch.h). `down` waits for `ready`, copies, and records the event `copied`. The caller
 * waits for `copied`, and then moves the staged head and tail to their destinations. `compute`, or
 * a branch, waits for `copied` before it writes the gradients of the next step. If gradients are
 * copied in 16 bits, `down` also rounds each gradient just before its copy.
 *
 * If the plan has parts, an event also marks the end of each part's copy, and a kernel before
 * `ready` searches the gradients of a layer for bad values. It writes its result to pinned memory.
 * The host reads the result after `ready`, and clears it for the next step. */
#include "kernels/cuda/plan/transfer.h"
#include "kernels/cuda/common/finite_kernels.h"
#include "kernels/cuda/plan/branch.h"
#include <stdlib.h>
#include <string.h>

static size_t grad_size(const struct gpu_plan *plan)
{
    return plan->cfg.grads16 != NULL ? sizeof(uint16_t) : sizeof(float);
}

/* Returns the address on the host to which the gradient is copied. */
static uint8_t *grad_host(const struct gpu_plan *plan, int param)
{
    return plan->cfg.grads16 != NULL ? (uint8_t *)plan->cfg.grads16[param]
                                     : (uint8_t *)plan->cfg.grads[param];
}

static struct gpu_range pinned_part(const struct gpu_plan *plan, const void *host, size_t bytes)
{
    uintptr_t first = (uintptr_t)host, end = first + bytes;
    for (int i = 0; i < plan->pins.n; i++)
        if (plan->pins.ranges[i].first < end && plan->pins.ranges[i].end > first)
            return plan->pins.ranges[i];
    return (struct gpu_range){0, 0};
}

static enum status blocks_pin(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    int n = 0;
    struct gpu_range *ranges = calloc(2 * (size_t)plan->cfg.n_params + 1, sizeof *ranges);
    if (ranges == NULL)
        return gpu_check_no_host_memory();
    for (int k = 0; k < plan->cfg.n_params; k++) {
        const struct gpu_param *p = &plan->params[k];
        uintptr_t bytes = (uintptr_t)p->elems * sizeof(float);
        if (p->layer < 0)
            continue;
        uintptr_t in = (uintptr_t)plan->cfg.params[k];
        ranges[n++] = (struct gpu_range){in, in + bytes};
        if (plan->cfg.inference_only)
            continue;
        uintptr_t out = (uintptr_t)grad_host(plan, k);
        ranges[n++] = (struct gpu_range){out, out + (uintptr_t)p->elems * grad_size(plan)};
    }
    TRY(gpu_pin(ranges, n, &plan->pins));
done:
    free(ranges);
    return st;
}

/* Returns the index of the first element after the part. */
static int64_t part_end(const struct gpu_plan *plan, const struct gpu_param *p, int64_t part)
{
    return part + 1 < p->n_parts ? (part + 1) * plan->parts.elems : p->elems;
}

static enum status parts_create(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    size_t bytes = (size_t)plan->cfg.n_layers * sizeof *plan->suspect;
    for (int k = 0; k < plan->cfg.n_params; k++)
        plan->params[k].n_parts = 1;
    if (plan->parts.elems == 0 || plan->cfg.inference_only)
        return ST_OK;
    TRY(gpu_check_cuda(NULL, "cudaHostAlloc",
                       cudaHostAlloc((void **)&plan->suspect, bytes, cudaHostAllocDefault)));
    memset(plan->suspect, 0, bytes);
    for (int k = 0; k < plan->cfg.n_params; k++) {
        struct gpu_param *p = &plan->params[k];
        if (p->layer < 0 || p->elems <= plan->parts.elems)
            continue;
        int64_t n_parts = (p->elems + plan->parts.elems - 1) / plan->parts.elems;
        p->fetched = calloc((size_t)n_parts, sizeof(*p->fetched));
        if (p->fetched == NULL)
            return gpu_check_no_host_memory();
        for (p->n_parts = 0; p->n_parts < n_parts; p->n_parts++)
            TRY(gpu_transfer_event_create(NULL, &p->fetched[p->n_parts]));
    }
done:
    return st;
}

/* Returns the staged bytes of a tensor, rounded up to whole floats. */
static size_t staged_bytes(struct gpu_pieces p, size_t size)
{
    size_t bytes = (size_t)(p.head + p.tail) * size;
    return (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
}

static struct gpu_pieces pieces_of(const struct gpu_plan *plan, const void *host, int64_t elems,
                                   size_t size)
{
    return gpu_pieces_of(host, elems, size, pinned_part(plan, host, (size_t)elems * size));
}

static enum status staging_create(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    size_t bytes = 0, size = grad_size(plan);
    for (int k = 0; k < plan->cfg.n_params; k++) {
        struct gpu_param *p = &plan->params[k];
        if (p->layer < 0)
            continue;
        p->in = pieces_of(plan, plan->cfg.params[k], p->elems, sizeof(float));
        bytes += staged_bytes(p->in, sizeof(float));
        if (plan->cfg.inference_only)
            continue;
        p->out = pieces_of(plan, grad_host(plan, k), p->elems, size);
        bytes += staged_bytes(p->out, size);
    }
    if (bytes == 0)
        return ST_OK;
    TRY(gpu_check_cuda(NULL, "cudaHostAlloc",
                       cudaHostAlloc(&plan->staging, bytes, cudaHostAllocDefault)));
    uint8_t *at = plan->staging;
    for (int k = 0; k < plan->cfg.n_params; k++) {
        struct gpu_param *p = &plan->params[k];
        p->staged_in = at;
        p->staged_out = at + staged_bytes(p->in, sizeof(float));
        at = p->staged_out + staged_bytes(p->out, size);
    }
done:
    return st;
}

enum status gpu_transfer_event_create(const struct gpu_op *op, cudaEvent_t *out)
{
    return gpu_check_cuda(op, "cudaEventCreateWithFlags",
                          cudaEventCreateWithFlags(out, cudaEventDisableTiming));
}

enum status gpu_transfer_create(struct gpu_plan *plan)
{
    enum status st = ST_OK;
    TRY(gpu_transfer_event_create(NULL, &plan->input_read));
    TRY(gpu_transfer_event_create(NULL, &plan->result_ready));
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        TRY(gpu_transfer_event_create(NULL, &plan->used[i]));
        TRY(gpu_transfer_event_create(NULL, &plan->ready[i]));
        TRY(gpu_transfer_event_create(NULL, &plan->copied[i]));
    }
    for (int k = 0; k < plan->cfg.n_params; k++) {
        TRY(gpu_transfer_event_create(NULL, &plan->params[k].loaded));
        TRY(gpu_transfer_event_create(NULL, &plan->params[k].staged));
    }
    TRY(blocks_pin(plan));
    TRY(staging_create(plan));
    TRY(parts_create(plan));
done:
    return st;
}

static void event_destroy(cudaEvent_t event)
{
    if (event != NULL)
        cudaEventDestroy(event);
}

void gpu_transfer_destroy(struct gpu_plan *plan)
{
    for (int k = 0; plan->params != NULL && k < plan->cfg.n_params; k++) {
        const struct gpu_param *p = &plan->params[k];
        event_destroy(p->loaded);
        event_destroy(p->staged);
        for (int64_t part = 0; p->fetched != NULL && part < p->n_parts; part++)
            event_destroy(p->fetched[part]);
        free(p->fetched);
    }
    for (int i = 0; plan->used != NULL && i < plan->cfg.n_layers; i++)
        event_destroy(plan->used[i]);
    for (int i = 0; plan->ready != NULL && i < plan->cfg.n_layers; i++)
        event_destroy(plan->ready[i]);
    for (int i = 0; plan->copied != NULL && i < plan->cfg.n_layers; i++)
        event_destroy(plan->copied[i]);
    event_destroy(plan->result_ready);
    event_destroy(plan->input_read);
    if (plan->suspect != NULL)
        cudaFreeHost(plan->suspect);
    if (plan->staging != NULL)
        cudaFreeHost(plan->staging);
    if (plan->pins.n > 0 || plan->pins.ranges != NULL)
        gpu_pin_release(&plan->pins);
}

static enum status copy_elems(const struct gpu_op *op, void *to, const void *from, int64_t elems,
                              enum cudaMemcpyKind way, cudaStream_t stream)
{
    if (elems == 0)
        return ST_OK;
    return gpu_check_cuda(op, "cudaMemcpyAsync",
                          cudaMemcpyAsync(to, from, (size_t)elems * sizeof(float), way, stream));
}

enum status gpu_transfer_wait_params(struct gpu_plan *plan, int layer, unsigned flags)
{
    enum status st = ST_OK;
    const struct layer *l = &plan->cfg.layers[layer];
    for (int k = 0; k < l->n_params; k++)
        TRY(gpu_check_cuda(
            &plan->ops[layer], "cudaStreamWaitEvent",
            cudaStreamWaitEvent(plan->compute, plan->params[l->param[k]].loaded, flags)));
done:
    return st;
}

/* The elements of a range [lo, hi) that are also in [first, end), as a range of bytes. */
struct cut {
    size_t lo, n;
};

static struct cut cut_to(int64_t lo, int64_t hi, int64_t first, int64_t end, size_t size)
{
    lo = lo > first ? lo : first;
    hi = hi < end ? hi : end;
    return (struct cut){(size_t)lo * size, hi > lo ? (size_t)(hi - lo) * size : 0};
}

/* Moves the head and the tail of elements [lo, hi) of a parameter to staging memory, after earlier
 * copies from there have ended, and queues their copies to the device. */
static enum status upload_staged(struct gpu_plan *plan, const struct gpu_param *p,
                                 const uint8_t *host, int64_t lo, int64_t hi)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[p->layer];
    size_t skipped = (size_t)p->in.middle * sizeof(float);
    struct cut cut[] = {cut_to(lo, hi, 0, p->in.head, sizeof(float)),
                        cut_to(lo, hi, p->in.head + p->in.middle, p->elems, sizeof(float))};
    if (cut[0].n + cut[1].n == 0)
        return ST_OK;
    TRY(gpu_check_cuda(op, "cudaEventSynchronize", cudaEventSynchronize(p->staged)));
    for (int k = 0; k < 2; k++) {
        if (cut[k].n == 0)
            continue;
        uint8_t *at = p->staged_in + cut[k].lo - (k == 0 ? 0 : skipped);
        memcpy(at, host + cut[k].lo, cut[k].n);
        TRY(gpu_check_cuda(op, "cudaMemcpyAsync",
                           cudaMemcpyAsync((uint8_t *)p->d + cut[k].lo, at, cut[k].n,
                                           cudaMemcpyHostToDevice, plan->up)));
    }
    TRY(gpu_check_cuda(op, "cudaEventRecord", cudaEventRecord(p->staged, plan->up)));
done:
    return st;
}

/* Queues the copy of elements [lo, hi) of a parameter to the device. */
static enum status upload(struct gpu_plan *plan, int param, int64_t lo, int64_t hi)
{
    enum status st = ST_OK;
    const struct gpu_param *p = &plan->params[param];
    const uint8_t *host = (const uint8_t *)plan->cfg.params[param];
    if (p->layer < 0)
        return ST_OK;
    const struct gpu_op *op = &plan->ops[p->layer];
    struct cut middle = cut_to(lo, hi, p->in.head, p->in.head + p->in.middle, sizeof(float));
    TRY(gpu_check_cuda(op, "cudaStreamWaitEvent",
                       cudaStreamWaitEvent(plan->up, plan->used[p->layer], 0)));
    TRY(upload_staged(plan, p, host, lo, hi));
    if (middle.n > 0)
        TRY(gpu_check_cuda(op, "cudaMemcpyAsync",
                           cudaMemcpyAsync((uint8_t *)p->d + middle.lo, host + middle.lo, middle.n,
                                           cudaMemcpyHostToDevice, plan->up)));
    TRY(gpu_check_cuda(op, "cudaEventRecord", cudaEventRecord(p->loaded, plan->up)));
done:
    return st;
}

enum status gpu_transfer_upload(struct gpu_plan *plan, int param)
{
    return upload(plan, param, 0, plan->params[param].elems);
}

enum status gpu_transfer_upload_part(struct gpu_plan *plan, int param, int64_t part)
{
    return upload(plan, param, part * plan->parts.elems,
                  part_end(plan, &plan->params[param], part));
}

/* Queues a copy. `to` and `from`: addresses of the start of the cut. */
static enum status cut_copy(struct gpu_plan *plan, const struct gpu_op *op, uint8_t *to,
                            const uint8_t *from, struct cut c)
{
    if (c.n == 0)
        return ST_OK;
    return gpu_check_cuda(op, "cudaMemcpyAsync",
                          cudaMemcpyAsync(to, from, c.n, cudaMemcpyDeviceToHost, plan->down));
}

enum status gpu_transfer_download_part(struct gpu_plan *plan, int param, const void *d, int64_t lo,
                                       int64_t hi)
{
    enum status st = ST_OK;
    const struct gpu_param *p = &plan->params[param];
    const struct gpu_op *op = &plan->ops[p->layer];
    const uint8_t *from = d;
    size_t size = grad_size(plan), skipped = (size_t)p->out.middle * size;
    int64_t behind = p->out.head + p->out.middle;
    struct cut head = cut_to(lo, hi, 0, p->out.head, size);
    struct cut middle = cut_to(lo, hi, p->out.head, behind, size);
    struct cut tail = cut_to(lo, hi, behind, p->elems, size);
    TRY(cut_copy(plan, op, p->staged_out + head.lo, from + head.lo, head));
    TRY(cut_copy(plan, op, grad_host(plan, param) + middle.lo, from + middle.lo, middle));
    TRY(cut_copy(plan, op, p->staged_out + tail.lo - skipped, from + tail.lo, tail));
done:
    return st;
}

void gpu_transfer_download_place(struct gpu_plan *plan, int param, int64_t lo, int64_t hi)
{
    const struct gpu_param *p = &plan->params[param];
    uint8_t *host = grad_host(plan, param);
    size_t size = grad_size(plan), skipped = (size_t)p->out.middle * size;
    struct cut head = cut_to(lo, hi, 0, p->out.head, size),
               tail = cut_to(lo, hi, p->out.head + p->out.middle, p->elems, size);
    if (head.n > 0)
        memcpy(host + head.lo, p->staged_out + head.lo, head.n);
    if (tail.n > 0)
        memcpy(host + tail.lo, p->staged_out + tail.lo - skipped, tail.n);
}

/* Queues the rounding of the gradient on `down`. */
static enum status grad_round(struct gpu_plan *plan, const struct gpu_param *p)
{
    const struct gpu_op *op = &plan->ops[p->layer];
    if (plan->cfg.grads_dtype == DTYPE_F16)
        return gpu_check_kernel(op, "rounding kernel",
                                gpu_cast_half(plan->down, p->d_grad, p->d_grad16, p->elems));
    return gpu_check_kernel(op, "rounding kernel",
                            gpu_cast_down(plan->down, p->d_grad, p->d_grad16, p->elems));
}

/* Queues the copy of a part of a gradient. from: address of element 0 of the gradient, even if the
 * part does not contain it. */
static enum status part_send(struct gpu_plan *plan, int param, const void *from, int64_t part)
{
    enum status st = ST_OK;
    const struct gpu_param *p = &plan->params[param];
    int64_t at = part == 0 ? 0 : part_end(plan, p, part - 1);
    TRY(gpu_transfer_download_part(plan, param, from, at, part_end(plan, p, part)));
    if (p->fetched != NULL)
        TRY(gpu_check_cuda(&plan->ops[p->layer], "cudaEventRecord",
                           cudaEventRecord(p->fetched[part], plan->down)));
done:
    return st;
}

enum status gpu_transfer_fetch(struct gpu_plan *plan, int param, int64_t part)
{
    enum status st = ST_OK;
    const struct gpu_param *p = &plan->params[param];
    const struct gpu_op *op = &plan->ops[p->layer];
    if (part == 0)
        TRY(gpu_check_cuda(op, "cudaStreamWaitEvent",
                           cudaStreamWaitEvent(plan->down, plan->ready[p->layer], 0)));
    TRY(part_send(plan, param, p->d_grad, part));
    if (part == p->n_parts - 1)
        TRY(gpu_check_cuda(op, "cudaEventRecord",
                           cudaEventRecord(plan->copied[p->layer], plan->down)));
done:
    return st;
}

enum status gpu_transfer_download(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    const struct layer *l = op->layer;
    if (l->n_params == 0)
        return ST_OK;
    TRY(gpu_check_cuda(op, "cudaStreamWaitEvent",
                       cudaStreamWaitEvent(plan->down, plan->ready[layer], 0)));
    for (int k = 0; k < l->n_params; k++) {
        const struct gpu_param *p = &plan->params[l->param[k]];
        const void *from = p->d_grad16 != NULL ? (const void *)p->d_grad16 : p->d_grad;
        if (p->d_grad16 != NULL)
            TRY(grad_round(plan, p));
        for (int64_t part = 0; part < p->n_parts; part++)
            TRY(part_send(plan, l->param[k], from, part));
    }
    TRY(gpu_check_cuda(op, "cudaEventRecord", cudaEventRecord(plan->copied[layer], plan->down)));
done:
    return st;
}

enum status gpu_transfer_wait_download(struct gpu_plan *plan, int layer)
{
    enum status st = ST_OK;
    const struct gpu_op *op = &plan->ops[layer];
    const struct layer *l = op->layer;
    if (l->n_params == 0)
        return ST_OK;
    TRY(gpu_check_cuda(op, "cudaEventSynchronize", cudaEventSynchronize(plan->copied[layer])));
    for (int k = 0; k < l->n_params; k++)
        gpu_transfer_download_place(plan, l->param[k], 0, plan->params[l->param[k]].elems);
done:
    return st;
}

enum status gpu_transfer_wait_part(struct gpu_plan *plan, int param, int64_t part)
{
    enum status st = ST_OK;
    const struct gpu_param *p = &plan->params[param];
    cudaEvent_t event = p->fetched != NULL ? p->fetched[part] : plan->copied[p->layer];
    TRY(gpu_check_cuda(&plan->ops[p->layer], "cudaEventSynchronize", cudaEventSynchronize(event)));
    gpu_transfer_download_place(plan, param, part * plan->parts.elems, part_end(plan, p, part));
done:
    return st;
}

enum status gpu_transfer_check(struct gpu_plan *plan, int layer)
{
    const struct gpu_op *op = &plan->ops[layer];
    struct gpu_finite f = {.n = op->layer->n_params, .limit = plan->parts.largest_grad};
    if (plan->suspect == NULL)
        return ST_OK;
    for (int k = 0; k < f.n; k++) {
        f.x[k] = plan->params[op->layer->param[k]].d_grad;
        f.elems[k] = plan->params[op->layer->param[k]].elems;
    }
    return gpu_check_kernel(
        op, "finite check kernel",
        gpu_finite_check(gpu_branch_stream(plan, layer), &f, &plan->suspect[layer]));
}

enum status gpu_transfer_checked(struct gpu_plan *plan, int layer, bool *suspect)
{
    enum status st = ST_OK;
    TRY(gpu_check_cuda(&plan->ops[layer], "cudaEventSynchronize",
                       cudaEventSynchronize(plan->ready[layer])));
    *suspect = plan->suspect[layer] != 0;
    plan->suspect[layer] = 0;
done:
    return st;
}

/* Copies a parameter to the host, after all queued work. dst may be pinned in part, so head, middle
 * and tail are copied separately. */
enum status gpu_transfer_read_param(struct gpu_plan *plan, int param, float *dst)
{
    enum status st = ST_OK;
    const struct gpu_param *p = &plan->params[param];
    if (p->layer < 0)
        return ST_OK;
    const struct gpu_op *op = &plan->ops[p->layer];
    struct gpu_pieces s = pieces_of(plan, dst, p->elems, sizeof(float));
    TRY(copy_elems(op, dst, p->d, s.head, cudaMemcpyDeviceToHost, plan->compute));
    TRY(copy_elems(op, dst + s.head, p->d + s.head, s.middle, cudaMemcpyDeviceToHost,
                   plan->compute));
    TRY(copy_elems(op, dst + s.head + s.middle, p->d + s.head + s.middle, s.tail,
                   cudaMemcpyDeviceToHost, plan->compute));
    TRY(gpu_check_cuda(op, "cudaStreamSynchronize", cudaStreamSynchronize(plan->compute)));
done:
    return st;
}
