/* worker/place/tower_plan.c - decides the number of towers per device, their threads and precision,
 * and divides the batch among them. */
#include "worker/place/tower_plan.h"
#include "base/log.h"
#include "worker/device/gpus.h"

void tower_plan_share(struct tower_spec *towers, int n_towers, int first, int n)
{
    for (int i = 0; i < n_towers; i++) {
        int end = (int)((int64_t)n * (i + 1) / n_towers);
        towers[i].first = first + (int)((int64_t)n * i / n_towers);
        towers[i].n = first + end - towers[i].first;
    }
}

static enum status share_check(const struct tower_plan_request *r, int n_gpu, int n_cpu)
{
    int n = n_gpu + n_cpu;
    if (n > TOWERS_MAX) {
        LOG_E(
            "%d towers (%d on GPUs, %d on the CPU): at most %d are supported; use fewer --gpus, --towers_per_gpu or --towers",
            n, n_gpu, n_cpu, TOWERS_MAX);
        return ST_INVALID;
    }
    if (n > r->batch) {
        LOG_E("%d towers (%d on GPUs, %d on the CPU) cannot share a --batch_size of %d", n, n_gpu,
              n_cpu, r->batch);
        return ST_INVALID;
    }
    if (n_gpu == 0 || n_cpu == 0 || r->cpu_batch == 0)
        return ST_OK;
    if (r->cpu_batch < n_cpu || r->batch - r->cpu_batch < n_gpu) {
        LOG_E(
            "--cpu_batch_size: --batch_size=%d leaves %d samples for %d GPU %s and %d for %d CPU %s: each needs one at least",
            r->batch, r->batch - r->cpu_batch, n_gpu, n_gpu == 1 ? "tower" : "towers", r->cpu_batch,
            n_cpu, n_cpu == 1 ? "tower" : "towers");
        return ST_INVALID;
    }
    return ST_OK;
}

/* Returns bf16 only for a CPU model that supports it; every CPU supports fp32. */
enum backend_precision tower_plan_cpu_precision(const struct backend *cpu,
                                                enum backend_precision precision)
{
    if (precision == BACKEND_FP32)
        return BACKEND_FP32;
    if (precision == BACKEND_BF16 &&
        (cpu->has_precision == NULL || cpu->has_precision(BACKEND_BF16)))
        return BACKEND_BF16;
    LOG_I("--precision=%s: the CPU does not support products in this format; it computes in fp32",
          precision == BACKEND_TF32 ? "tf32" : "bf16");
    return BACKEND_FP32;
}

/* Returns the CPU's precision. If there are no GPUs, returns a requested bf16 even if the CPU does
 * not support it: then the backend refuses it, with the reason. */
static enum backend_precision cpu_precision(const struct tower_plan_request *r, int n_gpu)
{
    if (r->precision == BACKEND_BF16 && n_gpu == 0)
        return BACKEND_BF16;
    return tower_plan_cpu_precision(r->cpu, r->precision);
}

enum status tower_plan_make(const struct tower_plan_request *r, struct tower_plan *out)
{
    const struct devices *chosen = &r->gpus->chosen;
    int n_gpu = chosen->n * r->towers_per_gpu;
    int n_cpu = n_gpu > 0 || r->cpu_towers > 0 ? r->cpu_towers : 1;
    int n_threads = r->n_threads;
    enum status st = share_check(r, n_gpu, n_cpu);
    if (st != ST_OK)
        return st;
    if (n_threads == 0 && n_cpu > 0)
        n_threads = (r->n_cores - n_gpu) / n_cpu;
    enum backend_precision precision = n_cpu > 0 ? cpu_precision(r, n_gpu) : BACKEND_FP32;
    *out = (struct tower_plan){.n = n_gpu + n_cpu, .n_gpu = n_gpu};
    for (int i = 0; i < n_gpu; i++) {
        int gpu = i / r->towers_per_gpu;
        out->tower[i].own = (struct tower_device){.backend = r->gpus->backend,
                                                  .device = chosen->gpu[gpu].ordinal,
                                                  .gpu = &chosen->gpu[gpu],
                                                  .gpu_index = gpu,
                                                  .n_threads = 1,
                                                  .precision = r->precision,
                                                  .deterministic = r->deterministic,
                                                  .tuning = r->tuning};
    }
    for (int i = n_gpu; i < out->n; i++)
        out->tower[i].own = (struct tower_device){.backend = r->cpu,
                                                  .gpu_index = -1,
                                                  .n_threads = n_threads > 0 ? n_threads : 1,
                                                  .precision = precision};
    if (n_gpu > 0 && n_cpu > 0 && r->cpu_batch > 0) {
        tower_plan_share(out->tower, n_gpu, 0, r->batch - r->cpu_batch);
        tower_plan_share(out->tower + n_gpu, n_cpu, r->batch - r->cpu_batch, r->cpu_batch);
    } else {
        tower_plan_share(out->tower, out->n, 0, r->batch);
    }
    return ST_OK;
}
