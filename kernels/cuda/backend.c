/* kernels/cuda/backend.c - the CUDA backend's table: checks arguments, and runs the layers of the
 * pass for the current number of samples. Each function of the table first selects the device,
 * because CUDA has a current device for each thread. */
#include "base/log.h"
#include "kernels/backend_abi.h"
#include "kernels/cuda/groups/group.h"
#include "kernels/cuda/memory/copy_rates.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/plan/branch.h"
#include "kernels/cuda/plan/edges.h"
#include "kernels/cuda/plan/layers.h"
#include "kernels/cuda/plan/libraries.h"
#include "kernels/cuda/plan/plan.h"
#include "kernels/cuda/plan/transfer.h"
#include "kernels/cuda/resident/resident.h"
#include "kernels/cuda/resident/updates.h"
#include "kernels/device_report.h"
#include "kernels/plan_check.h"
#include <stdio.h>
#include <string.h>

static struct gpu_plan *gpu_plan_of(struct plan *p)
{
    return (struct gpu_plan *)p;
}

static int n_devices(void)
{
    int n = 0, driver = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code == cudaSuccess)
        return n;
    /* if there is no driver, CUDA reports that the driver is too old */
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
        LOG_I("CUDA backend: no device: there is no NVIDIA driver on this machine");
    } else {
        int runtime = 0;
        (void)cudaRuntimeGetVersion(&runtime);
        LOG_W(
            "CUDA backend: no device: %s (%s; the driver supports CUDA up to %d.%d, this build has %d.%d)%s",
            cudaGetErrorString(code), cudaGetErrorName(code), driver / 1000, driver % 1000 / 10,
            runtime / 1000, runtime % 1000 / 10, gpu_check_advice(code));
    }
    (void)cudaGetLastError();
    return 0;
}

static enum status device_check(int device)
{
    int n = n_devices();
    if (device >= 0 && device < n)
        return ST_OK;
    LOG_E("CUDA backend: there is no device %d; the number of devices is %d", device, n);
    return ST_NOT_FOUND;
}

static enum status device_info(int device, struct backend_device *out)
{
    enum status st = ST_OK;
    struct cudaDeviceProp prop;
    TRY(device_check(device));
    TRY(gpu_check_cuda(NULL, "cudaGetDeviceProperties", cudaGetDeviceProperties(&prop, device)));
    *out = (struct backend_device){
        .pci = {prop.pciDomainID, prop.pciBusID, prop.pciDeviceID},
        .memory_bytes = prop.totalGlobalMem,
    };
    _Static_assert(sizeof out->uuid == sizeof prop.uuid, "both have 16 bytes");
    memcpy(out->uuid, &prop.uuid, sizeof out->uuid);
    snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, prop.name);
done:
    return st;
}

/* Refuses bf16 below compute capability 8.0. Otherwise cuBLAS and cuDNN would refuse bf16 in the
 * middle of a step. */
static enum status precision_check(int device, enum backend_precision precision)
{
    enum status st = ST_OK;
    struct cudaDeviceProp prop;
    if (precision != BACKEND_BF16)
        return ST_OK;
    TRY(gpu_check_cuda(NULL, "cudaGetDeviceProperties", cudaGetDeviceProperties(&prop, device)));
    if (prop.major < 8) {
        LOG_E(
            "--precision=bf16: GPU %d (%s) has compute capability %d.%d, and products in bf16 need 8.0 or newer; use --precision=fp32, or another card (--gpus)",
            device, prop.name, prop.major, prop.minor);
        return ST_UNSUPPORTED;
    }
done:
    return st;
}

static int has_precision(enum backend_precision precision)
{
    int n = n_devices();
    for (int device = 0; device < n; device++)
        if (precision_check(device, precision) != ST_OK)
            return 0;
    return 1;
}

static enum status set_memory(int device, uint64_t limit_bytes, int reserve)
{
    enum status st = ST_OK;
    TRY(device_check(device));
    TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(device)));
    TRY(gpu_memory_set_limit(device, limit_bytes, reserve));
done:
    return st;
}

static enum status config_check(const struct backend_plan_config *cfg)
{
    enum status st = ST_OK;
    if (cfg->n_layers < 1 || cfg->batch < 1) {
        LOG_E("CUDA backend: %d layers, batch %d: both must be above 0", cfg->n_layers, cfg->batch);
        return ST_UNSUPPORTED;
    }
    if ((unsigned)cfg->precision > BACKEND_BF16) {
        LOG_E("CUDA backend: precision %d is unknown", (int)cfg->precision);
        return ST_UNSUPPORTED;
    }
    if (cfg->parts != NULL &&
        (cfg->group != NULL || cfg->parts->elems < 1 || !(cfg->parts->largest_grad >= 0))) {
        LOG_E("CUDA backend: parts of %lld elements%s are not supported",
              (long long)cfg->parts->elems, cfg->group != NULL ? " of a group" : "");
        return ST_UNSUPPORTED;
    }
    TRY(plan_check_layers(cfg, "CUDA"));
    if (cfg->group != NULL && cfg->mine != NULL) {
        LOG_E("CUDA backend: a plan with only a part of the layers cannot be in a group");
        return ST_UNSUPPORTED;
    }
    if (cfg->grads16 != NULL &&
        (cfg->group != NULL || (cfg->grads_dtype != DTYPE_BF16 && cfg->grads_dtype != DTYPE_F16))) {
        LOG_E(
            "CUDA backend: gradients in %s%s are not supported; a plan outside a group supports bf16 and fp16",
            dtype_name(cfg->grads_dtype), cfg->group != NULL ? " of a group" : "");
        return ST_UNSUPPORTED;
    }
    TRY(device_check(cfg->device));
    TRY(precision_check(cfg->device, cfg->precision));
done:
    return st;
}

static enum status plan_create(const struct backend_plan_config *cfg, struct plan **out)
{
    enum status st = ST_OK;
    struct gpu_plan *plan;
    TRY(config_check(cfg));
    TRY(gpu_plan_create(cfg, &plan));
    *out = (struct plan *)plan;
done:
    return st;
}

static void plan_destroy(struct plan *p)
{
    gpu_plan_destroy(gpu_plan_of(p));
}

static size_t plan_memory_bytes(const struct plan *p)
{
    const struct gpu_plan *plan = (const struct gpu_plan *)p;
    return (size_t)(plan->arena.bytes + gpu_resident_bytes(plan->resident) +
                    gpu_updates_bytes(plan->updates));
}

static enum status device_select(const struct gpu_plan *plan)
{
    return gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(plan->cfg.device));
}

static enum status load_param(struct plan *p, int param)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(param >= 0 && param < plan->cfg.n_params);
    TRY(device_select(plan));
    TRY(gpu_transfer_upload(plan, param));
done:
    return st;
}

static enum status set_input(struct plan *p, const uint8_t *const *images, const uint8_t *labels,
                             const uint64_t *position, int n)
{
    enum status st = ST_OK;
    TRY(device_select(gpu_plan_of(p)));
    TRY(gpu_input_images(gpu_plan_of(p), images, labels, position, n));
done:
    return st;
}

static enum status set_floats(struct plan *p, const float *const *samples, const int32_t *labels,
                              const uint64_t *position, int n)
{
    enum status st = ST_OK;
    TRY(device_select(gpu_plan_of(p)));
    TRY(gpu_input_floats(gpu_plan_of(p), samples, labels, position, n));
done:
    return st;
}

static enum status set_targets(struct plan *p, const float *const *targets, int n)
{
    enum status st = ST_OK;
    TRY(device_select(gpu_plan_of(p)));
    TRY(gpu_input_targets(gpu_plan_of(p), targets, n));
done:
    return st;
}

static enum status set_items(struct plan *p, const struct backend_data *d, const uint32_t *item,
                             const uint64_t *position, int n)
{
    enum status st = ST_OK;
    TRY(device_select(gpu_plan_of(p)));
    TRY(gpu_input_items(gpu_plan_of(p), (const struct gpu_input_data *)d, item, position, n));
done:
    return st;
}

static enum status forward_layer(struct plan *p, int layer, int train)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && plan->node[layer].mine);
    if (gpu_layer_forward_is_queued(plan, layer, train))
        return ST_OK;
    TRY(device_select(plan));
    TRY(gpu_layer_forward(plan, layer, train));
done:
    return st;
}

static enum status backward_layer(struct plan *p, int layer)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && plan->node[layer].mine);
    const struct gpu_op *op = &plan->ops[layer];
    if (plan->cfg.inference_only || (layer_is_loss(op->layer->kind) && !plan->has_labels)) {
        LOG_E("layer '%s': a backward pass needs a training plan and labels", op->layer->name);
        return ST_UNSUPPORTED;
    }
    if (!op->needs_backward)
        return ST_OK;
    int is_queued = gpu_layer_backward_is_queued(plan, layer);
    if (is_queued && op->layer->n_params == 0)
        return ST_OK;
    TRY(device_select(plan));
    if (!is_queued)
        TRY(gpu_layer_backward(plan, layer));
    if (gpu_updates_are_on(plan->updates)) /* then the caller requests each copy of gradients */
        return ST_OK;
    TRY(plan->member != NULL ? gpu_group_arrive(plan, layer) : gpu_transfer_download(plan, layer));
done:
    return st;
}

static enum status wait_grads(struct plan *p, int layer)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers);
    TRY(device_select(plan));
    TRY(plan->member != NULL ? gpu_group_wait(plan, layer)
                             : gpu_transfer_wait_download(plan, layer));
done:
    return st;
}

static enum status wait_part(struct plan *p, int param, int64_t part)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(param >= 0 && param < plan->cfg.n_params && plan->params[param].layer >= 0);
    CHECK(part >= 0 && part < plan->params[param].n_parts);
    TRY(device_select(plan));
    TRY(gpu_transfer_wait_part(plan, param, part));
done:
    return st;
}

static enum status load_part(struct plan *p, int param, int64_t part)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(param >= 0 && param < plan->cfg.n_params);
    CHECK(part >= 0 && part < plan->params[param].n_parts);
    TRY(device_select(plan));
    TRY(gpu_transfer_upload_part(plan, param, part));
done:
    return st;
}

static enum status check_grads(struct plan *p, int layer, bool *suspect)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && plan->suspect != NULL);
    TRY(device_select(plan));
    TRY(gpu_transfer_checked(plan, layer, suspect));
done:
    return st;
}

static enum status read_result(struct plan *p, float *loss, int *n_correct)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    const struct layer *last = &plan->cfg.layers[plan->cfg.n_layers - 1];
    if (!layer_is_loss(last->kind) || !plan->has_labels ||
        !plan->node[plan->cfg.n_layers - 1].mine) {
        LOG_E("layer '%s': results need labels, and a loss as the last layer of this plan",
              last->name);
        return ST_UNSUPPORTED;
    }
    TRY(device_select(plan));
    TRY(gpu_check_cuda(&plan->ops[plan->cfg.n_layers - 1], "cudaEventSynchronize",
                       cudaEventSynchronize(plan->result_ready)));
    const int32_t *hit = (const int32_t *)(plan->host_result + plan->now->n);
    double sum = 0.0;
    int hits = 0;
    for (int i = 0; i < plan->now->n; i++) {
        sum += plan->host_result[i];
        hits += hit[i];
    }
    *loss = (float)(sum / plan->now->n);
    *n_correct = hits;
done:
    return st;
}

static enum status group_create(const struct backend_group_config *cfg, struct backend_group **out)
{
    enum status st = ST_OK;
    struct gpu_group *g;
    int n = n_devices();
    for (int r = 0; r < cfg->n; r++)
        if (cfg->device[r] < 0 || cfg->device[r] >= n) {
            LOG_E("CUDA backend: there is no device %d; the number of devices is %d",
                  cfg->device[r], n);
            return ST_NOT_FOUND;
        }
    TRY(gpu_group_create(cfg, &g));
    *out = (struct backend_group *)g;
done:
    return st;
}

static void group_destroy(struct backend_group *g)
{
    gpu_group_destroy((struct gpu_group *)g);
}

static void group_cancel(struct backend_group *g)
{
    gpu_group_cancel((struct gpu_group *)g);
}

static enum status read_output(struct plan *p, int layer, float *dst)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers);
    TRY(device_select(plan));
    TRY(gpu_edges_read_output(plan, layer, dst));
done:
    return st;
}

static enum status set_output(struct plan *p, int layer, const float *src)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && graph_imported(&plan->node[layer]));
    TRY(device_select(plan));
    TRY(gpu_edges_set_output(plan, layer, src));
done:
    return st;
}

static enum status set_output_grad(struct plan *p, int layer, const float *src)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && graph_exported(&plan->node[layer]));
    TRY(device_select(plan));
    TRY(gpu_edges_set_output_grad(plan, layer, src));
done:
    return st;
}

static enum status read_output_grad(struct plan *p, int layer, float *dst)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && graph_imported(&plan->node[layer]));
    TRY(device_select(plan));
    TRY(gpu_edges_read_output_grad(plan, layer, dst));
done:
    return st;
}

static enum status finish_plan(struct plan *p)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    cudaStream_t streams[] = {plan->up, plan->compute, plan->down};
    TRY(device_select(plan));
    for (size_t k = 0; k < sizeof streams / sizeof *streams; k++)
        TRY(gpu_check_cuda(NULL, "cudaStreamSynchronize", cudaStreamSynchronize(streams[k])));
    TRY(gpu_branch_finish(plan));
done:
    return st;
}

static void host_moves(struct plan *p, const void *at, size_t bytes, int on)
{
    const struct gpu_range moved = {(uintptr_t)at, (uintptr_t)at + bytes};
    if (device_select(gpu_plan_of(p)) == ST_OK) /* otherwise the next call fails, too */
        gpu_pin_suspend(&gpu_plan_of(p)->pins, moved, on);
}

/* ---- kernels/resident.h ---- */

static enum status resident_begin(struct plan *p, const struct resident_config *cfg)
{
    enum status st = device_select(gpu_plan_of(p));
    return st == ST_OK ? gpu_resident_begin(gpu_plan_of(p), cfg) : st;
}

static enum status resident_order(struct plan *p, uint64_t pass, const uint32_t *item)
{
    enum status st = device_select(gpu_plan_of(p));
    return st == ST_OK ? gpu_resident_order(gpu_plan_of(p), pass, item) : st;
}

static enum status resident_run(struct plan *p, int n)
{
    enum status st = device_select(gpu_plan_of(p));
    return st == ST_OK ? gpu_resident_run(gpu_plan_of(p), n) : st;
}

static enum status resident_wait(struct plan *p, struct resident_result *out)
{
    enum status st = device_select(gpu_plan_of(p));
    return st == ST_OK ? gpu_resident_wait(gpu_plan_of(p), out) : st;
}

static enum status read_param(struct plan *p, int param, float *dst)
{
    enum status st = device_select(gpu_plan_of(p));
    CHECK(param >= 0 && param < gpu_plan_of(p)->cfg.n_params);
    return st == ST_OK ? gpu_transfer_read_param(gpu_plan_of(p), param, dst) : st;
}

static int is_graph(const struct plan *p)
{
    return gpu_resident_is_graph((const struct gpu_plan *)p);
}

static const struct resident_ops resident = {
    .begin = resident_begin,
    .order = resident_order,
    .run = resident_run,
    .wait = resident_wait,
    .read_param = read_param,
    .is_graph = is_graph,
};

/* ---- kernels/device_updates.h ---- */

static enum status updates_begin(struct plan *p, const struct device_updates_config *cfg)
{
    enum status st = device_select(gpu_plan_of(p));
    return st == ST_OK ? gpu_updates_begin(gpu_plan_of(p), cfg) : st;
}

static enum status updates_run(struct plan *p, uint64_t step)
{
    enum status st = device_select(gpu_plan_of(p));
    return st == ST_OK ? gpu_updates_run(gpu_plan_of(p), step) : st;
}

static void updates_end(struct plan *p)
{
    gpu_updates_end(gpu_plan_of(p)->updates);
}

static enum status updates_fetch(struct plan *p, int param, int64_t part)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(param >= 0 && param < plan->cfg.n_params && plan->params[param].layer >= 0);
    CHECK(part >= 0 && part < plan->params[param].n_parts);
    TRY(device_select(plan));
    TRY(gpu_transfer_fetch(plan, param, part));
done:
    return st;
}

static enum status updates_digests(struct plan *p, int param, int64_t part, uint64_t step,
                                   const uint64_t **out)
{
    enum status st = ST_OK;
    struct gpu_plan *plan = gpu_plan_of(p);
    CHECK(param >= 0 && param < plan->cfg.n_params && plan->params[param].layer >= 0);
    CHECK(part >= 0 && part < plan->params[param].n_parts);
    TRY(device_select(plan));
    TRY(gpu_updates_digests(plan, (struct gpu_updates_part){param, part}, step, out));
done:
    return st;
}

static const struct device_updates_ops updates = {
    .begin = updates_begin,
    .end = updates_end,
    .run = updates_run,
    .fetch = updates_fetch,
    .digests = updates_digests,
};

static const struct parts_ops parts = {wait_part, check_grads, load_part};

static enum status copy_rates(int device, size_t bytes, struct copy_rates *out)
{
    enum status st = ST_OK;
    TRY(device_check(device));
    TRY(gpu_check_cuda(NULL, "cudaSetDevice", cudaSetDevice(device)));
    TRY(gpu_copy_rates(device, bytes, out));
done:
    return st;
}

static const struct device_report report = {gpu_libraries, gpu_memory_set_users, copy_rates};

/* Libraries with their versions; written once, when the shared object is loaded. */
static char description[96];

__attribute__((constructor)) static void description_fill(void)
{
    size_t dnn = cudnnGetVersion();
    int runtime = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    snprintf(description, sizeof description, "CUDA %d.%d, cuDNN %zu.%zu.%zu", runtime / 1000,
             runtime % 1000 / 10, dnn / 10000, dnn / 100 % 100, dnn % 100);
}

BACKEND_ABI_EXPORT;
extern const struct backend weir_backend;
const struct backend weir_backend = {
    .name = "cuda",
    .description = description,
    .grads16 = 1,
    .n_devices = n_devices,
    .has_precision = has_precision,
    .plan_create = plan_create,
    .plan_destroy = plan_destroy,
    .plan_memory_bytes = plan_memory_bytes,
    .load_param = load_param,
    .set_input = set_input,
    .set_floats = set_floats,
    .set_targets = set_targets,
    .forward = forward_layer,
    .backward = backward_layer,
    .result = read_result,
    .read_output = read_output,
    .set_output = set_output,
    .set_output_grad = set_output_grad,
    .read_output_grad = read_output_grad,
    .finish = finish_plan,
    .host_moves = host_moves,
    .wait_grads = wait_grads,
    .data_create = gpu_input_data_create,
    .data_destroy = gpu_input_data_destroy,
    .set_items = set_items,
    .device_info = device_info,
    .set_memory = set_memory,
    .group_create = group_create,
    .group_destroy = group_destroy,
    .group_cancel = group_cancel,
    .parts = &parts,
    .resident = &resident,
    .report = &report,
    .updates = &updates,
};
