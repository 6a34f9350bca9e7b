/* worker/device/device_nvml.h - load and health of GPUs from NVML (libnvidia-ml.so.1, a part of the
 * driver). The library is loaded by name, and may be missing. Every query searches NVML's current
 * list of GPUs again, because GPUs may disappear from the bus, and MIG instances may be created and
 * removed.
 * Owns:    NVML's initialisation.
 * Threads: one at a time. Errors: none logged. */
#ifndef WORKER_DEVICE_DEVICE_NVML_H
#define WORKER_DEVICE_DEVICE_NVML_H
#include "worker/device/device_info.h"

struct device_nvml;

/* Returns NULL and the reason in why[DEVICE_WHY_SIZE] if NVML is not available. */
struct device_nvml *device_nvml_open(char *why);
void device_nvml_close(struct device_nvml *nvml); /* NULL is fine */
/* Returns the number of GPUs of the machine, visible to CUDA or not; -1: unknown. */
int device_nvml_count(const struct device_nvml *nvml);
/* Reads the GPU's health, and marks values that NVML does not report as unknown. */
void device_nvml_health(const struct device_nvml *nvml, const struct device_info *device,
                        struct device_health *out);
/* Writes the driver's version, such as "550.54.15"; empty: unknown. */
void device_nvml_driver(const struct device_nvml *nvml, char *out, size_t size);
void device_nvml_load(const struct device_nvml *nvml, const struct device_info *device,
                      struct device_load *out);

#endif
