/* worker/place/tower_plan.h - which towers a worker has: what each computes on, and which of the
 * samples of the worker's batch are its own.
 *
 * Each GPU has `towers_per_gpu` towers; behind them come those on the CPU. Where there are both,
 * the CPU's together have `cpu_batch` samples, and the GPUs' the others; within each kind, and
 * where cpu_batch is 0 among all, the parts differ by at most one. Which samples the worker reads
 * does not depend on any of this (I6).
 * Threads: none.
 * Errors:  ST_INVALID, logged with the flag and the fix. */
#ifndef WORKER_PLACE_TOWER_PLAN_H
#define WORKER_PLACE_TOWER_PLAN_H
#include "kernels/backend.h"
#include "worker/device/device_info.h"

enum { TOWERS_MAX = 256 };

struct gpus;

/* All borrowed while the tower lives. */
struct tower_device {
    const struct backend *backend;
    int device;                    /* the backend's number */
    const struct device_info *gpu; /* NULL: the CPU */
    int gpu_index;                 /* its place among the GPUs chosen */
    int n_threads;                 /* CPU: inside one operation */
    enum backend_precision precision;
    int deterministic;
    uint32_t tuning;
};

struct tower_spec {
    struct tower_device own;
    const struct tower_device *others; /* [n_others] for the layers that are placed there */
    int n_others;
    const uint8_t *stage_of; /* [n_layers] 0: its own device, k: others[k-1]; NULL: all its own */
    int first, n;            /* its samples of the batch: [first, first + n) */
};

struct tower_plan_request {
    const struct gpus *gpus; /* borrowed while the towers live */
    const struct backend *cpu;
    int cpu_towers; /* 0: none beside GPUs, one without */
    int towers_per_gpu;
    int batch, cpu_batch;
    int n_threads; /* of a CPU tower; 0: the cores that GPU towers leave, divided by CPU towers */
    int n_cores;
    enum backend_precision precision; /* the CPU has no tf32, and bf16 on some kinds */
    int deterministic;
    uint32_t tuning; /* GPUs: kernels/tuning.h */
};

struct tower_plan {
    int n, n_gpu; /* GPU towers come first */
    struct tower_spec tower[TOWERS_MAX];
};

enum status tower_plan_make(const struct tower_plan_request *r, struct tower_plan *out);
/* What a CPU beside GPUs computes in where this is asked for; a line says what it has not. */
enum backend_precision tower_plan_cpu_precision(const struct backend *cpu,
                                                enum backend_precision precision);
/* Deals the samples [first, first + n) out to neighbours. */
void tower_plan_share(struct tower_spec *towers, int n_towers, int first, int n);

#endif
