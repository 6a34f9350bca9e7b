/* worker/device/device_nvml.h - how busy GPUs are, from NVML (libnvidia-ml.so.1, which comes with
 * the driver). Loaded by name; a machine without it is fine. Every question goes through NVML's
 * present list of cards anew, because cards fall off the bus and MIG instances come and go.
 * Owns:    NVML's initialisation. Threads: one at a time. Errors: none logged. */
#ifndef WORKER_DEVICE_DEVICE_NVML_H
#define WORKER_DEVICE_DEVICE_NVML_H
#include "worker/device/device_info.h"

struct device_nvml;

/* NULL: why[DEVICE_WHY_SIZE] says why there is none. */
struct device_nvml *device_nvml_open(char *why);
void device_nvml_close(struct device_nvml *nvml); /* NULL is fine */
/* All cards of the machine, visible to CUDA or not; -1: not told. */
int device_nvml_count(const struct device_nvml *nvml);
/* What it does not tell is so marked. */
void device_nvml_health(const struct device_nvml *nvml, const struct device_info *device,
                        struct device_health *out);
/* "550.54.15"; empty: not told. */
void device_nvml_driver(const struct device_nvml *nvml, char *out, size_t size);
void device_nvml_load(const struct device_nvml *nvml, const struct device_info *device,
                      struct device_load *out);

#endif
