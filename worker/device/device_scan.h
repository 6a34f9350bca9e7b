/* worker/device/device_scan.h - the GPUs of this machine as CUDA shows them, their load from NVML,
 * and the rule for an idle GPU.
 * Owns:    NVML while it is open. Threads: one at a time.
 * Errors:  none; a machine without GPUs is a scan with n = 0 and a reason. */
#ifndef WORKER_DEVICE_DEVICE_SCAN_H
#define WORKER_DEVICE_DEVICE_SCAN_H
#include "worker/device/device_info.h"

enum {
    /* A GPU is idle if no process computes on it, and its utilisation and used memory are at most
     * these bounds. Memory has two bounds, of which the larger applies, because the driver itself
     * uses some memory. */
    DEVICE_IDLE_PERCENT = 10,
    DEVICE_IDLE_MEMORY_MB = 1024,
    DEVICE_IDLE_MEMORY_PERCENT = 2,
    DEVICE_LABEL_SIZE = 3 * DEVICE_NAME_SIZE,
};

struct device_nvml;

struct device_scan {
    int n;
    struct device_info gpu[DEVICE_MAX];
    char why[2 * DEVICE_WHY_SIZE];  /* if n is 0: the reason */
    bool is_broken;                 /* if n is 0: the driver fails */
    int no_driver;                  /* if n is 0: libcuda is missing, or too old */
    char nvml_why[DEVICE_WHY_SIZE]; /* if nvml is NULL: the reason */
    struct device_nvml *nvml;
    /* number of all GPUs of the machine, even hidden ones, according to NVML; -1: unknown */
    int n_machine;
    /* value of CUDA_VISIBLE_DEVICES; NULL: not set; owned by the environment */
    const char *visible;
};

void device_scan_open(struct device_scan *out);
void device_scan_close(struct device_scan *s);
void device_scan_load(const struct device_scan *s, int i, struct device_load *out);
void device_scan_health(const struct device_scan *s, int i, struct device_health *out);
/* Returns true if the GPU is idle; otherwise why[DEVICE_WHY_SIZE] has the reason. Unknown values do
 * not make a GPU busy. */
bool device_scan_is_idle(const struct device_load *load, char *why);
/* Returns true if only the utilisation makes the GPU busy. The utilisation that NVML reports may be
 * a second old (and is 100 % just after the driver has started), so the job that used the GPU may
 * have ended. */
bool device_scan_may_lag(const struct device_load *load);
/* Writes a text such as "GPU 2 (NVIDIA H200, GPU-8932f937-..., 0000:3b:00.0)", of at most
 * DEVICE_LABEL_SIZE bytes. */
void device_scan_label(const struct device_info *d, char *out, size_t size);
/* Writes a clause about the devices that CUDA hides, which begins with "; "; writes "" if it hides
 * none. */
void device_scan_hidden(const struct device_scan *s, char *out, size_t size);

#endif
