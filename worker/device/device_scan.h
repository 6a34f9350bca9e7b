/* worker/device/device_scan.h - the GPUs of this machine as CUDA shows them, with NVML beside it
 * to tell how busy each is, and the rule by which a GPU counts as idle.
 * Owns:    NVML while it is open. Threads: one at a time.
 * Errors:  none; a machine without GPUs is a scan with n = 0 and a reason. */
#ifndef WORKER_DEVICE_DEVICE_SCAN_H
#define WORKER_DEVICE_DEVICE_SCAN_H
#include "worker/device/device_info.h"

enum {
    /* Idle: no process computes on it, it was busy no more than this, */
    DEVICE_IDLE_PERCENT = 10,
    /* and used memory, some of which is the driver's own, is within both bounds' larger one. */
    DEVICE_IDLE_MEMORY_MB = 1024,
    DEVICE_IDLE_MEMORY_PERCENT = 2,
    DEVICE_LABEL_SIZE = 3 * DEVICE_NAME_SIZE,
};

struct device_nvml;

struct device_scan {
    int n;
    struct device_info gpu[DEVICE_MAX];
    char why[2 * DEVICE_WHY_SIZE];  /* n = 0: why there is none */
    int is_broken;                  /* n = 0: there is a driver, and it fails */
    int no_driver;                  /* n = 0: libcuda is missing, or too old */
    char nvml_why[DEVICE_WHY_SIZE]; /* nvml NULL: why not */
    struct device_nvml *nvml;
    int n_machine;       /* all cards, hidden ones too, by NVML; -1: not told */
    const char *visible; /* CUDA_VISIBLE_DEVICES; NULL: not set; the environment's */
};

void device_scan_open(struct device_scan *out);
void device_scan_close(struct device_scan *s);
void device_scan_load(const struct device_scan *s, int i, struct device_load *out);
void device_scan_health(const struct device_scan *s, int i, struct device_health *out);
/* 1, or 0 with why[DEVICE_WHY_SIZE]. What nobody can tell does not count against it. */
int device_scan_is_idle(const struct device_load *load, char *why);
/* 1: it is not idle for its utilisation alone, which NVML tells up to a second late (and as 100 %
 * where the driver has just started): a job that has ended may be all that is seen. */
int device_scan_may_lag(const struct device_load *load);
/* "GPU 2 (NVIDIA H200, GPU-8932f937-..., 0000:3b:00.0)"; DEVICE_LABEL_SIZE holds it. */
void device_scan_label(const struct device_info *d, char *out, size_t size);
/* What CUDA does not show, as a clause that begins with "; "; else "". */
void device_scan_hidden(const struct device_scan *s, char *out, size_t size);

#endif
