/* worker/place/tower_plan.h - the towers of a worker: the device of each, and its part of the
 * worker's batch.
 *
 * Each GPU has `towers_per_gpu` towers. In the list of towers those on GPUs are first, then those
 * on the CPU. If there are GPU towers and CPU towers, the CPU's towers together get `cpu_batch`
 * samples, and the GPUs' towers all other samples. The numbers of samples of two GPU towers, or of
 * two CPU towers, differ by at most one. If cpu_batch is 0, the numbers of any two towers differ by
 * at most one. The division does not change which samples the worker reads (I6).
 * Threads: only the main thread.
 * Errors:  ST_INVALID, logged with the flag and the fix. */
#ifndef WORKER_PLACE_TOWER_PLAN_H
#define WORKER_PLACE_TOWER_PLAN_H
#include "kernels/backend.h"
#include "worker/device/device_info.h"

enum { TOWERS_MAX = 256 };

struct gpus;

/* All pointers are borrowed while the tower exists. */
struct tower_device {
    const struct backend *backend;
    int device;                    /* number of the device in the backend */
    const struct device_info *gpu; /* NULL: the CPU */
    int gpu_index;                 /* index of the GPU among the chosen GPUs */
    int n_threads;                 /* CPU: threads inside one operation */
    enum backend_precision precision;
    int deterministic;
    uint32_t tuning;
};

struct tower_spec {
    struct tower_device own;
    /* [n_others] devices of layers that are not on the tower's own device */
    const struct tower_device *others;
    int n_others;
    /* [n_layers] device of each layer. 0: the tower's own device; k: others[k-1]; NULL: all layers
     * are on the tower's own device */
    const uint8_t *stage_of;
    int first, n; /* part of the worker's batch: samples first to first + n - 1 */
};

struct tower_plan_request {
    const struct gpus *gpus; /* borrowed while the towers exist */
    const struct backend *cpu;
    int cpu_towers; /* number of CPU towers; 0: none if there are GPUs, otherwise one */
    int towers_per_gpu;
    int batch, cpu_batch;
    /* threads of a CPU tower; 0: the cores that GPU towers do not use, divided among CPU towers */
    int n_threads;
    int n_cores;
    /* requested precision; the CPU does not support tf32, and only some CPU models support bf16 */
    enum backend_precision precision;
    int deterministic;
    uint32_t tuning; /* GPUs: kernels/tuning.h */
};

struct tower_plan {
    int n, n_gpu; /* GPU towers are first */
    struct tower_spec tower[TOWERS_MAX];
};

enum status tower_plan_make(const struct tower_plan_request *r, struct tower_plan *out);
/* Returns the CPU's precision in a worker that also uses GPUs, if `precision` is requested. Logs a
 * line if the CPU does not support the requested precision. */
enum backend_precision tower_plan_cpu_precision(const struct backend *cpu,
                                                enum backend_precision precision);
/* Divides the samples [first, first + n) among the towers, in their order. */
void tower_plan_share(struct tower_spec *towers, int n_towers, int first, int n);

#endif
