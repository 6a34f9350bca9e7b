/* worker/place/batch_split.c - builds the tables of devices and stages for the towers, and replaces
 * all towers by one that spans devices if the placement requires it. See batch_split.h. */
#include "worker/place/batch_split.h"
#include "base/log.h"
#include <stdlib.h>

struct batch_split {
    struct tower_device *devices; /* [n_devices] the CPU, then the GPUs by number */
    int n_devices;
    uint8_t *stage_of; /* [towers][layers] */
};

static enum status no_memory(const struct batch_split_request *r, const struct tower_plan *t)
{
    LOG_E("out of memory for the placement of %d layers in %d towers", r->n_layers, t->n);
    return ST_NOMEM;
}

/* Lists the CPU, and each GPU with the settings of its first tower. */
static enum status list_devices(const struct batch_split_request *r, const struct tower_plan *t,
                                struct batch_split *s)
{
    s->devices = calloc((size_t)t->n_gpu + 1, sizeof *s->devices);
    s->stage_of = calloc((size_t)t->n * (size_t)r->n_layers, 1);
    if (!s->devices || !s->stage_of)
        return no_memory(r, t);
    s->devices[s->n_devices++] =
        (struct tower_device){.backend = r->cpu, .gpu_index = PLACEMENT_CPU};
    for (int i = 0; i < t->n_gpu; i++)
        if (t->tower[i].own.gpu_index == s->n_devices - 1)
            s->devices[s->n_devices++] = t->tower[i].own;
    return ST_OK;
}

/* Replaces all towers by one tower, which computes the whole batch. */
static enum status join_towers(const struct batch_split_request *r, const struct batch_split *s,
                               struct tower_plan *t)
{
    int n_gpus = s->n_devices - 1;
    if (t->n > n_gpus) {
        LOG_E(
            "layers are placed on GPUs by number, so this worker is one tower over all its devices, but the flags request %d towers on the CPU and %d on %d %s; remove --towers and --towers_per_gpu, or place layers on 'gpu', which names the own GPU of each tower",
            t->n - t->n_gpu, t->n_gpu, n_gpus, n_gpus == 1 ? "GPU" : "GPUs");
        return ST_INVALID;
    }
    for (int k = 0; k < n_gpus; k++) {
        int n = 0;
        for (int i = 0; i < r->n_layers; i++)
            n += placement_device(r->placement, i, 0) == k;
        if (n == 0)
            LOG_W("GPU %d ('%s') computes nothing: no layer is placed on it",
                  s->devices[1 + k].gpu->ordinal, s->devices[1 + k].gpu->name);
    }
    t->n = t->n_gpu = 1;
    tower_plan_share(t->tower, 1, 0, r->batch);
    return ST_OK;
}

int batch_split_n_elsewhere(const struct tower_spec *t, int n_layers)
{
    int n = 0;
    for (int i = 0; t->stage_of && i < n_layers; i++)
        n += t->stage_of[i] != 0;
    return n;
}

static void place_tower(const struct batch_split_request *r, const struct batch_split *s,
                        uint8_t *stage_of, struct tower_spec *t)
{
    for (int i = 0; i < r->n_layers; i++) {
        int device = placement_device(r->placement, i, t->own.gpu_index);
        stage_of[i] = device == t->own.gpu_index ? 0 : (uint8_t)(1 + (device - PLACEMENT_CPU));
    }
    t->stage_of = stage_of;
    if (batch_split_n_elsewhere(t, r->n_layers) == 0) {
        t->stage_of = NULL;
        return;
    }
    t->others = s->devices;
    t->n_others = s->n_devices;
}

static bool any_on_cpu(const struct batch_split_request *r, const struct tower_plan *t)
{
    for (int i = 0; i < t->n; i++)
        for (int k = 0; t->tower[i].stage_of && k < r->n_layers; k++)
            if (t->tower[i].stage_of[k] == 1)
                return true;
    return false;
}

/* Returns the CPU's precision. If the CPU has towers, this is the precision of these towers, which
 * was logged before. Otherwise, if layers are placed on the CPU, it is logged here. */
static enum backend_precision cpu_precision(const struct batch_split_request *r,
                                            const struct tower_plan *t)
{
    if (t->n > t->n_gpu)
        return t->tower[t->n_gpu].own.precision;
    return any_on_cpu(r, t) ? tower_plan_cpu_precision(r->cpu, r->precision) : BACKEND_FP32;
}

enum status batch_split_create(const struct batch_split_request *r, struct tower_plan *towers,
                               struct batch_split **out)
{
    enum status st = ST_OK;
    struct batch_split *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory(r, towers);
    TRY(list_devices(r, towers, s));
    if (placement_spans(r->placement))
        TRY(join_towers(r, s, towers));
    int n_threads = r->n_threads > 0 ? r->n_threads : r->n_cores / towers->n;
    s->devices[0].n_threads = n_threads > 0 ? n_threads : 1;
    for (int i = 0; i < towers->n; i++)
        place_tower(r, s, s->stage_of + (size_t)i * (size_t)r->n_layers, &towers->tower[i]);
    s->devices[0].precision = cpu_precision(r, towers);
done:
    if (st == ST_OK)
        *out = s;
    else
        batch_split_destroy(s);
    return st;
}

void batch_split_destroy(struct batch_split *s)
{
    if (!s)
        return;
    free(s->devices);
    free(s->stage_of);
    free(s);
}
