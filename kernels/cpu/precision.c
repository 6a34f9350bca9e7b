/* kernels/cpu/precision.c - chooses the layers that multiply in bf16 when the caller requests it.
 *
 * In a job, the first worker measures which layers are faster in bf16 (worker/place/rounding.h),
 * and all workers use its choice through set_rounded: the bits depend on the choice (I2, I8), and
 * two measurements may differ. Without set_rounded, a rule on the layer's shape decides. The rule
 * follows measurements on CPUs with AMX and on Zen (bench/results/2026-11-23-bf16-cpu.md). In bf16
 * a convolution of at least 4 channels needs about 0.6 of its time in floats. If there are fewer
 * channels (as in the first convolution of an image), either oneDNN's gradient kernels are slower
 * than those for floats, or the conversions to bf16 cost more time than bf16 saves. A dense layer
 * must convert its weights in each step, so bf16 is faster only from about ten thousand weights
 * on. */
#include "kernels/cpu/precision.h"
#include "base/log.h"
#include <stdio.h>

enum { LEAST_CHANNELS = 4, LEAST_WEIGHTS = 32768 };

int cpu_precision_has_bf16(void)
{
    /* this condition is also true on CPUs with AMX; oneDNN's function respects the environment
     * variable ONEDNN_MAX_CPU_ISA */
    return ((int)dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
}

dnnl_data_type_t cpu_precision_product_type(const struct cpu_plan *plan, const struct layer *l)
{
    int pays = (l->kind == LAYER_CONV2D && l->in.dim[0] >= LEAST_CHANNELS) ||
               (l->kind == LAYER_DENSE && shape_elems(&l->in) * l->out.dim[0] >= LEAST_WEIGHTS);
    if (plan->rounded)
        pays = plan->rounded[l - plan->cfg.layers];
    return pays && plan->cfg.precision == BACKEND_BF16 ? dnnl_bf16 : dnnl_f32;
}

void cpu_precision_log(const struct cpu_plan *plan)
{
    char names[400] = "";
    size_t at = 0;
    int n = 0, n_products = 0;
    if (plan->cfg.precision != BACKEND_BF16)
        return;
    for (int i = 0; i < plan->cfg.n_layers; i++) {
        const struct layer *l = &plan->cfg.layers[i];
        if (!plan->node[i].mine)
            continue;
        n_products += l->kind == LAYER_CONV2D || l->kind == LAYER_DENSE;
        if (cpu_precision_product_type(plan, l) != dnnl_bf16)
            continue;
        int written = snprintf(names + at, sizeof names - at, "%s%s", n++ > 0 ? ", " : "", l->name);
        at += (size_t)written < sizeof names - at ? (size_t)written : 0;
    }
    LOG_I(
        "CPU: --precision=bf16: %d of %d dense and convolution layers compute in bf16%s%s; Weir chose them by their shapes",
        n, n_products, n > 0 ? ": " : "", names);
}
