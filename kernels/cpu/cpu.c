/* kernels/cpu/cpu.c - the oneDNN backend's table: creates plans, checks arguments, and runs the
 * layers of the pass for the current number of samples. Each function of the table first sets the
 * number of threads for the calling thread (OpenMP stores it per thread), so that plans with
 * different numbers of threads coexist. */
#include "base/log.h"
#include "kernels/backend_abi.h"
#include "kernels/cpu/edges.h"
#include "kernels/cpu/kinds.h"
#include "kernels/cpu/precision.h"
#include "kernels/plan_check.h"
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cpu_plan *cpu_plan_of(struct plan *p)
{
    return (struct cpu_plan *)p;
}

/* Library, its version and the instruction set in use; written once, when the shared object is
 * loaded. */
static char description[64];

__attribute__((constructor)) static void description_fill(void)
{
    const dnnl_version_t *v = dnnl_version();
    int isa = (int)dnnl_get_effective_cpu_isa();
    /* `isa` has one bit for each instruction set that the CPU supports */
    const char *simd = "";
    if ((isa & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx)
        simd = ", AMX";
    else if (cpu_precision_has_bf16())
        simd = ", AVX512_BF16";
    else if ((isa & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core)
        simd = ", AVX-512";
    else if ((isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2)
        simd = ", AVX2";
    snprintf(description, sizeof description, "oneDNN v%d.%d.%d%s", v->major, v->minor, v->patch,
             simd);
}

static int n_devices(void)
{
    return 1;
}

static int has_precision(enum backend_precision precision)
{
    return precision == BACKEND_FP32 || (precision == BACKEND_BF16 && cpu_precision_has_bf16());
}

static enum status config_check(const struct backend_plan_config *cfg)
{
    if (cfg->n_layers < 1 || cfg->batch < 1 || cfg->n_threads < 1 || cfg->device != 0) {
        LOG_E(
            "CPU backend: %d layers, batch %d, %d threads, device %d: the first three must be above 0, and the device must be 0",
            cfg->n_layers, cfg->batch, cfg->n_threads, cfg->device);
        return ST_UNSUPPORTED;
    }
    if ((cfg->precision != BACKEND_FP32 && cfg->precision != BACKEND_BF16) ||
        cfg->memory_limit_bytes != 0) {
        LOG_E("CPU backend: tf32 and a memory limit are not supported; request neither");
        return ST_UNSUPPORTED;
    }
    if (cfg->precision == BACKEND_BF16 && !cpu_precision_has_bf16()) {
        LOG_E(
            "--precision=bf16: oneDNN finds neither AVX512_BF16 nor AMX on this CPU (%s), and without them bf16 is slower than fp32; use --precision=fp32",
            description);
        return ST_UNSUPPORTED;
    }
    if (cfg->grads16 != NULL || cfg->parts != NULL) {
        LOG_E("CPU backend: gradients are supported only in fp32, and not in parts");
        return ST_UNSUPPORTED;
    }
    return plan_check_layers(cfg, "CPU");
}

static void plan_destroy(struct plan *p)
{
    struct cpu_plan *plan = cpu_plan_of(p);
    if (plan == NULL)
        return;
    cpu_pass_destroy(plan->pass[1]);
    cpu_pass_destroy(plan->pass[0]);
    if (plan->stream != NULL)
        dnnl_stream_destroy(plan->stream);
    if (plan->engine != NULL)
        dnnl_engine_destroy(plan->engine);
    free(plan->node);
    free(plan->position);
    free(plan->rounded);
    free(plan->labels);
    free(plan->targets);
    free(plan);
}

static enum status rounded_copy(struct cpu_plan *plan, const uint8_t *rounded)
{
    size_t n = (size_t)plan->cfg.n_layers;
    if (rounded == NULL)
        return ST_OK;
    if (plan->rounded == NULL)
        plan->rounded = malloc(n);
    if (plan->rounded == NULL) {
        LOG_E("CPU backend: no memory left for a list of %zu layers", n);
        return ST_NOMEM;
    }
    memcpy(plan->rounded, rounded, n);
    return ST_OK;
}

static enum status plan_create(const struct backend_plan_config *cfg, struct plan **out)
{
    enum status st = ST_OK;
    struct cpu_plan *plan = NULL;
    TRY(config_check(cfg));
    omp_set_num_threads(cfg->n_threads);
    plan = calloc(1, sizeof *plan);
    if (plan != NULL) {
        plan->cfg = *cfg;
        plan->node = calloc((size_t)cfg->n_layers, sizeof *plan->node);
        plan->labels = calloc((size_t)cfg->batch, sizeof *plan->labels);
        plan->position = calloc((size_t)cfg->batch, sizeof *plan->position);
    }
    if (plan == NULL || plan->node == NULL || plan->labels == NULL || plan->position == NULL) {
        LOG_E("CPU backend: no memory left for a plan of batch %d", cfg->batch);
        st = ST_NOMEM;
        goto done;
    }
    TRY(rounded_copy(plan, cfg->rounded));
    graph_fill(cfg, plan->node);
    plan->image_readers = graph_image_readers(cfg);
    TRY(cpu_pass_status(NULL, "start", dnnl_engine_create(&plan->engine, dnnl_cpu, 0)));
    TRY(cpu_pass_status(
        NULL, "start", dnnl_stream_create(&plan->stream, plan->engine, dnnl_stream_default_flags)));
    TRY(cpu_pass_create(plan, cfg->batch, &plan->pass[0]));
    plan->now = plan->pass[0];
    /* if `rounded` is set, the caller has chosen the layers in bf16, and has logged them */
    if (plan->rounded == NULL)
        cpu_precision_log(plan);
    *out = (struct plan *)plan;
done:
    if (st != ST_OK)
        plan_destroy((struct plan *)plan);
    return st;
}

static size_t plan_memory_bytes(const struct plan *p)
{
    const struct cpu_plan *plan = (const struct cpu_plan *)p;
    return plan->pass[0]->bytes + (plan->pass[1] != NULL ? plan->pass[1]->bytes : 0);
}

static enum status load_param(struct plan *p, int param)
{
    enum status st = ST_OK;
    struct cpu_plan *plan = cpu_plan_of(p);
    omp_set_num_threads(plan->cfg.n_threads);
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        const struct layer *l = &plan->cfg.layers[i];
        int has_it = 0;
        for (int k = 0; k < l->n_params; k++)
            has_it |= l->param[k] == param;
        for (int s = 0; has_it && plan->node[i].mine && s < 2; s++) {
            struct cpu_pass *pass = plan->pass[s];
            if (pass != NULL && pass->ops[i].kind->load != NULL)
                TRY(pass->ops[i].kind->load(pass, i));
        }
    }
done:
    return st;
}

/* Destroys both passes and creates the first one again, which also reads and packs the parameters
 * again. */
static enum status set_rounded(struct plan *p, const uint8_t *rounded)
{
    enum status st = ST_OK;
    struct cpu_plan *plan = cpu_plan_of(p);
    omp_set_num_threads(plan->cfg.n_threads);
    if (rounded == NULL) {
        free(plan->rounded);
        plan->rounded = NULL;
    }
    TRY(rounded_copy(plan, rounded));
    for (int s = 0; s < 2; s++) {
        cpu_pass_destroy(plan->pass[s]);
        plan->pass[s] = plan->now = NULL;
    }
    TRY(cpu_pass_create(plan, plan->cfg.batch, &plan->pass[0]));
    plan->now = plan->pass[0];
    if (rounded == NULL)
        cpu_precision_log(plan);
done:
    return st;
}

/* Selects the pass for n samples; creates it if it does not exist. */
static enum status pass_select(struct cpu_plan *plan, int n)
{
    enum status st = ST_OK;
    struct cpu_pass *fresh;
    if (n == plan->cfg.batch) {
        plan->now = plan->pass[0];
        return ST_OK;
    }
    if (plan->pass[1] == NULL || plan->pass[1]->n != n) {
        TRY(cpu_pass_create(plan, n, &fresh));
        cpu_pass_destroy(plan->pass[1]);
        plan->pass[1] = fresh;
    }
    plan->now = plan->pass[1];
done:
    return st;
}

CPU_CLONES static void pixels_scale(const uint8_t *src, float *dst, int64_t n)
{
    for (int64_t k = 0; k < n; k++)
        dst[k] = (float)src[k] / 255.0f;
}

static enum status label_check(const struct cpu_plan *plan, int label)
{
    const struct layer *last = &plan->cfg.layers[plan->cfg.n_layers - 1];
    if (!layer_is_loss(last->kind) || (label >= 0 && label < shape_elems(&last->in)))
        return ST_OK;
    LOG_E(
        "layer '%s': a sample has label %d, but there are only %lld classes; the model does not fit the data",
        last->name, label, (long long)shape_elems(&last->in));
    return ST_RANGE;
}

/* Does everything that set_input does, except for setting the samples and labels. */
static enum status input_begin(struct cpu_plan *plan, const uint64_t *position, int n)
{
    enum status st = ST_OK;
    omp_set_num_threads(plan->cfg.n_threads);
    TRY(pass_select(plan, n));
    for (int i = 0; i < plan->cfg.n_layers; i++)
        plan->now->ops[i].n_given = 0;
    for (int i = 0; i < n; i++)
        plan->position[i] = position != NULL ? position[i] : (uint64_t)i;
done:
    return st;
}

static enum status samples_check(const struct cpu_plan *plan, int n)
{
    if (n >= 1 && n <= plan->cfg.batch)
        return ST_OK;
    LOG_E("CPU backend: %d samples, but the plan accepts 1 to %d", n, plan->cfg.batch);
    return ST_RANGE;
}

static enum status set_input(struct plan *p, const uint8_t *const *images, const uint8_t *labels,
                             const uint64_t *position, int n)
{
    enum status st = ST_OK;
    struct cpu_plan *plan = cpu_plan_of(p);
    int64_t pixels = shape_elems(&plan->cfg.layers[0].in);
    TRY(samples_check(plan, n));
    for (int i = 0; labels != NULL && i < n; i++)
        TRY(label_check(plan, labels[i]));
    if (plan->image_readers > 0)
        TRY(plan_check_numbers(&plan->cfg, images, n));
    TRY(input_begin(plan, position, n));
    for (int i = 0; i < n && plan->image_readers > 0; i++)
        pixels_scale(images[i], plan->now->input.data + i * pixels, pixels);
    plan->has_labels = labels != NULL;
    plan->has_targets = 0;
    for (int i = 0; labels != NULL && i < n; i++)
        plan->labels[i] = labels[i];
done:
    return st;
}

static enum status set_floats(struct plan *p, const float *const *samples, const int32_t *labels,
                              const uint64_t *position, int n)
{
    enum status st = ST_OK;
    struct cpu_plan *plan = cpu_plan_of(p);
    int64_t elems = shape_elems(&plan->cfg.layers[0].in);
    TRY(samples_check(plan, n));
    for (int i = 0; labels != NULL && i < n; i++)
        TRY(label_check(plan, labels[i]));
    if (plan->image_readers > 0)
        TRY(plan_check_floats(&plan->cfg, samples, n));
    TRY(input_begin(plan, position, n));
    for (int i = 0; i < n && plan->image_readers > 0; i++)
        memcpy(plan->now->input.data + i * elems, samples[i], (size_t)elems * sizeof(float));
    plan->has_labels = labels != NULL;
    plan->has_targets = 0;
    if (labels != NULL)
        memcpy(plan->labels, labels, (size_t)n * sizeof *labels);
done:
    return st;
}

static enum status set_targets(struct plan *p, const float *const *targets, int n)
{
    enum status st = ST_OK;
    struct cpu_plan *plan = cpu_plan_of(p);
    size_t elems = (size_t)shape_elems(&plan->cfg.layers[plan->cfg.n_layers - 1].in);
    TRY(plan_check_targets(&plan->cfg, n, plan->now->n));
    if (plan->targets == NULL)
        plan->targets = malloc((size_t)plan->cfg.batch * elems * sizeof(float));
    if (plan->targets == NULL) {
        LOG_E("CPU backend: no memory left for the targets of a batch of %d", plan->cfg.batch);
        return ST_NOMEM;
    }
    for (int i = 0; i < n; i++)
        memcpy(plan->targets + (size_t)i * elems, targets[i], elems * sizeof(float));
    plan->has_labels = plan->has_targets = 1;
done:
    return st;
}

static enum status forward_layer(struct plan *p, int layer, int train)
{
    struct cpu_plan *plan = cpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && plan->node[layer].mine);
    omp_set_num_threads(plan->cfg.n_threads);
    return plan->now->ops[layer].kind->forward(plan->now, layer, train);
}

static enum status backward_layer(struct plan *p, int layer)
{
    enum status st = ST_OK;
    struct cpu_plan *plan = cpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && plan->node[layer].mine);
    const struct cpu_op *op = &plan->now->ops[layer];
    if (plan->cfg.inference_only || (layer_is_loss(op->layer->kind) && !plan->has_labels)) {
        LOG_E("layer '%s': a backward pass needs a training plan and labels", op->layer->name);
        return ST_UNSUPPORTED;
    }
    if (!op->needs_backward)
        return ST_OK;
    omp_set_num_threads(plan->cfg.n_threads);
    TRY(cpu_edges_run_dy(plan->now, layer));
    TRY(op->kind->backward(plan->now, layer));
done:
    return st;
}

static enum status read_result(struct plan *p, float *loss, int *n_correct)
{
    struct cpu_plan *plan = cpu_plan_of(p);
    const struct layer *last = &plan->cfg.layers[plan->cfg.n_layers - 1];
    if (!layer_is_loss(last->kind) || !plan->has_labels ||
        !plan->node[plan->cfg.n_layers - 1].mine) {
        LOG_E("layer '%s': results need labels, and a loss as the last layer of this plan",
              last->name);
        return ST_UNSUPPORTED;
    }
    cpu_loss_result(plan->now, loss, n_correct);
    return ST_OK;
}

static enum status read_output(struct plan *p, int layer, float *dst)
{
    struct cpu_plan *plan = cpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers);
    omp_set_num_threads(plan->cfg.n_threads);
    return cpu_edges_read_output(plan, layer, dst);
}

static enum status set_output(struct plan *p, int layer, const float *src)
{
    struct cpu_plan *plan = cpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && graph_imported(&plan->node[layer]));
    return cpu_edges_set_output(plan, layer, src);
}

static enum status set_output_grad(struct plan *p, int layer, const float *src)
{
    struct cpu_plan *plan = cpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && graph_exported(&plan->node[layer]));
    return cpu_edges_set_output_grad(plan, layer, src);
}

static enum status read_output_grad(struct plan *p, int layer, float *dst)
{
    struct cpu_plan *plan = cpu_plan_of(p);
    CHECK(layer >= 0 && layer < plan->cfg.n_layers && graph_imported(&plan->node[layer]));
    omp_set_num_threads(plan->cfg.n_threads);
    return cpu_edges_read_output_grad(plan, layer, dst);
}

static void spread_parts(int n_threads, int n, void (*part)(void *ctx, int k), void *ctx)
{
    int threads = cpu_threads(n_threads);
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int k = 0; k < n; k++)
        part(ctx, k);
}

BACKEND_ABI_EXPORT;
extern const struct backend weir_backend;
const struct backend weir_backend = {
    .name = "cpu",
    .description = description,
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
    .spread = spread_parts,
    .set_rounded = set_rounded,
};
